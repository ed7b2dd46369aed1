"""What the project says of [D], measured again on real data: both orientations, ten runs (on MNIST four)."""

import numpy as np
import pytest

from jaxarch.lab.disentangling import strategies
from jaxarch.lab.harness import run_in
from jaxarch.lab.results import read_table

pytestmark = pytest.mark.long

MEASURED = ("real", "real->bin", "bin", "bin->real warm", "bin->real cold", "random", "unconstrained real")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits")
    run_in(folder, strategies.EXPERIMENT, strategies.Settings(strategies=MEASURED))
    return read_table(folder)


def better_orientation(table):
    """The median AUC of each strategy in its better orientation."""
    return table.groupby(["strategy", "flipped"])["auc"].median().groupby("strategy").max()


@pytest.fixture(scope="module")
def medians(table):
    return better_orientation(table)


@pytest.mark.parametrize("strategy", ["real", "real->bin", "bin"])
def test_the_median_auc_is_at_least_90_percent_in_the_better_orientation(medians, strategy):
    assert medians[strategy] >= 0.90


def test_architectures_alone_come_within_two_hundredths_of_nonnegative_weights(medians):
    assert abs(medians["bin"] - medians["real"]) < 0.02


def test_nonnegativity_costs_more_than_three_hundredths(medians):
    assert medians["unconstrained real"] > medians["real"] + 0.03


def test_random_weights_saturate_the_network(table):
    random = table[table["strategy"] == "random"]
    assert random["constant"].all()
    assert (random["auc"] == 0.5).all()


def test_binary_networks_are_sparse_and_trained_ones_are_not_constant(table):
    trained = table[table["strategy"].isin(["real", "real->bin", "bin", "bin->real warm"])]
    assert not trained["constant"].any()
    assert (table[table["strategy"] == "bin"]["density"] < 0.2).all()
    assert (table[table["strategy"] == "real"]["density"] == 1).all()


def test_retraining_keeps_the_density_of_the_architecture(table):
    density = {name: runs["density"].to_numpy() for name, runs in table.groupby("strategy")}
    for retrained in ("bin->real warm", "bin->real cold"):
        assert np.array_equal(density["bin"], density[retrained])


def test_on_mnist_too_architectures_alone_reach_90_percent_and_untrained_ones_do_not(data_folder, tmp_path):
    chosen = ("real", "real->bin", "bin", "agnostic", "random")
    run_in(tmp_path, strategies.EXPERIMENT, strategies.Settings(dataset="mnist", seeds=4, strategies=chosen))
    medians = better_orientation(read_table(tmp_path))
    assert (medians[["real", "real->bin", "bin"]] >= 0.90).all()
    assert medians["agnostic"] <= 0.78
    assert medians["random"] == 0.5
