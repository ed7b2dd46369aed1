"""What the README and the pages under docs/ print as code runs as printed."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import pytest
from small import CACHED, RUNS, close, keys, problem

import jaxarch
from jaxarch.cli import app

ROOT = Path(__file__).parent.parent


def code_blocks(page, language="python"):
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / page).read_text(), flags=re.M | re.S)


@pytest.mark.long
def test_the_readme_s_code_runs_as_printed_in_a_fresh_process(tmp_path):
    script = tmp_path / "readme.py"
    script.write_text("\n".join(code_blocks("README.md")))
    done = subprocess.run(
        [sys.executable, script],
        cwd=tmp_path,
        env=os.environ | CACHED,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    printed = re.search(r"density (\S+), accuracy (\S+)", done.stdout)
    assert printed is not None, done.stdout
    # The README shows these figures; other machines round otherwise.
    shown = re.search(r"prints `density (\S+), accuracy (\S+)`", (ROOT / "README.md").read_text())
    assert shown is not None
    for mine, readme in zip(printed.groups(), shown.groups(), strict=True):
        assert float(mine) == pytest.approx(float(readme), abs=0.02)
    assert (tmp_path / "accuracy.png").exists()


def test_the_readme_s_commands_exist():
    commands = "\n".join(code_blocks("README.md", "sh"))
    for command in re.findall(r"^jaxarch (\w+)", commands, flags=re.M):
        assert command in app.commands


ONE_FILE, ONE_LINE, TRAINING, ANYWHERE = code_blocks("docs/your_own_method.md")


@pytest.fixture(scope="module")
def your_own():
    """What a reader of the page has after typing its code outside the package."""
    names = vars(jaxarch) | {"keys": keys(), "problem": problem()}
    for block in (ONE_FILE, TRAINING, ANYWHERE):
        exec(compile(block, "docs/your_own_method.md", "exec"), names)
    return names


@pytest.mark.long
def test_a_method_added_by_one_file_and_one_line_runs_on_the_command_line(tmp_path):
    shutil.copytree(ROOT / "jaxarch", tmp_path / "jaxarch", ignore=shutil.ignore_patterns("__pycache__"))
    path = ONE_FILE.splitlines()[0].removeprefix("# ")
    (tmp_path / path).write_text(ONE_FILE)
    table = tmp_path / "jaxarch" / "strategies.py"
    anchor = '        "logistic regression":'
    source = table.read_text().replace(anchor, ONE_LINE + anchor)
    import_line = "from jaxarch.search.saliency import saliency\n"
    table.write_text(
        source.replace("from jaxarch.strategy import", import_line + "from jaxarch.strategy import")
    )
    command = [sys.executable, "-m", "jaxarch", "run", "--quiet", "--seeds", "2", "--set", "steps=20"]
    environment = os.environ | CACHED | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [*command, "--set", "strategies=bin,saliency->real"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "saliency->real" in done.stdout


def test_the_page_s_methods_run_beside_the_others(your_own):
    assert set(your_own["results"]) == {"positive", "positive->bin"}
    for network, _ in your_own["results"].values():
        assert all(leaf.shape[0] == RUNS for leaf in jax.tree.leaves(network.params))


def test_the_page_s_search_keeps_the_density_that_it_is_asked_for(your_own):
    network, _ = jaxarch.over_seeds(your_own["saliency"](0.25), keys(), problem())
    assert jax.vmap(jaxarch.density)(network.mask).tolist() == [0.25] * RUNS


@pytest.mark.parametrize("name", ["saliency", "positive"])
def test_the_page_s_methods_keep_the_contract(your_own, name):
    learning = problem(steps=4)
    pure = jaxarch.chain(your_own[name]())
    alone = jax.jit(pure)(keys()[0], learning.of_run(0))
    mapped = jax.jit(jax.vmap(pure, in_axes=(0, learning.in_axes())))(keys(), learning)
    assert close(alone, mapped.of_run(0), 1e-4)


def test_every_link_to_a_file_leads_somewhere():
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/*.md")]:
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_public_name_has_a_docstring():
    for name in jaxarch.__all__:
        assert getattr(jaxarch, name).__doc__, name
