"""The order of the house: a file imports only from files below it, and the mathematics imports no Flax."""

import ast
import inspect
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from places import ROOT

import jaxarch

sys.path.insert(0, str(ROOT / "docs"))

from building import public

PACKAGE = ROOT / "jaxarch"

LIBRARY = [
    ["_internal"],
    ["masks", "metrics"],
    ["spectral"],
    ["io"],
    ["run"],
    ["structure"],
    ["analysis", "binary", "calibration"],
    ["saliency"],
    ["theory"],
    ["optim"],
    ["transforms"],
    ["search"],
    ["certificates"],
    ["models"],
    ["nnx", "torch", "keras"],
    ["plots"],
]
LAB = [
    "checks",
    "launcher",
    "data",
    "claims",
    "charts",
    "results",
    "reproduction",
    "harness",
    "disentangling",
    "pruning",
    "tournament",
    "spectral",
    "theory",
    "related_work",
    "analysis",
    "html_report",
    "cli",
]
ORDER = [*LIBRARY, *([f"lab.{room}"] for room in LAB), ["lab"], ["__init__"], ["__main__"]]
"""The layers from the ground up: rooms of one layer do not import each other; the files of a room may."""
HEIGHT = {room: height for height, layer in enumerate(ORDER) for room in layer}

MATHEMATICS = {
    "analysis",
    "binary",
    "masks",
    "calibration",
    "saliency",
    "spectral",
    "run",
    "structure",
    "theory",
    "optim",
    "transforms",
    "search",
    "certificates",
}
ALLOWED_IN_MATHEMATICS = {"jax", "numpy", "optax"}
FURTHER = {
    "jaxarch.analysis._align": {"scipy"},
    "jaxarch.run._progress": {"rich"},
    "jaxarch.search._logistic_regression": {"sklearn"},
    "jaxarch.structure._allocation": {"scipy"},
    "jaxarch.structure._cost_table": {"pandas"},
    "jaxarch.structure._same": {"scipy"},
    "jaxarch.structure.distances": {"pandas", "sklearn"},
}
"""Needs of single files: a progress bar, a method that is no JAX, a knapsack, a matching, tables, spectra."""
PRIVATE_OF_THE_LAB = {
    "jaxarch._internal.cpu_cores",
    "jaxarch._internal.errors",
    "jaxarch._internal.interruption",
    "jaxarch._internal.memory",
    "jaxarch._internal.trees",
    "jaxarch.io._files",
    "jaxarch.io._gather",
    "jaxarch.plots._descriptions",
    "jaxarch.run._methods",
    "jaxarch.run._processes",
}
"""The private modules, ten at most, that what carries studies uses: `STUDIES` and claims use none."""
STUDIES = {
    f"lab.{room}"
    for room in (
        "claims",
        "disentangling",
        "pruning",
        "tournament",
        "spectral",
        "theory",
        "related_work",
        "analysis",
    )
}
FILES = sorted(PACKAGE.rglob("*.py"))


def storey(module):
    first, *further = module.split(".")[1:] or ["__init__"]
    return f"lab.{further[0]}" if first == "lab" and further else first


def module_name(path):
    relative = path.relative_to(PACKAGE.parent).with_suffix("")
    parts = relative.parts[:-1] if relative.name == "__init__" else relative.parts
    return ".".join(parts)


@cache
def imported(path):
    """The modules that a file imports, names from packages resolved to modules where they are modules."""
    return tuple(_imported(path))


def _imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                inner = PACKAGE.parent / Path(*node.module.split(".")) / alias.name
                is_module = inner.is_dir() or inner.with_suffix(".py").exists()
                yield f"{node.module}.{alias.name}" if is_module else node.module


def test_every_file_has_a_storey():
    assert {storey(module_name(path)) for path in FILES} <= set(HEIGHT)


def imports():
    """A file's module and one that it imports, for every import of the package."""
    return [(module_name(path), module) for path in FILES for module in imported(path)]


def test_a_file_imports_only_from_its_own_room_and_from_lower_layers():
    ours = [(file, module) for file, module in imports() if module.startswith("jaxarch.")]
    assert not [
        (file, module)
        for file, module in ours
        if storey(module) != storey(file) and HEIGHT[storey(module)] >= HEIGHT[storey(file)]
    ]


def is_private(module):
    return module.startswith("jaxarch.") and "._" in module.replace(".__", "")


def test_a_plain_name_of_a_module_of_the_library_is_listed_by_its_package():
    modules = [module_name(path) for path in FILES]
    plain = {
        name
        for name in modules
        if not is_private(name) and not name.startswith(("jaxarch.lab", "jaxarch.__"))
    }
    listed = set()
    packages = [jaxarch]
    for package in packages:
        inner = [getattr(package, name) for name in public.listed(package)]
        found = [value for value in inner if inspect.ismodule(value) and value is not jaxarch.lab]
        listed |= {module.__name__ for module in found}
        packages += found
    assert plain == listed | {"jaxarch"}


def test_studies_and_claims_import_public_names_alone():
    assert not [
        (file, module) for file, module in imports() if storey(file) in STUDIES and is_private(module)
    ]


def test_what_carries_studies_uses_few_private_modules():
    private = {module for file, module in imports() if file.startswith("jaxarch.lab") and is_private(module)}
    assert private == PRIVATE_OF_THE_LAB
    assert len(private) <= 10


def test_the_mathematics_imports_jax_and_no_flax_data_or_plotting_library():
    allowed = ALLOWED_IN_MATHEMATICS | {"jaxarch"} | sys.stdlib_module_names
    assert not [
        (file, module)
        for file, module in imports()
        if storey(file) in MATHEMATICS and module.split(".")[0] not in allowed | FURTHER.get(file, set())
    ]


def test_flax_is_imported_where_its_models_are_read_and_where_parents_are_made():
    users = {module_name(p) for p in FILES if any(m.split(".")[0] == "flax" for m in imported(p))}
    homes = {
        user
        for user in users
        if user.startswith(("jaxarch.models._parents.", "jaxarch.nnx.", "jaxarch.lab.spectral."))
    }
    assert users - homes == {"jaxarch.models._flax_models"}


def in_a_new_process(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
def test_importing_the_package_starts_no_device_and_changes_no_setting():
    in_a_new_process(
        "import jax, jaxarch, jax._src.xla_bridge as bridge;"
        "[getattr(jaxarch, name) for name in dir(jaxarch)];"
        "assert not bridge.backends_are_initialized();"
        "assert not jax.config.jax_enable_x64;"
        "assert jax.config.jax_compilation_cache_dir is None"
    )


@pytest.mark.long
def test_what_a_library_user_touches_loads_no_statistics_and_no_plotting():
    loaded = in_a_new_process(
        "import sys, jaxarch;"
        "assert 'jax' not in sys.modules;"
        "jaxarch.supervised, jaxarch.over_seeds, jaxarch.search.snip, jaxarch.masks;"
        "print(*sys.modules)"
    ).split()
    for heavy in ("sklearn", "pandas", "matplotlib", "scipy.stats", "jaxarch.lab.claims"):
        assert heavy not in loaded


def test_every_public_name_is_found_listed_and_completed():
    stub = ast.parse((PACKAGE / "__init__.pyi").read_text())
    names = {alias.name for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert names == set(dir(jaxarch)) - {"__version__"} == set(jaxarch.__all__)
    for name in names:
        assert getattr(jaxarch, name) is getattr(jaxarch, name)


def test_no_public_function_shares_the_path_of_a_module():
    modules = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or path.is_dir()}
    functions = {name for name in jaxarch.__all__ if not inspect.ismodule(getattr(jaxarch, name))}
    assert not functions & modules


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="sinp"):
        jaxarch.sinp  # noqa: B018


def test_contributing_shows_the_order_of_the_house():
    text = (PACKAGE.parent / "CONTRIBUTING.md").read_text()
    library, lab = (
        re.findall(r"^  ((?:\S+ )+) ", block, flags=re.M)
        for block in re.findall(r"```text\n(.*?)```", text, flags=re.S)
    )
    shown = [[room.rstrip("/") for room in line.split()] for line in reversed(library)]
    assert shown == LIBRARY
    assert [line.strip().rstrip("/") for line in reversed(lab)] == [f"lab.{room}" for room in LAB]
