"""The notebooks run, and have what their text forms say, with figures and without errors."""

import sys

import jupytext
import pytest
from places import ROOT

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


@pytest.mark.long
@of_each
def test_a_notebook_runs_and_draws_what_it_is_kept_with(text_form, tmp_path, monkeypatch):
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.delenv("JAXARCH_DATA", raising=False)
    made = outputs(notebooks.run(text_form, str(tmp_path)))
    drawn = [output for output in made if "image/png" in output.get("data", {})]
    assert len(drawn) == len(notebooks.figures(text_form.with_suffix(".ipynb")))
