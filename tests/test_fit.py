"""The loop: chunks, groups, devices, checkpoints, early stopping, schedules, and reports of mishaps."""

import dataclasses
import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import RUNS, close, keys, problem, same

import jaxarch
from jaxarch.search import real, two_temperature

SEARCH = two_temperature()


def learned(strategy=SEARCH, learning=None, **options):
    return jaxarch.over_seeds(strategy, keys(), learning or problem(), **options)


class Interrupted(Exception):
    pass


def interrupt_at(step):
    def progress(border):
        if border.step == step:
            raise Interrupted

    return progress


def test_every_run_has_a_result_and_the_loss_goes_down():
    found, report = learned(learning=problem(steps=60))
    assert found.mask["w1"].shape == (RUNS, 64, 64)
    assert found.mask["w1"].dtype == bool
    assert found.info["loss"].shape == (RUNS, 60)
    assert float(found.info["loss"][:, -5:].mean()) < float(found.info["loss"][:, :5].mean()) - 1
    assert report.width == RUNS
    assert report.stages[0].devices == 2
    assert report.seconds > 0


@pytest.mark.parametrize("chunk", [1, 5, 100])
def test_the_size_of_a_chunk_changes_nothing(chunk):
    assert same(learned(chunk=chunk)[0], learned(chunk=12)[0])


def test_the_host_loop_equals_the_pure_function_under_vmap():
    learning = problem()
    pure = jax.vmap(jaxarch.chain(SEARCH), in_axes=(0, learning.in_axes()))
    assert close(jax.jit(pure)(keys(), learning), learned(devices=jax.devices()[:1])[0])


def test_two_devices_give_the_bits_of_one_at_equal_width():
    two, _ = learned(at_once=4)
    one, report = learned(at_once=2, devices=jax.devices()[:1])
    assert report.width == 2
    assert same(two, one)


def test_runs_that_do_not_divide_by_the_devices_are_padded_and_dropped():
    learning = problem(runs=3)
    found, report = jaxarch.over_seeds(SEARCH, keys(3), learning)
    assert report.width == 4
    assert found.mask["w1"].shape[0] == 3
    whole, _ = jaxarch.over_seeds(SEARCH, keys(3), learning, devices=jax.devices()[:1])
    assert close(found.params, whole.params)


def test_groups_of_runs_give_what_all_at_once_give():
    grouped, report = learned(at_once=2)
    assert report.width == 2
    assert close(grouped, learned()[0])


def test_scarce_memory_makes_groups():
    _, roomy = learned(memory=10**12)
    _, scarce = learned(memory=1)
    assert roomy.width == RUNS
    assert scarce.width == 2


def test_steps_one_by_one_give_what_a_compiled_loop_gives():
    stepped, report = learned(loop="step")
    assert report.width == 1
    assert close(stepped, learned()[0])


def test_a_fit_that_was_interrupted_continues_to_the_same_bits(tmp_path):
    whole, _ = learned(chunk=4)
    with pytest.raises(Interrupted):
        learned(chunk=4, checkpoint=jaxarch.Checkpoints(tmp_path), progress=interrupt_at(12))
    steps = []
    resumed, _ = learned(
        chunk=4, checkpoint=jaxarch.Checkpoints(tmp_path), progress=lambda border: steps.append(border.step)
    )
    assert steps == [12]
    assert same(resumed, whole)


def test_a_chain_of_trainings_continues_within_its_second_training(tmp_path):
    strategy = jaxarch.chain(real(), jaxarch.threshold(), jaxarch.retrain("cold"), jaxarch.retrain("warm"))
    whole, _ = learned(strategy, chunk=4)

    def progress(border):
        if "warm" in border.name and border.step == 8:
            raise Interrupted

    with pytest.raises(Interrupted):
        learned(strategy, chunk=4, checkpoint=jaxarch.Checkpoints(tmp_path), progress=progress)
    resumed, _ = learned(strategy, chunk=4, checkpoint=jaxarch.Checkpoints(tmp_path))
    assert same(resumed, whole)


def test_early_stopping_continues_from_a_checkpoint_with_its_memory(tmp_path):
    learning = problem(steps=40, validation=True)
    options = {"chunk": 4, "early_stopping": jaxarch.EarlyStopping(patience=2)}
    whole, whole_report = learned(learning=learning, **options)
    with pytest.raises(Interrupted):
        learned(
            learning=learning,
            checkpoint=jaxarch.Checkpoints(tmp_path),
            progress=interrupt_at(8),
            **options,
        )
    resumed, report = learned(learning=learning, checkpoint=jaxarch.Checkpoints(tmp_path), **options)
    assert same(resumed, whole)
    assert same(report.stages[0].validation, whole_report.stages[0].validation)


def test_a_checkpoint_of_other_keys_is_refused(tmp_path):
    learned(checkpoint=jaxarch.Checkpoints(tmp_path))
    with pytest.raises(ValueError, match=r"checkpoint: .* is of a fit with other keys"):
        jaxarch.over_seeds(
            SEARCH,
            jax.random.split(jax.random.key(9), RUNS),
            problem(),
            checkpoint=jaxarch.Checkpoints(tmp_path),
        )


def explosive(settings):
    return real(nonnegative=False, optimizer=optax.sgd(settings["rate"]))


def test_a_run_that_diverges_is_reported_and_the_others_keep_their_results():
    rates = jnp.asarray([0.1, jnp.nan, 0.1, 0.1])
    with pytest.warns(jaxarch.NonFiniteWarning, match=r"wild: .*: seed 1: .* NaN or infinite at step \d+"):
        found, report = jaxarch.over_seeds(
            explosive,
            keys(),
            problem(),
            {"rate": rates},
            name="wild",
            labels=[f"seed {i}" for i in range(RUNS)],
        )
    healthy, _ = jaxarch.over_seeds(explosive, keys(), problem(), {"rate": jnp.full(RUNS, 0.1)})
    failed_at = np.asarray(found.info["failed_at"])
    # The first step's loss is that of the start; its update is NaN.
    assert failed_at.tolist() == [-1, 1, -1, -1]
    assert np.isfinite(np.asarray(found.info["loss"])[:, 0]).all()
    assert np.isnan(np.asarray(found.info["loss"])[1, 1:]).all()
    for run in (0, 2, 3):
        assert same(found.params["w1"][run], healthy.params["w1"][run])
    assert len(report.notes) == 1


def test_a_start_without_a_gradient_is_refused_with_its_remedy():
    with pytest.raises(ValueError, match=r"dead start: the gradient is exactly zero at step 0 in 'w1', 'w2'"):
        learned(real(std=30.0))
    with pytest.raises(ValueError, match="move `mean`"):
        learned(two_temperature(mean=100.0, std=0.0))


def test_a_partly_dead_start_warns_and_is_recorded():
    def some_dead(settings):
        return real(std=settings["std"])

    with pytest.warns(jaxarch.DeadStartWarning, match="in 1 of 4 runs .first: run 2.; lower `std`"):
        found, _ = jaxarch.over_seeds(
            some_dead, keys(), problem(), {"std": jnp.asarray([0.2, 0.2, 30.0, 0.2])}
        )
    assert found.info["dead_start"].tolist() == [False, False, True, False]
    with pytest.raises(ValueError, match="dead start"):
        jaxarch.over_seeds(
            some_dead,
            keys(),
            problem(),
            {"std": jnp.asarray([0.2, 0.2, 30.0, 0.2])},
            dead_start="raise",
        )


def test_a_dead_start_can_be_ignored_but_is_recorded():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found, _ = learned(real(std=30.0), dead_start="ignore")
    assert bool(found.info["dead_start"].all())


def test_validation_metrics_are_recorded_at_every_border():
    _, report = learned(learning=problem(validation=True), chunk=5)
    assert report.stages[0].validation["loss"].shape == (3, RUNS)
    assert np.isfinite(report.stages[0].validation["loss"]).all()


def test_early_stopping_keeps_each_run_s_best_border():
    learning = problem(steps=60, validation=True, rate=30.0)
    search = real(nonnegative=False)
    options = {"chunk": 3, "dead_start": "ignore"}
    _, everything = learned(search, learning, **options)
    losses = everything.stages[0].validation["loss"]
    found, _ = learned(search, learning, early_stopping=jaxarch.EarlyStopping(patience=2), **options)
    for run in range(RUNS):
        best, waited = 0, 0
        for border in range(1, len(losses)):
            better = losses[border, run] < losses[best, run]
            best, waited = (border, 0) if better else (best, waited + 1)
            if waited == 2:
                break
        assert int(found.info["kept_at"][run]) == 3 * (best + 1)
    validation = jax.vmap(lambda p, one: one.objective(p, {}, one.validation), (0, learning.in_axes()))
    kept = validation(found.params, learning)
    stopped_best = [losses[int(k) // 3 - 1, run] for run, k in enumerate(found.info["kept_at"])]
    np.testing.assert_allclose(kept, stopped_best, rtol=1e-5)


def test_early_stopping_does_not_depend_on_the_other_runs():
    learning = problem(steps=60, validation=True, rate=3.0)
    search, stopping = real(nonnegative=False), jaxarch.EarlyStopping(patience=1)
    options = {"chunk": 3, "early_stopping": stopping, "devices": jax.devices()[:1]}
    found, _ = jaxarch.over_seeds(search, keys(), learning, **options)
    # The last run that stops, among runs that are all like the first to stop.
    kept_at = found.info["kept_at"].tolist()
    last, first = int(np.argmax(kept_at)), int(np.argmin(kept_at))
    assert kept_at[last] > kept_at[first]
    members = np.full(RUNS, first)
    members[last] = last
    others = dataclasses.replace(
        learning,
        train=learning.train[members],
        validation=learning.validation[members],
        own=jax.tree.map(lambda leaf: leaf[members], learning.own),
    )
    again, _ = jaxarch.over_seeds(search, keys()[members], others, **options)
    assert same(again.of_run(last), found.of_run(last))
    assert same(again.of_run(first).params, found.of_run(first).params)


def test_a_schedule_changes_settings_while_training():
    def at_rate(settings):
        return real(optimizer=optax.sgd(settings["rate"]))

    rates = {"rate": jnp.full(RUNS, 0.3)}
    constant, _ = jaxarch.over_seeds(at_rate, keys(), problem(), rates, chunk=4)
    frozen, _ = jaxarch.over_seeds(
        at_rate,
        keys(),
        problem(),
        rates,
        chunk=4,
        schedule=lambda step, settings: {"rate": settings["rate"] * (step < 4)},
    )
    short, _ = jaxarch.over_seeds(at_rate, keys(), problem(steps=4), rates, chunk=4)
    assert same(frozen.params, short.params)
    assert not same(frozen.params, constant.params)


def test_a_sweep_of_settings_is_one_program_and_equals_separate_runs():
    def at(settings):
        return two_temperature(settings["hard"], settings["soft"])

    grid = {"hard": jnp.asarray([10.0, 50.0, 50.0, 500.0]), "soft": jnp.asarray([5.0, 5.0, 50.0, 5.0])}
    swept, report = jaxarch.over_seeds(at, keys(), problem(), grid)
    assert report.width == RUNS
    for run in range(RUNS):
        search = two_temperature(float(grid["hard"][run]), float(grid["soft"][run]))
        alone = jaxarch.chain(search)(keys()[run], problem().of_run(run))
        assert close(
            alone.info["scores"], jax.tree.map(lambda s, run=run: s[run], swept.info["scores"]), 1e-4
        )


def test_a_bad_setting_of_any_run_is_found_before_the_trace():
    with pytest.raises(ValueError, match="soft: expected at most hard = 5"):
        jaxarch.over_seeds(
            lambda s: two_temperature(s["hard"], 50.0),
            keys(),
            problem(),
            {"hard": jnp.asarray([50.0, 5.0, 50.0, 50.0])},
        )


def test_a_training_compiles_each_program_once_whatever_the_chunks(caplog):
    learning = problem(steps=13, validation=True)
    search = two_temperature(49.0, 5.0)
    with jax.log_compiles(), caplog.at_level("WARNING"):
        jaxarch.over_seeds(search, keys(), learning, chunk=5)
    compiled = re.findall(r"Finished XLA compilation of jit\((\w+)\)", caplog.text)
    assert sorted(compiled) == ["advance", "begin", "border", "conclude"]
    caplog.clear()
    with jax.log_compiles(), caplog.at_level("WARNING"):
        jaxarch.over_seeds(search, keys(), learning, chunk=5)
    assert "Finished XLA compilation" not in caplog.text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chunk": 0}, "chunk: expected an integer of at least 1"),
        ({"at_once": 0}, "at_once: expected an integer of at least 1"),
        ({"loop": "fast"}, "loop: expected 'auto', 'scan' or 'step'"),
        ({"dead_start": "no"}, "dead_start: expected"),
        ({"devises": None}, "unknown option 'devises'; did you mean 'devices'"),
        ({"labels": ["one"]}, "labels: expected 4"),
        ({"early_stopping": jaxarch.EarlyStopping()}, "early_stopping: the problem has no validation rows"),
        ({"schedule": lambda step, settings: settings}, "schedule: there are no settings"),
    ],
)
def test_bad_options_are_refused_by_name(options, message):
    with pytest.raises(ValueError, match=message):
        learned(**options)


def test_an_unknown_metric_is_refused():
    with pytest.raises(ValueError, match="early_stopping: no metric 'auc'; there are: loss"):
        learned(learning=problem(validation=True), early_stopping=jaxarch.EarlyStopping(metric="auc"))


@pytest.mark.parametrize(
    ("bad_keys", "message"),
    [
        (jax.random.key(0), "keys: expected shape"),
        (np.zeros((4, 2), np.uint32), "keys: expected shape"),
        (jax.random.split(jax.random.key(0), 3), "keys: expected 4, one for each run of the problem, got 3"),
    ],
)
def test_bad_keys_are_refused(bad_keys, message):
    with pytest.raises(ValueError, match=message):
        jaxarch.over_seeds(SEARCH, bad_keys, problem())
