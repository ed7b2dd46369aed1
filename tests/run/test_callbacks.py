"""Callbacks of a user: what they see, what they may change, and what is refused."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import RUNS, Interrupted, keys, problem, same

import jaxarch
from jaxarch.search import dense, two_temperature

SEARCH = two_temperature()
RATES = {"rate": jnp.full(RUNS, 0.3, jnp.float32)}


def at_rate(settings):
    return dense(nonnegative=False, optimizer=optax.sgd(settings["rate"]))


def learned(*callbacks, strategy=SEARCH, learning=None, settings=None, **options):
    return jaxarch.over_seeds(
        strategy, keys(), learning or problem(), settings, chunk=4, callbacks=callbacks, **options
    )


def seen_by(look=lambda end: end, **options):
    """Return what a callback makes of each chunk's end, and what is found."""
    seen = []
    network, _ = learned(lambda end: seen.append(look(end)), **options)
    return seen, network


@pytest.mark.long
def test_a_callback_sees_the_losses_of_every_run_and_step():
    seen, network = seen_by(labels=tuple("abcd"))
    assert [(end.start, end.step, end.steps) for end in seen] == [(0, 4, 12), (4, 8, 12), (8, 12, 12)]
    for end in seen:
        assert end.labels == tuple("abcd")
        assert np.array_equal(end.losses, network.info["loss"][:, end.start : end.step])
        assert np.array_equal(end.history, network.info["loss"][:, : end.step])
        assert not end.history.flags.writeable
        assert end.running.tolist() == [True] * RUNS
        assert end.failed_at.tolist() == [-1] * RUNS
        assert end.settings is None


@pytest.mark.long
def test_a_callback_sees_settings_and_validation():
    seen, _ = seen_by(strategy=at_rate, settings=RATES, learning=problem(validation=True))
    assert all(np.array_equal(end.settings["rate"], RATES["rate"]) for end in seen)
    assert all(end.validation["loss"].shape == (RUNS,) for end in seen)
    assert np.isfinite([end.validation["loss"] for end in seen]).all()


def test_what_was_seen_stays_as_it_was():
    seen, _ = seen_by(lambda end: (end, end.losses.copy(), end.history.copy()))
    for end, losses, history in seen:
        assert np.array_equal(end.losses, losses)
        assert np.array_equal(end.history, history)


@pytest.mark.long
def test_a_callback_that_asks_gets_the_network_of_this_step():
    seen, network = seen_by(lambda end: (end.network(), end.densities()))
    shorter, _ = jaxarch.over_seeds(SEARCH, keys(), problem(steps=8), chunk=4)
    assert same(seen[1][0].params, shorter.params)
    assert np.array_equal(seen[-1][1], jax.vmap(jaxarch.density)(network.mask))


def test_a_callback_that_only_looks_changes_no_bit():
    assert same(seen_by(lambda end: end.network())[1], learned()[0])


def test_a_network_is_not_made_after_the_callback():
    (end, *_), _ = seen_by()
    with pytest.raises(jaxarch.ArgumentError, match=r"^callbacks: the network of a chunk's end is available"):
        end.network()


def stop_at_eight(end):
    return jaxarch.Decision(stop=end.step >= 8, note="eight steps will do" if end.step >= 8 else "")


@pytest.mark.long
def test_a_callback_that_stops_ends_the_training_there():
    network, report = learned(stop_at_eight)
    shorter, _ = jaxarch.over_seeds(SEARCH, keys(), problem(steps=8), chunk=4)
    assert same(network.info["loss"][:, :8], shorter.info["loss"])
    assert np.isnan(network.info["loss"][:, 8:]).all()
    assert report.notes == ("two_temperature: step 8: eight steps will do",)


@pytest.mark.long
def test_groups_of_runs_are_stopped_one_by_one():
    only_first = lambda end: jaxarch.Decision(stop=end.group == 0)  # noqa: E731
    network, _ = learned(only_first, strategy=at_rate, settings=RATES, max_parallel_runs=2)
    assert np.isfinite(network.info["loss"]).sum(1).tolist() == [4, 4, 12, 12]


def slower(end):
    return jaxarch.Decision(settings={"rate": end.settings["rate"] / 2})


@pytest.mark.long
@pytest.mark.parametrize(
    "options", [{}, {"max_parallel_runs": 3, "devices": jax.devices()[:1]}, {"loop": "step"}]
)
def test_settings_of_a_callback_are_those_of_the_next_chunk(options):
    changed, _ = learned(slower, strategy=at_rate, settings=RATES, **options)
    halved = lambda step, settings: {"rate": settings["rate"] / 2 ** (step // 4)}  # noqa: E731
    scheduled, _ = learned(strategy=at_rate, settings=RATES, schedule=halved, **options)
    assert same(changed, scheduled)


@pytest.mark.long
def test_new_settings_hold_from_the_first_step_of_the_next_chunk():
    changed, constant = (
        learned(*callbacks, strategy=at_rate, settings=RATES)[0].info["loss"] for callbacks in ([slower], [])
    )
    assert same(changed[:, :5], constant[:, :5])  # the loss of step 4 is before its update
    assert (changed[:, 5] != constant[:, 5]).all()


def test_callbacks_are_called_in_order_and_after_the_schedule():
    seen = []
    freeze = lambda end: jaxarch.Decision(settings={"rate": 0.0})  # noqa: E731
    options = {"strategy": at_rate, "settings": RATES}
    schedule = lambda step, settings: settings  # noqa: E731
    learned(slower, freeze, lambda end: seen.append(end.settings["rate"][0]), schedule=schedule, **options)
    assert seen == [np.float32(0.3), 0, 0]


def patient(end):
    """Stop as soon as the median loss of a chunk is above the one before, by the history alone."""
    chunks = np.median(end.history, axis=0).reshape(-1, 4).mean(1)
    return jaxarch.Decision(stop=len(chunks) > 1 and chunks[-1] > chunks[-2] - 0.3)


class InterruptAt:
    """A callback that interrupts at a step."""

    def __init__(self, step):
        self.step = step

    def __call__(self, end):
        if end.step == self.step:
            raise Interrupted


@pytest.mark.long
@pytest.mark.parametrize(
    ("callback", "options"),
    [
        (slower, {"strategy": at_rate, "settings": RATES}),
        (patient, {"learning": problem(steps=60)}),
        (slower, {"strategy": at_rate, "settings": RATES, "max_parallel_runs": 2}),
    ],
    ids=["settings", "stop", "groups"],
)
def test_a_fit_with_callbacks_goes_on_from_its_checkpoints_to_the_same_bits(callback, options, tmp_path):
    whole, _ = learned(callback, **options)
    with pytest.raises(Interrupted):
        learned(callback, InterruptAt(8), checkpoint=jaxarch.Checkpoints(tmp_path), **options)
    for _ in range(2):
        resumed, _ = learned(callback, checkpoint=jaxarch.Checkpoints(tmp_path), **options)
        assert same(resumed, whole)


def test_a_training_that_was_stopped_is_not_trained_on(tmp_path):
    stopped, _ = learned(stop_at_eight, checkpoint=jaxarch.Checkpoints(tmp_path))
    again, _ = learned(checkpoint=jaxarch.Checkpoints(tmp_path))
    assert same(again, stopped)


@pytest.mark.long
def test_every_training_of_a_chain_calls_them():
    seen, _ = seen_by(
        lambda end: (end.name, end.step),
        strategy=jaxarch.chain(SEARCH, jaxarch.threshold(), jaxarch.retrain("cold")),
    )
    assert [step for _, step in seen] == [4, 8, 12] * 2
    assert len({name for name, _ in seen}) == 2


def two_arguments(end, more):
    """Not a callback."""


@pytest.mark.parametrize(
    ("callbacks", "message"),
    [
        (3, "callbacks: expected a list of functions, got 3"),
        (stop_at_eight, "callbacks: expected a list of functions, got <function stop_at_eight"),
        ("stop", "callbacks: expected a list of functions, got 'stop'"),
        ([3], "callbacks: expected a function that takes a jaxarch.ChunkEnd, got 3"),
        (
            [InterruptAt],
            "callbacks: expected a function that takes a jaxarch.ChunkEnd, got the class InterruptAt",
        ),
        (
            [two_arguments],
            "callbacks: expected a function that takes a jaxarch.ChunkEnd, got one that cannot be",
        ),
    ],
)
def test_a_bad_callback_is_refused_before_anything_is_trained(callbacks, message):
    never = dataclasses.replace(problem(), loss=lambda *args: pytest.fail("was trained"))
    with pytest.raises(jaxarch.ArgumentError, match=f"^{message}"):
        jaxarch.over_seeds(SEARCH, keys(), never, callbacks=callbacks)


@pytest.mark.parametrize(
    ("callback", "message"),
    [
        (lambda end: True, "callbacks: expected <lambda> to return a jaxarch.Decision or None, got True"),
        (
            lambda end: jaxarch.Decision(settings={"rate": np.ones(3)}),
            "callbacks: <lambda>: expected it to return",
        ),
        (
            lambda end: jaxarch.Decision(settings={"hard": 1.0}),
            "callbacks: <lambda>: expected it to return settings",
        ),
        (lambda end: jaxarch.Decision(stop="yes"), "stop: expected True or False, got 'yes'"),
        (lambda end: jaxarch.Decision(note=3), "note: expected text, got 3"),
    ],
)
def test_what_a_callback_may_not_return_is_refused_in_one_line(callback, message):
    with pytest.raises(jaxarch.ArgumentError, match=f"^{message}"):
        learned(callback, strategy=at_rate, settings=RATES)
