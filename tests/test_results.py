"""Result folders: numbered, whole or not there."""

import json

import numpy as np
import pytest

from jaxarch import plots, results
from jaxarch.metrics import quartiles
from jaxarch.reproduction import read_findings


def write(folder, text="1"):
    (folder / results.MANIFEST).write_text(json.dumps({"experiment": "e", "settings": {"text": text}}))


def test_folders_are_numbered_on(tmp_path):
    for number in (1, 2):
        with results.new_folder("name", root=tmp_path) as folder:
            write(folder.path)
        assert folder.path == tmp_path / f"{number:04d}-name"
        assert folder.path.is_dir()


def test_numbers_go_on_after_a_gap(tmp_path):
    (tmp_path / "0041-other").mkdir()
    with results.new_folder("name", root=tmp_path) as folder:
        write(folder.path)
    assert folder.path.name == "0042-name"


def test_a_folder_is_not_there_before_it_is_complete_nor_after_a_failure(tmp_path):
    with pytest.raises(KeyboardInterrupt), results.new_folder("name", root=tmp_path) as folder:
        write(folder.path)
        assert not (tmp_path / "0001-name").exists()
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_an_explicit_folder_that_exists_is_refused_without_force(tmp_path):
    out = tmp_path / "out"
    with results.new_folder("name", out=out) as folder:
        write(folder.path, "old")
    with pytest.raises(ValueError, match=r"out: .* exists; choose another folder or add --force"):
        results.new_folder("name", out=out).__enter__()
    with results.new_folder("name", out=out, force=True) as folder:
        write(folder.path, "new")
    assert results.read_manifest(out)["settings"]["text"] == "new"


def test_force_keeps_the_old_folder_when_the_new_run_fails(tmp_path):
    out = tmp_path / "out"
    with results.new_folder("name", out=out) as folder:
        write(folder.path, "old")
    with pytest.raises(RuntimeError), results.new_folder("name", out=out, force=True):
        raise RuntimeError
    assert results.read_manifest(out)["settings"]["text"] == "old"


def test_force_does_not_replace_a_folder_that_is_none_of_ours(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter").write_text("years of work")
    with pytest.raises(ValueError, match="is no result folder"):
        results.new_folder("name", out=tmp_path / "thesis", force=True).__enter__()
    assert (tmp_path / "thesis" / "chapter").exists()


def test_a_root_that_cannot_be_written_to_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="root: cannot write to"):
        results.new_folder("name", root=tmp_path / "file").__enter__()


@pytest.mark.parametrize("content", [None, "", "[]", '{"experiment": "e"}'])
def test_a_folder_without_a_readable_manifest_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / results.MANIFEST).write_text(content)
    with pytest.raises(ValueError, match="folder: "):
        results.read_manifest(tmp_path)


def test_the_manifest_tells_versions_devices_and_source():
    content = results.manifest({"a": 1}, experiment="e")
    assert content["devices"]["count"] == 2
    assert set(content["versions"]) >= {"jax", "flax", "optax", "numpy"}
    assert content["settings"] == {"a": 1}
    assert content["git_commit"] is None or len(content["git_commit"]) >= 40


def test_what_was_measured_in_no_run_is_left_out_of_the_findings(tmp_path):
    found = [results.finding("failed", [np.nan, np.nan]), results.finding("half", [np.nan, 3.0])]
    results.write_findings(tmp_path, found)
    assert [(line.what, line.median, line.runs) for line in read_findings(tmp_path)] == [("half", 3, 1)]


def test_quartiles_leave_failed_runs_out():
    assert quartiles(np.array([1.0, 2.0, 3.0, np.nan])) == (2.0, 1.5, 2.5)
    assert np.isnan(quartiles(np.array([np.nan]))).all()


def test_equal_figures_are_equal_files(tmp_path):
    runs = np.linspace(0.8, 0.9, 5)
    for name in ("one", "two"):
        figure = plots.by_strategy({"s": {"bin": runs, "failed": np.full(5, np.nan)}}, "AUC", chance=0.5)
        plots.save(figure, tmp_path, name)
    for kind in ("png", "svg"):
        assert (tmp_path / f"one.{kind}").read_bytes() == (tmp_path / f"two.{kind}").read_bytes()


def test_convergence_is_drawn_whatever_fails(tmp_path):
    histories = {
        "bin": np.full((3, 25), np.nan),
        "real": np.random.default_rng(0).random((3, 25)),
        "short": np.ones((1, 3)),
    }
    assert plots.save(plots.convergence(histories), tmp_path, "figure")[0].stat().st_size > 1000


def test_a_strategy_looks_the_same_in_every_panel_whatever_fails():
    random = np.random.default_rng(0)
    runs = [np.sort(2 * random.random((5, 12)), axis=1) for _ in range(3)]
    failed = np.full((5, 12), np.nan)
    rows = {
        "first": {"real-valued": {"real": runs[0]}, "binary": {"bin": runs[1], "random": failed}},
        "second": {"binary": {"bin": runs[2], "real": runs[0]}},
        "third": {"binary": {"random": failed}},
    }
    figure = plots.spectral_comparison(rows)
    colours = {label.get_text(): line.get_color() for label, line in zip(*legend(figure), strict=True)}
    panels = {
        (axes.get_subplotspec().rowspan.start, axes.get_title("left").strip()): axes for axes in figure.axes
    }
    assert len(figure.axes) == 2 + 1 + 1 + 3
    drawn = panels[1, "binary"].lines
    assert [line.get_color() for line in drawn] == [colours["bin"], colours["real"]]
    np.testing.assert_array_equal(drawn[0].get_ydata(), np.median(runs[2], axis=0))
    assert not panels[2, "binary"].lines


def legend(figure):
    return figure.legends[0].get_texts(), figure.legends[0].get_lines()


def test_a_comparison_of_spectra_without_rows_panels_or_names_of_their_own_is_refused():
    runs = np.ones((3, 4))
    with pytest.raises(ValueError, match="rows: expected at least one task"):
        plots.spectral_comparison({})
    with pytest.raises(ValueError, match="rows: 'task' has no panels"):
        plots.spectral_comparison({"task": {}})
    with pytest.raises(ValueError, match="rows: 'task' has no spectra in 'second'; leave the panel out"):
        plots.spectral_comparison({"task": {"first": {"bin": runs}, "second": {}}})
    with pytest.raises(ValueError, match="rows: 'task' has 'bin' in 'second' and in a panel before it"):
        plots.spectral_comparison({"task": {"first": {"bin": runs}, "second": {"bin": runs}}})


@pytest.mark.parametrize("draw", [plots.spectra, plots.plane])
def test_groups_of_spectra_are_drawn_or_refused(draw, tmp_path):
    runs = np.random.default_rng(0).random((5, 12))
    many = {f"strategy {index}": runs + index for index in range(16)}
    figure = draw(many)
    assert plots.save(figure, tmp_path, "figure")[0].stat().st_size > 1000
    lines = (figure.legends or [figure.axes[0].get_legend()])[0].get_lines()
    assert len({(line.get_color(), line.get_marker()) for line in lines}) == 16
    with pytest.raises(ValueError, match=r"'one': expected shape \(runs, entries\)"):
        draw({"one": runs[0]})
