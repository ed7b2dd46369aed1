"""Notebooks: written from their text forms with what they print and draw, and shown as pages.

`python docs/building/notebooks.py` runs all of notebooks/*.py and writes the notebooks beside them;
with names, such as `transfer`, those alone.
"""

from __future__ import annotations

import base64
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jupytext
from PIL import Image

FOLDER = Path(__file__).parents[2] / "notebooks"


def run(text_form: Path, folder: str) -> Any:
    """The notebook of a text form, run in a folder, with its outputs and no word of when and where it ran."""
    import nbclient

    notebook = jupytext.read(text_form)
    nbclient.NotebookClient(
        notebook,
        timeout=300,
        kernel_name="python3",
        resources={"metadata": {"path": folder}},
        coalesce_streams=True,
    ).execute()
    notebook.metadata.pop("language_info", None)
    for number, cell in enumerate(notebook.cells):
        cell.metadata.pop("execution", None)
        cell["id"] = f"{text_form.stem}-{number}".replace("_", "-")  # else a new one each time
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                output.data["image/png"] = smaller(output.data["image/png"])
    return notebook


def smaller(png: str) -> str:
    """A figure in 128 colours, which is enough for lines, in base64 like the figure."""
    content = io.BytesIO()
    Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB").quantize(128).save(
        content, "PNG", optimize=True
    )
    return base64.b64encode(content.getvalue()).decode()


def figures(path: Path) -> list[bytes]:
    """What a notebook has drawn, as PNG."""
    return [
        base64.b64decode(output.data["image/png"])
        for cell in jupytext.read(path).cells
        for output in cell.get("outputs", [])
        if "image/png" in output.get("data", {})
    ]


def page(path: Path) -> str:
    """A notebook as Markdown, its figures being `NAME_1.png` and so on beside the page."""
    return "\n\n".join(_blocks(path)) + "\n"


def _blocks(path: Path) -> Iterator[str]:
    drawn = 0
    for cell in jupytext.read(path).cells:
        if cell.cell_type == "markdown":
            yield cell.source
            continue
        yield f"```python\n{cell.source}\n```"
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                drawn += 1
                yield f"![What this cell draws]({path.stem}_{drawn}.png)"
            else:
                text = output.get("text") or output.data["text/plain"]
                yield f"```text\n{re.sub('[ ]+$', '', text.rstrip(), flags=re.M)}\n```"


def main(names: list[str]) -> None:
    """Run some notebooks, or all, and write them."""
    for text_form in sorted(FOLDER.glob("*.py")):
        if not names or text_form.stem in names:
            with TemporaryDirectory() as folder:
                jupytext.write(run(text_form, folder), text_form.with_suffix(".ipynb"))


if __name__ == "__main__":
    main(sys.argv[1:])
