"""The library alone, without what the extras bring: one line names the extra."""

import os
import re
import subprocess
import sys
import tomllib

import jax.numpy as jnp
import numpy as np
import pytest
from places import ROOT, TESTS

import jaxarch
from jaxarch import ArgumentError
from jaxarch.__main__ import OF_THE_LAB
from jaxarch._internal.errors import from_extra


def without(*packages):
    """A program that finds no such packages."""
    return f"import sys; sys.modules.update(dict.fromkeys({packages!r}))"


@pytest.mark.parametrize("package", ["click", "sklearn"])
def test_the_command_line_without_the_lab_is_one_line_and_status_two(package, tmp_path):
    code = f"{without(package)}; sys.argv = ['jaxarch', 'run']; from jaxarch.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    line = r"jaxarch: the command line needs \w+, which is not installed; pip install 'jaxarch\[lab\]'\n"
    assert re.fullmatch(line, done.stderr)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "name, package, call",
    [
        ("to_frame", "pandas", lambda: cost().to_frame()),
        ("ranking", "pandas", lambda: jaxarch.metrics.ranking({"a": np.ones((2, 3)), "b": np.zeros((2, 3))})),
        ("units", "matplotlib", lambda: jaxarch.plots.units),
    ],
)
def test_a_function_that_needs_an_extra_names_it_in_one_line(name, package, call, monkeypatch):
    for loaded in [loaded for loaded in sys.modules if loaded.startswith("jaxarch.plots.")]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.delitem(vars(jaxarch.plots), name, raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        ArgumentError, match=rf"^{name}: .* needs {package}, which is not installed; pip install"
    ):
        call()


def cost():
    return jaxarch.cost(lambda p, x: x @ p["w"], {"w": jnp.ones((3, 2))}, jnp.ones((1, 3)))


@pytest.mark.long
@pytest.mark.parametrize("how", ["import jaxarch; jaxarch.lab.results", "from jaxarch.lab import results"])
def test_a_module_of_the_lab_names_the_extra_in_one_line(how):
    done = subprocess.run(
        [sys.executable, "-c", f"{without('pandas')}; {how}"], capture_output=True, text=True
    )
    line = "jaxarch.lab.results needs pandas, which is not installed; pip install 'jaxarch[lab]'"
    assert done.stderr.splitlines()[-1] == f"jaxarch.ArgumentError: {line}"


def test_what_is_missing_in_one_s_own_code_stays_what_it_is():
    with pytest.raises(ModuleNotFoundError), from_extra("lab", "a table"):
        raise ModuleNotFoundError("No module named 'jaxarch.mine'", name="jaxarch.mine")


@pytest.mark.parametrize("name", ["data", "claims", "reproduction", "results"])
def test_a_name_that_moved_into_the_lab_says_where_to(name):
    with pytest.raises(ImportError, match=rf"^jaxarch.{name} has moved; pip install 'jaxarch\[lab\]'"):
        getattr(jaxarch, name)


def test_the_library_has_six_dependencies_at_most_and_the_command_line_looks_for_all_of_the_lab():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert len(project["dependencies"]) <= 6
    extras = project["optional-dependencies"]
    names = {re.match(r"[\w-]+", needed)[0] for needed in extras["lab"] + extras["plots"]} - {"jaxarch"}
    imported = {"scikit-learn": "sklearn", "vl-convert-python": "vl_convert"}
    assert {imported.get(name, name) for name in names} == set(OF_THE_LAB)


@pytest.mark.long
def test_every_file_of_the_lab_s_tests_is_named_as_skipped_where_the_lab_is_not_installed(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(without("altair"))
    command = [sys.executable, "-m", "pytest", "-n", "2", f"--junitxml={tmp_path / 'all.xml'}"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    rooms = [TESTS / "lab" / "report", TESTS / "plots"]
    subprocess.run([*command, *rooms], cwd=ROOT, env=environment, check=False, capture_output=True)
    skipped = [sys.executable, ROOT / ".ci" / "skipped.py", tmp_path / "all.xml"]
    named = subprocess.run(skipped, check=True, capture_output=True, text=True).stdout.split()
    assert set(named) == {str(path.relative_to(ROOT)) for room in rooms for path in room.glob("test_*.py")}
