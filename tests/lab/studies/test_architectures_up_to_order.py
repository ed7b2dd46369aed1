"""Masks of different seeds up to the order of hidden units: alignment, controls, and what is concluded."""

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from pages import charted

import jaxarch
from jaxarch import ArgumentError
from jaxarch.lab.analysis import architectures, controls, pairs
from jaxarch.lab.analysis.architectures import OTHER, SAME, ArchitecturesSettings, Runs
from jaxarch.lab.harness import plan_of, report_on, run_in
from jaxarch.lab.reproduction import read_findings
from jaxarch.lab.results import read_manifest, read_table

SIZES = (12, 9, 8, 4)
SMALL = ArchitecturesSettings(
    methods=("SNIP", "random"), seeds=4, widths=(8, 6), steps=6, restarts=1, draws=1, examples=50
)


def apply(tree, x):
    params, _ = tree
    for layer in range(len(SIZES) - 1):
        x = x @ params[f"w{layer}"] + params[f"b{layer}"][None]
        x = jax.nn.relu(x) if layer < len(SIZES) - 2 else x
    return x


def drawn(seed, density=0.3):
    """A mask and weights of a perceptron."""
    draw = np.random.default_rng(seed)
    weights = {f"w{at}": draw.normal(size=SIZES[at : at + 2]).astype(np.float32) for at in range(3)}
    biases = {f"b{at}": draw.normal(size=SIZES[at + 1]).astype(np.float32) for at in range(3)}
    mask = {path: draw.random(leaf.shape) < density for path, leaf in weights.items()}
    return mask | dict.fromkeys(biases), weights | biases


@pytest.fixture(scope="module")
def compare():
    batch = np.random.default_rng(9).normal(size=(100, SIZES[0])).astype(np.float32)
    return pairs.Comparer(apply, drawn(0)[1], None, batch, restarts=3, draws=2)


def reordered(compare, mask, weights, state):
    """A network, and the same with its units in another order."""
    weights = jaxarch.masks.apply_mask(mask, weights)
    groups = jaxarch.structure.axis_groups(compare.apply, (weights, state), compare.batch)
    draw = np.random.default_rng(2)
    orders = {name: draw.permutation(group.size) for name, group in groups.groups.items()}
    moved, there = groups.permute((weights, state), orders)
    other, _ = groups.permute((mask, None), orders)
    return jaxarch.Network(weights, mask, state), jaxarch.Network(moved, other, there)


@pytest.fixture(scope="module")
def mixed(compare):
    """The overlaps of a mask with itself, its units in another order."""
    mask, weights = drawn(1)
    return pairs.overlaps(compare, *reordered(compare, mask, weights, None), jax.random.key(0))


@pytest.mark.parametrize("match", [pairs.BY_UNITS, pairs.BY_MASKS])
def test_masks_that_are_the_same_up_to_the_order_of_units_overlap_by_1_once_aligned(mixed, match):
    assert mixed[pairs.FOUND][pairs.AS_THEY_ARE] < 0.5
    assert mixed[pairs.FOUND][match] == 1


def convolve(tree, x):
    """Two convolutions, and a state between them."""
    params, signs = tree
    form = ("NHWC", "HWIO", "NHWC")
    x = jax.lax.conv_general_dilated(x, params["w0"], (1, 1), "SAME", dimension_numbers=form)
    x = jax.nn.relu(x * signs[None, None, None])
    return jax.lax.conv_general_dilated(x, params["w1"], (1, 1), "VALID", dimension_numbers=form).mean((1, 2))


@pytest.mark.long
def test_convolutions_are_matched_by_units_each_with_its_own_state():
    draw = np.random.default_rng(0)
    shapes = {"w0": (3, 3, 2, 8), "w1": (3, 3, 8, 4)}
    weights = {path: draw.normal(size=shape).astype(np.float32) for path, shape in shapes.items()}
    mask = {path: draw.random(shape) < 0.3 for path, shape in shapes.items()}
    signs = draw.choice(np.float32([-1, 1]), 8)
    batch = draw.normal(size=(50, 6, 6, 2)).astype(np.float32)
    compare = pairs.Comparer(convolve, weights, signs, batch, restarts=1, draws=1)
    found = pairs.overlaps(compare, *reordered(compare, mask, weights, signs), jax.random.key(0))[pairs.FOUND]
    assert found[pairs.AS_THEY_ARE] < 0.6
    assert found[pairs.BY_UNITS] == 1


def test_alignment_by_masks_raises_the_overlap_of_unrelated_masks(mixed):
    of = mixed[pairs.RESHUFFLED]
    assert of[pairs.BY_MASKS] > of[pairs.AS_THEY_ARE] + 0.05


def test_a_planted_half_is_found_again_after_units_are_mixed(mixed):
    of = mixed[pairs.PLANTED]
    assert of[pairs.BY_MASKS] >= of[pairs.AS_THEY_ARE] - 0.03


@pytest.mark.parametrize("change", pairs.CONTROLS.values())
def test_a_control_has_the_same_layer_densities_and_other_connections(change):
    mask, _ = drawn(3)
    made = change(np.random.default_rng(0), mask)
    assert jaxarch.layer_density(made) == jaxarch.layer_density(mask)
    assert jaxarch.overlap(mask, made) < 0.6


def test_masks_whose_units_keep_their_numbers_have_the_sums_of_all_rows_and_columns():
    mask, _ = drawn(4)
    made = controls.units_kept(np.random.default_rng(0), mask)
    for path in ("w0", "w1", "w2"):
        for axis in (0, 1):
            assert made[path].sum(axis).tolist() == mask[path].sum(axis).tolist()


def test_masks_of_convolutions_whose_channels_keep_their_numbers_are_others():
    mask = {"kernel": np.random.default_rng(6).random((3, 2, 5, 7)) < 0.3}
    made = controls.units_kept(np.random.default_rng(0), mask)["kernel"]
    assert made.sum((0, 1, 3)).tolist() == mask["kernel"].sum((0, 1, 3)).tolist()
    assert made.sum(2).tolist() == mask["kernel"].sum(2).tolist()
    assert jaxarch.overlap(mask["kernel"], made) < 0.6


def test_trades_make_all_tables_with_the_same_sums_equally_often():
    # Without all trades only three of the six permutation matrices could be reached.
    mask = {"w": np.eye(3, dtype=bool)}
    draw = np.random.default_rng(0)
    made = [controls.units_kept(draw, mask)["w"].argmax(1) for _ in range(600)]
    _, counts = np.unique(made, axis=0, return_counts=True)
    assert len(counts) == 6
    assert counts.min() > 60


def test_trades_leave_no_more_of_a_permutation_than_a_random_one_has_of_it():
    mask = {"w": np.eye(20, dtype=bool)}
    draw = np.random.default_rng(0)
    left = [controls.units_kept(draw, mask)["w"].trace() for _ in range(60)]
    # A random permutation has one fixed point in the mean, with a standard deviation of 1.
    assert 0.5 < np.mean(left) < 1.5


def test_planted_masks_keep_half_of_the_connections_of_each_layer():
    mask, _ = drawn(5)
    made = controls.planted(np.random.default_rng(0), mask)
    for path in ("w0", "w1", "w2"):
        count = mask[path].sum()
        assert made[path].sum() == count
        assert (made[path] & mask[path]).sum() == count - round(count / 2)


def test_pairs_of_the_same_start_differ_in_their_examples_alone():
    runs = Runs.of(6)
    for start, _, first, second in runs.pairs(6):
        assert (runs.start[first] == runs.start[second]) == (start == SAME)
        assert runs.examples[first] != runs.examples[second]


def test_pairs_of_other_starts_have_no_seed_in_common():
    runs = Runs.of(6)
    of_other = [runs.start[[first, second]] for start, _, first, second in runs.pairs(6) if start == OTHER]
    assert sorted(np.concatenate(of_other)) == list(range(6))


def rows(excess):
    """Runs of two methods whose masks overlap by `excess` more than if units kept their numbers alone."""
    made = []
    for name, more in excess.items():
        for start in (OTHER, SAME):
            for pair in range(6):
                about = {"strategy": name, "start": start, "density": 0.1, "pair": pair}
                measured = {"accuracy": 0.9, "failed_at": -1}
                as_is = 0.05 if start == OTHER else 0.75
                for kind in (pairs.FOUND, *pairs.CONTROLS, pairs.PLANTED):
                    beyond = {pairs.FOUND: more, pairs.RESHUFFLED: -0.1}.get(kind, 0)
                    by_masks = 0.3 + 0.001 * pair + beyond
                    of = {pairs.AS_THEY_ARE: as_is, pairs.BY_UNITS: 0.1, pairs.BY_MASKS: by_masks}
                    made.append({**about, "masks": kind, **of, **measured})
    return pd.DataFrame(made)


def concluded(excess):
    table = rows(excess)
    compared = architectures._comparisons(table)
    settings = {"dataset": "digits", "model": "mlp", "seeds": 12}
    results = SimpleNamespace(settings=settings, table=table, read=lambda name: compared)
    return " ".join(architectures.conclusion(results))


def test_the_conclusion_has_the_excess_over_the_control_that_keeps_the_units_numbers():
    said = concluded({"ours": 0.125, "theirs": -0.25})
    assert "ours +0.125 [+0.125, +0.125], theirs -0.250 [-0.250, -0.250]" in said
    assert "of 6 pairs" in said
    assert "P < 0.05 (Wilcoxon, adjusted over methods and densities): 1 above and 1 below 0, of 2." in said


def test_the_p_of_all_methods_are_adjusted_together():
    compared = architectures._comparisons(rows({"ours": 0.125, "theirs": -0.25}))
    one = compared.query("start == @OTHER and match == 'by masks' and control == 'reshuffled'")
    assert one["p"].tolist() == [2 / 2**6] * 2
    # Equal p of two tests are multiplied by 1 + 1/2.
    np.testing.assert_allclose(one["p_adjusted"], 3 / 2**6)


def test_magnitude_pruning_is_compared_with_its_reshuffled_masks_once_trained():
    table = rows({"magnitude": 0.0, "random as magnitude": 0.0})
    table.loc[table["strategy"] == "magnitude", pairs.BY_UNITS] += 0.25
    (line,) = architectures._against_trained_control(table)
    assert line["median"] == pytest.approx(0.25)
    assert line["runs"] == 6


def test_the_conclusion_has_the_overlap_of_runs_from_the_same_start():
    said = concluded({"ours": 0.125, "theirs": 0.0})
    assert "ours 0.750, theirs 0.750; from other starts by at most 0.050" in said


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seeds": 5}, "seeds: expected an even number"),
        ({"seeds": 2}, "seeds: expected an even number"),
        ({"methods": ("SNAP",)}, "methods: "),
        ({"densities": (1.5,)}, "densities: "),
        ({"restarts": -1}, "restarts: "),
        ({"draws": 0}, "draws: "),
        ({"model": "vgg11"}, "model: "),
    ],
)
def test_bad_settings_of_the_comparison_are_refused(settings, message):
    with pytest.raises(ArgumentError, match=f"^{message}"):
        plan_of(architectures.EXPERIMENT, ArchitecturesSettings(**settings))


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    made = tmp_path_factory.mktemp("architectures") / "out"
    made.mkdir()
    run_in(made, architectures.EXPERIMENT, SMALL)
    return made


@pytest.mark.long
def test_random_masks_of_the_same_start_are_the_same(compared):
    table = read_table(compared).query("strategy == 'random' and masks == 'found'")
    by_start = table.groupby("start")[pairs.AS_THEY_ARE]
    assert by_start.min()[SAME] == 1
    assert by_start.max()[OTHER] < 0.5


@pytest.mark.long
def test_saliency_masks_of_the_same_start_differ_by_their_examples(compared):
    table = read_table(compared).query("strategy == 'SNIP' and masks == 'found'")
    medians = table.groupby("start")[pairs.AS_THEY_ARE].median()
    assert medians[OTHER] < medians[SAME] < 1


@pytest.mark.long
def test_each_pair_is_compared_with_each_control_at_each_density(compared):
    table = read_table(compared)
    counts = table.groupby(["strategy", "start", "density", "masks"]).size()
    assert set(counts) == {2}
    assert len(counts) == 2 * 2 * (4 + 3)


@pytest.mark.long
def test_overlaps_are_told_drawn_and_charted(compared):
    made = report_on(compared, architectures.EXPERIMENT)
    shown = [line for line in made.body if hasattr(line, "rows")]
    assert [len(table.rows) for table in shown] == [4, 4]
    for name in ("overlaps", "same_start", "excess"):
        assert (compared / f"{name}.png").exists()
    assert len(charted(compared, architectures.EXPERIMENT)) == 2
    assert len(read_findings(compared)) == 8 * 3 + 8 * 6
    assert "SNIP" in made.conclusion


@pytest.mark.long
def test_a_folder_of_parts_gives_the_same_numbers_and_takes_further_methods(compared, tmp_path):
    table = read_table(compared)
    begun = dataclasses.replace(SMALL, methods=("random",), resume=str(tmp_path / "parts"))
    for name, settings in (("one", begun), ("both", dataclasses.replace(begun, methods=SMALL.methods))):
        (tmp_path / name).mkdir()
        run_in(tmp_path / name, architectures.EXPERIMENT, settings)
    pd.testing.assert_frame_equal(read_table(tmp_path / "both"), table)
    assert read_manifest(tmp_path / "one")["settings"]["methods"] == ["random"]


@pytest.mark.long
def test_masks_of_a_cnn_with_batch_norm_are_compared(tmp_path):
    changes = {"model": "cnn", "widths": (4,), "pool": 2, "methods": ("random",), "densities": (0.3,)}
    run_in(tmp_path, architectures.EXPERIMENT, dataclasses.replace(SMALL, **changes))
    table = read_table(tmp_path)
    assert len(table) == 2 * (4 + 3)
    planted = table[table["masks"] == pairs.PLANTED]
    assert (planted[pairs.BY_MASKS] > 0.9 * planted[pairs.AS_THEY_ARE]).all()


def test_a_pair_with_a_failed_run_has_no_overlap_and_leaves_the_others():
    table = rows({"ours": 0.1})
    failed = (table["pair"] == 0) & (table["start"] == OTHER)
    numbers = [*pairs.MATCHES]
    table = table[~failed | (table["masks"] == pairs.FOUND)].reset_index(drop=True)
    table.loc[(table["pair"] == 0) & (table["start"] == OTHER), numbers] = np.nan
    compared = architectures._comparisons(table)
    assert set(compared[compared["start"] == OTHER]["runs"]) == {5}
    assert set(compared[compared["start"] == SAME]["runs"]) == {6}


def test_examples_of_a_seed_are_its_own_rows_in_another_order():
    settings = dataclasses.replace(SMALL, widths=(2,), methods=("random",)).complete()
    task = architectures.prepare(settings)
    problem = architectures._problem(task, Runs.of(4))
    assert np.sort(problem.train[:4], axis=1).tolist() == task.train.tolist()
    assert problem.train[4].tolist() == problem.train[1].tolist()
    assert (jnp.asarray(task.train) != problem.train[:4]).mean() > 0.9
