"""The loop: chunks, groups, devices, checkpoints, early stopping, schedules, and reports of mishaps."""

import dataclasses
import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import RUNS, Interrupted, close, interrupt_at, interrupt_when, keys, problem, same

import jaxarch
from jaxarch.run import _programs as programs
from jaxarch.run._devices import over_runs
from jaxarch.run._runs_mesh import runs_mesh
from jaxarch.search import dense, two_temperature

SEARCH = two_temperature()


def learned(strategy=SEARCH, learning=None, **options):
    return jaxarch.over_seeds(strategy, keys(), learning or problem(), **options)


@pytest.mark.long
def test_every_run_has_a_result_and_the_loss_goes_down():
    network, report = learned(learning=problem(steps=60))
    assert network.mask["w1"].shape == (RUNS, 64, 64)
    assert network.mask["w1"].dtype == bool
    assert network.info["loss"].shape == (RUNS, 60)
    assert float(network.info["loss"][:, -5:].mean()) < float(network.info["loss"][:, :5].mean()) - 1
    assert report.width == RUNS
    assert report.stages[0].devices == 2
    assert report.seconds > 0


@pytest.mark.long
@pytest.mark.parametrize("chunk", [1, 5, 100])
def test_the_size_of_a_chunk_changes_nothing(chunk):
    assert same(learned(chunk=chunk)[0], learned(chunk=12)[0])


@pytest.mark.long
def test_the_host_loop_equals_the_pure_function_under_vmap():
    learning = problem()
    pure = jax.vmap(jaxarch.chain(SEARCH), in_axes=(0, learning.in_axes()))
    assert close(jax.jit(pure)(keys(), learning), learned(devices=jax.devices()[:1])[0])


@pytest.mark.long
def test_two_devices_give_the_bits_of_one_at_equal_width():
    two, _ = learned(max_parallel_runs=4)
    one, report = learned(max_parallel_runs=2, devices=jax.devices()[:1])
    assert report.width == 2
    assert same(two, one)


@pytest.mark.long
def test_results_on_cpu_are_on_one_device_whatever_computed_them():
    network, report = jaxarch.over_seeds(jaxarch.search.dense(), keys(), problem())
    assert report.stages[0].devices == 2
    assert all(len(leaf.devices()) == 1 for leaf in jax.tree.leaves(network))


@pytest.mark.long
def test_runs_that_do_not_divide_by_the_devices_are_padded_and_dropped():
    learning = problem(runs=3)
    network, report = jaxarch.over_seeds(SEARCH, keys(3), learning)
    assert report.width == 4
    assert network.mask["w1"].shape[0] == 3
    whole, _ = jaxarch.over_seeds(SEARCH, keys(3), learning, devices=jax.devices()[:1])
    assert close(network.params, whole.params)


@pytest.mark.long
def test_groups_of_runs_give_what_all_at_once_give():
    grouped, report = learned(max_parallel_runs=2)
    assert report.width == 2
    assert close(grouped, learned()[0])


@pytest.mark.long
def test_plain_stages_keep_to_the_runs_at_once_too():
    strategy = jaxarch.chain(dense(), jaxarch.threshold())
    grouped, report = learned(strategy, max_parallel_runs=1)
    assert [stage.width for stage in report.stages] == [1, 1]
    assert close(grouped, learned(strategy)[0])


@pytest.mark.long
def test_scarce_memory_makes_groups():
    _, roomy = learned(memory=10**12)
    _, scarce = learned(memory=2 * 10**5)
    assert roomy.width == RUNS
    assert scarce.width == 2


@pytest.mark.long
def test_steps_one_by_one_give_what_a_compiled_loop_gives():
    stepped, report = learned(loop="step")
    assert report.width == 1
    assert close(stepped, learned()[0])


@pytest.mark.long
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


@pytest.mark.long
def test_a_group_that_is_done_is_not_trained_again_however_rarely_checkpoints_are_saved(tmp_path):
    def kept(progress):
        checkpoint = jaxarch.Checkpoints(tmp_path, every=3600)
        return learned(chunk=4, max_parallel_runs=2, checkpoint=checkpoint, progress=progress)[0]

    with pytest.raises(Interrupted):
        kept(interrupt_when(lambda border: border.group == 1))
    groups = []
    resumed = kept(lambda border: groups.append(border.group))
    assert set(groups) == {1}
    assert same(resumed, learned(chunk=4, max_parallel_runs=2)[0])


@pytest.mark.long
def test_a_chain_whose_rate_falls_by_a_schedule_continues_within_its_second_training(tmp_path):
    def strategy():
        falling = optax.sgd(optax.cosine_decay_schedule(0.1, 100))
        retrained = jaxarch.retrain("warm", optimizer=falling)
        return jaxarch.chain(dense(optimizer=falling), jaxarch.threshold(), retrained)

    progress = interrupt_when(lambda border: "warm" in border.name and border.step == 8)
    with pytest.raises(Interrupted):
        learned(strategy(), chunk=4, checkpoint=jaxarch.Checkpoints(tmp_path), progress=progress)
    resumed, _ = learned(strategy(), chunk=4, checkpoint=jaxarch.Checkpoints(tmp_path))
    assert same(resumed, learned(strategy(), chunk=4)[0])


@pytest.mark.long
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


def flipped():
    return dataclasses.replace(
        problem(), per_run=jax.tree.map(lambda targets: 1 - targets, problem().per_run)
    )


@pytest.mark.parametrize(
    "other",
    [
        lambda: {"keys": jax.random.split(jax.random.key(9), RUNS)},
        lambda: {"problem": flipped()},
        lambda: {"problem": problem(steps=13)},
        lambda: {"problem": problem(batch_size=19)},
        lambda: {"problem": problem(validation=True)},
        lambda: {"chunk": 5},
    ],
    ids=["keys", "labels", "steps", "batch size", "validation", "chunk"],
)
def test_a_checkpoint_of_another_fit_is_refused(tmp_path, other):
    first = {"keys": keys(), "problem": problem(), "chunk": 4}

    def run(keys, problem, chunk):
        checkpoint = jaxarch.Checkpoints(tmp_path)
        jaxarch.over_seeds(SEARCH, keys, problem, checkpoint=checkpoint, chunk=chunk)

    run(**first)
    with pytest.raises(ValueError, match=r"(checkpoint: .* was saved by a training with other keys|path: )"):
        run(**first | other())


@pytest.mark.long
def test_a_checkpoint_of_other_settings_is_refused(tmp_path):
    def run(rate):
        rates = {"rate": jnp.full(RUNS, rate, jnp.float32)}
        jaxarch.over_seeds(explosive, keys(), problem(), rates, checkpoint=jaxarch.Checkpoints(tmp_path))

    run(0.1)
    with pytest.raises(ValueError, match="was saved by a training with other keys, settings, data or sizes"):
        run(0.2)


@pytest.mark.long
def test_strategies_whose_names_look_alike_have_checkpoints_of_their_own(tmp_path):
    strategies = {"lr<1": dense(optimizer=optax.sgd(0.1)), "lr>1": dense(optimizer=optax.sgd(3.0))}
    kept = jaxarch.compare(strategies, keys(), problem(), checkpoint=jaxarch.Checkpoints(tmp_path))
    assert not same(kept["lr<1"][0].params, kept["lr>1"][0].params)
    again = jaxarch.compare(strategies, keys(), problem(), checkpoint=jaxarch.Checkpoints(tmp_path))
    for name in strategies:
        assert same(again[name][0], kept[name][0])


@pytest.mark.long
def test_a_resumed_fit_reports_the_time_and_the_notes_of_the_whole(tmp_path):
    def run():
        return jaxarch.over_seeds(
            some_dead,
            keys(),
            problem(),
            {"std": jnp.asarray([0.2, 0.2, 30.0, 0.2])},
            checkpoint=jaxarch.Checkpoints(tmp_path),
            chunk=4,
        )[1]

    with pytest.warns(jaxarch.DeadStartWarning):
        first = run()
    with pytest.warns(jaxarch.DeadStartWarning):
        resumed = run()
    assert resumed.notes == first.notes
    assert resumed.seconds >= first.seconds * 0.5


@pytest.mark.long
def test_a_fit_in_groups_with_a_schedule_continues_to_the_same_bits(tmp_path):
    def run(**options):
        return jaxarch.over_seeds(
            at_rate,
            keys(),
            problem(),
            {"rate": jnp.full(RUNS, 0.3, jnp.float32)},
            chunk=4,
            max_parallel_runs=2,
            schedule=lambda step, settings: {"rate": settings["rate"] / (1 + step)},
            **options,
        )[0]

    whole = run()
    with pytest.raises(Interrupted):
        run(
            checkpoint=jaxarch.Checkpoints(tmp_path),
            progress=interrupt_when(lambda border: border.group == 1 and border.step == 8),
        )
    assert same(run(checkpoint=jaxarch.Checkpoints(tmp_path)), whole)


def explosive(settings):
    return dense(nonnegative=False, optimizer=optax.sgd(settings["rate"]))


@pytest.mark.long
def test_a_run_that_diverges_is_reported_and_the_others_keep_their_results():
    rates = jnp.asarray([0.1, jnp.nan, 0.1, 0.1])
    with pytest.warns(jaxarch.NonFiniteWarning, match=r"wild: .*: seed 1: .* NaN or infinite at step \d+"):
        network, report = jaxarch.over_seeds(
            explosive,
            keys(),
            problem(),
            {"rate": rates},
            name="wild",
            labels=[f"seed {i}" for i in range(RUNS)],
        )
    healthy, _ = jaxarch.over_seeds(explosive, keys(), problem(), {"rate": jnp.full(RUNS, 0.1, jnp.float32)})
    failed_at = np.asarray(network.info.failed_at)
    # The first step's loss is that of the start; its update is NaN.
    assert failed_at.tolist() == [-1, 1, -1, -1]
    assert np.isfinite(np.asarray(network.info["loss"])[:, 0]).all()
    assert np.isnan(np.asarray(network.info["loss"])[1, 1:]).all()
    for run in (0, 2, 3):
        assert same(network.params["w1"][run], healthy.params["w1"][run])
    assert len(report.notes) == 1


@pytest.mark.long
def test_nan_out_of_the_last_update_is_reported():
    nan = dense(nonnegative=False, optimizer=optax.sgd(float("nan")))
    with pytest.warns(jaxarch.NonFiniteWarning, match="at step 1;"):
        network, report = learned(nan, problem(steps=1))
    assert network.info.failed_at.tolist() == [1] * RUNS
    assert len(report.notes) == RUNS


@pytest.mark.long
def test_a_failure_is_not_forgotten_by_the_stages_after_it():
    def strategy(settings):
        return jaxarch.chain(explosive(settings), jaxarch.threshold(), jaxarch.retrain("cold"))

    # What was retrained on nothing at all is dead besides.
    with pytest.warns(jaxarch.NonFiniteWarning), pytest.warns(jaxarch.DeadStartWarning):
        network, _ = jaxarch.over_seeds(
            strategy, keys(), problem(), {"rate": jnp.asarray([0.1, jnp.nan, 0.1, 0.1])}
        )
    assert network.info.failed_at.tolist() == [-1, 1, -1, -1]


@pytest.mark.long
def test_a_start_without_a_gradient_is_refused_with_its_remedy():
    with pytest.raises(
        ValueError, match=r"dead start: the gradient is exactly zero from step 0 on in 'w1', 'w2'"
    ):
        learned(dense(std=30.0))
    with pytest.raises(ValueError, match="move `mean`"):
        learned(two_temperature(mean=100.0, std=0.0))


def some_dead(settings):
    return dense(std=settings["std"])


@pytest.mark.long
def test_a_partly_dead_start_warns_and_is_recorded():
    with pytest.warns(jaxarch.DeadStartWarning, match="in 1 of 4 runs .first: run 2.; lower `std`"):
        network, _ = jaxarch.over_seeds(
            some_dead, keys(), problem(), {"std": jnp.asarray([0.2, 0.2, 30.0, 0.2])}
        )
    assert network.info.dead_start.tolist() == [False, False, True, False]
    with pytest.raises(ValueError, match="dead start"):
        jaxarch.over_seeds(
            some_dead,
            keys(),
            problem(),
            {"std": jnp.asarray([0.2, 0.2, 30.0, 0.2])},
            dead_start="raise",
        )


@pytest.mark.long
@pytest.mark.parametrize("options", [{"loop": "step"}, {"max_parallel_runs": 2}])
def test_a_dead_run_does_not_take_the_others_with_it_when_groups_are_small(options):
    stds = {"std": jnp.asarray([30.0, 30.0, 0.2, 0.2])}
    with pytest.warns(jaxarch.DeadStartWarning):
        network, _ = jaxarch.over_seeds(some_dead, keys(), problem(), stds, **options)
    assert network.info.dead_start.tolist() == [True, True, False, False]
    assert np.isfinite(network.info["loss"]).all()
    with pytest.raises(ValueError, match="dead start"), pytest.warns(jaxarch.DeadStartWarning):
        jaxarch.over_seeds(
            some_dead, keys(), problem(), {"std": jnp.full(RUNS, 30.0, jnp.float32)}, **options
        )


@pytest.mark.long
def test_a_dead_start_can_be_ignored_but_is_recorded():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        network, _ = learned(dense(std=30.0), dead_start="ignore")
    assert bool(network.info.dead_start.all())


def test_validation_metrics_are_recorded_at_every_border():
    _, report = learned(learning=problem(validation=True), chunk=5)
    assert report.stages[0].validation["loss"].shape == (3, RUNS)
    assert np.isfinite(report.stages[0].validation["loss"]).all()


@pytest.mark.long
def test_early_stopping_keeps_each_run_s_best_border():
    learning = problem(steps=60, validation=True, rate=0.1)
    search = dense(nonnegative=False)
    options = {"chunk": 3, "dead_start": "ignore"}
    _, everything = learned(search, learning, **options)
    losses = everything.stages[0].validation["loss"]
    network, _ = learned(search, learning, early_stopping=jaxarch.EarlyStopping(patience=2), **options)
    for run in range(RUNS):
        best, waited = 0, 0
        for border in range(1, len(losses)):
            better = losses[border, run] < losses[best, run]
            best, waited = (border, 0) if better else (best, waited + 1)
            if waited == 2:
                break
        assert int(network.info["kept_at"][run]) == 3 * (best + 1)
    assert len(set(network.info["kept_at"].tolist())) > 2
    validation = jax.vmap(lambda p, one: one.objective(p, {}, one.validation), (0, learning.in_axes()))
    kept = validation(network.params, learning)
    stopped_best = [losses[int(k) // 3 - 1, run] for run, k in enumerate(network.info["kept_at"])]
    np.testing.assert_allclose(kept, stopped_best, rtol=1e-5)


def at_rate(settings):
    return dense(nonnegative=False, optimizer=optax.sgd(settings["rate"]))


@pytest.mark.long
def test_early_stopping_does_not_depend_on_the_other_runs():
    learning = problem(steps=60, validation=True)
    options = {"chunk": 3, "early_stopping": jaxarch.EarlyStopping(patience=2), "devices": jax.devices()[:1]}
    # The first run stops long before the last, which goes on improving; among others it is the same.
    rates = jnp.asarray([30.0, 30.0, 30.0, 1e-3])
    network, report = jaxarch.over_seeds(at_rate, keys(), learning, {"rate": rates}, **options)
    again, _ = jaxarch.over_seeds(at_rate, keys(), learning, {"rate": rates.at[3].set(30.0)}, **options)
    assert int(network.info["kept_at"][3]) == 60
    assert int(network.info["kept_at"][0]) < 50
    assert same(network.of_run(0), again.of_run(0))
    border = int(network.info["kept_at"][0]) // 3 + 2
    validation = report.stages[0].validation["loss"]
    assert np.isfinite(validation[:border, 0]).all()
    assert np.isnan(validation[border:, 0]).all()
    assert np.isfinite(validation[:, 3]).all()
    assert np.isnan(network.info["loss"][0, 3 * border :]).all()


@pytest.mark.long
def test_a_run_that_stopped_early_cannot_fail_any_more():
    # The loss is w, minimised until it overflows; validation only gets worse.
    def init(key):
        return {"w": jnp.full((1, 1), 1.0)}

    learning = jaxarch.supervised(
        (init, lambda params, x: x @ params["w"]),
        (np.ones((2, 1)), np.ones((2, 1))),
        loss=lambda outputs, y: outputs,
        optimizer=optax.sgd(1.0),
        steps=40,
        train=np.array([0]),
        validation=np.array([1]),
        metrics=lambda outputs, y: {"size": jnp.abs(outputs).mean()},
    )
    options = {
        "chunk": 4,
        "early_stopping": jaxarch.EarlyStopping("size", patience=1),
        "dead_start": "ignore",
    }
    doubling = dense(nonnegative=False, optimizer=optax.scale(-1e20))
    alone, _ = jaxarch.over_seeds(doubling, keys(1), learning, **options)
    assert int(alone.info.failed_at[0]) == -1
    assert int(alone.info["kept_at"][0]) == 4


@pytest.mark.long
def test_validation_judges_the_network_that_would_be_found():
    learning = problem(steps=8, validation=True)
    search = two_temperature(10.0, 5.0, mean=-4.0, std=2.0)
    network, report = learned(search, learning, chunk=4)
    judged = jax.vmap(lambda p, one: one.objective(p, {}, one.validation), (0, learning.in_axes()))
    expected = jax.jit(judged)(network.params, learning)
    np.testing.assert_allclose(report.stages[0].validation["loss"][-1], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize(("mode", "least", "kept"), [("min", 0.0, 6), ("max", 0.0, 12), ("min", 0.7, 3)])
def test_early_stopping_by_a_metric_of_one_s_own(mode, least, kept):
    # sgd(1) on the loss w subtracts 1 a step; the metric is (w - 5)^2 / 10: 0.4, 0.1, 1.6, 4.9.
    learning = jaxarch.supervised(
        (lambda key: {"w": jnp.full((1, 1), 10.0)}, lambda params, x: x @ params["w"]),
        (np.ones((2, 1)), np.ones((2, 1))),
        loss=lambda outputs, y: outputs,
        optimizer=optax.sgd(1.0),
        steps=12,
        validation=np.array([0]),
        metrics=lambda outputs, y: {"distance": jnp.square(outputs - 5).mean() / 10},
    )
    stopping = jaxarch.EarlyStopping("distance", patience=3, mode=mode, least=least)
    network, _ = jaxarch.over_seeds(
        dense(nonnegative=False), keys(1), learning, chunk=3, early_stopping=stopping
    )
    assert int(network.info["kept_at"][0]) == kept


@pytest.mark.long
def test_a_schedule_changes_settings_while_training():
    rates = {"rate": jnp.full(RUNS, 0.3, jnp.float32)}
    called = []

    def stop_at_four(step, settings):
        called.append(step)
        return {"rate": settings["rate"] * (step < 4)}

    constant, _ = jaxarch.over_seeds(at_rate, keys(), problem(), rates, chunk=4)
    frozen, _ = jaxarch.over_seeds(at_rate, keys(), problem(), rates, chunk=4, schedule=stop_at_four)
    short, _ = jaxarch.over_seeds(at_rate, keys(), problem(steps=4), rates, chunk=4)
    assert same(frozen.params, short.params)
    assert not same(frozen.params, constant.params)
    assert called == [0, 4, 8]


@pytest.mark.long
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


@pytest.mark.long
def test_a_training_compiles_each_program_once_whatever_the_chunks(caplog):
    learning = problem(steps=13, validation=True)
    search = two_temperature(49.0, 5.0)
    with jax.log_compiles(), caplog.at_level("WARNING"):
        jaxarch.over_seeds(search, keys(), learning, chunk=5)
    compiled = re.findall(r"Finished XLA compilation of jit\((\w+)\)", caplog.text)
    assert sorted(compiled) == ["advance", "begin", "chunk_end", "conclude"]
    caplog.clear()
    with jax.log_compiles(), caplog.at_level("WARNING"):
        jaxarch.over_seeds(search, keys(), learning, chunk=5)
    assert "Finished XLA compilation" not in caplog.text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chunk": 0}, "chunk: expected an integer of at least 1"),
        ({"max_parallel_runs": 0}, "max_parallel_runs: expected an integer of at least 1"),
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


@pytest.mark.long
def test_an_unknown_metric_is_refused():
    with pytest.raises(ValueError, match="early_stopping: no metric 'auc'; known: loss"):
        learned(learning=problem(validation=True), early_stopping=jaxarch.EarlyStopping(metric="auc"))


@pytest.mark.parametrize(
    ("bad_keys", "message"),
    [
        (jax.random.key(0), "keys: expected random keys of shape"),
        (np.zeros((4, 2), np.uint32), "keys: expected random keys of shape"),
        (
            jax.random.split(jax.random.key(0), 3),
            "keys: expected 4 keys, one for each run of the problem, got 3",
        ),
    ],
)
def test_bad_keys_are_refused(bad_keys, message):
    with pytest.raises(ValueError, match=message):
        jaxarch.over_seeds(SEARCH, bad_keys, problem())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"keys": keys()[:0]}, "keys: expected random keys of shape"),
        ({"keys": list(keys())}, "keys: expected random keys of shape"),
        ({"settings": {}}, "settings: expected arrays with a leading axis of runs"),
        ({"settings": {"rate": jnp.ones(3)}}, "settings: every leaf needs a leading axis of 4 runs"),
    ],
)
def test_bad_keys_and_settings_are_refused(arguments, message):
    given = {"keys": keys(), "settings": None} | arguments
    with pytest.raises(ValueError, match=message):
        jaxarch.over_seeds(at_rate, given["keys"], problem(), given["settings"])


@pytest.mark.parametrize(("runs", "axes_of_runs"), [(2, 0), (4, 1)])
def test_only_a_device_with_several_runs_has_an_axis_of_them_in_its_products(runs, axes_of_runs):
    mesh = runs_mesh(jax.local_devices()[:2], runs)
    mapped = over_runs(lambda x, y: x @ y, mesh, (0, None))
    x, y = jnp.ones((runs, 3, 4)), jnp.ones((4, 5))
    (sharded,) = jax.make_jaxpr(mapped)(x, y).eqns
    (product,) = (e for e in sharded.params["jaxpr"].eqns if e.primitive.name == "dot_general")
    assert product.invars[0].aval.ndim == 2 + axes_of_runs
    assert jnp.array_equal(jax.jit(mapped)(x, y), jnp.full((runs, 3, 5), 4.0))


@pytest.fixture
def one_second_each(monkeypatch):
    """A stopwatch by which every program takes one second to run and a thousand to compile."""

    def compile_(self, program, *args):
        self.compiling += 1000
        return program.lower(*args).compile()

    def run(self, executable, *args):
        self.running += 1
        return executable(*args)

    monkeypatch.setattr(programs.Stopwatch, "compile", compile_)
    monkeypatch.setattr(programs.Stopwatch, "run", run)


@pytest.mark.long
def test_seconds_are_wall_time_times_devices_over_runs_without_compilation(one_second_each):
    _, report = learned(jaxarch.chain(dense(), jaxarch.threshold()), chunk=4)
    training, function = report.stages
    # begin, three chunks and conclude took 1 s each, on 2 devices, for 4 runs.
    assert training.seconds == pytest.approx(5 * 2 / RUNS)
    assert function.seconds == pytest.approx(1 * 2 / RUNS)
    assert report.seconds == training.seconds + function.seconds
    assert report.compile_seconds >= 3000


def test_seconds_of_a_resumed_fit_count_what_was_done_before_once(one_second_each, tmp_path):
    for step in (8, 12):
        with pytest.raises(Interrupted):
            learned(chunk=4, checkpoint=jaxarch.Checkpoints(tmp_path), progress=interrupt_at(step))
    _, report = learned(chunk=4, checkpoint=jaxarch.Checkpoints(tmp_path))
    # Three times begin, the chunks to steps 4 and 8 as they were saved, the last chunk, conclude.
    assert report.seconds == pytest.approx(7 * 2 / RUNS)


@pytest.mark.long
def test_batches_dropout_and_start_draw_from_keys_of_their_own():
    seen = {}

    def loss(params, state, batch, key):
        return jnp.sum(params["w"] * jax.random.normal(key, (1, 1))), {"key": jax.random.key_data(key)}

    learning = dataclasses.replace(
        problem(),
        init=lambda key: ({"w": jnp.ones((1, 1))}, {"key": jax.random.key_data(key)}),
        loss=loss,
        train=None,
        per_run=None,
        gather=lambda data, per_run, rows: rows,
    )
    from jaxarch.run import _training as training

    search = dense(nonnegative=False)
    key = jax.random.key(5)
    carry = training.begin(search, key, learning, None)
    seen["start"] = tuple(carry.state.model["key"].tolist())
    for index in range(3):
        carry, _ = training.step(search, key, learning, carry, jnp.asarray(index))
        seen[index] = tuple(carry.state.model["key"].tolist())
    _, batch_key, _ = jax.random.split(key, 3)
    batches = {tuple(jax.random.key_data(jax.random.fold_in(batch_key, i)).tolist()) for i in range(3)}
    assert len(set(seen.values()) | batches) == 7


@pytest.mark.long
def test_every_step_has_a_batch_of_its_own():
    from jaxarch.run import _training as training

    learning = dataclasses.replace(
        problem(),
        init=lambda key: ({"w": jnp.ones((1, 1))}, {"rows": jnp.zeros(20, int)}),
        loss=lambda params, state, rows, key: (jnp.sum(params["w"]), {"rows": rows}),
        train=None,
        per_run=None,
        gather=lambda data, per_run, rows: rows,
    )
    search, key, seen = dense(nonnegative=False), jax.random.key(5), set()
    carry = training.begin(search, key, learning, None)
    for index in range(3):
        carry, _ = training.step(search, key, learning, carry, jnp.asarray(index))
        seen.add(tuple(carry.state.model["rows"].tolist()))
    assert len(seen) == 3


@pytest.mark.long
def test_a_penalty_is_added_to_the_loss_and_observe_keeps_a_memory():
    search = dense(nonnegative=False)
    plain, _ = learned(search)

    def init(settings, key, problem, network):
        return search.init(settings, key, problem, network)._replace(memory=jnp.zeros(3))

    def after_step(settings, state):
        return state.memory.at[jnp.minimum(state.step // 4, 2)].add(1.0)

    def network(settings, state):
        return search.network(settings, state).replace(info=jaxarch.TrainingInfo({"memory": state.memory}))

    watched = dataclasses.replace(search, init=init, after_step=after_step, network=network)
    observed, _ = learned(watched, chunk=5)
    assert same(observed.params, plain.params)
    assert observed.info["memory"].tolist() == [[3.0, 4.0, 5.0]] * RUNS

    shrinking = dataclasses.replace(
        search,
        penalty=lambda settings, state: 10 * sum(jnp.sum(w**2) for w in jax.tree.leaves(state.trainable)),
    )
    small, _ = learned(shrinking, problem(rate=0.01))
    assert float(jnp.abs(small.params["w1"]).mean()) < 0.5 * float(jnp.abs(plain.params["w1"]).mean())
    assert float(small.info["loss"][0, 0]) > float(plain.info["loss"][0, 0]) + 100


STILL = dense(nonnegative=False, optimizer=optax.sgd(0.0))


@pytest.mark.long
@pytest.mark.parametrize(
    "optimizer",
    [
        optax.adamw(1e-3),
        optax.inject_hyperparams(optax.sgd)(0.1),
        optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-2)),
        optax.chain(optax.sgd(0.1), optax.contrib.reduce_on_plateau()),
        optax.contrib.sam(optax.sgd(0.1), optax.chain(optax.contrib.normalize(), optax.sgd(0.05))),
        optax.lbfgs(),
        optax.multi_transform({"a": optax.sgd(0.1), "b": optax.adam(0.1)}, {"w1": "a", "w2": "b"}),
    ],
    ids=["adamw", "inject_hyperparams", "chain", "reduce_on_plateau", "sam", "lbfgs", "multi_transform"],
)
def test_any_optax_optimiser_moves_the_weights(optimizer):
    start, _ = learned(STILL, problem(steps=4))
    network, _ = learned(dense(nonnegative=False, optimizer=optimizer), problem(steps=4))
    assert np.isfinite(network.info["loss"]).all()
    assert not same(network.params, start.params)


@pytest.mark.long
def test_what_failed_on_other_devices_is_joined_with_what_fails_here():
    found, _ = learned(max_parallel_runs=2, devices=jax.devices()[:1])
    assert len(found.info.failed_at.devices()) == 1
    again, _ = jaxarch.over_seeds(
        jaxarch.retrain("warm", nonnegative=False), keys(), problem(), network=found, devices=jax.devices()
    )
    assert (again.info.failed_at == -1).all()
