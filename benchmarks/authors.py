"""Classes and functions out of authors' files, for the scripts that compare jaxarch with them."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Optional

import numpy as np
import torch
from torch import autograd, nn
from torch.nn import functional


def definition(
    path: Path, *names: str, replaced: Mapping[str, str] | None = None, **others: Any
) -> SimpleNamespace:
    """Run some functions, classes and constants of a file, without the rest of it.

    Args:
      path: the file.
      names: what is run of it.
      replaced: texts to replace in the file first, such as the name of a device.
      others: the file's own imports, by name.

    Returns:
      What is named, as attributes.
    """
    text = path.read_text()
    for old, new in (replaced or {}).items():
        text = text.replace(old, new)
    body = [node for node in ast.parse(text).body if set(names) & _defined(node)]
    scope: dict[str, Any] = {
        "torch": torch,
        "nn": nn,
        "F": functional,
        "autograd": autograd,
        "math": math,
        "np": np,
        "Module": nn.Module,
        "optim": torch.optim,
        "Dict": dict,
        "List": list,
        "Tuple": tuple,
        "Optional": Optional,
        "tqdm": lambda batches, **options: batches,
        **others,
    }
    exec(compile(ast.Module(body, []), str(path), "exec"), scope)
    return SimpleNamespace(**{name: scope[name] for name in names})


def _defined(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.Assign):
        return {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
    return {getattr(node, "name", "")}
