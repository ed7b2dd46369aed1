"""What the theory of the two-temperature step gives, as an experiment: on small problems and few steps."""

from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest
from small import Interrupted, close, interrupt_when

from jaxarch import Descent, plots
from jaxarch.lab.harness import report_on, run_in
from jaxarch.lab.reproduction import read_findings
from jaxarch.lab.results import read_table
from jaxarch.lab.theory import convex, gradients, ratio_report
from jaxarch.lab.theory.averaging import EXACT, ORDINARY, Search
from jaxarch.lab.theory.cases import Case, prepare
from jaxarch.lab.theory.settings import Settings
from jaxarch.lab.theory.temperature_ratio import EXPERIMENT
from jaxarch.theory import mirror

FEW = {
    "problems": ("network", "linear"),
    "seeds": 2,
    "steps": 20,
    "batch_size": 10,
    "train_per_class": 10,
    "depth": 1,
    "ratios": (0.1, 1.0),
    "multiples": (0.1,),
    "dimension": 8,
    "examples": 30,
}
KEYS = jax.random.split(jax.random.key(0), 2)
DESCENT = Descent(optax.sgd(0.3), steps=4, batch_size=5)


def train(step, problem, rate):
    """What one run finds, at hard 50 and soft 5."""
    return _train(Search(step, -10.0, 5.0), problem.of_run(0), jnp.float32(rate)).info


@partial(jax.jit, static_argnums=0)
def _train(search, problem, rate):
    return search({"hard": 50.0, "soft": 5.0, "rate": rate})(KEYS[0], problem)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ratio")
    run_in(folder, EXPERIMENT, Settings(**FEW))
    report_on(folder, EXPERIMENT)
    return folder


@pytest.fixture(scope="module")
def linear():
    return convex.linear(KEYS, 8, 30, descent=DESCENT)


def slopes(problem):
    return np.asarray(problem.data, np.float64)[problem.train]


@pytest.mark.long
def test_every_method_is_run_at_every_ratio_with_every_seed(small):
    shown = ratio_report.lines(read_table(small))
    cells = shown.groupby(["problem", "step", "ratio"])
    assert len(cells) == 2 * 2 * 2
    for (_, _, ratio), runs in cells:
        prescribed = {"measured G", "certified G"} if ratio < 1 else set()
        assert set(runs["line"]) == {"fixed", "scaled", "tuned"} | prescribed
        assert (runs.groupby("line")["seed"].agg(sorted).map(tuple) == (0, 1)).all()


@pytest.mark.long
def test_it_leaves_figures_and_findings(small):
    figures = {path.stem for path in small.glob("*.svg")}
    assert figures == {"ratios", "bounds", "last-masks", "convergence-network", "convergence-linear"}
    assert len(read_findings(small)) == 4 + 2 * 8 * 3 + 6 * 2


@pytest.mark.long
def test_the_conclusion_has_the_best_ratio_and_the_exact_step_s_difference(small):
    shown = ratio_report.lines(read_table(small)).query("problem == 'network' and line == 'tuned'")
    medians = shown[shown["step"] == ORDINARY].groupby("ratio")["value"].median()
    by_step = shown[shown["ratio"] == medians.idxmin()].pivot(index="seed", columns="step", values="value")
    difference = (by_step[EXACT] - by_step[ORDINARY]).median()
    made = report_on(small, EXPERIMENT)
    assert f"lowest at soft/hard = {medians.idxmin():g}, {medians.min():.1f} [" in made.conclusion
    assert f"minus {ORDINARY} is {difference:+.1f} [" in made.conclusion
    assert f"- {EXACT}" in {str(line).split(":")[0] for line in made.body}


@pytest.mark.parametrize("failed", [False, True])
def test_the_conclusion_of_one_seed_and_one_ratio_has_no_nan(failed):
    common = {"problem": "network", "rate_rule": "scaled", "multiple": 1.0, "ratio": 1.0, "seed": 0}
    table = pd.DataFrame([common | {"step": step, "loss": 3.0} for step in (ORDINARY, EXACT)])
    table.loc[table["step"] == (EXACT if failed else ""), "loss"] = np.nan
    results = SimpleNamespace(settings={"problems": ["network"]}, table=table)
    said = " ".join(ratio_report.conclusion(results))
    assert "3.0 [3.0, 3.0]" in said
    assert "nan" not in said


@pytest.mark.long
def test_a_gap_is_positive_and_within_its_bound_which_equal_temperatures_lack(small):
    table = read_table(small)
    table = table[table["problem"] == "linear"]
    assert (table["gap"] > 0).all()
    assert (table["gap_over_bound"].dropna() < 1).all()
    assert (np.isinf(table["bound"]) == (table["ratio"] == 1)).all()


@pytest.mark.long
def test_a_resumed_run_has_the_same_numbers(small, tmp_path):
    settings = Settings(**FEW | {"problems": ("linear",)}, resume=str(tmp_path / "checkpoints"))
    stop = interrupt_when(lambda told: told.name.startswith(f"linear, {EXACT}"))
    with pytest.raises(Interrupted):
        run_in(tmp_path, EXPERIMENT, settings, stop)
    assert any(path.name.startswith("linear__Algorithm_1") for path in (tmp_path / "checkpoints").iterdir())
    run_in(tmp_path, EXPERIMENT, settings)
    resumed, whole = read_table(tmp_path), read_table(small).query("problem == 'linear'")
    assert resumed.drop(columns="seconds").equals(
        whole[resumed.columns].drop(columns="seconds").reset_index(drop=True)
    )


@pytest.mark.long
def test_the_exact_mirror_step_is_algorithm_1_to_first_order(linear):
    def difference(rate):
        start, ordinary, exact = (
            train(step, linear, at)["scores"]["v"]
            for step, at in ((ORDINARY, 0.0), (ORDINARY, rate), (EXACT, rate))
        )
        return jnp.linalg.norm(ordinary - exact) / jnp.linalg.norm(ordinary - start)

    assert 1e-3 < difference(0.01) < 0.1
    assert np.isclose(difference(0.01) / difference(0.005), 2, rtol=0.1)


def test_the_exact_mirror_step_subtracts_the_gradient_from_the_mirror_map():
    problem = convex.linear(KEYS, 8, 1, descent=DESCENT)
    start, end = (mirror.mirror_map(train(EXACT, problem, rate)["scores"]["v"], 5.0) for rate in (0.0, 0.3))
    assert close(end - start, -0.3 * DESCENT.steps * slopes(problem)[0, 0], 1e-4)


def test_the_average_is_that_of_the_masks_that_gradients_were_taken_at(linear):
    one, two = (linear.descending(steps=steps) for steps in (1, 2))
    start, first, second = (
        train(ORDINARY, problem, rate) for problem, rate in ((one, 0.0), (one, 0.3), (two, 0.3))
    )
    assert not close(start["last"]["v"], first["last"]["v"], 1e-2)
    assert close(first["average"]["v"], start["last"]["v"])
    assert close(second["average"]["v"], (start["last"]["v"] + first["last"]["v"]) / 2)


def test_the_largest_gradient_is_measured_and_certified():
    problem = convex.linear(KEYS, 8, 1, descent=DESCENT)
    norms = np.linalg.norm(slopes(problem), axis=-1).max(axis=1)
    start, largest = gradients.first_run(Case(problem, 0.0, 0.0), KEYS, 50.0, 5.0, 0.3)
    assert close(start["v"], jnp.zeros((2, 8)))
    assert np.allclose(largest, norms, rtol=1e-5)
    assert np.allclose(gradients.certified_bounds(problem), norms, rtol=1e-4)


@pytest.mark.long
def test_rates_are_fixed_scaled_or_prescribed(small):
    table = read_table(small)
    fixed, scaled = (table[table["rate_rule"] == rule] for rule in ("fixed", "scaled"))
    assert (fixed["rate"] == 0.3).all()
    assert np.allclose(scaled["rate"] * scaled["soft"], 0.3 * 5 * scaled["multiple"])
    assert set(scaled["multiple"]) == {0.1, 1.0}
    settings = Settings(**FEW)
    norm = gradients.certified_bounds(prepare(settings)[2]["linear"].problem)
    distance = mirror.start_distance(8, 50.0, 5.0)
    prescribed = table[(table["problem"] == "linear") & (table["rate_rule"] == "certified G")]
    expected = mirror.prescribed_rate(distance, 50.0, 5.0, gradient_bound=norm, steps=20)
    assert np.allclose(prescribed["rate"].to_numpy().reshape(2, 2), expected, rtol=1e-5)


def test_the_tuned_rate_is_the_multiple_of_least_median():
    losses = {0.1: (3.0, 1.0, 2.0), 1.0: (9.0, 1.5, 0.0), 10.0: (5.0, 5.0, 5.0)}
    common = {"problem": "network", "step": ORDINARY, "ratio": 0.1, "rate_rule": "scaled"}
    rows = [
        {**common, "multiple": multiple, "seed": seed, "loss": loss}
        for multiple, values in losses.items()
        for seed, loss in enumerate(values)
    ]
    tuned = ratio_report.lines(pd.DataFrame(rows)).query("line == 'tuned'")
    assert tuned["value"].tolist() == [9.0, 1.5, 0.0]
    assert tuned["run"].tolist() == [3, 4, 5]
    assert not tuned["edge"].any()


def test_the_least_value_of_linear_and_quadratic_problems_is_the_known_one(linear):
    found = convex.least(linear)
    mean = slopes(linear).mean(axis=1)
    assert (found.masks == (mean < 0)).all()
    assert np.allclose(found.values, np.minimum(mean, 0).sum(axis=1), rtol=1e-12)
    problem = convex.quadratic(KEYS, 8, 30, descent=DESCENT)
    assert np.allclose(convex.least(problem).masks, slopes(problem).mean(axis=1).clip(0, 1), atol=1e-7)


@pytest.mark.long
def test_the_least_value_of_logistic_regression_is_below_that_of_any_other_mask():
    settings = Settings(seeds=2, problems=("logistic",), train_per_class=10)
    problem = prepare(settings)[2]["logistic"].problem
    found = convex.least(problem)
    assert (found.excess < 1e-6).all() and (found.excess >= 0).all()
    others = found.masks + np.random.default_rng(0).normal(0, 1e-3, (2, 64))
    values = convex.exact_objectives(problem, others.clip(0, 1))
    assert (values > found.values).all() and (values < found.values + 0.1).all()


def test_the_axis_of_a_setting_may_be_logarithmic():
    panel = {"": {"line": (np.array([0.01, 1.0]), np.ones((2, 2)))}}
    scales = [
        plots.sweep({"F": panel}, "ratio", logarithmic_setting=choice).axes[0].get_xscale()
        for choice in (False, True)
    ]
    assert scales == ["linear", "log"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"problems": ("cubic",)}, "problems: unknown 'cubic'"),
        ({"problems": ("linear", "linear")}, "problems: 'linear' is named twice"),
        ({"ratios": (0.1, 2.0)}, "ratios: expected soft/hard of at most 1, got 2.0"),
        ({"ratios": ()}, "ratios: expected at least one number"),
        ({"ratios": (0.0,)}, "ratios: expected a positive"),
        ({"reference": 2.0}, "reference: expected soft/hard of at most 1, got 2.0"),
        ({"multiples": (-1.0,)}, "multiples: expected a positive"),
        ({"multiples": (3.0, 3.0)}, "multiples: 3.0 is named twice"),
        ({"hard": 0.0}, "hard: expected a positive"),
        ({"dimension": 0}, "dimension: expected an integer of at least 1"),
        ({"weight_std": 0.0}, "weight_std: expected a positive"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Settings(**settings).check()
