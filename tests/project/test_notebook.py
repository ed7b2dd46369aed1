"""The notebooks run, and have what their text forms say, with figures and without errors."""

import sys

import jupytext
import pytest
from places import ROOT, smaller

sys.path.insert(0, str(ROOT / "docs"))

from building import notebooks

TEXT_FORMS = sorted(notebooks.FOLDER.glob("*.py"))
of_each = pytest.mark.parametrize("text_form", TEXT_FORMS, ids=lambda path: path.stem)


def cells(path):
    return [(cell.cell_type, cell.source) for cell in jupytext.read(path).cells]


def outputs(notebook):
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


@of_each
def test_a_notebook_and_its_text_form_agree(text_form):
    assert cells(text_form.with_suffix(".ipynb")) == cells(text_form)


@of_each
def test_a_notebook_is_kept_with_its_figures_and_small(text_form):
    path = text_form.with_suffix(".ipynb")
    assert len(notebooks.figures(path)) >= 2
    assert path.stat().st_size < 300_000


@of_each
def test_no_notebook_tells_of_errors_warnings_or_where_it_ran(text_form):
    notebook = jupytext.read(text_form.with_suffix(".ipynb"))
    kinds = {output.get("name", output.output_type) for output in outputs(notebook)}
    assert kinds <= {"stdout", "execute_result", "display_data"}
    assert "language_info" not in notebook.metadata


FASTER = {
    "claims_and_certificates": {
        "steps=1000": "steps=20",
        "(0.02, 0.05, 0.1, 0.3)": "(0.05, 0.3)",
        "geomspace(1, 10_000, 25)": "geomspace(1, 100, 3)",
        "flip(100, ": "flip(3, ",
    },
    "quickstart": {"steps=300": "steps=20"},
    "spectral_networks": {"steps=3000": "steps=100"},
    "trained_model": {
        "STEPS = 100": "STEPS = 5",
        "[0.5, 0.3, 0.2, 0.1, 0.05]": "[0.5]",
        "[50, 25, 15, 10]": "[50]",
    },
    "transfer": {
        "steps=300": "steps=20",
        "(0.5, 0.1, 0.03, 0.01)": "(0.5, 0.1)",
        "subplots(1, 4,": "subplots(1, 2,",
    },
    "your_own_loop": {"steps=300": "steps=20"},
}
"""Numbers of each notebook on which none of its code depends."""


@pytest.mark.long
@of_each
def test_a_notebook_runs_and_draws_what_it_is_kept_with(text_form, tmp_path, monkeypatch):
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.delenv("JAXARCH_DATA", raising=False)
    faster = tmp_path / text_form.name
    faster.write_text(smaller(text_form.read_text(), FASTER[text_form.stem]))
    made = outputs(notebooks.run(faster, str(tmp_path)))
    drawn = [output for output in made if "image/png" in output.get("data", {})]
    assert len(drawn) == len(notebooks.figures(text_form.with_suffix(".ipynb")))
