"""How gradually ranks rise along a training: on singular values known by hand, and as an experiment."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pages import charted
from small import same

import jaxarch
from jaxarch import own_descent
from jaxarch.io import read_npz
from jaxarch.lab.harness import Results, report_on, run_in
from jaxarch.lab.reproduction import read_findings
from jaxarch.lab.results import read_table
from jaxarch.lab.spectral import rank, singular_values, teacher
from jaxarch.lab.spectral.singular_values import effective_ranks, gradualness, paths, ranks, when
from jaxarch.spectral import bundles

STEPS = np.array([1, 10, 100, 1000])
SMALL = {
    "seeds": 2,
    "features": 4,
    "hidden": (8,),
    "epochs": 4,
    "looks": 6,
    "enough": 0.1,
    "examples": 400,
    "held_out": 60,
    "batch_size": 20,
    "learning_rate": 1e-2,
}


# Singular values known by hand -----------------------------------------------------------------------


def test_singular_values_that_rise_one_after_another_are_gradual():
    values = np.array([[3, 0, 0], [3, 2, 0], [3, 2, 0], [3, 2, 1]])
    assert gradualness(STEPS, values, 0.01) == 1 - 1 / 1000
    twice = np.array([[0, 0], [3, 0], [3, 1], [3, 1]])
    assert gradualness(np.array([1, 2, 4, 8]), twice, 0.01) == 0.5


@pytest.mark.parametrize("growth", [[0.1, 0.2, 0.3, 1], [0.5, 0.6, 0.7, 1], [0, 0.6, 2, 1]])
def test_singular_values_that_grow_by_one_factor_come_all_at_once(growth):
    values = np.array(growth)[:, None] * np.array([3, 2, 1])
    assert gradualness(STEPS, values, 0.01) == 0


def test_a_singular_value_that_does_not_count_at_the_end_is_not_waited_for():
    values = np.array([[3, 2, 0], [3, 2, 0], [3, 2, 0], [3, 2, 0.02]])
    assert gradualness(STEPS, values, 0.01) == 0
    assert gradualness(STEPS, values, 0.001) == 1 - 1 / 1000


def test_gradualness_is_one_number_for_each_run_and_none_where_nothing_rises():
    rising = np.array([[0, 0], [2, 0], [2, 1], [2, 1]])
    found = gradualness(STEPS, np.stack([rising, np.zeros((4, 2)), np.full((4, 2), np.nan)]), 0.01)
    assert found.tolist()[0] == 0.9
    assert np.isnan(found[1:]).all()


def test_the_rank_counts_what_is_above_a_share_of_the_largest_at_the_end():
    values = np.array([[0.05, 0.02], [0.2, 0.05], [10, 0.2]])
    assert ranks(values, 0.01).tolist() == [0, 1, 2]


def test_the_effective_rank_is_the_number_of_equal_singular_values():
    values = np.array([[2, 2, 0], [5, 0, 0], [0, 0, 0], [3, 1, 0]])
    uneven = np.exp(-(0.75 * np.log(0.75) + 0.25 * np.log(0.25)))
    assert np.allclose(effective_ranks(values), [2, 1, 0, uneven])


def test_what_is_read_off_is_that_of_the_first_look_that_reaches():
    reached = np.array([[False, True, True], [False, False, False]])
    found = when(reached, np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))
    assert found[0] == 2
    assert np.isnan(found[1])


def test_paths_are_the_linear_map_without_the_direct_bundle():
    numbers = {(2, 1): 2, (3, 1): 3, (3, 2): 5, (4, 1): 7, (4, 2): 11, (4, 3): 13}
    blocks = {places: jnp.full((1, 1), float(number)) for places, number in numbers.items()}
    assert paths(blocks) == 11 * 2 + 13 * (3 + 5 * 2)
    assert paths({places: blocks[places] for places in ((2, 1), (3, 2))}) == 5 * 2


@pytest.mark.long
@pytest.mark.parametrize("hidden", [(5,), (5, 6)])
def test_at_the_perceptron_start_nothing_runs_through_the_hidden_layers(hidden):
    params, _ = jaxarch.spectral_network((3, *hidden, 3)).init(jax.random.key(0))
    assert not paths(bundles(params)).any()
    params, _ = jaxarch.spectral_network((3, *hidden, 3), eigenvalues="random").init(jax.random.key(0))
    assert np.linalg.matrix_rank(paths(bundles(params))) == 3


# Along a training ------------------------------------------------------------------------------------


def snapshots_of(problem, steps, total):
    training = singular_values.with_snapshots(steps, own_descent({"steps": total}))
    network = training(jax.random.key(3), problem.of_run(0))
    return network.params, network.info[singular_values.SNAPSHOTS]


@pytest.mark.long
def test_snapshots_are_the_start_and_the_parameters_after_the_steps_that_were_asked_for():
    problem = rank.prepare(rank.Settings(**SMALL), rank.PERCEPTRON, 1.0)
    end, kept = snapshots_of(problem, (1, 3), 3)
    first, _ = snapshots_of(problem, (1,), 1)
    assert same(jax.tree.map(lambda leaf: leaf[2], kept), end)
    np.testing.assert_allclose(kept["eigenvectors"]["phi1"][1], first["eigenvectors"]["phi1"], rtol=1e-6)
    assert not kept["eigenvalues"]["L2"][0].any()
    assert kept["eigenvalues"]["L2"][1].any()


@pytest.mark.long
def test_a_change_that_is_linear_has_no_non_linear_part_and_one_neuron_has_one_singular_value():
    settings = rank.Settings(**SMALL | {"seeds": 1})
    problem = rank.prepare(settings, "weights, all skips", 1.0)
    zero = jax.tree.map(jnp.zeros_like, problem.init(jax.random.key(0))[0])
    linear = zero | {"W3_1": 2 * jnp.eye(4)}
    neuron = zero | {"W2_1": zero["W2_1"].at[0].set(3.0), "W3_2": zero["W3_2"].at[1, 0].set(5.0)}
    kept = jax.tree.map(lambda *leaves: jnp.stack(leaves)[None], zero, linear, neuron)
    found = singular_values.along(problem, kept)
    assert np.allclose(found["non-linear part"][0, 0], 0, atol=1e-5)
    assert np.allclose(found["paths"][0], [[0, 0, 0, 0], [30, 0, 0, 0]], atol=1e-5)  # 15 (1, 1, 1, 1)
    x = np.asarray(problem.data[0][problem.validation], np.float64)
    y = 5 * np.maximum(3 * x.sum(axis=1), 0)
    inputs = np.concatenate([x, np.ones((len(x), 1))], axis=1)
    bent = y - inputs @ np.linalg.lstsq(inputs, y, rcond=None)[0]
    largest = np.sqrt(np.square(bent).mean())
    assert np.allclose(found["non-linear part"][0, 1], [largest, 0, 0, 0], atol=1e-4)


@pytest.mark.long
def test_what_the_start_has_is_not_counted_and_r2_is_that_of_the_outputs():
    settings = rank.Settings(**SMALL | {"seeds": 1})
    problem = rank.prepare(settings, "weights, no skips", 1.0)
    start, _ = problem.init(jax.random.key(0))
    kept = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf])[None], start)
    found = singular_values.along(problem, kept)
    assert not found["non-linear part"].any()
    assert not found["paths"].any()
    outputs = problem.of_run(0).outputs(start, {}, problem.validation)
    truth = teacher.truth(problem, problem.validation)
    assert np.allclose(found["r2"], teacher.r_squared(np.asarray(outputs)[None], truth), atol=1e-4)


@pytest.mark.long
def test_neurons_of_a_teacher_count_alike_at_ratio_1_and_fall_geometrically_at_another():
    settings = rank.Settings(**SMALL)
    first = teacher.teachers(settings)["second"]
    assert same(rank.prepare(settings, rank.PERCEPTRON, 1.0).per_run["second"], first)
    scaled = rank.prepare(settings, rank.PERCEPTRON, 8.0).per_run["second"]
    norms = np.linalg.norm(scaled, axis=1)
    assert np.allclose(norms[:, :-1] / norms[:, 1:], 2, rtol=1e-4)
    assert np.allclose(np.square(norms).mean(axis=1), 1, rtol=1e-4)


# The experiment --------------------------------------------------------------------------------------


def test_looks_are_from_the_first_step_to_the_last():
    looked = rank.Settings(**SMALL).looked()
    assert looked.tolist() == [1, 2, 6, 14, 33, 80]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"starts": ("zero",)}, "starts: unknown 'zero'"),
        ({"ratios": (0.0,)}, "ratios: expected"),
        ({"ratios": (2.0, 2.0)}, "ratios: 2.0 is named twice"),
        ({"hidden": ()}, "hidden: expected at least one layer"),
        ({"looks": 1}, "looks: expected an integer of at least 2"),
        ({"share": 0.0}, "share: expected"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(settings, message):
    with pytest.raises(jaxarch.ArgumentError, match=message):
        rank.Settings(**settings).check()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rank")
    run_in(folder, rank.EXPERIMENT, rank.Settings(**SMALL))
    report_on(folder, rank.EXPERIMENT)
    assert charted(folder, rank.EXPERIMENT)
    return folder


@pytest.mark.long
def test_every_start_is_measured_on_every_teacher(folder):
    table = read_table(folder)
    assert (table.groupby(["ratio", "start"], sort=False).size() == 2).all()
    assert table["start"].unique().tolist() == list(rank.STARTS)
    assert table["gradualness"].between(0, 1, inclusive="left").all()
    assert table["rank"].between(1, 4).all()
    assert (folder / "rank.png").exists()
    assert (folder / "singular_values.png").exists()


@pytest.mark.long
def test_the_table_is_read_off_the_singular_values_that_are_kept(folder):
    arrays = read_npz(folder / rank.READOUT, "folder")
    for (ratio, start), runs in read_table(folder).groupby(["ratio", "start"]):
        values = arrays[f"ratio {ratio:g}, {start}/non-linear part"]
        assert values.shape == (2, len(arrays["steps"]), 4)
        assert np.allclose(runs["gradualness"], gradualness(arrays["steps"], values, 0.01))


@pytest.mark.long
def test_findings_are_of_each_start_and_of_the_perceptron_minus_the_others(folder):
    found = {measurement.what for measurement in read_findings(folder)}
    assert len(found) == 2 * 7 * (4 + 3)
    assert "gradualness of the non-linear part, above 1%: perceptron, ratio 10" in found
    assert (
        "gradualness of the non-linear part, above 1%: perceptron minus weights, no skips, ratio 1" in found
    )


@pytest.mark.long
def test_the_conclusion_compares_the_perceptron_start_with_the_others(folder):
    rise, compared = rank.conclusion(Results(folder))  # Two seeds are too few for the rule.
    for ratio, runs in read_table(folder).groupby("ratio"):
        by_start = runs.pivot(index="seed", columns="start", values="gradualness")
        perceptron = by_start.pop(rank.PERCEPTRON)
        assert f"{perceptron.median():.3f} [" in rise.split(f" at ratio {ratio:g}")[0]
        least = by_start.rsub(perceptron, axis=0).median()
        told = compared.split(f" at ratio {ratio:g}")[0]
        assert told.endswith(f"({least.idxmin()})")
        assert f"{least.min():+.3f} [" in told


@pytest.mark.parametrize(
    ("median", "difference", "p", "runs", "met"),
    [
        (0.6, 0.1, 0.01, 10, True),
        (0.4, 0.1, 0.01, 10, False),
        (0.6, -0.1, 0.01, 10, False),
        (0.6, 0.1, 0.06, 10, False),
        (0.6, 0.1, 0.06, 5, None),
        (0.6, np.nan, np.nan, 0, None),
    ],
)
def test_the_rule_is_judged_if_there_are_enough_pairs(median, difference, p, runs, met):
    assert rank._met(median, {"other": {"median": difference, "p": p, "runs": runs}}) is met


@pytest.mark.long
def test_with_sgd_findings_say_so(tmp_path):
    settings = rank.Settings(**SMALL | {"optimizer": "sgd", "starts": (rank.PERCEPTRON,), "ratios": (1.0,)})
    run_in(tmp_path, rank.EXPERIMENT, dataclasses.replace(settings, hidden=(6, 6), learning_rate=0.5))
    assert all(measurement.what.endswith(", SGD") for measurement in read_findings(tmp_path))
