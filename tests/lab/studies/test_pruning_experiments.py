"""The experiments of [A]: what they measure, on few examples and few steps."""

import numpy as np
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
