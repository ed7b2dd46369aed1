"""The order of the house: a file imports only from files below it, and the mathematics imports no Flax."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "jaxarch"

ORDER = [
    "errors",
    "trees",
    "intervals",
    "masks",
    "nodes",
    "mirror",
    "graphs",
    "spectral",
    "problem",
    "shrink",
    "bounds",
    "training",
    "weights",
    "devices",
    "fit_options",
    "programs",
    "fit",
    "finish",
    "strategy",
    "storage",
    "metrics",
    "distances",
    "search",
    "models",
    "claims",
    "data",
    "strategies",
    "progress",
    "results",
    "ledger",
    "plots",
    "experiments",
    "__init__",
    "cli",
    "__main__",
]
"""From the ground up. A package (`search`, `models`, ...) is one storey: its files may use one another."""

MATHEMATICS = ORDER[: ORDER.index("storage")]
ALLOWED_IN_MATHEMATICS = {"jax", "numpy", "optax"}
FILES = sorted(PACKAGE.rglob("*.py"))


def storey(module):
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def module_name(path):
    relative = path.relative_to(PACKAGE.parent).with_suffix("")
    parts = relative.parts[:-1] if relative.name == "__init__" else relative.parts
    return ".".join(parts)


def imported(path):
    """The modules that a file imports, names from packages resolved to modules where they are modules."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                inner = PACKAGE.parent / Path(*node.module.split(".")) / alias.name
                is_module = inner.is_dir() or inner.with_suffix(".py").exists()
                yield f"{node.module}.{alias.name}" if is_module else node.module


def test_every_file_has_a_storey():
    assert {storey(module_name(path)) for path in FILES} <= set(ORDER)


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_a_file_imports_only_from_below(path):
    mine = storey(module_name(path))
    for module in imported(path):
        if module.startswith("jaxarch."):
            theirs = storey(module)
            assert ORDER.index(theirs) <= ORDER.index(mine), f"{module_name(path)} imports {module}"
            if theirs == mine:
                assert "." in module_name(path) or mine == "__init__"


@pytest.mark.parametrize("path", [p for p in FILES if storey(module_name(p)) in MATHEMATICS], ids=module_name)
def test_the_mathematics_imports_jax_and_no_flax_data_or_plotting_library(path):
    import sys

    for module in imported(path):
        top = module.split(".")[0]
        assert top == "jaxarch" or top in ALLOWED_IN_MATHEMATICS or top in sys.stdlib_module_names, module


def test_flax_is_imported_where_its_models_are_read_and_where_parents_are_made():
    users = {module_name(p) for p in FILES if any(m.split(".")[0] == "flax" for m in imported(p))}
    assert users == {"jaxarch.models.flax_models", "jaxarch.models.parents"}


def test_importing_the_package_starts_no_device_and_changes_no_setting():
    import subprocess
    import sys

    code = (
        "import jax, jaxarch, jax._src.xla_bridge as bridge;"
        "assert not bridge.backends_are_initialized();"
        "assert not jax.config.jax_enable_x64;"
        "assert jax.config.jax_compilation_cache_dir is None"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
