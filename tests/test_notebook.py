"""The notebook runs, and says what its text form says."""

from pathlib import Path

import jupytext
import nbclient
import pytest

FOLDER = Path(__file__).parent.parent / "notebooks"


def sources(notebook):
    return [(cell.cell_type, cell.source) for cell in notebook.cells]


def test_the_notebook_and_its_text_form_agree():
    assert sources(jupytext.read(FOLDER / "quickstart.ipynb")) == sources(
        jupytext.read(FOLDER / "quickstart.py")
    )


@pytest.mark.long
def test_the_notebook_runs_and_draws(tmp_path, monkeypatch):
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    notebook = jupytext.read(FOLDER / "quickstart.ipynb")
    nbclient.NotebookClient(
        notebook, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert not [output for output in outputs if output.output_type == "error"]
    assert [output for output in outputs if "image/png" in output.get("data", {})]
