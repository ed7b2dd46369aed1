"""A fit that goes on from its checkpoints: on what it was begun with, or not at all."""

import dataclasses

import jax
import numpy as np
import pytest
from small import keys, problem, same

import jaxarch
from jaxarch.running import layout, programs
from jaxarch.search import two_temperature

SEARCH = two_temperature()
ONE = jax.devices()[:1]


class Interrupted(Exception):
    pass


def learned(**options):
    return jaxarch.over_seeds(SEARCH, keys(), problem(), chunk=4, **options)


def stop(border):
    raise Interrupted


@pytest.fixture
def begun(tmp_path):
    """Begin a fit with some options, and leave it at its first border."""

    def begin(**options):
        with pytest.raises(Interrupted):
            learned(checkpoint=jaxarch.Checkpoints(tmp_path), progress=stop, **options)
        return tmp_path

    return begin


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ({}, {"devices": ONE}, r"'scan' on 2 devices \(cpu\); loop 'auto' on 1 device \(cpu\) would end"),
        ({}, {"loop": "step"}, r"'scan' on 2 devices \(cpu\); loop 'step' on 2 devices"),
        ({"loop": "step"}, {"loop": "scan"}, r"'step' on 1 device \(cpu\); loop 'scan' on 2 devices"),
    ],
)
def test_a_fit_does_not_go_on_with_fewer_devices_or_another_loop(begun, before, after, message):
    folder = begun(**before)
    with pytest.raises(jaxarch.errors.ArgumentError, match=f"^checkpoint: .* was begun with loop {message}"):
        learned(checkpoint=jaxarch.Checkpoints(folder), **after)


def test_a_fit_does_not_go_on_on_devices_of_another_kind(begun, monkeypatch):
    folder = begun()
    saved = layout.Layout.saved
    elsewhere = lambda *args: dataclasses.replace(saved(*args), kind="NVIDIA H200")  # noqa: E731
    monkeypatch.setattr(layout.Layout, "saved", elsewhere)
    with pytest.raises(
        jaxarch.errors.ArgumentError, match=r"on 2 devices \(NVIDIA H200\); loop 'auto' on 2 "
    ):
        learned(checkpoint=jaxarch.Checkpoints(folder))


@pytest.mark.parametrize(
    "before", [{"devices": ONE}, {"loop": "step"}, {"at_once": 2}, {"memory": 2 * 10**5}]
)
def test_a_fit_goes_on_with_the_width_the_devices_and_the_loop_that_it_was_begun_with(begun, before):
    whole, report = learned(**before)
    resumed, again = learned(checkpoint=jaxarch.Checkpoints(begun(**before)))
    assert same(resumed, whole)
    assert (again.width, again.stages[0].devices) == (report.width, report.stages[0].devices)


@pytest.mark.parametrize("changed", [{"width": 0}, {"width": -2}, {"width": 3}, {"devices": -1}])
def test_what_is_kept_of_the_devices_is_not_believed_where_it_cannot_be(begun, changed):
    checkpoint = jaxarch.Checkpoints(begun())
    name = "two_temperature layout"
    like = {"width": np.asarray(0), "devices": np.asarray(0), "kind": np.zeros(64, np.uint8)}
    kept = checkpoint.load(name, like)
    checkpoint.save(name, kept | {key: np.asarray(value) for key, value in changed.items()})
    with pytest.raises(jaxarch.errors.ArgumentError, match=r"^checkpoint: .* is damaged; use a fresh folder"):
        learned(checkpoint=checkpoint)


@pytest.mark.parametrize(
    "options",
    [
        {"progress": lambda told: None},
        {"chunk": 5},
        {"memory": 10**12},
        {"labels": list("abcd")},
        {"checkpoint": ()},
    ],
    ids=lambda options: next(iter(options)),
)
def test_what_says_only_how_to_watch_or_keep_a_fit_changes_no_bit(options, tmp_path):
    if "checkpoint" in options:
        options = {"checkpoint": jaxarch.Checkpoints(tmp_path)}
    assert same(jaxarch.over_seeds(SEARCH, keys(), problem(), **options)[0], learned()[0])


def test_memory_changes_bits_only_by_the_width_that_it_leads_to():
    scarce, report = learned(memory=2 * 10**5)
    assert report.width == 2
    assert same(scarce, learned(at_once=2)[0])


@pytest.mark.parametrize("loop", ["scan", "step"])
def test_a_fit_of_which_not_even_one_run_fits_is_refused_before_anything_is_compiled(loop, monkeypatch):
    monkeypatch.setattr(programs.Stopwatch, "compile", lambda *args: pytest.fail("was compiled"))
    with pytest.raises(
        jaxarch.errors.ArgumentError, match=r"^memory: one run needs 6\d.* KiB on a device, where 1 "
    ):
        learned(memory=1, loop=loop)


def test_memory_that_is_freed_by_fewer_devices_is_said():
    with pytest.raises(jaxarch.errors.ArgumentError, match=r"on each of 2; give fewer `devices`$"):
        learned(memory=1)


def test_what_a_program_puts_aside_counts_too():
    with pytest.raises(jaxarch.errors.ArgumentError, match=r"^memory: one run needs 1"):
        learned(memory=10**5)
