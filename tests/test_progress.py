"""The progress bar, on a terminal and off it."""

import io

from rich.console import Console
from small import keys, problem

import jaxarch


def shown(terminal, inside, **settings):
    text = io.StringIO()
    bar = jaxarch.ProgressBar(Console(file=text, force_terminal=terminal, width=120))
    search = jaxarch.search.two_temperature()
    options = {"progress": bar, "name": "bin", "chunk": 4} | settings
    if inside:
        with bar:
            jaxarch.over_seeds(search, keys(), problem(), **options)
    else:
        jaxarch.over_seeds(search, keys(), problem(), **options)
    return text.getvalue()


def test_on_a_terminal_there_is_a_bar_with_steps_and_loss():
    text = shown(terminal=True, inside=True)
    assert "bin: two_temperature" in text
    assert "12/12" in text
    assert "loss -" in text


def test_groups_of_runs_share_one_bar():
    text = shown(terminal=True, inside=True, at_once=2)
    assert "bin: two_temperature (2 of 2)" in text
    assert "24/24" in text
    assert "12/12" not in text


def test_off_a_terminal_there_is_one_line_a_training():
    assert shown(terminal=False, inside=True).startswith("bin: two_temperature: 12 steps, 4 runs, loss -")


def test_outside_of_its_block_the_bar_prints_lines():
    assert "steps" in shown(terminal=True, inside=False)
    assert "12/12" not in shown(terminal=True, inside=False)
