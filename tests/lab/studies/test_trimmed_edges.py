"""The study of trimmed edges: densities, comparisons with random edges and the whole graph, and its words."""

import numpy as np
import pandas as pd
import pytest
from pages import charted

from jaxarch import ArgumentError
from jaxarch.lab.harness import plan_of, report_on, run_in
from jaxarch.lab.related_work import trimmed_edges
from jaxarch.lab.related_work.trimmed_edges import RANDOM, TEDDY, WHOLE, TrimmedEdgesSettings, verdict
from jaxarch.lab.reproduction import read_findings
from jaxarch.lab.results import read_table

SMALL = TrimmedEdgesSettings(seeds=2, steps=2, densities=(0.5,), hidden=2)


@pytest.fixture(scope="module")
def trimmed(tmp_path_factory):
    made = tmp_path_factory.mktemp("trimmed")
    run_in(made, trimmed_edges.EXPERIMENT, SMALL)
    return made


@pytest.mark.long
def test_every_method_keeps_exactly_half_of_the_edges(trimmed):
    table = read_table(trimmed).set_index("strategy")
    assert set(table.index) == {WHOLE, *trimmed_edges.METHODS}
    assert (table.drop(index=WHOLE)["edges"] == 2268).all()
    assert (table.loc[WHOLE, "edges"] == 4536).all()


@pytest.mark.long
def test_edges_by_degree_leave_fewer_nodes_alone_than_random_ones_and_these_than_reversed(trimmed):
    alone = read_table(trimmed).groupby("strategy")["test_nodes_without_edges"].max()
    assert alone[TEDDY] < alone[RANDOM] < alone["reversed TEDDY"]


@pytest.mark.long
def test_edges_by_degree_are_the_same_for_all_seeds_and_random_ones_are_not(trimmed):
    shares = read_table(trimmed).groupby("strategy")["edges_within_a_class"].nunique()
    assert shares[TEDDY] == 1
    assert shares[RANDOM] == 2


@pytest.mark.long
def test_the_report_has_a_figure_a_table_and_a_conclusion(trimmed):
    made = report_on(trimmed, trimmed_edges.EXPERIMENT)
    assert (trimmed / "accuracy.png").is_file()
    assert "not told apart, with n = 2, from edges kept at random" in made.conclusion
    assert charted(trimmed, trimmed_edges.EXPERIMENT)
    assert len(read_findings(trimmed)) == 6 + 5 + 4  # accuracies; minus the whole graph; minus random edges


def runs():
    """Ten runs a method: trimming by degree is .1 above random edges, and .01 below the whole graph."""
    noise = np.arange(10) / 1000
    of = {(WHOLE, 1.0): 0.7, (TEDDY, 0.5): 0.69, (RANDOM, 0.5): 0.59}
    rows = [
        pd.DataFrame(
            {
                "strategy": name,
                "density": density,
                "seed": range(10),
                "accuracy": value + (1 - density) * noise,
            }
        )
        for (name, density), value in of.items()
    ]
    return pd.concat(rows).sample(frac=1, random_state=0)


def test_methods_are_compared_seed_by_seed_with_random_edges_of_their_density_and_the_whole_graph():
    compared = trimmed_edges._compared(runs()).set_index(["strategy", "against"])
    assert set(compared.index) == {(TEDDY, WHOLE), (RANDOM, WHOLE), (TEDDY, RANDOM)}
    row = compared.loc[(TEDDY, RANDOM)]
    assert row[["q25", "median", "q75"]].tolist() == pytest.approx([0.1, 0.1, 0.1])
    assert row["wins"] == 10


def test_the_verdict_names_the_densities_with_a_small_p_by_their_sign():
    pairs = pd.DataFrame(
        {
            "density": [0.9, 0.5, 0.1],
            "median": [0.01, 0.02, -0.03],
            "p_adjusted": [0.2, 0.01, 0.02],
            "runs": 10,
        }
    )
    assert verdict(pairs, 3).startswith("better at density 0.5 and worse at density 0.1 (p < 0.05, adjusted")
    assert verdict(pairs[:1], 3).startswith("neither better nor worse at any density")
    assert verdict(pairs.assign(runs=4), 3) == "not told apart, with n = 4, from"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"methods": ("SNAP",)}, "methods: "),
        ({"methods": (TEDDY, TEDDY)}, "methods: "),
        ({"densities": (1.5,)}, "densities: "),
        ({"densities": ()}, "densities: "),
        ({"steps": 0}, "steps: "),
        ({"dropout": 1.0}, "dropout: "),
        ({"rate": 0.0}, "rate: "),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ArgumentError, match=f"^{message}"):
        plan_of(trimmed_edges.EXPERIMENT, TrimmedEdgesSettings(**settings))
