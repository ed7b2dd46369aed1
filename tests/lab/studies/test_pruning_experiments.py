"""The experiments of [A]: what they measure, on few examples and few steps."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from jaxarch.lab.harness import report_on, run_in
from jaxarch.lab.pruning import fig1
from jaxarch.lab.reproduction import read_findings
from jaxarch.lab.results import read_table

CONVERGENCE = {"seeds": 2, "steps": 300, "early": 100, "soft": (1000.0, 10.0)}


@pytest.fixture(scope="module")
def convergence(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fig1")
    run_in(folder, fig1.EXPERIMENT, fig1.Settings(**CONVERGENCE))
    report_on(folder, fig1.EXPERIMENT)
    return folder


@pytest.fixture
def convergence_of_one():
    """Results of one seed at two soft temperatures."""
    rows = {"soft": [1000.0, 10.0], "early": [0.9, 0.6], "last": [0.8, 0.5], "density": [0.9, 0.1]}
    settings = {"dataset": "digits", "classes": [0, 1], "hard": 1000.0, "steps": 300}
    return SimpleNamespace(settings=settings, table=pd.DataFrame(rows))


@pytest.mark.long
def test_figure_1_has_every_soft_temperature_with_every_seed(convergence):
    table = read_table(convergence)
    assert (table.groupby("soft").size() == 2).all()
    assert table["density"].between(0, 1).all()
    assert (convergence / "convergence.svg").exists()


@pytest.mark.long
def test_a_softer_gradient_gets_further_and_prunes_more(convergence):
    table = read_table(convergence).set_index("soft")
    assert (table.loc[10.0, "last"] < table.loc[1000.0, "last"].min() - 0.1).all()
    assert (table.loc[10.0, "density"] < table.loc[1000.0, "density"].min()).all()


@pytest.mark.long
def test_the_conclusion_has_the_least_objective_and_that_of_a_single_temperature(convergence):
    table = read_table(convergence)
    made = report_on(convergence, fig1.EXPERIMENT)
    first, second = made.conclusion.split("At t_s = 1000 = t_l, a single temperature, ")
    assert "lowest at t_s = 10, " in first
    for said, soft in ((first, 10.0), (second, 1000.0)):
        medians = table[table["soft"] == soft][["last", "density"]].median()
        assert all(f" {median:.3f} [" in said for median in medians)
    assert [line.split(":")[0] for line in made.body[1:]] == ["- t_s", "- step 100, step 300", "- density"]


@pytest.mark.parametrize("failed", [(0,), (0, 1)])
def test_the_conclusion_leaves_failed_runs_out(convergence_of_one, failed):
    table = convergence_of_one.table.copy()
    table.loc[list(failed), ["early", "last"]] = np.nan
    said = " ".join(fig1.conclusion(SimpleNamespace(settings=convergence_of_one.settings, table=table)))
    assert "nan" not in said
    assert ("lowest at t_s = 10, 0.500" in said) == (failed == (0,))
    assert ("all 2 runs met NaN" in said) == (failed == (0, 1))


def test_only_the_mask_and_the_weights_descend_and_the_mask_s_own_weights_are_held_at_1():
    settings = fig1.Settings(**CONVERGENCE)
    problem = fig1.prepare(settings, settings.data())
    found = fig1.search(settings, 10.0)(settings.seed_keys()[0], problem)
    assert (np.asarray(found.params["mask"]) == np.asarray(found.mask["mask"])).all()
    assert np.abs(np.asarray(found.params["weights"])).max() > 0


@pytest.mark.long
def test_findings_are_ready_for_the_record(convergence):
    assert len(read_findings(convergence)) == 6


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"classes": (1,)}, "classes: expected two"),
        ({"classes": (1, 1)}, "classes: expected two"),
        ({"soft": ()}, "soft: expected"),
        ({"soft": (2000.0,)}, "soft: expected at most hard"),
        ({"strength": -1.0}, "strength: expected"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        fig1.Settings(**settings).check()


def test_a_class_that_is_not_in_the_data_is_refused():
    with pytest.raises(ValueError, match="classes: digits has no examples of class 11"):
        fig1.Settings(classes=(0, 11)).data()
