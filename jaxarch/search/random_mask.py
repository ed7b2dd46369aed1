"""Random architectures of a given size: what every search for one has to beat."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Literal

import jax
from jax import Array

from jaxarch.errors import ArgumentError, shown
from jaxarch.finish.densities import Densities, check_densities, connections_kept, with_densities
from jaxarch.masks import check_density, init_scores, top_k
from jaxarch.network import Network
from jaxarch.problem import Problem
from jaxarch.running.methods import method
from jaxarch.running.stage import FunctionStage
from jaxarch.trees import PyTree, Where, map_selected, matrices, named_leaves, select

Layers = Literal["pooled", "uniform", "erk"]


@dataclasses.dataclass(frozen=True)
class Settings:
    """How many connections are kept, of which leaves, and how they are spread over them."""

    densities: tuple[float, ...]
    layers: Layers
    where: Where


@method("[A] section 3", densities=0.5)
def random_mask(densities: Densities, *, layers: Layers = "pooled", where: Where = matrices) -> FunctionStage:
    """A random mask with exactly `round(d D)` of the D connections, on the problem's initial weights.

    Args:
      densities: d, the share of connections that are kept, in (0, 1]; of several, the smallest is found, and
        `at_density` takes the others. They are of one draw: a larger one contains a smaller one.
      layers: how they are spread over the masked leaves: `pooled`, every set of connections is as likely as
        any other; `uniform`, the same density in every leaf; `erk`, that of `erk_densities`. With the
        densities of another architecture: `chain(that, reshuffled())`.
      where: the leaves that are masked, by path.

    Returns:
      A search. It trains nothing: `chain(random_mask(.05), retrain("cold", nonnegative=False))`.

    Raises:
      ArgumentError: a density outside (0, 1], an unknown word.
    """
    if layers not in ("pooled", "uniform", "erk"):
        raise ArgumentError(f"layers: expected 'pooled', 'uniform' or 'erk', got {shown(layers)}")
    settings = Settings(check_densities(densities), layers, where)
    return FunctionStage(f"random mask, {layers}", _random_mask, settings)


def _random_mask(settings: Settings, key: Array, problem: Problem, network: None) -> Network:
    params_key, mask_key = jax.random.split(key)
    params, state = problem.init(params_key)
    chosen = init_scores(mask_key, select(params, settings.where), 0.0, 1.0)
    masks = {density: _largest(chosen, density, settings.layers) for density in settings.densities}
    return with_densities(masks, params, state)


def _largest(drawn: PyTree, density: float, layers: Layers) -> PyTree:
    """The mask of the largest numbers, over all leaves together or as many in each as it is due."""
    total = connections_kept(density, drawn)
    if layers == "pooled":
        return top_k(drawn, total)
    shapes = {path: leaf.shape for path, leaf in named_leaves(drawn).items()}
    spread = erk_densities(shapes, density) if layers == "erk" else dict.fromkeys(shapes, density)
    counts = iter(_whole({path: spread[path] * math.prod(shapes[path]) for path in shapes}, total).values())
    return map_selected(lambda leaf: top_k(leaf, next(counts)), drawn)


def erk_densities(shapes: Mapping[str, tuple[int, ...]], density: float) -> dict[str, float]:
    r"""Erdos-Renyi-Kernel densities: a kernel of shape (n_1, ..., n_k) gets `epsilon sum_i n_i / prod_i n_i`.

    epsilon is such that all together have the density asked for; a leaf that would have more than all of its
    connections keeps all of them, and epsilon is that of the others. U. Evci et al., Rigging the Lottery,
    2020.

    Args:
      shapes: of the leaves, by path.
      density: in (0, 1].

    Returns:
      The density of each leaf.

    Raises:
      ArgumentError: a density outside (0, 1].
    """
    check_density("density", density)
    sizes = {path: math.prod(shape) for path, shape in shapes.items()}
    full: set[str] = set()
    while True:
        sparse = [path for path in shapes if path not in full]
        left = density * sum(sizes.values()) - sum(sizes[path] for path in full)
        unit = left / max(sum(sum(shapes[path]) for path in sparse), 1)
        over = {path for path in sparse if unit * sum(shapes[path]) > sizes[path]}
        if not over:
            return {path: 1.0 if path in full else unit * sum(shapes[path]) / sizes[path] for path in shapes}
        full |= over


def _whole(shares: Mapping[str, float], total: int) -> dict[str, int]:
    """Whole numbers next to some shares, with a given sum: the largest remainders are rounded up."""
    counts = {path: math.floor(share) for path, share in shares.items()}
    remainders = sorted(shares, key=lambda path: counts[path] - shares[path])
    for path in remainders[: total - sum(counts.values())]:
        counts[path] += 1
    return counts
