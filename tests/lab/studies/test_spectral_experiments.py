"""The figures of [S] section 5 as experiments: what they measure, on small networks and few steps."""

import re
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from pages import charted
from small import Interrupted, interrupt_when

from jaxarch import Network, TrainingInfo, plots
from jaxarch.io import read_npz
from jaxarch.lab import results
from jaxarch.lab.harness import Results, report_on, run_in
from jaxarch.lab.reproduction import read_findings
from jaxarch.lab.results import read_table
from jaxarch.lab.spectral import (
    fig7,
    fig8,
    fig9,
    heads,
    neurons_left,
    pictures,
    rank,
    recovery,
    rivals,
    targets,
    teacher,
    wording,
)

FEW = {"seeds": 2, "examples": 200, "held_out": 50, "batch_size": 20}
TRANSITION = {**FEW, "alphas": 3, "betas": (5.0,), "input_eigenvalues": ("zero",), "hidden": 6, "epochs": 10}
STUDENT = {**FEW, "presets": ("l1 3e-4",), "features": 4, "hidden": 6, "epochs": 100}


def run(module, folder, **settings):
    run_in(folder, module.EXPERIMENT, module.Settings(**settings))
    report_on(folder, module.EXPERIMENT)
    assert module.EXPERIMENT.charts is None or charted(folder, module.EXPERIMENT)
    return folder


@pytest.fixture(scope="module")
def transition(tmp_path_factory):
    return run(fig7, tmp_path_factory.mktemp("fig7"), **TRANSITION)


SMALL = {
    **FEW,
    "rivals": ("spectral", "gated spectral", "weights, all skips"),
    "strengths": (1e-4, 0.1),
    "features": 4,
    "hidden": (6,),
    "epochs": 30,
    "learning_rate": 1e-2,
}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return run(rivals, tmp_path_factory.mktemp("rivals"), **SMALL)


@pytest.fixture(scope="module")
def student(tmp_path_factory):
    return run(fig9, tmp_path_factory.mktemp("fig9"), **STUDENT)


def test_the_target_turns_from_half_the_sum_to_half_the_sum_of_squares():
    x = jnp.asarray([[0.5, -0.2], [1.0, 1.0]])

    def target(alpha):
        return targets.parts(x) @ targets.shares(alpha, 1000.0)

    assert np.allclose(target(0.0), [0.15, 1.0])
    assert np.allclose(target(1.0), [0.145, 1.0])
    assert np.allclose(target(0.5), (0.15 / 2 + 0.145 / 2, 1.0))


@pytest.mark.parametrize("alpha", [0.2, 0.6])
def test_the_linear_share_of_the_variance_is_what_least_squares_explains(alpha):
    side = (np.arange(100) + 0.5) / 50 - 1
    x = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    values = np.asarray(targets.parts(x) @ targets.shares(alpha, 5.0))
    inputs = np.concatenate([x, np.ones((len(x), 1))], axis=1)
    outputs = inputs @ np.linalg.lstsq(inputs, values, rcond=None)[0]
    assert np.isclose(np.var(outputs) / np.var(values), targets.linear_share(alpha, 5.0), atol=1e-3)


@pytest.mark.long
def test_figure_7_has_every_cell_with_every_seed(transition):
    table = read_table(transition)
    assert len(table) == 3 * 2
    assert (table.groupby(["input_eigenvalues", "beta", "alpha"]).size() == 2).all()
    assert table["recruited"].between(0, 6).all()


@pytest.mark.parametrize(("name", "layers"), [("trained", ["L1", "L2", "L3"]), ("zero", ["L2", "L3"])])
def test_input_eigenvalues_are_parameters_where_they_are_trained(name, layers):
    problem = fig7.prepare(fig7.Settings(**TRANSITION), name)
    params, _ = jax.eval_shape(problem.init, jax.random.key(0))
    assert sorted(params["eigenvalues"]) == layers


@pytest.mark.long
def test_the_drawn_weights_are_those_of_the_network(transition):
    networks = read_npz(transition / fig7.NETWORKS, "folder")
    plane = np.asarray(targets.plane())
    inputs = np.concatenate([plane, np.ones_like(plane[..., :1])], axis=-1)
    w21, w31, w32 = (networks[f"zero/{name}"][1] for name in ("W21", "W31", "W32"))
    outputs = np.maximum(inputs @ w21.T, 0) @ w32.T + inputs @ w31.T
    assert np.allclose(outputs[..., 0], networks["zero/outputs"][1], atol=1e-5)


@pytest.mark.long
def test_the_norm_of_gamma_is_that_of_all_paths_through_the_hidden_layer(transition):
    networks = read_npz(transition / fig7.NETWORKS, "folder")
    gamma = np.einsum("coj,cji->coji", networks["zero/W32"], networks["zero/W21"])
    table = read_table(transition)
    first = table[table["seed"] == 0].sort_values("alpha")
    assert np.allclose(first["gamma_norm"], np.sqrt((gamma**2).sum(axis=(1, 2, 3))), rtol=1e-4)


def test_in_the_mean_of_gamma_networks_cancel_whose_paths_have_opposite_signs():
    one = {
        "eigenvectors": {"phi1": jnp.array([[2.0]]), "phi2": jnp.array([[3.0]])},
        "eigenvalues": {"L2": jnp.array([5.0]), "L3": jnp.array([7.0])},
    }  # W_21 = -10, W_32 = -6
    other = one | {"eigenvectors": {"phi1": jnp.array([[-2.0]]), "phi2": jnp.array([[3.0]])}}
    params = jax.tree.map(lambda *leaves: jnp.stack(leaves), one, one, one, other, one, one)
    network = Network(params, info=TrainingInfo(failed_at=jnp.array([-1, -1, -1, -1, -1, 3])))
    assert fig7._of_the_mean(network, 2).tolist() == [3600, 3600, 0, 0, 3600, 3600]


def test_figure_8_counts_two_layers_as_dearer_and_all_others_as_cheaper(tmp_path):
    run(fig8, tmp_path, width=10, layers=6)
    table = read_table(tmp_path).set_index("layers")
    assert table.loc[2, ["spectral", "direct"]].tolist() == [120, 100]
    first, second = fig8.conclusion(Results(tmp_path))
    assert "1.2 times (2 layers) and 0.373 times (6 layers)" in first  # 120 / 100, 560 / 1500
    assert first.endswith("fewer from 3 layers on.")
    assert second.endswith("in no case fewer.")
    assert (table.loc[3:, "spectral"] < table.loc[3:, "direct"]).all()


def test_teachers_are_rotations_and_each_seed_has_its_own():
    drawn = teacher.teachers(teacher.TeacherSettings(seeds=3, features=5))
    for matrices in drawn.values():
        assert np.allclose(matrices @ jnp.swapaxes(matrices, 1, 2), jnp.eye(5)[None], atol=1e-5)
        assert np.allclose(jnp.linalg.det(matrices), 1, atol=1e-5)
    assert not np.allclose(drawn["first"][0], drawn["first"][1])
    assert not np.allclose(drawn["first"], drawn["second"])


def test_r_squared_is_one_for_the_truth_and_zero_for_its_mean():
    truth = np.random.default_rng(0).normal(2, 1, (3, 50, 4))
    assert np.allclose(teacher.r_squared(truth, truth), 1)
    assert np.allclose(
        teacher.r_squared(np.broadcast_to(truth.mean(axis=1, keepdims=True), truth.shape), truth), 0
    )


@pytest.mark.long
def test_figure_9_splits_the_neurons_left_over_the_hidden_layers(student):
    table = read_table(student)
    assert (table["recruited"] == table["recruited_L2"] + table["recruited_L3"]).all()
    losses = read_npz(student / fig9.READOUT, "folder")["l1 3e-4/losses"]
    assert losses.shape == (2, 13)
    kept = [12 - np.flatnonzero(run <= 1.05 * run[0]).max() for run in losses]
    assert table["recruited"].tolist() == kept


def test_as_many_eigenvalues_are_left_as_the_last_loss_within_the_tolerance_has():
    losses = np.array([[1.0, 1.2, 1.04, 9.0], [1.0, 1.06, 2.0, 3.0]])
    assert fig9.eigenvalues_needed(losses, 0.05).tolist() == [1, 3]


@pytest.mark.long
def test_eigenvalues_are_counted_by_putting_the_smallest_to_zero(student):
    readout = read_npz(student / fig9.READOUT, "folder")
    silent, zeroed = readout["l1 3e-4/losses"], readout["l1 3e-4/zeroed_losses"]
    assert np.allclose(silent[:, 0], zeroed[:, 0], rtol=1e-5)
    # Skip connections past an eigenvalue that is 0 are others than past a neuron that is silent.
    assert not np.allclose(silent[:, -1], zeroed[:, -1], rtol=1e-3)


@pytest.mark.long
def test_a_linear_model_needs_its_intercept(student):
    table = read_table(student)
    assert (table["linear_r2_no_intercept"] < table["linear_r2"] - 0.1).all()


@pytest.mark.long
def test_a_stopped_run_is_continued_to_the_same_numbers(student, tmp_path):
    settings = fig9.Settings(**STUDENT, resume=str(tmp_path / "checkpoints"))
    with pytest.raises(Interrupted):
        run_in(tmp_path, fig9.EXPERIMENT, settings, interrupt_when(lambda told: told.step < told.steps))
    assert list((tmp_path / "checkpoints").iterdir())
    run_in(tmp_path, fig9.EXPERIMENT, settings)
    drop = ["seconds"]
    assert read_table(tmp_path).drop(columns=drop).equals(read_table(student).drop(columns=drop))


def test_a_rival_has_the_neurons_that_were_not_removed_and_the_loss_without_the_others():
    losses = np.array([[1.0, 1.1, 9.0], [4.0, 5.0, 6.0]], np.float32)
    neurons, loss, pruned = neurons_left.what_is_left(losses, np.array([1, 0]))
    assert neurons.tolist() == [1, 2]
    assert loss.tolist() == [1, 4]
    assert np.allclose(pruned, [1.1, 4])


@pytest.mark.long
def test_every_rival_has_every_strength_and_leaves_fewer_neurons_at_a_greater_one(small):
    table = read_table(small)
    assert (table.groupby(["rival", "strength"]).size() == 2).all()
    left = table.groupby(["rival", "strength"])["neurons"].median().unstack()
    assert (left[0.1] < left[1e-4]).all()
    assert (table.loc[table["neurons"] == 0, "r2"] < table["r2"].max() - 0.05).all()
    assert (small / "rivals.svg").exists()


@pytest.mark.long
@pytest.mark.parametrize("which", ["transition", "student", "small"])
def test_findings_are_ready_for_the_record(which, request):
    assert len(read_findings(request.getfixturevalue(which))) >= 8


@pytest.mark.long
@pytest.mark.parametrize(("module", "which"), [(fig7, "transition"), (fig9, "student"), (rivals, "small")])
def test_a_report_says_which_runs_failed_and_when(module, which, request, tmp_path, monkeypatch):
    folder = shutil.copytree(request.getfixturevalue(which), tmp_path / "folder")
    read_table(folder).assign(failed_at=[7] + [-1] * (len(read_table(folder)) - 1)).to_csv(
        folder / results.RESULTS, index=False
    )
    manifest = results.read_manifest(folder)
    next(iter(manifest["costs"].values()))["notes"] = {"spectral": ["seed 0: NaN at step 7"]}
    results.write_manifest(folder, manifest)
    monkeypatch.setattr(plots, "save", lambda *arguments: None)
    first, second = report_on(folder, module.EXPERIMENT).warnings
    assert first == "seed 0: NaN at step 7"
    assert re.fullmatch(r".+: 1 of \d runs met NaN or infinity; they are left out", second)


def test_every_name_in_a_table_has_a_meaning():
    labels = (*fig7.VARIANTS.values(), *fig8.FORMS.values(), *fig9.PRESETS, *heads.HEADS, *rank.STARTS)
    assert {*labels, *pictures.ON_PICTURES, *recovery.NAMES} == set(wording.MEANING)


def said(module, folder):
    return " ".join(module.conclusion(Results(folder)))


@pytest.mark.long
def test_figure_7_concludes_with_the_medians_of_the_ends(transition):
    table = read_table(transition)
    for alpha, share in ((0, "100%"), (1, "0%")):
        norms = table.loc[table["alpha"] == alpha, "gamma_norm"]
        assert re.search(
            rf"{norms.median():.3f} \[[^]]*\] for (a target|one) that is {share} linear",
            (said(fig7, transition)),
        )
    medians = table.groupby("alpha")["gamma_norm"].median().to_numpy()
    assert f"changes by at most {np.abs(np.diff(medians)).max():.3f}" in said(fig7, transition)


@pytest.mark.long
def test_figure_9_concludes_with_r_squared_and_what_is_left(student):
    table, words = read_table(student), said(fig9, student)
    assert f"is {table['r2'].median():.4f} [" in words
    assert f"that of least squares is {table['linear_r2'].median():.4f} [" in words
    assert f"{table['recruited'].median():.0f} [" in words
    assert "are left of 12 in two hidden layers; teachers have 4 in one" in words


@pytest.mark.long
def test_rivals_are_compared_at_a_strength_that_is_good_enough_if_one_is(small):
    table, words = read_table(small), said(rivals, small)
    medians = table.groupby(["rival", "strength"])[["neurons", "r2"]].median()
    enough = medians[medians["r2"] >= rivals.ENOUGH]
    reached = set(enough.index.get_level_values("rival"))
    for rival, runs in enough.groupby("rival"):
        assert f"{runs['neurons'].min():.0f} [" in words.split(f" for {rival}")[0][-12:]
    missed = words.split("No strength")[1] if "No strength" in words else ""
    assert {rival for rival in SMALL["rivals"] if re.search(f"(for|;) {rival}[;.]", missed)} == (
        set(SMALL["rivals"]) - reached
    )


@pytest.mark.long
def test_rivals_on_pictures_are_compared_with_the_first(classified):
    chosen, words = read_table(classified, pictures.CHOSEN), said(pictures, classified)
    pairs = chosen.pivot(index="seed", columns="rival", values="accuracy")
    difference = (pairs["weights, no skips"] - pairs["gated spectral"]).median()
    assert np.isnan(difference) or f"paired by seed, is {difference:+.4f} [" in words
    for rival, runs in chosen.groupby("rival"):
        left = runs["neurons"].median()
        assert np.isnan(left) or f"{left:.0f} [" in words.split(f" for {rival}")[0][-12:]


@pytest.mark.long
@pytest.mark.parametrize(
    ("module", "which"),
    [(fig7, "transition"), (fig9, "student"), (rivals, "small"), (pictures, "classified")],
)
def test_failed_runs_are_concluded_with_as_well(module, which, request, tmp_path):
    folder = shutil.copytree(request.getfixturevalue(which), tmp_path / "folder")
    for path in (folder / results.RESULTS, folder / pictures.CHOSEN):
        if path.exists():
            table = pd.read_csv(path)
            measured = table.columns.difference(["alpha", "beta", "seed", "strength", "failed_at"])
            numbers = table[measured].select_dtypes("number").columns
            table.assign(**dict.fromkeys(numbers, np.nan)).to_csv(path, index=False)
    words = said(module, folder)
    assert words
    assert "nan" not in words


def test_neurons_that_nothing_leads_to_are_drawn_without_what_leaves_them():
    bundles = {(2, 1): np.array([[1.0], [0.0]]), (3, 2): np.ones((1, 2)), (3, 1): np.zeros((1, 1))}
    axes = plots.architectures({"": {"": bundles}}).axes[0]
    assert [len(lines.get_paths()) for lines in axes.collections] == [1, 0, 1]


@pytest.mark.parametrize(
    ("module", "settings", "message"),
    [
        (fig7, {"input_eigenvalues": ("frozen",)}, "input_eigenvalues: unknown 'frozen'"),
        (fig7, {"alphas": 1}, "alphas: expected an integer of at least 2"),
        (fig7, {"batch_size": 20_000}, "batch_size: expected at most 10000 examples"),
        (fig7, {"strength": -1.0}, "strength: expected"),
        (fig8, {"layers": 1}, "layers: expected an integer of at least 2"),
        (fig9, {"presets": ("l1",)}, "presets: unknown 'l1'"),
        (fig9, {"presets": ()}, "presets: expected at least one"),
        (rivals, {"rivals": ("lasso",)}, "rivals: unknown 'lasso'"),
        (rivals, {"hidden": (0,)}, "widths: expected an integer of at least 1"),
        (rivals, {"strengths": (-1.0,)}, "strengths: expected"),
        (pictures, {"rivals": ("lasso",)}, "rivals: unknown 'lasso'"),
        (pictures, {"strengths": (1e-4, 1e-4)}, "strengths: 0.0001 is named twice"),
        (pictures, {"within": -0.1}, "within: expected"),
        (pictures, {"widths": (0,)}, "widths: expected an integer of at least 1"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(module, settings, message):
    with pytest.raises(ValueError, match=message):
        module.Settings(**settings).complete().check()


@pytest.fixture(scope="module")
def classified(tmp_path_factory):
    few = {"steps": 30, "seeds": 2, "strengths": (1e-4, 1e-2), "widths": (6,), "batch_size": 20}
    settings = {"rivals": ("gated spectral", "weights, no skips"), "examples": 200, "within": 0.3}
    return run(pictures, tmp_path_factory.mktemp("pictures"), **few, **settings)


@pytest.mark.long
def test_rivals_on_pictures_are_compared_where_they_are_accurate_enough(classified):
    table, chosen = read_table(classified), read_table(classified, pictures.CHOSEN)
    assert len(table) == 2 * 2 * 2
    best = table[table["rival"] == "gated spectral"].groupby("seed")["held_out_accuracy"].max()
    enough = chosen.dropna()
    assert (enough["held_out_accuracy"] >= enough["seed"].map(best) - 0.3).all()
    assert (classified / "pictures.png").exists()


@pytest.mark.long
def test_what_is_left_of_every_layer_adds_up_to_the_neurons_that_are_left(tmp_path):
    few = {"steps": 20, "seeds": 2, "strengths": (1e-3,), "widths": (4, 6), "batch_size": 20}
    every = tuple(pictures.ON_PICTURES)
    table = read_table(run(pictures, tmp_path, rivals=every, examples=200, **few))
    assert table["rival"].unique().tolist() == list(every)
    assert (table["neurons"] == table["layer_1"] + table["layer_2"]).all()
    assert table["layer_1"].between(0, 4).all()
    assert table["layer_2"].between(0, 6).all()


@pytest.mark.parametrize("name", pictures.ON_PICTURES)
def test_every_rival_of_pictures_loses_neurons_by_as_many_rows_at_a_time_as_are_asked_for(name):
    few = pictures.ON_PICTURES[name].strategy(0.0, 0.05, 500).stages[1]
    assert few.name in ("recruit", "slim")
    assert few.settings.batch_size == 500


@pytest.mark.long
def test_convolutional_rivals_have_the_same_channels_and_strides_and_see_pictures():
    settings = pictures.Settings(widths=(4, 4, 6), seeds=1, steps=1).complete()
    task = pictures.prepare(settings)
    sizes = {}
    for name in ("gated channels", "batch norm channels"):
        problem = pictures.problem_of(task, pictures.ON_PICTURES[name], np.array([0]))
        params, _ = problem.init(jax.random.key(0))
        kernels = [leaf.shape for leaf in jax.tree.leaves(params) if leaf.ndim == 4 and leaf.shape[0] == 3]
        sizes[name] = sorted(kernels)
    assert (
        sizes["gated channels"] == sizes["batch norm channels"] == [(3, 3, 1, 4), (3, 3, 4, 4), (3, 3, 4, 6)]
    )


@pytest.mark.long
def test_students_of_pictures_train_on_as_many_of_each_class_and_none_that_judge_or_test():
    settings = pictures.Settings(examples=300, seeds=2, steps=1).complete()
    task = pictures.prepare(settings)
    for rows, held_out in zip(pictures.rows_of(task), task.held_out, strict=True):
        assert np.bincount(task.images.y[rows]).tolist() == [30] * 10
        assert not set(rows) & (set(held_out) | set(task.test))
    with pytest.raises(ValueError, match=r"examples: expected 1 to .* of each class, got 500"):
        pictures.rows_of(task._replace(settings=pictures.Settings(examples=5000, seeds=2).complete()))


def test_the_strength_with_the_fewest_neurons_is_chosen_of_those_that_are_accurate_enough():
    columns = ("rival", "seed", "strength", "neurons", "held_out_accuracy", "accuracy")
    runs = [
        ("first", 0, 1e-5, 90, 0.95, 0.90),
        ("first", 0, 1e-4, 50, 0.948, 0.91),
        ("first", 0, 1e-3, 10, 0.90, 0.99),
        ("second", 0, 1e-5, 20, 0.949, 0.92),
        ("second", 0, 1e-4, 20, 0.960, 0.93),
        ("second", 0, 1e-3, 5, 0.946, 0.94),
        ("third", 0, 1e-4, 1, 0.80, 0.95),
        ("third", 0, 1e-3, np.nan, np.nan, np.nan),
    ]
    chosen = pictures.chosen_of(pd.DataFrame(runs, columns=columns), "first", 0.003).set_index("rival")
    assert chosen["strength"].tolist()[:2] == [1e-4, 1e-4]
    assert chosen["neurons"].tolist()[:2] == [50, 20]
    assert chosen.loc["third"].drop("seed").isna().all()
