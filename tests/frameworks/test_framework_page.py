"""The page 'Your framework' runs as printed, for the frameworks that are installed."""

import re
import runpy
from importlib.util import find_spec

import jax
import pytest
from places import code_blocks

PAGE = "docs/your_framework.md"
NEEDS = {"equinox": "equinox", "haiku": "haiku", "torch": "torchax", "keras": "keras"}
FIRST, *BLOCKS = code_blocks(PAGE)


def imported(block):
    return [name for name in NEEDS if re.search(rf"^import {name}$", block, flags=re.M)]


RUN = [block for block in BLOCKS if all(find_spec(NEEDS[name]) for name in imported(block))]


def of_block(block):
    return "-".join(imported(block)) or re.search(r"jaxarch\S+\(", block)[0].strip("(")


@pytest.mark.long
@pytest.mark.parametrize("block", ["", *RUN], ids=lambda block: of_block(block or FIRST))
def test_a_framework_s_code_prints_what_it_says(block, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code = f"{FIRST}\n{block}"
    (tmp_path / "page.py").write_text(code)
    with jax.numpy_rank_promotion("allow"):
        runpy.run_path(str(tmp_path / "page.py"))
    said = re.findall(r"^print\(.*\)  # (.*)$", code, flags=re.M)
    assert said and capsys.readouterr().out.splitlines() == said
