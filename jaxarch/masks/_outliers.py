"""Densities of layers by their share of outliers among the scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxarch._internal.errors import (
    ArgumentError,
    check_callable,
    check_concrete,
    check_one_positive,
    check_one_strength,
)
from jaxarch._internal.trees import PyTree, named_leaves
from jaxarch.masks._largest import check_density, check_scores


def owl_densities(
    scores: PyTree,
    density: float,
    outliers: float = 5.0,
    spread: float = 0.08,
    layer: Callable[[str], Any] | None = None,
) -> dict[str, float]:
    r"""Return densities that leave more connections to layers with more outliers among their scores (OWL).

    Layer l has the share of outliers `o_l = mean(s > M mean(s))` over its scores s. Its density is

        d_l = d + 2 lambda (r_l - mean r),    r_l = (o_l - min o) / (max o - min o)

    so that densities differ by at most `2 lambda`. The mean over r weighs each layer by its size, so that all
    layers together keep d. L. Yin et al., Outlier weighed layerwise sparsity (OWL): a missing secret sauce
    for pruning LLMs to high sparsity, 2023. The authors take Wanda's scores, M = 5 and lambda = .08. Their
    layers are whole transformer blocks: name them by `layer`. Their mean does not weigh sizes.

        scores = jaxarch.saliency.wanda(params, calibration)
        densities = jaxarch.masks.owl_densities(scores, 0.3, layer=lambda path: path.split("/")[1])
        mask = jaxarch.masks.keep(scores, densities, jaxarch.masks.PerOutput(calibration.inputs))

    Args:
      scores: one per connection, at least 0; `None` for leaves that are not masked.
      density: d, the share of connections that all layers keep together, in (0, 1].
      outliers: M, how many times the mean an outlier is.
      spread: lambda, at least 0. With 0 all layers have density d.
      layer: the layer of a leaf, given its path; by default each leaf is one.

    Returns:
      The density of each leaf by path, for `masks.keep` and `sparsegpt`.

    Raises:
      ArgumentError: a density outside (0, 1]; a spread so large that a layer would have one; negative scores.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> scores = {"a": jnp.array([1.0, 1, 1, 1, 1, 1, 1, 13]), "b": jnp.ones(8)}
      >>> jaxarch.masks.owl_densities(scores, 0.5, spread=0.125)  # 1 of 8 scores of a is an outlier
      {'a': 0.625, 'b': 0.375}
    """
    check_scores(scores)
    check_concrete("scores", scores)
    for name, value in {"density": density, "outliers": outliers, "spread": spread}.items():
        check_concrete(name, value)
    check_density("density", density)
    check_one_positive("outliers", outliers)
    check_one_strength("spread", spread)
    if layer is not None:
        check_callable("layer", layer, "path")
    leaves = named_leaves(scores)
    names = {path: path if layer is None else layer(path) for path in leaves}
    of_layer: dict[Any, list[Any]] = {}
    for path, leaf in leaves.items():
        if bool((jnp.asarray(leaf) < 0).any()):
            raise ArgumentError(f"scores: expected numbers of at least 0, got less in {path!r}")
        of_layer.setdefault(names[path], []).append(leaf)
    sizes = np.array([sum(leaf.size for leaf in own) for own in of_layer.values()])
    shares = np.array([_outliers(own, outliers) for own in of_layer.values()])
    between = shares.max() - shares.min()
    ranks = (shares - shares.min()) / (between if between > 0 else 1)
    found = density + 2 * spread * (ranks - (ranks * sizes).sum() / max(sizes.sum(), 1))
    if not ((found > 0) & (found <= 1)).all():
        raise ArgumentError(
            f"spread: with {spread:g} a layer would have the density {found.min():.3g}, and another "
            f"{found.max():.3g}; give less"
        )
    densities = dict(zip(of_layer, found.tolist(), strict=True))
    return {path: densities[name] for path, name in names.items()}


def _outliers(leaves: list[Any], times: float) -> float:
    """Return the share of scores that are more than some times the mean of all scores of some leaves."""
    size = max(sum(leaf.size for leaf in leaves), 1)
    mean = sum(float(jnp.sum(leaf)) for leaf in leaves) / size
    return sum(int(jnp.sum(leaf > times * mean)) for leaf in leaves) / size
