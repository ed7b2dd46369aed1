"""Channels and neurons that are found and cut out: what is compared, what is measured, what is refused."""

import dataclasses
from types import SimpleNamespace

import jax
import numpy as np
import optax
import pandas as pd
import pytest
from pages import charted
from small import same

import jaxarch
from jaxarch import ArgumentError
from jaxarch.io import read_npz
from jaxarch.lab.harness import plan_of, report_on, run_in, time_of
from jaxarch.lab.pruning import channels, cutting, unit_searches
from jaxarch.lab.pruning.channels import EXPERIMENT
from jaxarch.lab.pruning.unit_settings import DENSE, METHODS, ChannelSettings
from jaxarch.lab.reproduction import read_findings
from jaxarch.lab.results import read_manifest, read_table
from jaxarch.run import over_seeds

TINY = ChannelSettings(seeds=2, model="mlp", widths=(12, 8), shares=(0.25, 0.5), search_steps=3, steps=3)
CNN = ChannelSettings(seeds=2, widths=(6, 8), shares=(0.5, 0.25), search_steps=60, steps=60)
NO_CUT = cutting.Cut(0.0, 0.0, 0, 0, 0.0, 0, 0.0, 0)


@pytest.fixture(scope="module")
def task():
    return unit_searches.prepare(TINY.complete())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("channels")
    run_in(made, EXPERIMENT, CNN)
    return made


def kept_of_each_layer(masks):
    """How many neurons of the two hidden layers the masks of all seeds keep."""
    return [np.asarray(masks["layers"][layer]["bias"]).sum(-1).tolist() for layer in (0, 1)]


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*density .* was not reached:jaxarch.ResultWarning")
@pytest.mark.filterwarnings("ignore:.*the target was missed:jaxarch.ResultWarning")
@pytest.mark.parametrize("search", ["two-temperature", "AP", "TAS", "magnitude"])
def test_a_seed_begins_every_search_from_the_same_weights(search, task, monkeypatch):
    begun = []

    def run(strategy, keys, problem, *settings, network, **options):
        begun.append(network.params)
        return over_seeds(strategy, keys, problem, *settings, network=network, **options)

    monkeypatch.setattr(unit_searches, "over_seeds", run)
    unit_searches.SEARCHES[search](task, {"dead_start": "ignore"})
    (params,) = begun
    initial = jax.vmap(task.problem.init)(task.settings.seed_keys(3))[0]
    # Two-temperature and TAS have networks of their own for each of the two shares.
    for first in (0, 2) if search in ("two-temperature", "TAS") else (0,):
        assert same(jax.tree.map(lambda leaf, first=first: leaf[first : first + 2], params), initial)


@pytest.mark.long
def test_what_is_left_of_a_network_is_trained_from_the_initial_weights_of_its_seed(task, monkeypatch):
    still = task._replace(problem=task.problem.descending(optimizer=optax.sgd(0.0)))
    trained = []
    monkeypatch.setattr(cutting, "cut", lambda network, *others: trained.append(network) or NO_CUT)
    masks = unit_searches.SEARCHES["random"](task, {})["random"].masks["0.5"]
    swapped = jax.tree.map(lambda leaf: leaf[::-1], masks)
    runs = pd.DataFrame({"strategy": "random", "share": 0.5, "seed": [1, 0], "search_failed_at": -1})
    cutting.trained(runs, swapped, still, None, None)
    initial = jax.vmap(task.problem.init)(task.settings.seed_keys(3))[0]
    for seed, network in zip((1, 0), trained, strict=True):
        of_seed = [jax.tree.map(lambda leaf, seed=seed: leaf[seed], tree) for tree in (masks, initial)]
        assert same(network.params, jaxarch.masks.apply_mask(*of_seed))


def test_without_a_published_split_every_seed_trains_on_half_and_is_tested_on_the_others(task):
    train = np.asarray(task.problem.train)
    assert not same(train[0], train[1])
    for seed in range(2):
        assert len(set(np.bincount(task.images.y[train[seed]]))) == 1
        assert sorted([*train[seed], *task.test[seed]]) == list(range(len(task.images.y)))


def test_with_a_published_split_all_seeds_train_on_its_rows(monkeypatch):
    images = jaxarch.lab.data.load_images("digits")._replace(train=1000)
    monkeypatch.setattr(unit_searches, "load_images", lambda name: images)
    ready = unit_searches.prepare(TINY.complete())
    assert np.asarray(ready.problem.train).tolist() == list(range(1000))
    assert ready.test.tolist() == [list(range(1000, len(images.y)))] * 2


@pytest.mark.long
def test_magnitude_per_layer_keeps_the_share_of_each_layer_and_magnitude_that_of_all(task):
    found = unit_searches.SEARCHES["magnitude"](task, {"dead_start": "ignore"})
    assert kept_of_each_layer(found["magnitude per layer"].masks["0.25"]) == [[3, 3], [2, 2]]
    first, second = kept_of_each_layer(found["magnitude"].masks["0.25"])
    assert [a + b for a, b in zip(first, second, strict=True)] == [5, 5]


@pytest.mark.long
def test_two_temperature_keeps_as_many_units_as_a_share_says(task):
    found = unit_searches.SEARCHES["two-temperature"](task, {"dead_start": "ignore"})["two-temperature"]
    for share, units in (("0.5", 10), ("0.25", 5)):
        first, second = kept_of_each_layer(found.masks[share])
        assert [a + b for a, b in zip(first, second, strict=True)] == [units, units]


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*the target was missed:jaxarch.ResultWarning")
def test_tas_trains_weights_on_half_of_the_rows_and_logits_on_the_other_half(task, monkeypatch):
    problems = []

    def run(strategy, keys, problem, targets, **options):
        problems.append((problem, targets))
        return over_seeds(strategy, keys, problem, targets, **options)

    monkeypatch.setattr(unit_searches, "over_seeds", run)
    found = unit_searches.SEARCHES["TAS"](task, {"dead_start": "ignore"})["TAS"]
    [(problem, targets)] = problems
    assert targets.tolist() == [0.5, 0.5, 0.25, 0.25]  # of 20 neurons, as many as others keep
    whole = np.asarray(task.problem.train)[[0, 1, 0, 1]]
    halves = np.concatenate([problem.train, problem.validation], axis=1)
    assert same(np.sort(halves), np.sort(whole))
    assert problem.train.shape[1] == whole.shape[1] // 2
    assert list(found.masks) == ["0.5", "0.25"]
    counts = [np.asarray(found.masks["0.5"]["layers"][layer]["bias"]).shape for layer in (0, 1)]
    assert counts == [(2, 12), (2, 8)]


def test_networks_of_tas_with_other_numbers_of_units_than_their_share_says_are_noted():
    rows = {"strategy": ["TAS", "TAS", "TAS", "AP"], "share": [0.5, 0.5, 0.25, 0.5], "units": [20, 24, 12, 9]}
    table = pd.DataFrame(rows | {"all_units": 48})
    assert cutting.off_target(table) == [
        "! TAS: 1 of 2 networks of share 0.5 have 20 to 20 units, and not 24"
    ]


@pytest.mark.long
def test_a_smaller_network_that_computes_something_else_is_not_reported(task, monkeypatch):
    one = task.problem.of_run(0)
    params, state = one.init(jax.random.key(3))
    network = jaxarch.Network(params, state=state)
    rows = task.test[0]
    outputs = np.asarray(one.predict(network.params, network.state, one.gather(one.data, None, rows)))
    moved = network.replace(params=jax.tree.map(lambda leaf: leaf * 1.01, network.params))
    monkeypatch.setattr(
        cutting, "shrink", lambda network, problem: SimpleNamespace(network=moved, problem=problem)
    )
    message = "the smaller network's outputs differ by .*; please report this as a bug"
    with pytest.raises(RuntimeError, match=message):
        cutting.cut(network, one, task, rows, outputs)


def test_a_dry_run_says_what_would_be_trained():
    lines = plan_of(EXPERIMENT, TINY)
    assert lines[0] == ("parent: mlp, 944 connections; 20 neurons in 2 groups; pictures of (8, 8, 1)")
    assert "search: two-temperature: 4 trainings of 3 steps of batch 50" in lines
    assert "search: TAS: 4 trainings of 3 steps of batch 50" in lines
    assert "search: magnitude: 2 trainings of 3 steps of batch 50" in lines  # of both its methods
    assert lines[-1] == "then 26 networks trained for 3 steps, tested whole and cut"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shares": (0.5, 1.0)}, "shares: expected numbers between 0 and 1, got 1.0"),
        ({"shares": ()}, "shares: expected at least one number"),
        ({"shares": (0.05,)}, "density: "),
        ({"methods": ("lottery",)}, "methods: unknown 'lottery'"),
        ({"methods": ()}, "methods: expected"),
        ({"methods": ("AP", "AP")}, "methods: 'AP' is named twice"),
        ({"model": "lenet"}, "widths: only an mlp, a cnn or a gpt takes widths; leave them out for lenet"),
        ({"model": "vgg19", "widths": ()}, "model: unknown 'vgg19'"),
        ({"soft": 200.0}, "soft: expected at most hard"),
        ({"mask_rate": 0.0}, "mask_rate: expected"),
        ({"logits_rate": 0.0}, "logits_rate: expected"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(settings, message):
    with pytest.raises(ArgumentError, match=message):
        plan_of(EXPERIMENT, dataclasses.replace(TINY, **settings))


@pytest.mark.parametrize(
    ("dataset", "model", "units"),
    [("digits", "cnn", "channels"), ("mnist", "lenet", "neurons"), ("cifar10", "resnet20", "channels")],
)
def test_a_data_set_has_a_parent_that_suits_it(dataset, model, units):
    settings = ChannelSettings(dataset=dataset).complete()
    settings.check()
    assert (settings.model, settings.units) == (model, units)


@pytest.mark.long
def test_every_method_has_a_network_of_every_share_and_seed_and_the_dense_one_is_beside_them(folder):
    table = read_table(folder)
    assert table["strategy"].unique().tolist() == [DENSE, *METHODS]
    assert (table.groupby(["strategy", "share"]).size() == 2).all()
    assert len(table) == 2 * (1 + 2 * len(METHODS))


@pytest.mark.long
def test_a_network_that_is_cut_is_as_accurate_as_before_and_has_no_more_units_than_its_share(folder):
    table = read_table(folder)
    assert (table["accuracy"] - table["shrunk_accuracy"]).abs().max() < 2e-3
    assert table["difference"].max() <= cutting.ROUNDING
    assert (table["all_units"] == 14).all()
    exact = table[table["strategy"] != "TAS"]  # a cost to reach, and not a number of units
    assert (exact["units"] <= (exact["share"] * 14).round()).all()


@pytest.mark.long
def test_what_a_network_costs_is_what_a_network_of_so_many_channels_costs(folder):
    table, masks = read_table(folder), read_npz(folder / "masks.npz")
    row = table.query("strategy == 'random' and share == 0.5 and seed == 0").iloc[0]
    first, second = (int(masks[f"random/0.5/norms/{layer}/scale"][0].sum()) for layer in (0, 1))
    assert row["units"] == first + second
    # 8 x 8 places of 3 x 3 windows, 4 x 4 of the second ones, and a head for ten classes.
    assert row["multiply_adds"] == 64 * 9 * first + 16 * 9 * first * second + 10 * second
    assert row["parameters"] == 9 * first + 2 * first + 9 * first * second + 2 * second + 10 * second + 10
    assert row["dense_multiply_adds"] == 64 * 9 * 6 + 16 * 9 * 6 * 8 + 10 * 8


@pytest.mark.long
def test_comparisons_are_at_one_share_and_of_one_seed_with_itself(folder):
    table, pairs = read_table(folder), read_table(folder, "comparisons.csv")
    assert len(pairs) == 2 * len(METHODS) * (len(METHODS) - 1) / 2
    ours, theirs = (
        table.query(f"strategy == '{name}' and share == 0.25").sort_values("seed")["accuracy"].to_numpy()
        for name in ("AP", "random")
    )
    pair = pairs.query("first == 'AP' and second == 'random' and share == 0.25")
    assert np.isclose(pair["median"].item(), np.median(ours - theirs))


@pytest.mark.long
def test_budgets_findings_masks_and_the_figure_are_there(folder):
    table = read_table(folder)
    steps = table.groupby("strategy")[["search_steps", "steps"]].first()
    assert steps.loc["AP"].tolist() == [60, 60]
    assert steps.loc["random"].tolist() == steps.loc[DENSE].tolist() == [0, 60]
    measured = [line.what for line in read_findings(folder)]
    assert "accuracy of two-temperature minus random, share 0.5" in measured
    assert "accuracy of TAS minus random, share 0.5" in measured
    assert "multiply-adds of magnitude per layer, share 0.25" in measured
    assert {path.split("/")[0] for path in read_npz(folder / "masks.npz")} >= set(METHODS)
    assert len(report_on(folder, EXPERIMENT).body) >= 6
    assert charted(folder, EXPERIMENT)
    assert (folder / "channels.svg").exists()
    assert read_manifest(folder)["settings"]["model"] == "cnn"


@pytest.mark.long
def test_the_conclusion_has_the_highest_median_at_the_smallest_share_and_the_dense_network(folder):
    table, made = read_table(folder), report_on(folder, EXPERIMENT)
    medians = table.query("share == 0.25").groupby("strategy", sort=False)["accuracy"].median()
    best = medians.idxmax()
    assert f"{best} has the highest median test accuracy, {medians.max():.3f} [" in made.conclusion
    dense = table.query("strategy == 'dense'")["accuracy"].median()
    assert f"the dense network has {dense:.3f} [" in made.conclusion
    assert "AP minus random is " in made.conclusion
    assert [line.split(":")[0] for line in made.body[1:8]] == [f"- {name}" for name in (DENSE, *METHODS)]


@pytest.mark.long
def test_runs_that_fail_have_no_figures_and_are_counted(task, monkeypatch):
    diverging = task._replace(problem=task.problem.descending(optimizer=optax.sgd(1e30)))
    settings = dataclasses.replace(task.settings, methods=("random",), shares=(0.5,))
    with pytest.warns(jaxarch.NonFiniteWarning):
        measured = cutting.measure(diverging._replace(settings=settings), None)
    assert measured.table[["accuracy", "shrunk_accuracy", "multiply_adds"]].isna().all(axis=None)
    for table in (channels._accuracies(measured.table, ""), channels._costs(measured.table)):
        assert "-" in table.rows[0]
    results = SimpleNamespace(
        settings=vars(settings), table=measured.table, read=lambda name: measured.comparisons
    )
    assert list(channels.conclusion(results)) == [
        "With 0.5 of the neurons kept, all runs met NaN or infinity."
    ]


class Killed(Exception):
    pass


@pytest.fixture(scope="module")
def whole(task):
    """A task of few methods, and its measurements without interruption."""
    few = task._replace(settings=dataclasses.replace(task.settings, shares=(0.5,), methods=("AP", "random")))
    return few, cutting.measure(few, None)


@pytest.mark.long
@pytest.mark.parametrize("borders", [1, 5])
def test_a_run_that_was_killed_ends_as_one_that_was_not_and_then_has_nothing_left_to_do(
    whole, tmp_path, borders
):
    def killed(border, left=iter(range(borders))):  # noqa: B008
        if next(left, None) is None:
            raise Killed

    task, expected = whole
    resumed = task._replace(settings=dataclasses.replace(task.settings, resume=str(tmp_path / "resume")))
    with pytest.raises(Killed):
        cutting.measure(resumed, killed)
    told = []
    for progress in (None, told.append):
        again = cutting.measure(resumed, progress)
        tables = (of.table.drop(columns=["seconds", "search_seconds"]) for of in (expected, again))
        pd.testing.assert_frame_equal(*tables, check_exact=True)
    assert not told


@pytest.mark.long
def test_a_dry_run_says_how_long_it_takes():
    [line] = time_of(EXPERIMENT, TINY)
    assert line.startswith("time: about ")
