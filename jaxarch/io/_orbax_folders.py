"""Pytrees in folders written and read by Orbax; arrays that are split over devices keep their split."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jaxarch._internal.errors import ArgumentError, one_line, shown
from jaxarch._internal.trees import PyTree, check_distinct, keyed_as, named_leaves, placed, raw_numbers
from jaxarch.io._trees import FOREIGN, check_leaf


def save_folder(path: Path, tree: PyTree) -> None:
    """Save a pytree as the last step of an `orbax.checkpoint.CheckpointManager`, replacing earlier steps.

    Orbax sees a dict of arrays by path; random keys are stored as their raw numbers. The step is written
    completely or not at all, and earlier steps are removed only then.

    Args:
      path: the manager's folder; created if needed.
      tree: a pytree of arrays.

    Raises:
      ArgumentError: a folder that cannot be written; an empty array, which Orbax does not store; two leaves
        with one path.
    """
    import orbax.checkpoint as ocp

    check_distinct("tree", tree)
    leaves = {name: raw_numbers(leaf) for name, leaf in named_leaves(tree).items()}
    try:
        with _manager(path) as manager:
            last = manager.latest_step()
            step = 0 if last is None else last + 1
            manager.save(step, args=ocp.args.StandardSave(leaves))
    except Exception as error:  # Orbax and its file systems raise many kinds of errors
        raise ArgumentError(f"folder: Orbax cannot write {shown(str(path), 200)} ({_why(error)})") from None


def load_folder(path: Path, like: PyTree) -> PyTree | None:
    """Return the pytree saved by `save_folder`, in the structure of `like`; `None` if no save was completed.

    If the leaves of `like` are on devices, the result is on the same devices, and split alike.

    Args:
      path: the manager's folder.
      like: a pytree with the same paths, shapes and dtypes (arrays or `jax.ShapeDtypeStruct`).

    Raises:
      ArgumentError: a damaged folder; a leaf that is missing, unknown, or of another shape or dtype (the
        message names its path).
    """
    import orbax.checkpoint as ocp

    expected = named_leaves(like)
    leaves = {name: raw_numbers(leaf) for name, leaf in expected.items()}
    try:
        with _manager(path) as manager:
            last = manager.latest_step()
            if last is None:
                return None
            kept = manager.item_metadata(last)
            _check_leaves(path, dict(kept), leaves)
            stored = manager.restore(last, args=ocp.args.StandardRestore(leaves))
    except ArgumentError:
        raise
    except Exception as error:
        named = shown(str(path), 200)
        raise ArgumentError(
            f"folder: Orbax cannot read {named} ({_why(error)}); use a fresh folder"
        ) from None
    return placed({name: keyed_as(leaf, stored[name]) for name, leaf in expected.items()}, like)


def _manager(path: Path) -> Any:
    import orbax.checkpoint as ocp

    options = ocp.CheckpointManagerOptions(max_to_keep=1, create=True, enable_async_checkpointing=False)
    return ocp.CheckpointManager(
        path.resolve(), item_handlers=ocp.StandardCheckpointHandler(), options=options
    )


def _check_leaves(path: Path, kept: dict[str, Any], expected: dict[str, Any]) -> None:
    for name in sorted(kept.keys() ^ expected.keys())[:1]:
        what = "has no leaf" if name in expected else "has an unknown leaf"
        raise ArgumentError(f"folder: {path} {what} {name!r}; {FOREIGN}")
    for name, leaf in expected.items():
        check_leaf("folder", path, name, kept[name], leaf)


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or one_line(error)
