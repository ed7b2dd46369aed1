"""What is public, and where in the reference it stands: read off the package, which keeps the list.

Public are the names of `jaxarch/__init__.pyi`; of every module that it names, those in its `__all__`, or,
where it has none, those that its `__init__.py` imports `as` themselves; and so on for modules among these.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import jaxarch

PACKAGE = Path(jaxarch.__file__).parent

PAGES = {
    "problems": (
        "Problems and networks",
        (
            "models._supervised",
            "run._problem",
            "run._descent",
            "run._network",
            "run._records",
            "run._training_info",
            "_internal.trees",
        ),
    ),
    "running": ("Running stages", ("run",)),
    "search": ("Searches", ("search",)),
    "transforms": ("Transforms", ("transforms",)),
    "certificates": ("Certificates", ("certificates",)),
    "masks": ("Masks", ("masks",)),
    "saliency": ("Saliency", ("saliency",)),
    "calibration": ("Calibration", ("calibration",)),
    "analysis": ("Comparison of networks", ("analysis",)),
    "binary": ("Networks in bits", ("binary",)),
    "optim": ("Optax transformations", ("optim",)),
    "nnx": ("Flax NNX models", ("nnx",)),
    "torch": ("PyTorch models", ("torch",)),
    "keras": ("Keras models", ("keras",)),
    "models": ("Models", ("models", "models._parents")),
    "data": ("Data", ("lab.data",)),
    "io": ("Files and streams", ("io",)),
    "spectral": (
        "Spectral networks",
        ("spectral", "spectral.algebra", "spectral.error_bounds", "spectral.penalty"),
    ),
    "structure": ("Structure", ("structure", "structure.graphs", "structure.distances")),
    "theory": (
        "Theory",
        (
            "theory",
            "theory.mirror",
            "theory.optimality",
            "theory.generalization",
            "theory.bounds",
            "theory.intervals",
            "theory.relaxation",
            "theory.lipschitz",
            "theory.removal",
        ),
    ),
    "metrics": ("Metrics", ("metrics",)),
    "plots": ("Figures", ("plots",)),
    "claims": ("Claims", ("lab.claims",)),
    "reproduction": ("What reproduces", ("lab.reproduction",)),
    "results": ("Result folders", ("lab.results",)),
    "errors": ("Errors, and numbers of twice the precision", ("_internal.errors", "_internal.precision")),
}
"""The pages of the reference: a title, and the modules whose public names stand there, a section each.

Of nested modules the innermost counts.
"""

SPOKEN_OF = (
    "lab.claims.checks.core.Check",
    "lab.claims.checks.core.Evaluated",
    "lab.claims.checks.cube.Cube",
    "lab.claims.checks.cube.Field",
    "lab.claims.equations.Entry",
)
"""What the pages on methods and on saving use besides, and the signatures of what is public."""


@dataclass(frozen=True)
class Entry:
    """Something public.

    Attributes:
      names: all that it can be had by, the shortest first.
      value: it itself.
      section: the module of `PAGES` that it stands under.
    """

    names: tuple[str, ...]
    value: Any
    section: str

    @property
    def name(self) -> str:
        """The name that it is shown with."""
        return self.names[0]

    @property
    def is_function(self) -> bool:
        """Whether it is a function, compiled or not."""
        return inspect.isfunction(inspect.unwrap(self.value))


def listed(module: ModuleType) -> list[str]:
    """The public names of a module."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    tree = ast.parse(Path(inspect.getfile(module)).read_text())
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    names = [alias.name for node in imports for alias in node.names if alias.name == alias.asname]
    if not names:
        raise LookupError(f"{module.__name__} is public and has no __all__")
    return names


@cache
def entries() -> tuple[Entry, ...]:
    """Everything public, in the order of `PAGES`, and there in that of the lists."""
    found: dict[Any, tuple[list[str], Any, str]] = {}
    modules = [jaxarch]
    for module in modules:
        for name in listed(module):
            value = getattr(module, name)
            if isinstance(value, ModuleType):
                modules.append(value)
                continue
            where = f"{module.__name__}.{name}"
            # Constants may be equal, and the same object, without being the same thing.
            own = inspect.isclass(value) or inspect.isfunction(inspect.unwrap(value))
            names, _, _ = found.setdefault(
                id(value) if own else where, ([], value, value.__module__ if own else module.__name__)
            )
            names.append(where)
    for name in SPOKEN_OF:
        home, _, last = f"jaxarch.{name}".rpartition(".")
        value = getattr(importlib.import_module(home), last)
        found[id(value)] = ([f"jaxarch.{name}"], value, home)
    made = [
        Entry(in_order(names, home), value, section(home, *(name.rpartition(".")[0] for name in names)))
        for names, value, home in found.values()
    ]
    order = [module for _, modules in PAGES.values() for module in modules]
    return tuple(sorted(made, key=lambda entry: order.index(entry.section)))


def in_order(names: list[str], home: str) -> tuple[str, ...]:
    """Names of one thing, the shortest first; of two as short, the one in the module that it is made in."""
    return tuple(sorted(set(names), key=lambda name: (name.count("."), name.rpartition(".")[0] != home)))


def section(*modules: str) -> str:
    """The section for something public: that of the module it is made in, or of one that lists it."""
    sections = [known for _, of_page in PAGES.values() for known in of_page]
    for module in modules:
        # Errors have the name that users see; they and constants of the whole package stand with the former.
        name = "_internal.errors" if module == "jaxarch" else module.removeprefix("jaxarch.")
        fitting = [known for known in sections if f"{name}.".startswith(f"{known}.")]
        if fitting:
            return max(fitting, key=len)
    raise LookupError(f"{modules[0]} has public names, and no page in docs/building/public.py")
