"""Pruners of trained models under one contract, and their comparison: used by the scripts `prune_*.py`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

import jaxarch

DENSITIES = ("0.7", "0.5", "2:4", "4:8", "0.3")


class Model(NamedTuple):
    """A trained model.

    Attributes:
      apply: `(params, batch) -> outputs`.
      params: its weights.
      where: the leaves that are pruned.
      valid: from a batch, which of its rows count.
    """

    apply: Callable[[Any, Any], Any]
    params: Any
    where: Callable[[str, Any], bool]
    valid: Callable[[Any], Any] | None = None


Wanted = float | str
"""A density, or a pattern such as 2:4."""

Method = Callable[[Model, list[Any], Wanted], Any]
"""From the model, calibration batches and what is wanted, pruned weights."""


def keep(scores: Any, wanted: Wanted, inputs: dict[str, tuple[int, ...]]) -> Any:
    """Keep a share of each output's weights, or N of every M."""
    if isinstance(wanted, str):
        leaves = jaxarch.named_leaves(scores)
        # A pointwise convolution of shape (outputs, inputs, 1, 1) has its inputs along the second axis.
        along = {
            path: [axis for axis in axes if leaves[path].shape[axis] > 1][-1] for path, axes in inputs.items()
        }
        return jaxarch.masks.keep(scores, units=jaxarch.masks.NOfM(*map(int, wanted.split(":")), axis=along))
    return jaxarch.masks.keep(scores, wanted, jaxarch.masks.PerOutput(inputs))


def magnitude(model: Model, batches: list[Any], wanted: Wanted) -> Any:
    scores = jaxarch.saliency.magnitude(model.params, model.where)
    if isinstance(wanted, str):
        mask = keep(scores, wanted, calibrated(model, batches[:1]).inputs)
    else:
        mask = jaxarch.masks.keep(scores, wanted, "layer")
    return jaxarch.masks.apply_mask(mask, model.params)


def calibrated(model: Model, batches: list[Any]) -> jaxarch.Calibration:
    return jaxarch.calibrate(model.apply, model.params, batches, model.where, model.valid)


def wanda_mask(model: Model, batches: list[Any], wanted: Wanted) -> Any:
    calibration = calibrated(model, batches)
    scores = jaxarch.saliency.wanda(model.params, calibration, model.where)
    return keep(scores, wanted, calibration.inputs)


def wanda(model: Model, batches: list[Any], wanted: Wanted) -> Any:
    return jaxarch.masks.apply_mask(wanda_mask(model, batches, wanted), model.params)


def ria(model: Model, batches: list[Any], wanted: Wanted) -> Any:
    calibration = calibrated(model, batches)
    scores = jaxarch.saliency.ria(model.params, calibration, model.where)
    return jaxarch.masks.apply_mask(keep(scores, wanted, calibration.inputs), model.params)


def solved(model: Model, batches: list[Any], mask: Any) -> Any:
    return jaxarch.reconstruct(model.apply, model.params, batches, mask, valid=model.valid)


def wanda_solved(model: Model, batches: list[Any], wanted: Wanted) -> Any:
    return solved(model, batches, wanda_mask(model, batches, wanted))


def pair(prune: Callable[..., Any], model: Model, batches: list[Any], wanted: Wanted) -> tuple[Any, Any]:
    density, units = (None, wanted) if isinstance(wanted, str) else (wanted, None)
    return prune(model.apply, model.params, batches, density, units, where=model.where, valid=model.valid)


def sparsegpt(model: Model, batches: list[Any], wanted: Wanted) -> Any:
    return pair(jaxarch.sparsegpt, model, batches, wanted)[0]


def sparsegpt_solved(model: Model, batches: list[Any], wanted: Wanted) -> Any:
    return solved(model, batches, pair(jaxarch.sparsegpt, model, batches, wanted)[1])


def alps(model: Model, batches: list[Any], wanted: Wanted) -> Any:
    return pair(jaxarch.alps, model, batches, wanted)[0]


METHODS: dict[str, Method] = {
    "magnitude": magnitude,
    "Wanda": wanda,
    "RIA": ria,
    "least squares on Wanda's mask": wanda_solved,
    "SparseGPT": sparsegpt,
    "least squares on SparseGPT's mask": sparsegpt_solved,
    "ALPS": alps,
}


def add_options(
    parser: argparse.ArgumentParser,
    calibration: int,
    methods: Sequence[str],
    densities: Sequence[str] = DENSITIES,
) -> None:
    """Add the options of a comparison."""
    parser.add_argument("--draws", type=int, default=3, help="calibration sets (default: 3)")
    parser.add_argument("--calibration", type=int, nargs="+", default=[calibration], help="examples in each")
    parser.add_argument("--densities", nargs="+", default=[*densities], help="densities, or patterns N:M")
    parser.add_argument("--methods", nargs="+", choices=methods, default=[*methods])


def compare(
    model: Model,
    draw: Callable[[int, int], list[Any]],
    judge: Callable[[Any], dict[str, float]],
    options: argparse.Namespace,
    methods: dict[str, Method] = METHODS,
) -> dict[str, dict[int, list[dict[str, float]]]]:
    """Prune a model by all methods, and print what is left of it: medians over draws, with least and most.

    Args:
      model: the model.
      draw: from the number of a draw and of examples, calibration batches.
      judge: from weights, what is measured.
      options: those of `add_options`.
      methods: the methods by name.

    Returns:
      By method and number of examples, what was measured in each draw, at the last density.
    """
    found: dict[str, dict[int, list[dict[str, float]]]] = {name: {} for name in options.methods}
    for size in options.calibration:
        for text in options.densities:
            wanted = text if ":" in text else float(text)
            for name in options.methods:
                rows, seconds = [], []
                for number in range(options.draws):
                    batches = draw(number, size)
                    start = time.perf_counter()
                    pruned = jax.block_until_ready(methods[name](model, batches, wanted))
                    seconds.append(time.perf_counter() - start)
                    rows.append(judge(pruned))
                print(f"{size:5} {text:4} {name:34} {told(rows)}  {np.median(seconds):.1f} s", flush=True)
                found[name][size] = rows
    return found


def told(rows: Sequence[dict[str, float]]) -> str:
    """Tell what was measured in several draws: medians, with least and most."""
    of = {key: [row[key] for row in rows] for key in rows[0]}
    return "  ".join(
        f"{key} {np.median(each):.3f} [{min(each):.3f}, {max(each):.3f}]" for key, each in of.items()
    )
