"""The figures of [D] as experiments: what they measure, on few runs of few steps."""

import dataclasses
import logging
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from long_suite import partly_long
from pages import charted
from small import Interrupted, interrupt_when, keys, problem, same

import jaxarch
from jaxarch import Network, TrainingInfo
from jaxarch.io import read_npz
from jaxarch.lab import cli
from jaxarch.lab.disentangling import fig2, fig3, fig4, fig5, flips, measuring, strategies, trial
from jaxarch.lab.disentangling.settings import StrategySettings
from jaxarch.lab.harness import paired, plan_of, report_on, run_in
from jaxarch.lab.harness.catalogue import EXPERIMENTS, experiment
from jaxarch.lab.reproduction import read_findings
from jaxarch.lab.results import read_table

FEW = {"seeds": 2, "steps": 30, "lottery_rounds": 1, "agnostic_draws": 1, "agnostic_weights": 2}


def run(module, folder, **settings):
    run_in(folder, module.EXPERIMENT, module.Settings(**settings))
    report_on(folder, module.EXPERIMENT)
    assert module.EXPERIMENT.charts is None or charted(folder, module.EXPERIMENT)


@pytest.fixture(scope="module")
def fourth(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fig4")
    chosen = ("real", "real->bin", "bin", "random", "logistic regression")
    run(fig4, folder, **FEW, strategies=chosen, tasks=("1v2", "1+2+3v4+5+6"), sizes=(10, 20))
    return folder


@pytest.fixture(scope="module")
def third(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fig3")
    few = {"seeds": 2, "steps": 40, "train_per_class": 20}
    run(fig3, folder, **few, hards=(50.0, 500.0), ratios=(1.0, 10.0))
    return folder


@pytest.mark.long
def test_a_report_opens_with_numbers_of_its_table(third, fourth, fifth, flipping):
    """Each conclusion has the number that answers the study's question, as its table has it."""
    said = {
        module: report_on(folder, module.EXPERIMENT).conclusion
        for module, folder in ((fig3, third), (fig4, fourth), (fig5, fifth), (flips, flipping))
    }
    table = read_table(third)
    sharpest = table[
        ~table["flipped"] & (table["hard"] == 500) & (table["variant"] == table["variant"].iloc[0])
    ]
    assert f"{sharpest.groupby('soft')['loss'].median().min():.1f} [" in said[fig3]
    best = fig4.best_strategies(read_table(fourth))
    assert f"median test AUC in {best.sum().max()} of {len(best)} cells" in said[fig4]
    apart = fig5.similarity(read_table(fifth, fig5.BETWEEN))[("real->bin", "bin")].median()
    assert f"real->bin and bin {apart:.2f} [" in said[fig5]
    after = read_table(flipping).query("strategy == 'bin->flipped'")
    better = measuring.better_orientation(read_table(flipping))["1,2,3 v 4,5,6"]
    assert f"after {after[after['flipped'] == better]['flips'].median():.0f} [" in said[flips]


@pytest.mark.parametrize("failed", [False, True])
def test_the_conclusions_on_one_seed_have_no_nan(failed):
    rows = [
        {"task": "1 v 2", "flipped": flipped, "strategy": name, "seed": 0, "auc": auc, "loss": -auc}
        for flipped in (False, True)
        for name, auc in (("bin", 0.9), ("real", 0.8), ("bin->flipped", 0.95))
    ]
    table = pd.DataFrame(rows).assign(flips=3.0, locally_optimal=True, density=0.5)
    if failed:
        table.loc[table["strategy"] == "bin", ["auc", "loss"]] = np.nan
    manifest = {"data": {"name": "digits"}}
    of_strategies = measuring.compare_runs(table[table["strategy"] != flips.AFTER], ["flipped"])
    of_flips = pd.concat(
        measuring.compare_runs(table[table["strategy"] != "real"], ["flipped"], quantity).assign(
            quantity=quantity
        )
        for quantity in ("loss", "auc")
    )
    for module, compared in ((strategies, of_strategies), (flips, of_flips)):
        shown = SimpleNamespace(manifest=manifest, table=table, read=lambda name, of=compared: of)
        said = " ".join(module.conclusion(shown))
        assert "nan" not in said
        assert "n = 1" in said or failed


def test_every_strategy_is_explained_in_a_line():
    assert list(measuring.MEANING) == list(jaxarch.disentangling_strategies())


@pytest.mark.long
def test_figure_2_has_the_slope_of_the_sigmoid_with_and_without_its_factor(tmp_path):
    run(fig2, tmp_path, hards=(5.0, 50.0), points=201)
    table = read_table(tmp_path)
    mask = 1 / (1 + np.exp(-table["hard"] * table["score"]))
    assert np.allclose(table["mask"], mask, atol=1e-6)
    assert np.allclose(table["printed_derivative"], mask * (1 - mask), atol=1e-6)
    assert np.allclose(table["derivative"], table["hard"] * mask * (1 - mask), atol=1e-5)


def test_figure_2_finds_the_share_of_scores_with_next_to_no_slope(tmp_path):
    run(fig2, tmp_path, hards=(10.0,), points=2001)
    # M B (1 - B) = M/400 where B(1 - B) = 1/400.
    edge = np.log((1 + np.sqrt(0.99)) / (1 - np.sqrt(0.99))) / 10
    assert abs(fig2.near_zero(read_table(tmp_path))[10.0] - (1 - edge)) < 2e-3


@pytest.mark.long
def test_figure_3_has_every_pair_of_temperatures_in_every_variant_and_orientation(third):
    table = read_table(third)
    assert len(table) == 4 * 4 * 2 * 2
    assert (table.groupby(fig3.CELL).size() == 2).all()
    assert read_npz(third / fig3.LOSSES, "folder")["0"].shape == (4, 4, 40)


@pytest.mark.long
def test_with_start_and_rate_scaled_only_the_ratio_of_the_temperatures_matters(third):
    table = read_table(third)
    scaled = table[table["variant"].str.contains("rate x")].assign(
        ratio=lambda rows: rows["hard"] / rows["soft"]
    )
    losses = scaled.pivot_table(index=["ratio", "flipped", "seed"], columns="hard", values="loss")
    assert np.allclose(losses[50.0], losses[500.0], rtol=1e-3, atol=1e-3)
    others = table[~table["variant"].str.contains(" x ")].pivot_table(
        index="seed", columns="hard", values="loss"
    )
    assert not np.allclose(others[50.0], others[500.0], rtol=1e-1)


@pytest.mark.long
def test_figure_3_at_the_reference_is_the_same_in_all_variants_with_the_factor(third):
    table = read_table(third)
    at = table[(table["hard"] == 50) & ~table["variant"].str.contains("no factor")]
    losses = at.pivot_table(index=["soft", "flipped", "seed"], columns="variant", values="loss")
    assert losses.shape[1] == 3
    assert np.allclose(losses.max(axis=1), losses.min(axis=1), rtol=1e-4, atol=1e-4)


def test_where_start_and_rate_are_scaled_they_are_so_in_units_of_the_larger_temperature():
    settings = fig3.Settings(hards=(50.0, 500.0), ratios=(1.0, 10.0), reference=50.0)
    plain, scaled, both, without = (
        fig3.sweep_of(settings, settings.temperatures(), 1, variant)
        for variant in fig3.variants(settings).values()
    )
    for sweep in (plain, scaled, both, without):
        assert sweep["hard"].tolist() == [50, 50, 500, 500]
        assert sweep["soft"].tolist() == [50, 5, 500, 50]
    assert np.allclose(plain["mean"], -0.2) and np.allclose(plain["rate"], 0.3)
    assert np.allclose(scaled["mean"], [-0.2, -0.2, -0.02, -0.02]) and np.allclose(scaled["rate"], 0.3)
    assert np.allclose(both["std"], [0.1, 0.1, 0.01, 0.01])
    assert np.allclose(both["rate"], [0.3, 0.3, 0.003, 0.003])
    assert np.allclose(without["rate"], 3.0)


@pytest.mark.long
@pytest.mark.parametrize(("module", "borders"), [(strategies, 1), (fig4, 2)])
def test_a_stopped_run_is_continued_to_the_same_numbers(module, borders, tmp_path):
    settings = {**FEW, "strategies": ("real", "bin")}
    settings |= {"train_per_class": 20} if module is strategies else {"tasks": ("1v2",), "sizes": (10, 20)}
    folders = [tmp_path / name for name in ("whole", "resumed")]
    for folder in folders:
        folder.mkdir()
    run(module, folders[0], **settings)
    resumable = module.Settings(**settings, resume=str(tmp_path / "checkpoints"))
    left = iter(range(borders))
    stop = interrupt_when(lambda told: next(left, None) is None)
    with pytest.raises(Interrupted):
        run_in(folders[1], module.EXPERIMENT, resumable, stop)
    assert list((tmp_path / "checkpoints").rglob("*.npz"))
    run_in(folders[1], module.EXPERIMENT, resumable)
    whole, resumed = (read_table(folder).drop(columns="seconds") for folder in folders)
    assert resumed.equals(whole)


FLIPS = {"seeds": 2, "steps": 30, "train_per_class": 5, "rounds": 20, "tried": 100}


@pytest.fixture(scope="module")
def flipping(tmp_path_factory):
    folder = tmp_path_factory.mktemp("flips")
    run(flips, folder, **FLIPS)
    return folder


@pytest.mark.long
def test_flips_begin_with_the_masks_of_the_experiment_on_all_strategies(flipping, tmp_path):
    run(strategies, tmp_path, **FEW, strategies=("bin",), train_per_class=5)
    alone, table = read_table(tmp_path), read_table(flipping)
    before = table[table["strategy"] == flips.BEFORE].sort_values(["flipped", "seed"])
    for of in ("auc", "loss", "density"):
        assert np.allclose(before[of], alone[of], rtol=1e-5)


@pytest.mark.long
def test_flips_lower_the_loss_and_are_counted(flipping):
    table = read_table(flipping)
    before, after = (table[table["strategy"] == name] for name in (flips.BEFORE, flips.AFTER))
    assert (after["loss"].to_numpy() < before["loss"].to_numpy()).all()
    assert after["flips"].between(1, 20).all()
    assert not after["locally_optimal"].any()  # 2,000 were tried, of 8,192 connections
    losses = read_table(flipping, flips.COMPARISONS).query("quantity == 'loss'")
    assert (losses["first"] == flips.BEFORE).all() and (losses["median"] > 0).all()
    found = {line.what: line for line in read_findings(flipping)}
    assert len(found) == 2 * (4 * 3 + 2)
    assert found["F of bin->flipped minus bin, digits {1,2,3} v {4,5,6}"].median < 0


@pytest.mark.long
def test_flips_that_were_stopped_go_on_with_the_next_seed_to_the_same_numbers(flipping, tmp_path):
    resumable = flips.Settings(**FLIPS, resume=str(tmp_path / "parts"))
    left = iter(range(1))
    with pytest.raises(Interrupted):
        run_in(tmp_path, flips.EXPERIMENT, resumable, interrupt_when(lambda told: next(left, None) is None))
    assert [path.name for path in (tmp_path / "parts").glob("*.csv")] == ["seed-0.csv"]
    run_in(tmp_path, flips.EXPERIMENT, resumable)
    whole, resumed = (read_table(folder).drop(columns="seconds") for folder in (flipping, tmp_path))
    assert resumed.equals(whole)


@pytest.mark.long
def test_figure_4_has_every_strategy_in_every_cell(fourth):
    table = read_table(fourth)
    assert len(table) == 2 * 2 * 2 * 2 * 5
    assert table["auc"].between(0, 1).all()


@pytest.mark.long
def test_figure_4_measures_what_the_experiment_on_one_task_measures(fourth, tmp_path):
    run(strategies, tmp_path, **FEW, strategies=("real", "bin"), train_per_class=20)
    alone = read_table(tmp_path).set_index(["strategy", "flipped", "seed"])[["auc", "loss"]]
    table = read_table(fourth)
    here = table[(table["task"] == "1,2,3 v 4,5,6") & (table["train_per_class"] == 20)]
    here = here.set_index(["strategy", "flipped", "seed"])[["auc", "loss"]].loc[alone.index]
    assert np.allclose(alone, here, rtol=1e-4, atol=1e-4)


@pytest.mark.long
def test_figure_4_compiles_a_training_once_for_all_tasks_and_sizes(tmp_path, caplog):
    settings = {**FEW, "steps": 31, "strategies": ("bin",), "tasks": ("1v2", "4v9"), "sizes": (10, 20)}
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        run_in(tmp_path, fig4.EXPERIMENT, fig4.Settings(**settings))
    compiled = [
        r.getMessage() for r in caplog.records if "Finished XLA compilation of jit(advance)" in r.getMessage()
    ]
    assert len(compiled) == 1


@pytest.mark.long
def test_comparisons_turn_round_with_the_strategy_that_they_are_of(fourth):
    comparisons = read_table(fourth, fig4.COMPARISONS)
    ours, theirs = (
        paired.against(comparisons, name)
        .set_index([*fig4.CELL, "against"])["mean"]
        .xs(other, level="against")
        for name, other in (("bin", "real"), ("real", "bin"))
    )
    assert np.allclose(ours, -theirs)
    low, high = (paired.against(comparisons, "bin")[name] for name in ("mean_low", "mean_high"))
    assert (low <= high).all()


@pytest.mark.long
def test_the_best_strategies_are_those_with_the_highest_median_and_none_of_the_references(fourth):
    best = fig4.best_strategies(read_table(fourth))
    assert best.shape == (8, 4)
    assert best.any(axis=1).all()
    assert not best["random"].any()


@pytest.mark.long
@pytest.mark.parametrize("which", ["third", "fourth"])
def test_findings_are_ready_for_the_record(which, request):
    measured = read_findings(request.getfixturevalue(which))
    assert len(measured) > 10


LARGE = ("spectral.fig9", "spectral.fig16", "spectral.fig18")
"""Experiments whose plans need seconds."""


@pytest.mark.parametrize("name", partly_long(EXPERIMENTS, LARGE))
def test_every_experiment_can_be_planned_with_its_defaults(name):
    chosen = experiment(name)
    assert plan_of(chosen, chosen.settings())


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_setting_of_every_experiment_is_listed(name):
    listed = CliRunner().invoke(cli.app, ["list", name]).output
    for field in dataclasses.fields(experiment(name).settings):
        assert field.name in listed


def test_a_data_set_of_one_s_own_needs_its_tasks_named():
    with pytest.raises(ValueError, match=r"tasks: no default for mine\.npz; give some"):
        fig4.Settings(dataset="mine.npz").complete()


@pytest.mark.parametrize("text", ["12", "1v", "1,2v3", "av b", "1+2v3v4"])
def test_tasks_in_another_form_are_refused(text):
    with pytest.raises(ValueError, match="tasks: expected groups of classes such as"):
        trial.read_groups(text)


@pytest.fixture(scope="module")
def fifth(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fig5")
    chosen = ("real", "random", "real->bin", "bin")
    # A task and a size of figure 4's: their programs are compiled already.
    run(fig5, folder, **FEW, strategies=chosen, tasks=("1+2+3v4+5+6",), train_per_class=20)
    return folder


@pytest.mark.long
def test_figure_5_has_a_spectrum_for_every_run_with_and_without_self_loops(fifth):
    spectra = {n: v for n, v in read_npz(fifth / fig5.SPECTRA, "folder").items() if "/" in n}
    assert len(spectra) == 2 * 2 * 5
    assert all(values.shape == (2, 192) for values in spectra.values())
    assert all(values.min() > -1e-5 and values.max() < 2 + 1e-5 for values in spectra.values())


@pytest.mark.long
def test_figure_5_measures_the_distances_between_the_centroids_of_spectra(fifth):
    spectra = read_npz(fifth / fig5.SPECTRA, "folder")
    similarity = fig5.similarity(read_table(fifth, fig5.BETWEEN))
    row = similarity[~similarity["flipped"] & (similarity["graph"] == "self-loops")].iloc[0]
    bin_, thresholded = (
        spectra[f"1,2,3 v 4,5,6, y = 1: first group, self-loops/{name}"].mean(axis=0)
        for name in ("bin", "real->bin")
    )
    assert np.isclose(row[("real->bin", "bin")], np.linalg.norm(bin_ - thresholded), rtol=1e-4)
    assert np.isnan(row[("lottery->bin", "bin")])


def test_without_self_loops_the_spectrum_does_not_change_with_the_scale_of_the_weights():
    params = {f"w{i}": jax.random.uniform(jax.random.key(i), (2, 6, 6)) for i in (1, 2)}
    larger = jax.tree.map(lambda w: 10 * w, params)
    for self_loops, is_same in ((False, True), (True, False)):
        spectra = [fig5.network_spectra(weights, self_loops) for weights in (params, larger)]
        assert np.allclose(*spectra, atol=1e-5) == is_same


def test_runs_that_failed_have_no_spectrum():
    params = {f"w{i}": jnp.ones((3, 6, 6)) for i in (1, 2)}
    network = Network(params, {}, {}, info=TrainingInfo(failed_at=jnp.asarray([-1, 7, -1])))
    spectra = fig5.network_spectra(fig5.without_failed(network), True)
    assert np.isnan(spectra).all(axis=1).tolist() == [False, True, False]


@pytest.mark.long
def test_figure_5_has_the_shuffled_architectures_as_a_yardstick(fifth):
    assert fig5.SHUFFLED in set(read_table(fifth, fig5.WITHIN)["group"])


def test_shuffled_architectures_have_the_densities_of_their_layers():
    masks = {"w1": jnp.eye(4)[None], "w2": jnp.ones((1, 4, 4)).at[0, 0].set(0)}
    shuffled = fig5.shuffled(jax.random.key(0), masks)
    assert [float(leaf.sum()) for leaf in shuffled.values()] == [4, 12]
    assert not np.array_equal(shuffled["w1"], masks["w1"])


@pytest.mark.long
def test_figure_5_has_findings_and_figures(fifth):
    assert len(read_findings(fifth)) == 2 * 2 * 5 * 4 / 2
    assert (fifth / "spectra-self-loops.png").is_file()
    assert (fifth / "spectra-no-self-loops.svg").is_file()


def test_logistic_regression_has_no_graph():
    with pytest.raises(ValueError, match="strategies: logistic regression has no graph"):
        fig5.Settings(strategies=("bin", "logistic regression")).check()


def by_hand():
    """Two tasks of one size, in which bin beats real by .1 in one and loses in the other, each time."""
    cells = [
        ("1 v 2", False, {"real": 0.7, "bin": 0.8}),
        ("1 v 2", True, {"real": 0.9, "bin": 0.8}),
        ("1,2 v 3,4", False, {"real": 0.95, "bin": 0.6}),
        ("1,2 v 3,4", True, {"real": 0.6, "bin": 0.65}),
    ]
    rows = [
        {"dataset": "d", "task": task, "flipped": flipped, "train_per_class": 10, "strategy": strategy}
        | {"seed": seed, "auc": auc + seed / 1000 * (strategy == "bin"), "seconds": 0.5}
        for task, flipped, aucs in cells
        for strategy, auc in (aucs | {"random": 0.99 * flipped}).items()
        for seed in range(4)
    ]
    return pd.DataFrame(rows)


def test_the_better_orientation_is_that_of_the_trained_strategies():
    assert measuring.better_orientation(by_hand()) == {"1 v 2": True, "1,2 v 3,4": False}


def test_the_findings_of_figure_4_count_the_cells_whose_interval_is_clear_of_zero():
    table = by_hand()
    network = fig4.findings(table, measuring.compare_runs(table, fig4.CELL))
    by_what = {line["what"]: line["median"] for line in network}
    scopes = {"all tasks": (4, 2, 2), "single classes": (2, 1, 1), "groups of classes": (2, 1, 1)}
    for scope, (cells, above, below) in scopes.items():
        assert by_what[f"cells of {cells} with bin above real (95% interval); d, {scope}"] == above
        assert by_what[f"cells of {cells} with bin below real (95% interval); d, {scope}"] == below
    assert by_what["AUC of bin; d {2} v {1}, 10 a class"] == pytest.approx(0.8015)


CHANGES = {
    "hard": (60.0, "bin"),
    "soft": (4.0, "bin"),
    "std": (0.3, "real"),
    "lottery_rounds": (2, "lottery"),
    "lottery_form": ("printed", "lottery"),
    "agnostic_draws": (2, "agnostic"),
    "agnostic_weights": (3, "agnostic"),
}


@pytest.mark.long
@pytest.mark.parametrize("setting", CHANGES)
def test_a_setting_reaches_the_strategy_that_it_is_for(setting):
    value, name = CHANGES[setting]
    few = {name: value for name, value in FEW.items() if name not in ("seeds", "steps")}
    learning = problem(steps=1).of_run(0)
    networks = [
        jaxarch.chain(StrategySettings(**few | change).chosen()[name])(keys()[0], learning)
        for change in ({}, {setting: value})
    ]
    assert not same(networks[0], networks[1])


@pytest.mark.parametrize(
    ("module", "settings"),
    [
        (fig3, {"ratios": (1.0, 1.0)}),
        (fig4, {"tasks": ("1v2", "1v2")}),
        (fig4, {"sizes": (10, 10)}),
        (fig5, {"tasks": ("1v2", "1v2")}),
        (strategies, {"strategies": ("bin", "bin")}),
    ],
)
def test_nothing_is_counted_twice(module, settings):
    with pytest.raises(ValueError, match="is named twice"):
        module.Settings(**settings).check()
