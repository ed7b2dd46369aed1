"""What the README and the pages under docs/ print as code runs as printed."""

import contextlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import types

import jax
import numpy as np
import pytest
from places import ROOT, code_blocks, smaller
from small import RUNS, close, keys, problem, same

import jaxarch
from jaxarch.lab.cli import app
from jaxarch.lab.harness import catalogue


def run_page(page, names, runs=lambda block: True, changes=()):
    """Run the blocks of a page one after another, with and into some names, some numbers being others."""
    blocks = smaller("\0".join(code_blocks(page)), dict(changes)).split("\0")
    for block in filter(runs, blocks):
        exec(compile(block, page, "exec"), names)


@pytest.mark.long
def test_the_readme_s_code_runs_as_printed_in_a_fresh_process(tmp_path):
    script = tmp_path / "readme.py"
    script.write_text("\n".join(code_blocks("README.md")))
    done = subprocess.run(
        [sys.executable, script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    # Other machines round otherwise.
    shown, printed = map(medians_in, (code_blocks("README.md", "text")[0], done.stdout))
    assert len(shown) == 2 * 4
    assert printed == pytest.approx(shown, abs=0.02)
    assert "4,810" in done.stdout
    assert "holds as corrected" in done.stdout
    assert "from held-out rows" in done.stdout


def medians_in(text):
    """The medians of density and accuracy that a page's code prints of strategies, by their names."""
    lines = re.findall(r"^(.+): density (\S+), accuracy (\S+) \[.*\]$", text, flags=re.M)
    return {(name, of): float(n) for name, *both in lines for of, n in zip("da", both, strict=True)}


def printed_in(text):
    """The density and the accuracy that a page's code prints."""
    found = re.search(r"^density (\S+), accuracy (\S+)$", text, flags=re.M)
    assert found is not None, text
    return [float(number) for number in found.groups()]


def shown_on(page):
    """Those that the page says it prints."""
    found = re.search(r"^prints `(density \S+, accuracy \S+)`", (ROOT / page).read_text(), flags=re.M)
    assert found is not None
    return printed_in(found[1])


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_the_readme_counts_the_claims_as_they_are_recorded():
    said = re.search(
        r"Of (\d+) claims (\d+) hold, (\d+) hold as corrected, and (\d+) are refuted",
        (ROOT / "README.md").read_text(),
    )
    verdicts = [claim.verdict for claim in jaxarch.lab.claims.CLAIMS.values()]
    counted = [len(verdicts), *map(verdicts.count, ("holds", "holds as corrected", "refuted"))]
    assert said is not None
    assert [int(number) for number in said.groups()] == counted


@pytest.mark.parametrize("page", ["README.md", "docs/command_line.md"])
def test_the_commands_that_are_shown_exist(page):
    commands = "\n".join(code_blocks(page, "sh"))
    named = re.findall(r"^jaxarch (\w+)", commands, flags=re.M)
    assert named
    assert set(named) <= app.commands.keys()
    for experiment in re.findall(r"^jaxarch run ([a-z][\w.]*)", commands, flags=re.M):
        catalogue.experiment(experiment)


@pytest.mark.long
def test_the_page_on_your_model_prints_what_it_says_and_compares_and_sweeps(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    with jax.numpy_rank_promotion("allow"):
        run_page("docs/your_model.md", names)
    assert printed_in(capsys.readouterr().out) == pytest.approx(shown_on("docs/your_model.md"), abs=0.02)
    assert (tmp_path / "accuracy.png").exists()
    assert names["swept_accuracy"].shape == (10,)
    for network, _ in names["trimmed"].values():
        assert (abs(network.mask["edges"].mean(axis=1) - 0.7) < 1e-2).all()
        assert (network.params["edges"] == network.mask["edges"]).all()


def test_the_page_of_concepts_prints_what_it_says(capsys):
    run_page("docs/concepts.md", {})
    for line in capsys.readouterr().out.splitlines():
        assert f"  # {line}\n" in (ROOT / "docs" / "concepts.md").read_text()


@pytest.mark.long
def test_the_page_on_transfer_prints_what_it_says_and_goes_through_a_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    with jax.numpy_rank_promotion("allow"):
        run_page("docs/transfer.md", names)
    losses = re.findall(r"^\S+ (?:learned|random) (\S+)$", capsys.readouterr().out, flags=re.M)
    assert [float(loss) for loss in losses] == pytest.approx([0.20, 0.20, 1.61, 1.75], abs=0.02)
    assert names["small"].network is not None


@pytest.mark.long
def test_the_page_on_loops_of_one_s_own_holds_its_mask_and_learns(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    run_page("docs/your_own_loop.md", names)
    assert int(jaxarch.masks.connections(names["mask"])) == 740
    assert int(jaxarch.masks.connections(names["gradual_mask"])) == 740
    assert float(names["right"].mean()) > 0.8
    assert names["scores"].opt_state[-1].reached_at[...] > 0
    assert int(jaxarch.masks.connections(names["network"].mask)) == 740
    least = {
        "accuracy": 0.83,
        "gradual_accuracy": 0.78,
        "learned_accuracy": 0.7,
        "pruned_accuracy": 0.83,
        "moved_accuracy": 0.8,
    }
    assert {name for name, bound in least.items() if float(names[name]) > bound} == least.keys()
    assert 0.1 < float(names["learned_density"]) < 0.9
    assert jaxarch.named_leaves(names["again"]).keys() == {"hidden/kernel", "head/kernel"}


@pytest.mark.long
def test_the_page_on_trained_models_prints_what_it_says(capsys):
    # The block that opens the page uses the model of the next one.
    run_page("docs/prune_a_trained_model.md", {}, runs=lambda block: "any mask" not in block)
    accuracies = r"^(.+): (0\.\d\d)$"
    printed = capsys.readouterr().out
    first, left, *others = code_blocks("docs/prune_a_trained_model.md", "text")
    told = "".join([first, *others])
    found, shown = (dict(re.findall(accuracies, text, flags=re.M)) for text in (printed, told))
    assert found.keys() == shown.keys() and len(shown) == 11
    assert [*map(float, found.values())] == pytest.approx([*map(float, shown.values())], abs=0.04)
    assert left in printed


@pytest.mark.long
def test_the_page_on_data_trains_on_each_of_its_kinds(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    run_page("docs/your_data.md", names)
    assert (names["accuracy"] > 0.8).all()
    losses = names["read"].info["loss"]
    assert (losses[:, -5:].mean(axis=1) < losses[:, :5].mean(axis=1)).all()
    assert np.unique(names["seen"][:400], axis=0).shape == (400, 8)
    for made in ("balanced", "autoencoder", "sparse", "convolutional"):
        learning = names[made].descending(steps=3)
        found, _ = jaxarch.over_seeds(names["search"], names["keys"], learning)
        assert np.isfinite(found.info["loss"]).all()
    np.testing.assert_array_equal(names["mine"].x, names["same"].x)
    assert (names["digits"].x.shape, names["digits"].y.shape) == ((1797, 64), (1797,))
    assert names["pictures"].x.dtype == np.uint8
    assert (np.asarray(jax.vmap(jaxarch.density)(names["pruned_from_stream"].mask)) == 0.5).all()
    assert (len(names["seen_classes"]), names["inputs"].shape) == (8, (50, 8))


DEVICES_CHECKED = """
assert (spread, report_of_few.stages[0].devices, report_of_few.stages[0].width) == (8, 2, 8)
assert jax.vmap(jaxarch.density)(few.mask).shape == (16,)
alone, mask_alone = (jax.tree.map(np.asarray, tree) for tree in found["data parallel"])
assert int(masks.connections(mask_alone)) == round(0.1 * (64 * 512 + 512 * 10))
for name, (params, mask) in found.items():
    for tree in (params, mask):
        assert {leaf: array.sharding.spec for leaf, array in tree.items()} == layouts[name], name
    for leaf, array in params.items():
        np.testing.assert_allclose(array, alone[leaf], atol=5e-6)
        np.testing.assert_array_equal(mask[leaf], mask_alone[leaf])
assert (report_of_split.stages[0].devices, outputs.shape) == (8, (16, 597, 10))
kernel = jaxarch.named_leaves(split.params)["layers/0/kernel"]
assert (kernel.shape, kernel.sharding.shard_shape(kernel.shape)) == ((16, 64, 100), (8, 64, 25))
"""


@pytest.mark.long
def test_the_page_on_many_devices_uses_8_and_leaves_all_split_as_it_was(tmp_path):
    script = tmp_path / "page.py"
    script.write_text("\n".join(code_blocks("docs/many_devices.md")) + DEVICES_CHECKED)
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


FASTER_CUTS = {"steps=300": "steps=20", "steps=50": "steps=10"}
"""Fewer steps for the ResNet: its channels to cut do not depend on them."""


@pytest.mark.long
def test_the_page_on_cutting_units_leaves_half_of_the_heads_and_neurons(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    with jax.numpy_rank_promotion("allow"):
        run_page("docs/cutting_units.md", names, lambda block: "import torch" not in block, FASTER_CUTS)
    shapes = {path: leaf.shape for path, leaf in jaxarch.named_leaves(names["small"]).items()}
    assert shapes["encoder/0/attention/query/kernel"] == (48, 2, 12)
    assert shapes["encoder/1/layers/0/kernel"] == (48, 96)
    assert names["logits"].shape == (2, 16, 30)
    shrunk = names["shrunk"]
    assert close(
        shrunk.function(shrunk.tree, names["tokens"]), names["apply"](names["masked"], names["tokens"])
    )
    assert min(units.mean() for units in shrunk.kept.values()) < 0.6
    assert names["ratio"] > 2
    assert names["outputs"].shape == (5, 10)
    assert names["halved"].encoder[0].convolutions[0].kernel.shape == (3, 3, 8, 4)
    assert sum(units.sum() for units in names["small_mlp"].kept.values()) == 24
    assert (jax.vmap(jaxarch.density)(names["found"].mask["first"]["bias"]) > 0).all()
    heads = jaxarch.named_leaves(names["fewer"])["encoder/0/attention/out/kernel"]
    assert set(np.unique(heads.mean((1, 2)))) <= {0, 1}
    assert jaxarch.density(names["two_of_four"]) == 0.5
    of_layers = [names["sparse"].mask[layer]["bias"].sum(1) for layer in ("first", "second")]
    assert (sum(of_layers) == 24).all()
    page = (ROOT / "docs/cutting_units.md").read_text()
    of_first_block = [name for name in names["groups"].groups if not name.startswith("encoder/1")]
    rows = re.findall(r"^\| `(\S+)` \| (\d+) \|", page, flags=re.M)
    assert {name: int(units) for name, units in rows} == {
        name: names["groups"].groups[name].size for name in of_first_block
    }


FASTER_CERTIFICATES = {"key(0), 3)": "key(0), 2)", "range(3)": "range(2)"}


@pytest.mark.long
def test_the_page_on_certificates_bounds_what_held_out_rows_show_and_what_it_flips_and_sets_is_better():
    names = {}
    run_page("docs/certificates.md", names, changes=FASTER_CERTIFICATES)
    found = names["certificate"]
    assert found.training.rate < found.held_out.rate < found.held_out.bound < found.training.bound < 1
    assert (names["before"].loss, names["before"].kept) == pytest.approx((1.80, 111), abs=0.05)
    assert names["after"].loss < names["before"].loss
    assert names["after"].held_out.rate < names["before"].held_out.rate
    assert (names["better"].info["flips"] < 200).all()
    assert names["prescription"].rate == pytest.approx(0.042, rel=0.1)
    assert (np.diff(names["learned"].info["loss"]) <= 1e-6).all()
    assert (names["stopped"].info["kept_at"] <= 120).all()
    assert names["losses"][0] < names["losses"][1] + 0.01


@pytest.mark.long
def test_the_page_on_comparing_networks_prints_what_it_says():
    names = {}
    run_page("docs/comparing_networks.md", names)
    heights = [float(found.height) for found in names["barriers"].values()]
    assert heights == pytest.approx([0.83, 0.11, 0.07], abs=0.02)
    assert float(names["matched"].mean()) == pytest.approx(0.65, abs=0.02)
    assert names["aligned"].cosine == pytest.approx((-0.003, 0.272), abs=0.01)
    shown = np.array(re.findall(r"0\.\d\d", code_blocks("docs/comparing_networks.md", "text")[2]), float)
    assert names["found"].cka.ravel() == pytest.approx(shown, abs=0.02)
    line = code_blocks("docs/comparing_networks.md", "text")[4].splitlines()[1]  # of the last mask
    *gaps, density, count = map(float, re.findall(r"-?\d+\.\d+", line))
    assert names["gaps"] == pytest.approx(gaps, abs=0.1)
    assert float(names["routes"].density) == pytest.approx(density, abs=0.001)
    assert float(names["routes"].log_count) == pytest.approx(count, abs=0.2)
    kernels, y = names["kernels"].values(), names["digits"].y[:200]
    assert [float(of.effective_rank) for of in kernels] == pytest.approx([6.4, 5.1], abs=0.3)
    assert [float(of.alignment(y)) for of in kernels] == pytest.approx([0.65, 0.63], abs=0.02)
    assert [of.smallest.tolist() for of in names["dimensions"].values()] == [[120, 120], [120, 120]]


@pytest.mark.long
def test_the_page_on_bounds_prints_what_it_says():
    names = {}
    run_page("docs/bounds_over_a_region.md", names)
    shown = code_blocks("docs/bounds_over_a_region.md", "text")
    assert float(names["share"]) == pytest.approx(float(re.findall(r"0\.\d\d", shown[0])[-1]), abs=0.06)
    assert float(names["slope"]) == pytest.approx(float(re.findall(r"L = ([\d.]+)", shown[1])[-1]), rel=0.1)
    assert names["at_once"] < names["slope"] < names["norms"]


FASTER_SPECTRAL = {
    "key(0), 3)": "key(0), 2)",
    # Half of the steps at twice the rate lead as far.
    "steps=4000": "steps=2000",
    "adam(3e-3)": "adam(6e-3)",
    "keys[:2], pictures": "keys[:1], pictures",
    "batch_size=100,\n    train=rows[:1200]": "batch_size=50,\n    train=rows[:1200]",
    # Five trainings in place of 21, and fewer steps.
    "spectral_width(steps=1000)": "spectral_width(2, steps=500, strength=3e-3, growth=5.0)",
}


@pytest.mark.long
def test_the_page_on_spectral_networks_finds_the_width_in_the_gated_form_and_exports_it():
    names = {}
    run_page("docs/spectral_networks.md", names, changes=FASTER_SPECTRAL)
    assert (names["found"]["gated"][jaxarch.NeuronMask].count() <= 20).all()
    assert (names["found"]["eigendecomposition"][jaxarch.NeuronMask].count() >= 60).all()
    computed = jaxarch.evaluate(names["strategy"], names["found"]["gated"], names["student"], np.arange(6000))
    assert close(names["outputs"], computed[0], 1e-4)
    assert (names["sparse"][jaxarch.NeuronMask].count() <= 20).all()
    assert (names["narrow"][jaxarch.NeuronMask].count() <= 20).all()
    assert [axes.get_title(loc="left")[:3] for axes in names["figure"].axes] == ["L_2", "L_3"] * 2
    in_layers = names["shallower"][jaxarch.NeuronMask].kept["eigenvalues"]
    assert (in_layers["L3"].sum(axis=1) < in_layers["L2"].sum(axis=1)).all()
    assert names["shallowest"].info["layers"].tolist() == [1, 1]
    assert names["head"]["W2_1"].shape[1] == 8
    assert (names["convolutional"][jaxarch.NeuronMask].count() < 32).all()
    assert (names["classes"] == names["images"].y[names["rows"][1500:]]).mean() > 0.9
    recruited = {name: network[jaxarch.NeuronMask].count() for name, network in names["recruited"].items()}
    assert (recruited["linear"] <= 2).all()
    assert (recruited["quadratic"] >= 20).all()


@pytest.mark.long
def test_the_page_beside_jaxpruner_prunes_to_a_tenth_of_every_kernel():
    names = {}
    with jax.numpy_rank_promotion("allow"):
        run_page("docs/beside_jaxpruner.md", names)
    kept = {path: int(leaf.sum()) for path, leaf in jaxarch.named_leaves(names["mask"]).items()}
    assert kept == {"hidden/kernel": 640, "head/kernel": 100}
    assert float(names["accuracy"]) > 0.8


class Recorder(types.ModuleType):
    """A stand-in for tensorboardX and wandb, which keeps what it is told."""

    def __init__(self, name):
        super().__init__(name)
        self.told = []

    def SummaryWriter(self, folder):
        return types.SimpleNamespace(
            add_scalar=lambda *row: self.told.append((folder, *row)), close=lambda: self.told.append(folder)
        )

    def init(self, project):
        return contextlib.nullcontext(types.SimpleNamespace(log=self.told.append, define_metric=self.axes))

    def axes(self, name, step_metric):
        self.metrics = {name: step_metric}


@pytest.mark.long
def test_the_page_on_saving_keeps_masks_weights_and_trainings_and_tells_loss_and_density(
    tmp_path, monkeypatch, capsys
):
    pytest.importorskip("safetensors")
    monkeypatch.chdir(tmp_path)
    board, wandb = Recorder("tensorboardX"), Recorder("wandb")
    monkeypatch.setitem(sys.modules, "tensorboardX", board)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    names, has_torch = {}, importlib.util.find_spec("torch") is not None
    run_page("docs/saving_and_loading.md", names, lambda block: "import torch" not in block or has_torch)
    run, network = names["run"], names["network"]
    assert same(names["mask"], run.mask)
    assert same(names["weights"], run.params)
    if has_torch:
        assert names["kernel"].tolist() == run.params["hidden"]["kernel"].tolist()
        assert names["layer"].weight_mask.T.bool().tolist() == run.mask["hidden"]["kernel"].tolist()
    assert same(names["retrained"].mask, network.mask)
    assert same(names["again"], network)
    assert same(names["restored"], names["state"])

    densities = jax.vmap(jaxarch.density)(network.mask).tolist()
    losses = network.info["loss"][:, -1].tolist()
    printed = capsys.readouterr().out
    for index, (loss, density) in enumerate(zip(losses, densities, strict=True)):
        assert f"two_temperature, run {index}, step 40: loss {loss:.3f}, density {density:.3f}" in printed
        folder = f"logs/run {index}"
        assert (folder, "two_temperature/loss", loss, 40) in board.told
        assert (folder, "two_temperature/density", density, 40) in board.told
        assert folder in board.told
        assert wandb.told[-1][f"two_temperature/loss/run {index}"] == loss
        assert wandb.told[-1][f"two_temperature/density/run {index}"] == density
    assert wandb.metrics == {"two_temperature/*": "two_temperature/step"}
    assert [row["two_temperature/step"] for row in wandb.told] == [20, 40]
    count = int(run.mask["hidden"]["kernel"].sum())
    assert f"<jax.Array bool(64, 32) true:{count:_} false:{2048 - count:_}>" in printed


MINE, ONE_FILE, ONE_LINE, TRAINING, NEEDS, RECORDS, ANYWHERE = code_blocks("docs/your_own_method.md")


@pytest.fixture(scope="module")
def your_own():
    """What a reader of the page has after typing its code outside the package."""
    names = {name: getattr(jaxarch, name) for name in dir(jaxarch)} | {"keys": keys(), "problem": problem()}
    for block in (ONE_FILE, TRAINING, NEEDS, RECORDS, ANYWHERE):
        exec(compile(block, "docs/your_own_method.md", "exec"), names)
    return names


@pytest.mark.long
def test_a_method_added_by_one_file_and_one_line_has_every_contract_test_run_on_it(tmp_path):
    for folder in ("jaxarch", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    path = ONE_FILE.splitlines()[0].removeprefix("# ")
    (tmp_path / path).write_text(ONE_FILE)
    with (tmp_path / "jaxarch" / "search" / "__init__.py").open("a") as file:
        file.write(ONE_LINE)
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}

    def output(*command):
        done = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    contract = output("pytest", "-n", "0", "tests/search/test_contract.py", "-k", "saliency")
    theirs = output("pytest", "-n", "0", "--collect-only", "tests/search/test_contract.py", "-k", "snip")
    assert re.search(r"(\d+) passed", contract)[1] == re.search(r"(\d+)/\d+ tests collected", theirs)[1]
    assert "saliency" in output("jaxarch", "list")


def test_the_page_s_file_of_one_s_own_prints_what_it_says(capsys):
    exec(compile(MINE, "docs/your_own_method.md", "exec"), {})
    losses = re.findall(r"^\w.*: loss (\S+)$", capsys.readouterr().out, flags=re.M)
    assert [float(loss) for loss in losses] == pytest.approx([0.12, 0.17, 0.12], abs=0.02)


def test_the_page_s_methods_run_beside_the_others(your_own):
    assert set(your_own["results"]) == {"positive", "positive->bin"}
    for network, _ in your_own["results"].values():
        assert all(leaf.shape[0] == RUNS for leaf in jax.tree.leaves(network.params))


def test_the_page_s_record_goes_from_one_stage_to_another(your_own):
    stages = [your_own[name] for name in ("measured", "halved", "shown")]
    network, _ = jaxarch.over_seeds(jaxarch.chain(your_own["positive"](), *stages), keys(), problem())
    assert network.info["sizes"].shape == (RUNS, len(jax.tree.leaves(network.params)))
    assert (network.info["sizes"] == network[your_own["Sizes"]].norms).all()


def test_the_page_s_search_keeps_the_density_that_it_is_asked_for(your_own):
    network, _ = jaxarch.over_seeds(your_own["saliency"](0.25), keys(), problem())
    assert jax.vmap(jaxarch.density)(network.mask).tolist() == [0.25] * RUNS


@pytest.mark.parametrize("density", [2.0, "x"])
def test_the_page_s_search_refuses_a_density_that_cannot_be_used(your_own, density):
    with pytest.raises(jaxarch.ArgumentError, match=r"^density: expected a number in \(0, 1\]"):
        your_own["saliency"](density)


def test_what_the_page_says_that_chain_refuses_is_refused(your_own):
    with pytest.raises(jaxarch.ArgumentError, match="positive makes a network from nothing"):
        jaxarch.chain(your_own["saliency"](0.1), your_own["positive"]())


@pytest.mark.long
@pytest.mark.parametrize("name", ["saliency", "positive"])
def test_the_page_s_methods_keep_the_contract(your_own, name):
    learning = problem(steps=4)
    pure = jaxarch.chain(your_own[name]())
    alone = jax.jit(pure)(keys()[0], learning.of_run(0))
    mapped = jax.jit(jax.vmap(pure, in_axes=(0, learning.in_axes())))(keys(), learning)
    assert close(alone, mapped.of_run(0), 1e-4)


def test_every_link_to_a_file_leads_somewhere():
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")]:
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_public_name_has_a_docstring():
    for name in jaxarch.__all__:
        assert getattr(jaxarch, name).__doc__, name
