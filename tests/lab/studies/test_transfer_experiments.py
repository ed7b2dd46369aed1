"""Architectures from one task to another: rows, architectures, what is written, and how it goes on."""

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
from jaxarch.lab.harness import Parts, paired, plan_of, report_on, run_in
from jaxarch.lab.pruning import estimate, reporting, reshuffle, searches, tasks, transfer, trial
from jaxarch.lab.reproduction import read_findings
from jaxarch.lab.results import read_manifest, read_table
from jaxarch.run import over_seeds

METHODS = ("AP", "IMP", "random", "AP->reshuffled")
SMALL = {
    "seeds": 2,
    "sparsities": (0.5, 0.9),
    "sizes": (10, 40),
    "widths": (12,),
    "search_steps": 60,
    "training_steps": 10,
    "steps": 20,
    "samples": 2,
    "fraction": 0.7,
    "strength": 1e-3,
}
SETTINGS = transfer.Settings(methods=METHODS, **SMALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("transfer")
    run_in(made, transfer.EXPERIMENT, SETTINGS)
    return made


def prepared(**settings):
    return tasks.prepare(dataclasses.replace(SETTINGS, **settings).complete())


@pytest.fixture(scope="module")
def ready():
    return tasks.prepare(SETTINGS.complete())


@pytest.mark.long
def test_every_architecture_is_trained_once_in_every_cell(folder):
    table = read_table(folder)
    network = table[table["strategy"] != trial.PARENT]
    counts = network.groupby(["weights", "size", "sparsity", "strategy", "seed"]).size()
    assert len(counts) == 2 * 2 * 2 * len(METHODS) * 2
    assert (counts == 1).all()
    assert len(table) - len(network) == 2 * 2 * 2


@pytest.mark.long
def test_densities_are_those_of_the_sparsities_to_a_connection(folder):
    table = read_table(folder)
    connections = 64 * 12 + 12 * 5
    kept = (table["density"] * connections).round()
    assert (kept == ((1 - table["sparsity"]) * connections).round()).all()


@pytest.mark.long
def test_accuracies_are_better_than_chance_and_of_methods_that_learn_better_with_more_examples(folder):
    parent = read_table(folder).query("strategy == 'parent'").groupby("size")["accuracy"].median()
    assert parent[10] > 0.3
    assert parent[40] > parent[10]


@pytest.mark.long
def test_reshuffled_architectures_have_the_densities_of_their_layers_and_other_connections(folder, ready):
    layers = read_table(folder, reporting.LAYERS).set_index(["sparsity", "seed", "layer"])
    first, second = (layers[layers["strategy"] == name]["density"] for name in ("AP", "AP->reshuffled"))
    pd.testing.assert_series_equal(first, second)
    masks = read_npz(folder / reporting.MASKS)
    ours, theirs = (masks[f"{name}/0.1/layers/0/kernel"] for name in ("AP", "AP->reshuffled"))
    assert (ours & theirs).sum() < 0.5 * ours.sum()


@pytest.mark.long
def test_the_folder_has_the_masks_of_all_methods_densities_and_seeds(folder):
    masks = read_npz(folder / reporting.MASKS)
    for method in METHODS:
        for density in ("0.5", "0.1"):
            kept = sum(masks[f"{method}/{density}/layers/{i}/kernel"].sum((1, 2)) for i in range(2))
            assert kept.tolist() == [round(float(density) * (64 * 12 + 12 * 5))] * 2


@pytest.mark.long
def test_fresh_weights_on_the_new_task_are_not_those_that_a_search_began_from(ready):
    searched, again = (ready.settings.keys(purpose)[0] for purpose in ("search", "new task"))
    start = jaxarch.search.random_mask(1.0)(searched, ready.searching).params["layers"][0]["kernel"]
    one = ready.learning.of_run(0)
    whole = jax.tree.map(
        lambda leaf: None if leaf.ndim < 2 else np.ones(leaf.shape, bool), one.init(again)[0]
    )
    strategy = trial.training("he", ready)
    still = one.descending(optimizer=optax.sgd(0.0), steps=1)
    fresh = strategy(again, still, jaxarch.architecture(whole)).params["layers"][0]["kernel"]
    for drawn in (start, one.init(again)[0]["layers"][0]["kernel"]):
        assert abs(np.corrcoef(np.ravel(drawn[...]), np.ravel(fresh[...]))[0, 1]) < 0.15


@pytest.mark.long
def test_every_run_has_the_key_and_the_rows_of_its_seed_for_the_new_task(ready, monkeypatch):
    seen = []

    def run(strategy, keys, problem, **options):
        seen.append((jax.random.key_data(keys), problem, options["network"]))
        return over_seeds(strategy, keys, problem, **options)

    monkeypatch.setattr(trial, "over_seeds", run)
    table = measured(ready, methods=("random",)).table
    expected = jax.random.key_data(ready.settings.keys("new task"))
    for size, (keys, problem, _) in zip((10, 40), seen, strict=True):
        seeds = table.query(f"size == {size}")["seed"].to_numpy()
        assert same(keys, expected[seeds])
        assert same(problem.train, np.asarray(ready.learning.train)[seeds])
        assert problem.train_size == size


@pytest.mark.long
def test_runs_that_fail_have_no_figures_and_are_counted(ready):
    diverging = ready.learning.descending(optimizer=optax.sgd(1e30))
    with pytest.warns(jaxarch.NonFiniteWarning):
        made = measured(ready._replace(learning=diverging), methods=("random",))
    assert made.table["accuracy"].isna().all()
    assert (made.comparisons["runs"] == 0).all()
    figure = jaxarch.plots.sweep(transfer._curves(made.table), "share of connections left")
    assert not figure.axes[0].lines
    results = SimpleNamespace(manifest={"notes": []}, table=made.table)
    assert any("random: 8 of 8 runs met NaN" in line for line in reporting.remarks(results))


@pytest.mark.long
def test_each_search_is_run_once_whatever_is_made_of_it(ready):
    seen = []
    measured(ready, lambda border: seen.append(border.name), methods=("AP->reshuffled", "AP"))
    assert len([name for name in seen if "architecture pruning" in name]) == 1


@pytest.mark.long
def test_layers_are_in_the_order_of_the_data_flow(folder):
    assert read_table(folder, reporting.LAYERS)["layer"].unique().tolist() == [
        "layers/0/kernel",
        "layers/1/kernel",
    ]


@pytest.mark.long
def test_comparisons_are_within_a_cell_and_leave_the_parent_out(folder):
    pairs = read_table(folder, reporting.COMPARISONS)
    assert len(pairs) == 2 * 2 * 2 * len(METHODS) * (len(METHODS) - 1) / 2
    assert not (pairs[["first", "second"]] == trial.PARENT).any(axis=None)
    cell = "weights == 'he' and size == 40 and sparsity == 0.9"
    ours, theirs = (
        read_table(folder).query(f"{cell} and strategy == '{name}'")["accuracy"].to_numpy()
        for name in ("AP", "random")
    )
    pair = pairs.query(f"{cell} and first == 'AP' and second == 'random'")
    assert np.isclose(pair["median"].item(), np.median(ours - theirs))


@pytest.mark.long
def test_the_report_has_tables_and_both_figures(folder):
    assert len(report_on(folder, transfer.EXPERIMENT).body) >= 5
    assert charted(folder, transfer.EXPERIMENT)
    assert {"accuracy.svg", "layers.svg"} <= {path.name for path in folder.iterdir()}


@pytest.mark.long
def test_the_conclusion_has_ap_the_whole_network_and_differences_to_rivals(folder):
    table, made = read_table(folder), report_on(folder, transfer.EXPERIMENT)
    medians = table.groupby([*trial.CELL, "strategy"])["accuracy"].median().unstack("strategy")
    assert f"AP has a test accuracy of {medians['AP'].median():.3f} [" in made.conclusion
    whole = table.query("strategy == 'parent'").groupby(["weights", "size"])["accuracy"].median().median()
    assert f"the whole network has {whole:.3f} [" in made.conclusion
    pairs = read_table(folder, reporting.COMPARISONS).query("first == 'AP'").groupby("second")["median"]
    for rival in ("IMP", "random"):
        assert f"minus {rival} {pairs.median()[rival]:+.3f} [" in made.conclusion
    assert "adjusted p < 0.05: none of 8 can be with n = 2" in made.conclusion
    explained = [line.split(":")[0] for line in made.body if str(line).startswith("- ")]
    assert explained[:4] == ["- AP", "- IMP", "- random", "- METHOD->reshuffled"]


def transfer_of(methods):
    """Results of one seed in two cells; the later a method is named, the better it is."""
    cells = [{"weights": "he", "size": 10, "sparsity": sparsity} for sparsity in (0.5, 0.9)]
    accuracies = dict(zip(methods, np.linspace(0.1, 0.8, len(methods)), strict=True))
    rows = [
        {"task": "a -> b", "strategy": name, "seed": 0, "accuracy": accuracy} | cell
        for name, accuracy in accuracies.items()
        for cell in cells
    ]
    table = pd.DataFrame([{**rows[0], "strategy": trial.PARENT, "sparsity": 0.0}, *rows])
    compared = trial.compared(table[table["strategy"] != trial.PARENT], trial.CELL)
    return SimpleNamespace(settings={"seeds": 1}, table=table, read=lambda name: compared)


@pytest.mark.parametrize(
    ("methods", "words"),
    [
        (("random", "AP"), "minus random +0.700 [+0.700, +0.700]"),
        (("SNIP", "ERK"), "SNIP over the same cells: minus ERK -0.700"),
        (("random", "IMP"), "random over the same cells: minus IMP -0.700"),
        (("AP",), "AP has a test accuracy of 0.100"),
    ],
)
def test_the_conclusion_is_of_the_methods_at_hand_in_any_order(methods, words):
    said = " ".join(transfer.conclusion(transfer_of(methods)))
    assert words in said
    assert "nan" not in said


def test_the_differences_of_ap_are_shown_in_any_order_of_the_methods():
    compared = transfer_of(("random", "AP", "IMP")).read(reporting.COMPARISONS)
    rows = transfer._against(paired.against(compared, "AP")).rows
    assert {row[0]: row[1:] for row in rows} == {
        "random, 10, he": ("+.350 1/1",) * 2,
        "IMP, 10, he": ("-.350 0/1",) * 2,
    }


@pytest.mark.long
def test_the_manifest_has_all_settings_as_they_were_used(folder):
    settings = read_manifest(folder)["settings"]
    assert settings["new_classes"] == [5, 6, 7, 8, 9]
    assert settings["new_dataset"] == "digits"


@pytest.mark.long
def test_findings_are_ready_for_the_record(folder):
    measured = [line.what for line in read_findings(folder)]
    assert "accuracy of AP minus random, sparsity 0.9, 40 examples, he start" in measured
    assert "accuracy of IMP, sparsity 0.5, 10 examples, density-aware start" in measured


@pytest.mark.long
def test_the_first_examples_of_the_new_task_are_balanced_and_none_is_tested_on(ready):
    for train, test in zip(np.asarray(ready.learning.train), ready.test, strict=True):
        assert np.bincount(ready.new.y[train[:10]]).tolist() == [2] * 5
        assert not set(train) & set(test)
        assert len(set(train) | set(test)) == len(ready.new.y)


@pytest.mark.long
def test_both_tasks_label_their_classes_from_0(ready):
    assert set(ready.old.y) == set(ready.new.y) == set(range(5))
    assert ready.task == "digits 0-4 -> digits 5-9"


@pytest.mark.long
def test_in_domain_the_new_examples_are_some_that_the_search_has_not_seen():
    ready = prepared(in_domain=True, sizes=(20,))
    assert ready.settings.classes == ready.settings.new_classes == tuple(range(10))
    assert ready.task == "digits 0-9, in domain"
    searched = set(np.asarray(ready.searching.train).tolist())
    assert not searched & set(np.asarray(ready.learning.train).ravel().tolist())
    assert not searched & set(ready.test.ravel().tolist())


@pytest.mark.long
@pytest.mark.parametrize("in_domain", [False, True])
def test_where_a_split_is_published_the_search_has_the_examples_for_training(monkeypatch, in_domain):
    images = jaxarch.lab.data.load_images("digits")._replace(train=1000)
    monkeypatch.setattr(tasks, "load_images", lambda name: images)
    ready = prepared(in_domain=in_domain, sizes=(40,))
    assert np.asarray(ready.searching.train).tolist() == list(range(ready.old.train))
    train, test = (set(np.ravel(rows).tolist()) for rows in (ready.learning.train, ready.test[0]))
    held_out = set(range(ready.new.train, len(ready.new.y)))
    assert test <= held_out
    assert train <= held_out if in_domain else not train & held_out
    assert in_domain or test == held_out


def test_pooled_pictures_are_means_of_windows():
    ready = prepared(pool=4)
    raw = jaxarch.lab.data.load_images("digits").of_classes(range(5)).x[7, :4, 4:, 0]
    assert ready.old.x.shape[1:] == (2, 2, 1)
    assert ready.old.x[7, 0, 1, 0] == np.rint(raw.mean())


class Killed(Exception):
    pass


def killed_after(borders):
    left = iter(range(borders))

    def progress(border):
        if next(left, None) is None:
            raise Killed

    return progress


def measured(ready, progress=None, methods=("AP",), **settings):
    """What is measured with one start alone."""
    settings = dataclasses.replace(ready.settings, weights=("he",), **settings)
    return trial.measure(methods, ready._replace(settings=settings), progress)


@pytest.fixture(scope="module")
def whole(ready):
    return measured(ready)


@pytest.mark.long
@pytest.mark.parametrize("borders", [0, 2])
def test_a_run_that_was_killed_ends_as_one_that_was_not_and_then_has_nothing_left_to_do(
    ready, whole, tmp_path, borders
):
    folder = tmp_path / "resume"
    with pytest.raises(Killed):
        measured(ready, killed_after(borders), resume=str(folder))
    trained = []
    for progress in (None, trained.append):
        resumed = measured(ready, progress, resume=str(folder))
        tables = (m.table.drop(columns=["seconds", "search_seconds"]) for m in (whole, resumed))
        pd.testing.assert_frame_equal(*tables, check_exact=True)
    assert not trained
    assert (folder / "40-examples-he.csv").exists()


def test_a_folder_that_was_begun_with_other_data_is_refused_and_so_is_a_damaged_one(tmp_path):
    settings = dataclasses.replace(SETTINGS, resume=str(tmp_path))
    Parts(settings, data="one")
    with pytest.raises(ArgumentError, match=r"resume: .* was begun with data=one, not two"):
        Parts(settings, data="two")
    (tmp_path / "settings.json").write_text("{")
    with pytest.raises(ArgumentError, match=r"resume: .* is damaged"):
        Parts(settings, data="one")


@pytest.mark.long
def test_what_a_search_was_given_and_did_not_reach_is_reported(ready):
    settings = dataclasses.replace(ready.settings, search_steps=5)
    with pytest.warns(jaxarch.ResultWarning, match="density 0.1 was not reached in 2 of 2 runs"):
        notes = measured(ready._replace(settings=settings), methods=("AP->reshuffled",)).notes
    assert notes[0] == "trainings x steps of each search, per seed: AP 1 x 5; none for the others"
    assert any("missed density 0.1, and reached" in note for note in notes)


def test_a_folder_that_was_begun_with_other_settings_is_refused(tmp_path):
    Parts(dataclasses.replace(SETTINGS, resume=str(tmp_path)))
    with pytest.raises(ArgumentError, match=r"resume: .* was begun with steps=20, not 21"):
        Parts(dataclasses.replace(SETTINGS, resume=str(tmp_path), steps=21))


@pytest.mark.long
def test_other_numbers_of_classes_get_a_new_head():
    ready = prepared(new_classes=(5, 6, 7), sizes=(30,))
    assert measured(ready, methods=("random",)).table["accuracy"].notna().all()


def test_random_search_is_judged_by_examples_that_it_does_not_train_on(ready):
    problem = searches.problem_of("random search", ready)
    assert not set(np.asarray(problem.train)) & set(np.asarray(problem.validation))


@pytest.mark.long
def test_random_search_finds_architectures_of_the_density(ready):
    settings = dataclasses.replace(ready.settings, sparsities=(0.9,))
    transfer = ready._replace(settings=settings)
    ((_, network),) = Parts(settings).run(searches.search_parts(("random search",), transfer), transfer)
    assert jax.vmap(jaxarch.masks.connections)(network.masks["0.1"]).tolist() == [83, 83]


@pytest.mark.long
def test_pictures_of_two_files_of_the_user_s_go_through_a_cnn_with_augmentation_for_one_seed(tmp_path):
    images = jaxarch.lab.data.load_images("digits")
    for name, classes in (("old", (0, 1)), ("new", (2, 3))):
        part = images.of_classes(classes)
        np.savez(tmp_path / f"{name}.npz", x=part.x, y=part.y)
    settings = transfer.Settings(
        **SMALL | {"seeds": 1, "sparsities": (0.5,), "sizes": (), "widths": (3,), "weights": ("he",)},
        dataset=str(tmp_path / "old.npz"),
        new_dataset=str(tmp_path / "new.npz"),
        model="cnn",
        augment=True,
        methods=("random",),
    )
    run_in(tmp_path, transfer.EXPERIMENT, settings)
    table = read_table(tmp_path)
    assert sorted(table["size"].unique()) == [20, 40]
    assert table["accuracy"].between(0, 1).all()
    assert report_on(tmp_path, transfer.EXPERIMENT)


def test_a_dry_run_says_what_would_be_trained(ready):
    lines = estimate.plan(METHODS, ready)
    assert "search: AP: 2 trainings of 60 steps of batch 50" in lines
    # From 1 to .5 one round, from .5 to .1 two: three trainings a seed.
    assert "search: IMP: 6 trainings of 10 steps of batch 50" in lines
    assert "new task: 18 runs x 4 pairs of size and start = 72 trainings of 20 steps" in lines


@pytest.mark.long
def test_a_dry_run_says_how_long_it_takes(ready):
    [line] = estimate.duration(METHODS, ready)
    assert line.startswith("time: about ")


@pytest.fixture(scope="module")
def reshuffled(tmp_path_factory):
    made = tmp_path_factory.mktemp("reshuffle")
    settings = reshuffle.Settings(searches=("AP",), **SMALL | {"weights": ("he",), "sizes": (40,)})
    run_in(made, reshuffle.EXPERIMENT, settings)
    return made


@pytest.mark.long
def test_table_1_has_every_search_and_itself_reshuffled(reshuffled):
    methods = read_table(reshuffled)["strategy"].unique().tolist()
    assert methods == [trial.PARENT, "AP", "AP->reshuffled"]
    assert len(report_on(reshuffled, reshuffle.EXPERIMENT).body) >= 2
    assert any("AP minus itself reshuffled" in line.what for line in read_findings(reshuffled))


@pytest.mark.long
def test_the_conclusion_of_reshuffling_has_the_differences_over_cells_and_in_the_sparsest(reshuffled):
    pairs = read_table(reshuffled, reporting.COMPARISONS)
    said = report_on(reshuffled, reshuffle.EXPERIMENT).conclusion
    sparsest = pairs.query("sparsity == 0.9")["median"].item()
    assert f"AP {pairs['median'].median():+.3f} [" in said
    assert f"At the largest sparsity, 0.9, it is: AP {sparsest:+.3f} [" in said


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"new_classes": (4, 5)}, r"new_classes: the tasks must not overlap; both have \[4\]"),
        ({"classes": (0, 11)}, "classes: digits has no class 11"),
        ({"new_classes": (5, 5)}, "new_classes: 5 is named twice"),
        ({"sizes": (12, 40)}, "sizes: expected multiples of 5, the number of new classes, got 12"),
        ({"new_classes": (5,)}, r"new_classes: expected at least two classes, got \(5,\)"),
        ({"fraction": 0.0}, "fraction: expected numbers between 0 and 1, got 0.0"),
        ({"model": "resnet"}, "model: unknown 'resnet'"),
        ({"sizes": (5000,)}, "size: expected at least 1000 rows of each class"),
        ({"sparsities": (0.9, 0.0)}, "sparsities: expected numbers between 0 and 1, got 0.0"),
        ({"sparsities": ()}, "sparsities: expected"),
        ({"methods": ("AB",)}, "methods: unknown 'AB'; did you mean 'AP'"),
        ({"model": "vgg19"}, "widths: only an mlp, a cnn or a gpt takes widths"),
        ({"weights": ("xavier",)}, "weights: unknown 'xavier'"),
        ({"soft": 200.0}, "soft: expected at most hard"),
        ({"in_domain": True, "new_dataset": "mnist"}, "in_domain: the new task is the first task"),
        ({"pool": 3}, "images: expected shape"),
        ({"dataset": "digts"}, "digts"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(settings, message):
    with pytest.raises(ArgumentError, match=message):
        plan_of(transfer.EXPERIMENT, dataclasses.replace(SETTINGS, **settings))
