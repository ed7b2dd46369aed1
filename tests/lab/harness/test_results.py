"""Result folders: numbered, whole or not there."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from jaxarch import ArgumentError, plots
from jaxarch.lab import results
from jaxarch.lab.reproduction import read_findings
from jaxarch.metrics import quartiles


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
    with pytest.raises(ValueError, match="is not a result folder"):
        results.new_folder("name", out=tmp_path / "thesis", force=True).__enter__()
    assert (tmp_path / "thesis" / "chapter").exists()


def test_a_root_that_cannot_be_written_to_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="root: cannot write to"):
        results.new_folder("name", root=tmp_path / "file").__enter__()


def unfinished_in(tmp_path):
    return sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("."))


@pytest.mark.parametrize("force", [False, True])
def test_what_comes_to_an_explicit_name_meanwhile_is_left_alone(tmp_path, force):
    out = tmp_path / "out"
    with results.new_folder("name", out=out, force=force) as folder:
        write(folder.path)
        out.mkdir()
        (out / "chapter").write_text("years of work")
    assert (out / "chapter").exists()
    assert folder.taken == out
    assert folder.path == tmp_path / "out-2"
    assert results.read_manifest(folder.path)["experiment"] == "e"
    assert not unfinished_in(tmp_path)


@pytest.mark.parametrize("kind", ["empty folder", "file", "link", "result folder"])
def test_nothing_that_comes_meanwhile_is_replaced_without_force(tmp_path, kind):
    out = tmp_path / "out"
    with results.new_folder("name", out=out) as folder:
        write(folder.path)
        if kind == "file":
            out.write_text("")
        elif kind == "link":
            out.symlink_to(tmp_path / "elsewhere")
        else:
            out.mkdir()
        if kind == "result folder":
            write(out, "another")
        before = out.lstat()
    assert (out.lstat().st_ino, out.lstat().st_mtime) == (before.st_ino, before.st_mtime)
    assert folder.path.name == "out-2"


def test_an_explicit_folder_is_not_there_before_it_is_complete(tmp_path):
    with results.new_folder("name", out=tmp_path / "out") as folder:
        write(folder.path)
        assert not (tmp_path / "out").exists()
        assert not folder.finished
    assert folder.finished
    assert [path.name for path in folder.path.iterdir()] == [results.MANIFEST]


@pytest.mark.parametrize("force", [False, True])
def test_an_explicit_folder_that_cannot_be_made_is_refused_before_the_block(tmp_path, force):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    for out, message in {
        "link": "out: .*link is a link; give the folder that it points to",
        "dangling": "out: .*dangling is a link",
        "x" * 300: r"out: cannot write to .*x\.\.\.x.* \(File name too long\)",
        "new/" + "x" * 300: "File name too long",
        "file/out": "out: cannot write to .*a file of that name, or of one of its parents, is in the way",
        "dangling/out": "out: cannot write to .*a file of that name, or of one of its parents, is in the way",
        "nul\0": "out: cannot write to .*null (byte|character)",
    }.items():
        with pytest.raises(ArgumentError, match=message) as caught:
            results.new_folder("name", out=tmp_path / out, force=force).__enter__()
        assert len(str(caught.value)) < 400
    assert not list((tmp_path / "folder").iterdir())
    assert not unfinished_in(tmp_path)


def test_a_folder_that_forbids_writing_is_refused_before_the_block(tmp_path, monkeypatch):
    def forbidden(self, *args, **kwargs):
        raise PermissionError(errno.EACCES, "Permission denied")

    (tmp_path / "forbidden").mkdir()
    monkeypatch.setattr(Path, "mkdir", forbidden)
    with pytest.raises(ArgumentError, match=r"out: cannot write to .*out \(Permission denied\)"):
        results.new_folder("name", out=tmp_path / "forbidden" / "out").__enter__()


@pytest.mark.parametrize("out", [None, "out"])
def test_a_disk_that_is_full_at_the_end_leaves_what_was_written(tmp_path, out):
    with (
        pytest.raises(ArgumentError, match=r"\(No space left on device\); the files written") as caught,
        results.new_folder("name", tmp_path, out and tmp_path / out) as folder,
    ):
        write(folder.path)
        raise OSError(errno.ENOSPC, "No space left on device")
    kept = tmp_path / ("0001-name-incomplete" if out is None else "out-incomplete")
    assert folder.path == kept
    assert str(kept) in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == [kept.name]
    assert results.read_manifest(kept)["experiment"] == "e"


def test_a_name_that_cannot_be_made_in_the_end_leaves_the_results_under_the_temporary_one(
    tmp_path, monkeypatch
):
    with results.new_folder("name", out=tmp_path / "out") as folder:
        write(folder.path)
        temporary = folder.path
        monkeypatch.setattr(Path, "mkdir", lambda self: os.mkdir(f"{self}/no"))
    assert folder.path == temporary
    assert folder.taken == tmp_path / "out"
    results.unfinished.sweep(tmp_path)
    assert results.read_manifest(temporary)["experiment"] == "e"


ABANDON = """
import os, sys, jaxarch.lab.results.unfinished as unfinished
abandoned = unfinished.folder(__import__("pathlib").Path(sys.argv[1]))
abandoned.__enter__()
os._exit(9)
"""


@pytest.mark.long
def test_what_a_dead_process_left_unfinished_is_swept_up_and_nothing_else(tmp_path):
    subprocess.run([sys.executable, "-c", ABANDON, tmp_path], check=False)
    [left] = tmp_path.iterdir()
    other, unknown = tmp_path / ".unfinished-other-host", tmp_path / ".unfinished-unknown"
    shutil.copytree(left, other)
    owner = json.loads((other / results.unfinished.OWNER).read_text())
    assert set(owner) == {"pid", "host", "started"}
    (other / results.unfinished.OWNER).write_text(json.dumps(owner | {"host": "another"}))
    unknown.mkdir()
    (tmp_path / ".unfinished-link").symlink_to(left)
    with results.new_folder("name", tmp_path) as living:
        write(living.path)
        with results.new_folder("name", tmp_path) as folder:
            write(folder.path)
        assert living.path.exists()
        assert unfinished_in(tmp_path) == sorted(
            [".unfinished-link", other.name, unknown.name, living.path.name]
        )


@pytest.mark.parametrize(
    "content",
    [
        *(None, "", "[]", "3", '"text"', "null", "{", "[" * 100_000),
        *(
            '{"experiment": "e"}',
            '{"experiment": ["e"], "settings": {}}',
            '{"experiment": 1, "settings": {}}',
        ),
        *('{"experiment": "e", "settings": [1]}', '{"experiment": "e", "settings": {"a": 1e99990}}'),
        *('{"experiment": "e", "settings": {"a": NaN}}', '{"experiment": "e", "settings": {"a": -Infinity}}'),
        '{"experiment": "e", "settings": {"a": 1%s}}' % ("0" * 5000),
        '{"experiment": "%s", "settings": []}' % ("e" * 5000),
    ],
)
def test_a_folder_without_a_readable_manifest_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / results.MANIFEST).write_text(content)
    with pytest.raises(ArgumentError, match="folder: ") as caught:
        results.read_manifest(tmp_path)
    assert len(str(caught.value)) < 400
    assert str(caught.value).isprintable()


def test_a_table_with_a_number_beyond_float64_or_that_is_no_file_is_refused(tmp_path):
    (tmp_path / results.RESULTS).write_text("auc,loss\n0.5,1\n0.5,1e99990\n")
    with pytest.raises(ArgumentError, match="has an infinite number: 'loss', row 2"):
        results.read_table(tmp_path)
    (tmp_path / "bounds.csv").write_text("bound,loss\ninf,1\n0.5,2\n")
    assert np.isinf(results.read_table(tmp_path, "bounds.csv")["bound"]).tolist() == [True, False]
    os.mkfifo(tmp_path / "fifo.csv")
    with pytest.raises(ArgumentError, match="it is not a file"):
        results.read_table(tmp_path, "fifo.csv")


def test_control_characters_of_a_folder_s_files_do_not_reach_the_terminal(tmp_path):
    (tmp_path / results.RESULTS).write_text("strategy\nbin\x1b[2J\n")
    assert results.read_table(tmp_path)["strategy"].tolist() == [r"bin\x1b[2J"]
    content = {"experiment": "e", "settings": {}, "notes": {"n": ["\x1b[2J"]}}
    (tmp_path / results.MANIFEST).write_text(json.dumps(content))
    assert results.read_manifest(tmp_path)["notes"] == {"n": [r"\x1b[2J"]}


@pytest.mark.parametrize("place", ["file", "dangling", "file elsewhere"])
def test_a_figure_takes_the_place_of_a_link_and_never_follows_it(tmp_path, place):
    target = tmp_path / "target"
    if place != "dangling":
        target.write_text("precious")
    folder = tmp_path / "folder"
    folder.mkdir()
    if place != "file":
        (folder / "figure.png").symlink_to(target)
    figure = plots.curves({"a": {"b": (np.arange(3.0), np.arange(3.0))}}, "x")
    [png, _] = plots.save(figure, folder, "figure")
    assert png.is_file() and not png.is_symlink()
    assert png.stat().st_size > 1000
    assert not target.exists() if place == "dangling" else target.read_text() == "precious"


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
    with pytest.raises(ValueError, match="rows: 'task' has no spectra in 'second'; leave this panel out"):
        plots.spectral_comparison({"task": {"first": {"bin": runs}, "second": {}}})
    with pytest.raises(ValueError, match="rows: 'task' has 'bin' in 'second' and in an earlier panel"):
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
