"""Manifest of a result folder: the origin of its results, and how to reproduce them."""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxarch import ArgumentError
from jaxarch.lab.checks import as_folder, as_path, check_mapping, one_line, printable, shown

MANIFEST = "manifest.json"
"""File of a result folder that records the origin of its results."""

_PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "scipy", "scikit-learn", "pandas")


def printed(value: Any) -> Any:
    """Escape control characters in texts, in lists too; return anything else unchanged."""
    if isinstance(value, list):
        return [printed(item) for item in value]
    return printable(value) if isinstance(value, str) and not value.isprintable() else value


def manifest(settings: Mapping[str, Any], **facts: Any) -> dict[str, Any]:
    """Return the manifest of a result: versions, devices, source, settings, and further facts.

    Example:
      >>> from jaxarch.lab import results
      >>> content = results.manifest({"steps": 100}, experiment="demo")
      >>> content["settings"], content["experiment"], "jax" in content["versions"]
      ({'steps': 100}, 'demo', True)
    """
    check_mapping("settings", settings, "a dict of settings")
    return {
        "jaxarch": importlib.metadata.version("jaxarch"),
        "git_commit": _git_commit(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": {package: importlib.metadata.version(package) for package in _PACKAGES},
        "devices": devices_here(),
        "settings": dict(settings),
        **facts,
    }


def devices_here() -> dict[str, Any]:
    """Return the devices of this program: backend, kind and count.

    Example:
      >>> from jaxarch.lab import results
      >>> sorted(results.devices_here())
      ['backend', 'count', 'kind']
    """
    devices = jax.devices()
    return {"backend": jax.default_backend(), "kind": devices[0].device_kind, "count": len(devices)}


def devices_in_words(devices: Mapping[str, Any]) -> str:
    """Return the result of `devices_here` in words, as in `2 x cpu`.

    Example:
      >>> from jaxarch.lab import results
      >>> results.devices_in_words({"backend": "gpu", "kind": "NVIDIA A100", "count": 4})
      '4 x gpu, NVIDIA A100'
    """
    check_mapping("devices", devices, "a dict, as of devices_here()")
    kinds = dict.fromkeys(str(devices[name]) for name in ("backend", "kind") if name in devices)
    return f"{devices.get('count', '?')} x {', '.join(kinds)}" if kinds else ""


def key_description(seed: int) -> dict[str, Any]:
    """Return the random key that all keys of an experiment derive from, for the manifest.

    Example:
      >>> from jaxarch.lab import results
      >>> results.key_description(7)
      {'seed': 7, 'implementation': 'threefry2x32'}
    """
    return {"seed": seed, "implementation": str(jax.random.key_impl(jax.random.key(0)))}


def write_manifest(folder: str | os.PathLike[str], content: Mapping[str, Any]) -> None:
    """Write a manifest as JSON.

    Raises:
      ArgumentError: the folder does not exist; JSON cannot hold the content.

    Example:
      >>> import numpy as np, pathlib, tempfile
      >>> from jaxarch.lab import results
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     results.write_manifest(pathlib.Path(folder), {"densities": np.array([0.1, 0.5])})
      ...     print((pathlib.Path(folder) / results.MANIFEST).read_text().strip())
      {
        "densities": [
          0.1,
          0.5
        ]
      }
    """
    check_mapping("content", content, "a dict")
    path = as_folder(folder) / MANIFEST
    try:
        text = json.dumps(content, indent=2, default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentError(f"content: cannot be written as JSON ({one_line(error)})") from None
    path.write_text(text + "\n")


def read_manifest(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the manifest of a result folder.

    Raises:
      ArgumentError: the folder does not exist, or has no readable manifest.

    Example:
      >>> import pathlib, tempfile
      >>> from jaxarch.lab import results
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     content = {"experiment": "demo", "settings": {"steps": 100}}
      ...     results.write_manifest(pathlib.Path(folder), content)
      ...     results.read_manifest(folder) == content
      True
    """
    path = as_path(folder, "folder") / MANIFEST
    if not is_file(path):
        raise ArgumentError(f"folder: {shown(path.parent)} is not a result folder (it has no {MANIFEST})")
    try:
        text = path.read_text()
        content = json.loads(text, parse_float=finite, parse_constant=finite, object_pairs_hook=_printable)
    except RecursionError:
        raise ArgumentError(f"folder: {shown(path)} cannot be read (nested too deeply)") from None
    except (OSError, ValueError) as error:
        raise ArgumentError(f"folder: {shown(path)} cannot be read ({one_line(error)})") from None
    for name, kind, words in (("experiment", str, "a name"), ("settings", dict, "an object")):
        value = content.get(name) if isinstance(content, dict) else None
        if not isinstance(value, kind):
            raise ArgumentError(
                f"folder: {shown(path)} cannot be read: expected {words} as {name!r}, got {shown(value)}"
            )
    return content


def is_file(path: Path) -> bool:
    """Return whether a path is a file; `False` if it cannot be looked up."""
    try:
        return path.is_file()
    except OSError:
        return False


def _printable(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Escape an object of a manifest: foreign ones may hold control characters, which terminals obey."""
    return {printed(name): printed(value) for name, value in pairs}


def _git_commit() -> str | None:
    """Return the commit of the checkout that the package runs from, marked if changed; or `None`."""
    package = Path(__file__).resolve().parents[2]

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(package), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} in a manifest")


def command_line() -> str:
    """Return the running command, for the manifest.

    Example:
      >>> import sys, unittest.mock
      >>> from jaxarch.lab import results
      >>> with unittest.mock.patch.object(sys, "argv", ["/usr/bin/jaxarch", "run", "fig2"]):
      ...     results.command_line()
      'jaxarch run fig2'
    """
    name = Path(sys.argv[0]).name
    return " ".join(["jaxarch" if name == "__main__.py" else name, *sys.argv[1:]])


def finite(text: str) -> float:
    """Parse a number of a manifest; jaxarch writes only finite ones, so raise on any other."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{shown(text)} is not a finite number")
    return number
