"""What a progress callback is told, and the progress bar, on a terminal and off it."""

import io
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from rich.console import Console
from small import RUNS, keys, problem, same

import jaxarch
from jaxarch.run import _progress


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


@pytest.mark.long
def test_on_a_terminal_there_is_a_bar_with_steps_and_loss():
    text = shown(terminal=True, inside=True)
    assert "bin: two_temperature" in text
    assert "12/12" in text
    assert "loss -" in text


def test_at_80_columns_a_long_name_is_cut_off_and_no_number_is():
    text = io.StringIO()
    with jaxarch.ProgressBar(Console(file=text, force_terminal=True, width=80)) as bar:
        bar(jaxarch.Progress("a name " * 20, 123400, 123400, 0, 1, 10, -1234.5))
    last = [line for line in text.getvalue().split("\n") if "a name" in line][-1]
    assert "…" in last
    assert "123400/123400" in last
    assert "loss -1.23e+03" in last


@pytest.mark.long
def test_a_training_is_said_to_compile_and_then_to_take_its_first_steps_with_its_memory():
    text = shown(terminal=True, inside=True)
    first = re.search(r"bin: two_temperature .* first steps, \S+ \S+ a device", text)
    assert "bin: two_temperature: compiling" in text[: first.start()]


@pytest.mark.long
def test_a_stage_that_does_not_train_has_a_line_on_a_terminal_while_it_runs():
    text = io.StringIO()
    with jaxarch.ProgressBar(Console(file=text, force_terminal=True, width=120)) as bar:
        jaxarch.over_seeds(jaxarch.search.snip(0.5), keys(), problem(), progress=bar, name="one")
        assert "one: snip" in text.getvalue()


@pytest.mark.parametrize(("patience", "lines"), [(0.0, 1), (60.0, 0)])
def test_off_a_terminal_a_long_wait_is_told_when_it_is_over(patience, lines, monkeypatch):
    monkeypatch.setattr(_progress, "PATIENCE", patience)
    text = io.StringIO()
    with jaxarch.ProgressBar(Console(file=text, width=120)) as bar:
        bar.doing("reading")
        assert text.getvalue() == ""
    assert text.getvalue() == "reading: 0 s\n" * lines


@pytest.mark.long
def test_groups_of_runs_share_one_bar():
    text = shown(terminal=True, inside=True, max_parallel_runs=2)
    assert "bin: two_temperature (2 of 2)" in text
    assert "24/24" in text
    assert "12/12" not in text


def test_off_a_terminal_there_is_one_line_a_training():
    assert shown(terminal=False, inside=True).startswith("bin: two_temperature: 12 steps, 4 runs, loss -")


def test_outside_of_its_block_the_bar_prints_lines():
    assert "steps" in shown(terminal=True, inside=False)
    assert "12/12" not in shown(terminal=True, inside=False)


ONE = jax.devices()[:1]
SEARCH = jaxarch.search.two_temperature()


def watched(look, strategy=SEARCH, **options):
    """What a callback makes of each border, and what is found."""
    seen = []
    network, _ = jaxarch.over_seeds(
        strategy, keys(), problem(), chunk=4, progress=lambda told: seen.append(look(told)), **options
    )
    return seen, network


def test_a_callback_is_told_every_run_s_loss_by_name():
    labels = tuple("abcd")
    seen, network = watched(lambda told: (told.step, told.losses, told.labels, told.loss), labels=labels)
    for step, losses, names, median in seen:
        assert np.array_equal(losses, network.info["loss"][:, step - 1])
        assert names == labels
        assert median == np.median(losses)
    assert [step for step, *_ in seen] == [4, 8, 12]


def test_a_callback_that_asks_is_told_every_run_s_density():
    seen, network = watched(lambda told: told.densities())
    assert all(densities.shape == (RUNS,) for densities in seen)
    assert len(np.unique(seen)) > RUNS
    assert np.array_equal(seen[-1], jax.vmap(jaxarch.density)(network.mask))


@pytest.mark.long
def test_runs_that_are_trained_in_groups_are_told_of_group_by_group():
    seen, network = watched(
        lambda told: (told.group, told.labels, told.densities()), max_parallel_runs=3, devices=ONE
    )
    (first, names, densities), (second, name, density) = seen[2], seen[5]
    assert (first, second) == (0, 1)
    assert (*names, *name) == ("run 0", "run 1", "run 2", "run 3")
    assert np.array_equal([*densities, *density], jax.vmap(jaxarch.density)(network.mask))


@pytest.mark.long
def test_what_would_be_found_at_a_border_is_what_a_training_of_so_many_steps_finds():
    seen, _ = watched(lambda told: told.network())
    shorter, _ = jaxarch.over_seeds(SEARCH, keys(), problem(steps=8), chunk=4)
    assert same(seen[1].mask, shorter.mask)
    assert same(seen[1].params, shorter.params)


def test_what_was_looked_at_stays_as_it_was_while_the_training_goes_on():
    seen, _ = watched(lambda told: (told.network(), jax.tree.map(np.array, told.network())))
    assert all(same(network, copy) for network, copy in seen)


def test_to_look_changes_no_bit():
    assert same(watched(lambda told: told.network())[1], watched(lambda told: None)[1])


def marked(key, problem, network):
    return network.replace(info=network.info | {"mark": jnp.ones(())})


@pytest.mark.long
def test_a_finish_is_told_of_all_that_the_stages_before_it_made():
    strategy = jaxarch.chain(SEARCH, marked, jaxarch.retrain("cold", nonnegative=False))
    seen, network = watched(lambda told: told.network(), strategy)
    assert same(seen[-1], network)
    assert same(seen[-1].mask, seen[2].mask)


class Beginnings:
    """A callback that is told of beginnings, and how many borders there had been by then."""

    def __init__(self):
        self.told, self.borders = [], 0

    def __call__(self, border):
        self.borders += 1

    def begins(self, plan):
        self.told.append((self.borders, plan))


@pytest.mark.long
@pytest.mark.parametrize("loop", ["scan", "step"])
def test_a_callback_that_asks_is_told_what_a_training_takes_before_its_first_step(loop):
    told = Beginnings()
    jaxarch.over_seeds(
        SEARCH, keys(), problem(), chunk=4, progress=told, devices=ONE, max_parallel_runs=1, loop=loop
    )
    [(borders, plan)] = told.told
    assert borders == 0
    assert (plan.name, plan.runs, plan.max_parallel_runs, plan.devices) == ("two_temperature", RUNS, 1, 1)
    needed = jaxarch.needed_memory(SEARCH, keys(), problem(), chunk=4, devices=ONE, loop=loop)
    assert plan.memory == needed["two_temperature"]
    assert plan.free > plan.memory.whole


def test_what_goes_on_from_a_checkpoint_is_not_told_of_again(tmp_path):
    for times in (1, 0):
        told = Beginnings()
        jaxarch.over_seeds(
            SEARCH, keys(), problem(), chunk=4, progress=told, checkpoint=jaxarch.Checkpoints(tmp_path)
        )
        assert len(told.told) == times


def test_without_a_mask_there_is_no_density():
    told = jaxarch.Progress("spectral", 1, 2, 0, 1, 4, 0.5, look=jaxarch.Network)
    assert told.densities() is None


def test_what_is_asked_for_too_late_is_refused_in_one_line():
    told, _ = watched(lambda told: told)
    by_hand = jaxarch.Progress("bin", 1, 2, 0, 1, 4, 0.5)
    for look in (told[0].network, told[0].densities, by_hand.network):
        with pytest.raises(
            jaxarch.ArgumentError, match=r"^progress: the network of a chunk's end is available"
        ):
            look()


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::jaxarch.NonFiniteWarning")
def test_a_run_that_failed_has_no_loss_and_the_others_have_theirs():
    rates = jnp.asarray([0.1, math.nan, 0.1, 0.1])
    seen, _ = watched(
        lambda told: np.isfinite(told.losses).tolist(),
        lambda rate: jaxarch.search.dense(nonnegative=False, optimizer=optax.sgd(rate)),
        settings=rates,
    )
    assert seen == [[True, False, True, True]] * 3
