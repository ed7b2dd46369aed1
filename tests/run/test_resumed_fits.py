"""A fit that goes on from its checkpoints: on what it was begun with, or not at all."""

import dataclasses

import jax
import numpy as np
import optax
import pytest
from small import Interrupted, digits, interrupt_at, keys, problem, same

import jaxarch
from jaxarch.run import _layout as layout
from jaxarch.run import _programs as programs
from jaxarch.search import dense, spectral, two_temperature

SEARCH = two_temperature()
ONE = jax.devices()[:1]


def learned(**options):
    return jaxarch.over_seeds(SEARCH, keys(), problem(), chunk=4, **options)


@pytest.fixture
def begun(tmp_path):
    """Begin a fit with some options, and leave it at its first border."""

    def begin(**options):
        with pytest.raises(Interrupted):
            learned(checkpoint=jaxarch.Checkpoints(tmp_path), progress=interrupt_at(4), **options)
        return tmp_path

    return begin


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            {},
            {"devices": ONE},
            r"'scan' on 2 devices \(cpu\); with loop 'auto' on 1 device \(cpu\) it would end",
        ),
        ({}, {"loop": "step"}, r"'scan' on 2 devices \(cpu\); with loop 'step' on 2 devices"),
        ({"loop": "step"}, {"loop": "scan"}, r"'step' on 1 device \(cpu\); with loop 'scan' on 2 devices"),
    ],
)
def test_a_fit_does_not_go_on_with_fewer_devices_or_another_loop(begun, before, after, message):
    folder = begun(**before)
    with pytest.raises(jaxarch.ArgumentError, match=f"^checkpoint: .* was started with loop {message}"):
        learned(checkpoint=jaxarch.Checkpoints(folder), **after)


def test_kinds_of_devices_that_differ_in_their_ends_alone_are_kept_apart():
    kinds = [f"{'an axis of a mesh, ' * 5}{end}" for end in ("rows", "columns", "ö" * 40)]
    kept = [layout._kept(kind) for kind in kinds]
    assert len(set(kept)) == 3
    assert max(len(kind.encode()) for kind in kept) <= layout.KIND_BYTES
    assert layout._kept("NVIDIA H200") == "NVIDIA H200"


def test_a_fit_does_not_go_on_on_devices_of_another_kind(begun, monkeypatch):
    folder = begun()
    saved = layout.Layout.saved
    elsewhere = lambda *args: dataclasses.replace(saved(*args), kind="NVIDIA H200")  # noqa: E731
    monkeypatch.setattr(layout.Layout, "saved", elsewhere)
    with pytest.raises(jaxarch.ArgumentError, match=r"on 2 devices \(NVIDIA H200\); with loop 'auto' on 2 "):
        learned(checkpoint=jaxarch.Checkpoints(folder))


@pytest.mark.long
@pytest.mark.parametrize(
    "before", [{"devices": ONE}, {"loop": "step"}, {"max_parallel_runs": 2}, {"memory": 2 * 10**5}]
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
    with pytest.raises(jaxarch.ArgumentError, match=r"^checkpoint: .* is damaged; use a fresh folder"):
        learned(checkpoint=checkpoint)


@pytest.mark.parametrize(
    "changed",
    [
        {"step": 10**6},
        {"step": -5},
        {"step": 3},
        {"seconds": np.nan},
        {"seconds": np.inf},
        {"seconds": -1.0},
    ],
    ids=lambda changed: str(*changed.items()),
)
def test_a_checkpoint_whose_step_or_seconds_cannot_be_is_refused(changed, tmp_path):
    checkpoint = jaxarch.Checkpoints(tmp_path)
    learned(checkpoint=checkpoint)
    path = checkpoint._path("two_temperature group 0")
    with np.load(path) as file:
        arrays = dict(file)
    replaced = {
        f"state/{name}": np.asarray(value, arrays[f"state/{name}"].dtype) for name, value in changed.items()
    }
    np.savez(path, **arrays | replaced)
    with pytest.raises(jaxarch.ArgumentError, match=r"^checkpoint: .* is damaged; use a fresh folder$"):
        learned(checkpoint=checkpoint)


def of_one_name(strategy, folder, problem=problem, settings=None):
    options = {"checkpoint": jaxarch.Checkpoints(folder), "chunk": 4, "dead_start": "ignore"}
    return jaxarch.over_seeds(strategy, keys(), problem(), settings, name="one", **options)


def neurons():
    model = jaxarch.spectral_network((64, 8, 1))
    return jaxarch.supervised(
        model,
        (digits().x[:40], digits().y[:40, None] / 10.0),
        loss=lambda outputs, y: (outputs - y)[:, 0] ** 2,
        optimizer=optax.sgd(0.1),
        steps=8,
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("first", "second", "problem"),
    [
        (lambda: two_temperature(50, 5), lambda: two_temperature(10, 1, mean=3), problem),
        (lambda: spectral(0.1), lambda: spectral(0.0), neurons),
        (lambda: dense(optimizer=optax.sgd(0.1)), lambda: dense(optimizer=optax.sgd(5.0)), problem),
    ],
    ids=["temperatures", "strength", "rate"],
)
def test_a_fit_goes_on_with_the_strategy_that_it_was_begun_with_alone(first, second, problem, tmp_path):
    whole = of_one_name(first(), tmp_path, problem)[0]
    with pytest.raises(jaxarch.ArgumentError, match="another strategy, problem, descent"):
        of_one_name(second(), tmp_path, problem)
    assert same(of_one_name(first(), tmp_path, problem)[0], whole)


@pytest.mark.long
def test_a_sweep_goes_on_with_the_strategy_that_it_was_begun_with_alone(tmp_path):
    hard = {"hard": np.asarray([10.0, 20.0, 30.0, 40.0])}
    sweep = lambda mean: lambda s: two_temperature(s["hard"], mean=mean)  # noqa: E731
    whole = of_one_name(sweep(-10), tmp_path, settings=hard)[0]
    with pytest.raises(jaxarch.ArgumentError, match="another strategy"):
        of_one_name(sweep(-9), tmp_path, settings=hard)
    assert same(of_one_name(sweep(-10), tmp_path, settings=hard)[0], whole)


def halved(params, state, batch, key):
    value, state = problem().loss(params, state, batch, key)
    return value / 2, state


@pytest.mark.parametrize(
    "other",
    [lambda: problem(rate=0.2), lambda: dataclasses.replace(problem(), loss=halved)],
    ids=["rate", "loss"],
)
def test_a_fit_does_not_go_on_with_another_descent_or_loss_of_the_problem(other, tmp_path):
    of_one_name(SEARCH, tmp_path)
    with pytest.raises(jaxarch.ArgumentError, match="another strategy, problem, descent"):
        of_one_name(SEARCH, tmp_path, other)


def slower(factor):
    return lambda step, settings: {"hard": settings["hard"] * factor}


@pytest.mark.long
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"early_stopping": jaxarch.EarlyStopping()}, {"early_stopping": jaxarch.EarlyStopping(patience=2)}),
        ({"schedule": slower(0.5)}, {"schedule": slower(0.25)}),
    ],
    ids=["early stopping", "schedule"],
)
def test_a_fit_does_not_go_on_with_another_schedule_or_early_stopping(first, second, tmp_path):
    options = {"checkpoint": jaxarch.Checkpoints(tmp_path), "dead_start": "ignore"}
    hard = {"hard": np.asarray([10.0, 20.0, 30.0, 40.0])}
    at = lambda s: two_temperature(s["hard"], mean=2.0)  # noqa: E731
    learning = problem(validation=True)
    whole, _ = jaxarch.over_seeds(at, keys(), learning, hard, **options, **first)
    with pytest.raises(jaxarch.ArgumentError, match=r"schedule or early stopping, .*; use a fresh folder"):
        jaxarch.over_seeds(at, keys(), learning, hard, **options, **second)
    assert same(jaxarch.over_seeds(at, keys(), learning, hard, **options, **first)[0], whole)


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


@pytest.mark.long
def test_memory_changes_bits_only_by_the_width_that_it_leads_to():
    scarce, report = learned(memory=2 * 10**5)
    assert report.width == 2
    assert same(scarce, learned(max_parallel_runs=2)[0])


@pytest.mark.parametrize("loop", ["scan", "step"])
def test_a_fit_of_which_not_even_one_run_fits_is_refused_before_anything_is_compiled(loop, monkeypatch):
    monkeypatch.setattr(programs.Stopwatch, "tracing", lambda *args: pytest.fail("was compiled"))
    with pytest.raises(jaxarch.ArgumentError, match=r"^memory: one run needs 6\d.* KiB on a device, but 1 "):
        learned(memory=1, loop=loop)


def test_memory_that_is_freed_by_fewer_devices_is_said():
    with pytest.raises(jaxarch.ArgumentError, match=r"on each of 2; give fewer `devices`$"):
        learned(memory=1)


def test_what_a_program_puts_aside_counts_too():
    with pytest.raises(jaxarch.ArgumentError, match=r"^memory: one run needs 1"):
        learned(memory=10**5)
