"""Experiments of others' papers: what is pruned when, where training begins again, what is measured of it."""

import dataclasses
from types import SimpleNamespace

import jax
import numpy as np
import pandas as pd
import pytest
from pages import charted
from places import ROOT
from small import same

import jaxarch
from jaxarch import ArgumentError
from jaxarch.lab import reproduction
from jaxarch.lab.harness import Work, plan_of, report_on, run_in, time_of
from jaxarch.lab.related_work import collapse, tickets
from jaxarch.lab.related_work.collapse import CollapseSettings
from jaxarch.lab.related_work.tickets import FRESH, TICKETS, TicketSettings
from jaxarch.lab.reproduction import read_findings
from jaxarch.lab.results import read_manifest, read_table
from jaxarch.lab.tournament.task import prepare

SMALL = CollapseSettings(seeds=2, widths=(6, 12), batches=2, rounds=30, each_tenfold=2)
# A rate at which float32 weights stay where they are.
STILL = TicketSettings(seeds=2, widths=(12,), steps=4, every=2, rounds=2, reinitialised=2, rate=1e-30)


@pytest.fixture(scope="module")
def collapsed(tmp_path_factory):
    made = tmp_path_factory.mktemp("collapse")
    run_in(made, collapse.EXPERIMENT, SMALL)
    return made


@pytest.fixture(scope="module")
def still():
    task = prepare(STILL.complete())
    loaded = tickets.Loaded(task, tickets._problem(task))
    whole = tickets._whole(loaded, 0, {}, Work())
    ticket = tickets._ticket(loaded, 1, {"whole": whole}, Work())
    return SimpleNamespace(loaded=loaded, task=task, problem=loaded.problem, whole=whole, ticket=ticket)


@pytest.mark.long
def test_every_density_is_met_exactly_by_every_method(collapsed):
    table = read_table(collapsed)
    task = collapse.prepare(SMALL.complete())
    assert set(table["strategy"]) == set(collapse.METHODS)
    kept = table[list(task.sizes)].sum(axis=1)
    assert kept.tolist() == [round(density * task.connections) for density in table["density"]]
    assert table["emptiest"].tolist() == table[list(task.sizes)].min(axis=1).tolist()


@pytest.mark.long
def test_the_last_density_leaves_as_many_connections_as_there_are_layers(collapsed):
    table = read_table(collapsed)
    last = table[table["density"] == table["density"].min()]
    layers = collapse.prepare(SMALL.complete()).sizes
    assert set(last[list(layers)].sum(axis=1)) == {len(layers)}


@pytest.mark.long
def test_synflow_keeps_every_layer_to_the_largest_compression_and_one_round_of_it_does_not(collapsed):
    table = read_table(collapsed)
    most = collapse.prepare(SMALL.complete()).most
    reached = {name: collapse.critical(rows) for name, rows in table.groupby("strategy")}
    np.testing.assert_allclose(reached["SynFlow"], most)
    assert (reached["SynFlow, one round"] < most / 3).all()


def test_the_critical_compression_is_the_last_one_before_a_layer_is_empty():
    rows = pd.DataFrame(
        {
            "seed": [0, 0, 0, 1, 1, 1],
            "compression": [4.0, 16.0, 2.0, 2.0, 4.0, 16.0],
            # A layer that is there again later has been empty all the same.
            "empty_layers": [1, 0, 0, 0, 0, 0],
        }
    )
    assert collapse.critical(rows).tolist() == [2.0, 16.0]


def test_of_the_layers_that_are_empty_first_one_is_named_and_the_others_are_counted():
    rows = pd.DataFrame({"seed": 0, "compression": [4.0, 2.0], "a": [0, 1], "b": [0, 0], "c": [0, 0]})
    rows["empty_layers"] = (rows[["a", "b", "c"]] == 0).sum(axis=1)
    assert collapse.first_empty(rows, "abc") == "b and 1 more"
    assert collapse.first_empty(rows.assign(c=1), "abc") == "b"
    assert collapse.first_empty(rows.assign(empty_layers=0), "abc") == "-"
    other = rows.assign(seed=1, a=0, b=1, c=1, empty_layers=1)
    assert collapse.first_empty(pd.concat([rows, other]), "abc") == "b and 2 more"


@pytest.mark.long
def test_with_normal_initial_weights_initial_magnitude_empties_a_layer_later(collapsed, tmp_path):
    one = dataclasses.replace(SMALL, initial="normal", methods=("magnitude at start",))
    run_in(tmp_path, collapse.EXPERIMENT, one)
    own, normal = read_table(collapsed), read_table(tmp_path)
    own = own[own["strategy"] == "magnitude at start"]
    assert (collapse.critical(normal) > collapse.critical(own)).all()


@pytest.mark.long
def test_a_line_of_the_figure_of_layers_ends_where_one_is_empty(collapsed, monkeypatch):
    drawn = {}
    monkeypatch.setattr(
        collapse.plots, "trade_off", lambda points, *texts, **options: drawn.update(points) or plot(points)
    )
    plot = lambda points: jaxarch.plots.trade_offs({"": points}, "", "")  # noqa: E731
    texts = str(
        [line.rows for line in report_on(collapsed, collapse.EXPERIMENT).body if hasattr(line, "rows")]
    )
    assert all((emptiest > 0).all() for _, emptiest in drawn.values())
    assert len(drawn["SynFlow"][0][0]) > len(drawn["SynFlow, one round"][0][0])
    assert "SynFlow, one round" in texts
    assert charted(collapsed, collapse.EXPERIMENT)
    assert len(read_findings(collapsed)) == len(collapse.METHODS)


@pytest.mark.long
def test_the_conclusion_has_the_largest_compression_and_the_medians_of_the_others(collapsed):
    made = report_on(collapsed, collapse.EXPERIMENT)
    groups = read_table(collapsed).groupby("strategy")
    medians = {name: np.median(collapse.critical(rows)) for name, rows in groups}
    for name, median in medians.items():
        assert f"{name} {median:,.0f}" in made.conclusion
    farthest = max(medians, key=medians.get)
    assert f"without an empty layer is {farthest} " in made.conclusion
    explained = [line.split(": ")[0] for line in made.body if str(line).startswith("- ")]
    assert explained == [f"- {name}" for name in (*collapse.METHODS, "compression")]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"methods": ("SNAP",)}, "methods: "),
        ({"batches": 0}, "batches: "),
        ({"rounds": 0}, "rounds: "),
        ({"each_tenfold": 0}, "each_tenfold: "),
        ({"model": "lenet", "widths": (3,)}, "widths: "),
    ],
)
def test_bad_settings_of_collapse_are_refused(settings, message):
    with pytest.raises(ArgumentError, match=f"^{message}"):
        plan_of(collapse.EXPERIMENT, CollapseSettings(**settings))


@pytest.mark.long
def test_a_ticket_begins_from_the_first_weights_of_its_seed(still):
    assert same(still.ticket.start, still.whole.start)
    # Biases, which are 0 at first, have been moved by what 1e-30 moves.
    left = jaxarch.masks.apply_mask(still.ticket.mask, still.whole.start)
    assert same(jaxarch.select(still.ticket.params), jaxarch.select(left))


@pytest.mark.long
def test_a_ticket_is_trained_from_the_first_weights_and_not_on():
    settings = dataclasses.replace(STILL, rate=1e-3, steps=60, every=60)
    task = prepare(settings.complete())
    whole = tickets._whole(tickets.Loaded(task, tickets._problem(task)), 0, {}, Work())
    # A round in which the training stands still, so that what it began from is what it leaves.
    standing = dataclasses.replace(settings, rate=1e-30)
    still_task = prepare(standing.complete())
    loaded = tickets.Loaded(still_task, tickets._problem(still_task))
    ticket = tickets._ticket(loaded, 1, {"whole": whole}, Work())
    began = jaxarch.masks.apply_mask(ticket.mask, whole.start)
    assert same(jaxarch.select(ticket.params), jaxarch.select(began))
    assert not same(jaxarch.select(whole.params), jaxarch.select(whole.start))


@pytest.mark.long
def test_a_round_removes_its_share_of_the_smallest_weights_of_each_layer(still):
    for seed in range(2):
        mask, trained = (
            jax.tree.map(lambda leaf, seed=seed: np.asarray(leaf)[seed], tree)
            for tree in (still.ticket.mask, still.whole.params)
        )
        for (path, kept), share in zip(
            jaxarch._internal.trees.named_leaves(mask).items(), (0.2, 0.1), strict=True
        ):
            sizes = np.abs(jaxarch._internal.trees.named_leaves(trained)[path])
            assert kept.sum() == kept.size - round(share * kept.size)
            assert sizes[kept].min() >= sizes[~kept].max()


@pytest.mark.long
def test_fresh_weights_are_other_ones_every_time_on_the_same_connections(still, monkeypatch):
    trained = []
    monkeypatch.setattr(
        tickets, "_measured", lambda network, *others: trained.append(network) or {"accuracy": np.zeros(4)}
    )
    rows = tickets._fresh(still.loaded, 1, {"round 1": still.ticket}, Work())
    assert rows["seed"].tolist() == [0, 1, 0, 1]
    assert rows["repetition"].tolist() == [0, 0, 1, 1]
    (network,) = trained
    assert same(network.mask, jax.tree.map(lambda leaf: np.asarray(leaf)[rows["seed"]], still.ticket.mask))
    kernels, first = (
        np.asarray(jax.tree.leaves(jaxarch.select(tree))[0]) for tree in (network.params, still.whole.start)
    )
    assert len({tuple(weights[weights != 0][:20]) for weights in [*kernels, *first]}) == 6


@pytest.mark.long
def test_training_should_have_stopped_where_the_held_out_loss_was_least(still):
    looks = {
        "loss": np.array([[0.5, np.nan], [0.4, 0.6]]),
        "accuracy": np.array([[0.8, np.nan], [0.7, 0.9]]),
    }
    report = SimpleNamespace(stages=[SimpleNamespace(validation=looks)], seconds=1.0)
    network = jaxarch.Network(still.whole.params, still.whole.mask, still.whole.state)
    network = network.replace(info=jaxarch.TrainingInfo(failed_at=np.array([-1, -1])))
    measured = tickets._measured(network, report, still.task, still.problem, np.arange(2))
    assert measured["stop_step"].tolist() == [4, 4]
    assert measured["held_out_accuracy"].tolist() == [0.7, 0.9]
    failed = network.replace(info=jaxarch.TrainingInfo(failed_at=np.array([3, -1])))
    measured = tickets._measured(failed, report, still.task, still.problem, np.arange(2))
    assert np.isnan(measured["accuracy"]).tolist() == [True, False]


def test_rounds_that_leave_nothing_of_a_layer_are_refused():
    with pytest.raises(
        ArgumentError, match=r"^rounds: expected fewer than 3, after which layers/0/kernel has no connection"
    ):
        plan_of(tickets.EXPERIMENT, TicketSettings(widths=(2,), fraction=0.9, rounds=40))


def test_looks_that_are_further_apart_than_the_training_is_long_are_refused():
    with pytest.raises(ArgumentError, match=r"^every: "):
        plan_of(tickets.EXPERIMENT, TicketSettings(steps=10, every=11))


@pytest.mark.long
def test_tickets_are_told_compared_and_drawn(tmp_path):
    settings = TicketSettings(seeds=3, widths=(12,), steps=40, every=20, rounds=2, reinitialised=1)
    assert any(
        "9 trainings of tickets and 6 with reinitialised" in line
        for line in plan_of(tickets.EXPERIMENT, settings)
    )
    assert time_of(tickets.EXPERIMENT, settings)[0].startswith("time: about")
    run_in(tmp_path, tickets.EXPERIMENT, settings)
    table = read_table(tmp_path)
    assert table.groupby("strategy").size().to_dict() == {TICKETS: 9, FRESH: 6}
    assert table["accuracy"].between(0, 1).all()
    shown = [line for line in report_on(tmp_path, tickets.EXPERIMENT).body if hasattr(line, "rows")]
    assert [row[0] for row in shown[0].rows] == ["1", "0.813", "0.662"]
    assert (tmp_path / "accuracy.png").exists()
    assert (tmp_path / "steps.png").exists()
    assert len(charted(tmp_path, tickets.EXPERIMENT)) == 2
    assert any("minus the whole network" in line.what for line in read_findings(tmp_path))
    whole = table.query("strategy == 'tickets' and round == 0")["accuracy"].median()
    said = report_on(tmp_path, tickets.EXPERIMENT).conclusion
    assert f"the whole network has a test accuracy of {whole:.4f} [" in said


@pytest.fixture
def kept():
    """The runs of the whole protocol that the documentation keeps."""
    folder = ROOT / "docs" / "results" / "tickets"
    table, settings = read_table(folder), read_manifest(folder)["settings"]

    def of(table):
        compared = tickets.statistics(TicketSettings(), table, {}).tables[tickets.COMPARISONS]
        return SimpleNamespace(settings=settings, table=table, read=lambda name: compared)

    return table, of


def test_the_conclusion_is_of_the_sparsest_tickets_as_accurate_as_the_whole_network(kept):
    table, of = kept
    said = " ".join(tickets.conclusion(of(table)))
    medians = table.groupby(["strategy", "round"])["accuracy"].median()
    whole = medians[TICKETS, 0]
    (number, density) = table.query("strategy == 'tickets' and round == 16")[["round", "density"]].iloc[0]
    assert medians[TICKETS, number] >= whole
    assert f"the whole network has a test accuracy of {whole:.4f} [" in said
    assert f"have density {density:.3g}, {medians[TICKETS, number]:.4f} [" in said
    assert "minus the whole network -0.0004 [" in said


@pytest.mark.parametrize("worst", [0.1, np.nan])
def test_the_conclusion_says_that_no_ticket_is_as_accurate_and_that_all_failed(kept, worst):
    table, of = kept
    pruned = (table["strategy"] == TICKETS) & (table["round"] > 0)
    worse = table.assign(accuracy=table["accuracy"].mask(pruned, worst))
    said = " ".join(tickets.conclusion(of(worse)))
    assert ("no ticket has a median as high" in said) == (worst == 0.1)
    assert ("all runs of tickets met NaN" in said) == np.isnan(worst)


def test_what_is_recorded_of_the_whole_protocol_is_what_its_runs_say():
    table = read_table(ROOT / "docs" / "results" / "tickets")
    said = {line["what"]: line for line in tickets.statistics(TicketSettings(), table, {}).findings}
    whole = "MNIST, LeNet-300-100, whole protocol: "
    recorded = [
        measured
        for paper in reproduction.read()
        for line in paper.lines
        for measured in line.measured
        if measured.what.startswith(whole)
    ]
    assert len(recorded) == 12
    for measured in recorded:
        found = said[measured.what.removeprefix(whole)]
        assert measured.runs == found["runs"] == table["seed"].nunique()
        assert measured.median == pytest.approx(found["median"], rel=5e-3)
