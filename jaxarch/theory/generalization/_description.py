"""The description length of a mask: the cost of having chosen it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import gammaln, xlog1py, xlogy

from jaxarch._internal.errors import ArgumentError, check_array, check_leaves, is_traced, shown
from jaxarch._internal.precision import at_least_float32
from jaxarch._internal.trees import PyTree, check_structure, named_leaves
from jaxarch.theory.generalization._binomial import EPS, log_binomial, log_factorial


def description_length(mask: PyTree, prior: PyTree = None) -> float:
    r"""Return the description length of a mask in nats, `log 1/P(mask)`, rounded upwards.

        P = (P_all + P_leaf)/2,    P_all = 1/((D + 1) C(D, k)),    P_leaf = prod_l 1/((D_l + 1) C(D_l, k_l))

    The mask has k of all D connections, and k_l of the D_l connections of a leaf. All sizes are equally
    likely, and so are all masks of a size, for all leaves together or leaf by leaf. The second is shorter if
    densities differ.

    A mask of numbers v in [0, 1] stands for the *randomized* mask, whose connections exist independently with
    probabilities v. Its length is at least `KL(prod Bern(v_i) || P)`, computed as

        L(v) - sum_i h(v_i),    h(p) = -p log p - (1 - p) log (1 - p),

    with L the formula above at `k = sum v` by gamma functions (docs/theory.md, `certificate.randomized`). For
    numbers that are 0 or 1 both lengths agree.

    Args:
      mask: booleans, or numbers in [0, 1]; `None` for leaves that are not masked.
      prior: probabilities pi in [0, 1], in the mask's structure, for `P = prod Bern(pi_i)` instead of the
        formula above. They may come from examples on which no errors are counted, and from nothing else.

    Returns:
      A float, infinite if the mask has probability 0 under the prior.

    Raises:
      ArgumentError: a mask that is neither boolean nor of numbers in [0, 1], or masks nothing; a prior of
        another structure or shape, or with numbers that are no probabilities.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxarch.theory.generalization import description_length
      >>> mask = {"a": jnp.array([True, False, False, False])}  # one of 5 sizes, one of 4 of that size
      >>> print(round(description_length(mask), 6), round(float(jnp.log(20)), 6))
      2.995732 2.995732
      >>> print(round(description_length(mask, prior={"a": jnp.array([0.5, 0.1, 0.1, 0.1])}), 6))
      1.009229
    """
    chances = _chances("mask", mask)
    if not chances:
        raise ArgumentError("mask: no leaf is masked")
    sizes = [leaf.size for leaf in chances]
    rounding = 64 * EPS * (1 + len(sizes)) * (1 + sum(sizes) + log_factorial(sum(sizes)))
    if prior is not None:
        check_structure("prior", prior, mask, "the mask")
        priors = _chances("prior", prior)
        if [leaf.shape for leaf in priors] != [leaf.shape for leaf in chances]:
            raise ArgumentError("prior: its leaves have other shapes than the mask's")
        length = math.fsum(_divergence(v, pi) for v, pi in zip(chances, priors, strict=True))
        return length * (1 + 64 * EPS) + rounding
    kept = [math.fsum(leaf.ravel()) for leaf in chances]
    pooled = _length(math.fsum(kept), sum(sizes))
    by_leaf = math.fsum(_length(k, size) for k, size in zip(kept, sizes, strict=True))
    short, long = sorted((pooled, by_leaf))
    mixed = short + math.log(2) - math.log1p(math.exp(short - long))
    return max(mixed - math.fsum(_entropy(leaf) for leaf in chances), 0.0) + rounding


def relaxed_length(mask: PyTree, prior: PyTree = None) -> Array:
    r"""Return the description length of masks with `k = sum v` connections, differentiable in v.

    It is `description_length` of masks of numbers, without the saving `sum h(v_i)` of the randomized mask. At
    numbers that are 0 or 1 both agree, up to rounding. As a penalty of a search, `strength * length / n`, it
    requires each connection to lower the summed loss of n examples by `strength log((D - k)/k)`.

    Args:
      mask: floating-point numbers in [0, 1]; `None` for leaves that are not masked.
      prior: probabilities pi in [0, 1], in the mask's structure, for `-sum v log pi + (1 - v) log (1 - pi)`.
        This is infinite if the prior excludes a value that v allows.

    Returns:
      A scalar, in nats.

    Raises:
      ArgumentError: a mask that masks nothing; a prior of another structure or shape.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from jaxarch.theory.generalization import relaxed_length
      >>> print(relaxed_length({"w": jnp.full(1000, 0.02)}).round())
      103.0
      >>> length, slopes = jax.value_and_grad(relaxed_length)({"w": jnp.full(1000, 0.02)})
      >>> print(length.round(), slopes["w"][0].round(1))
      103.0 3.9
    """
    leaves = jax.tree.leaves(mask)
    if not leaves:
        raise ArgumentError("mask: no leaf is masked")
    check_leaves("mask", mask, real=True)
    if prior is not None:
        check_structure("prior", prior, mask, "the mask")
        check_leaves("prior", prior, real=True)
        if [jnp.shape(leaf) for leaf in jax.tree.leaves(prior)] != [leaf.shape for leaf in leaves]:
            raise ArgumentError("prior: its leaves have other shapes than the mask's")
        crossed = jax.tree.map(lambda v, pi: -jnp.sum(xlogy(v, pi) + xlog1py(1 - v, -pi)), mask, prior)
        return jnp.stack(jax.tree.leaves(crossed)).sum()
    # A count of thousands would be rounded in half precision.
    kept = [jnp.sum(leaf, dtype=at_least_float32(leaf.dtype)) for leaf in leaves]
    sizes = [leaf.size for leaf in leaves]

    def length(k: Array, size: int) -> Array:
        return jnp.log(size + 1.0) + gammaln(size + 1.0) - gammaln(k + 1) - gammaln(size - k + 1)

    by_leaf = jnp.stack([length(k, size) for k, size in zip(kept, sizes, strict=True)]).sum()
    pooled = length(jnp.stack(kept).sum(), sum(sizes))
    return jnp.log(2.0) - jnp.logaddexp(-pooled, -by_leaf)


def _chances(name: str, tree: PyTree) -> Sequence[np.ndarray]:
    """Return the leaves in float64.

    Raises:
      ArgumentError: traced values; a leaf that is neither boolean nor of numbers in [0, 1].
    """
    if is_traced(tree):
        raise ArgumentError(f"{name}: expected concrete numbers, got traced ones; call it outside of jit")
    chances = []
    for path, leaf in named_leaves(tree).items():
        if hasattr(leaf, "dtype"):
            check_array(f"{name}: {path}", leaf)
        array = np.asarray(leaf)
        if array.dtype != bool and not jnp.issubdtype(array.dtype, jnp.floating):
            raise ArgumentError(f"{name}: '{path}' is neither boolean nor floating point, but {array.dtype}")
        values = array.astype(np.float64)
        if not ((values >= 0) & (values <= 1)).all():
            raise ArgumentError(f"{name}: expected numbers in [0, 1], got {shown(leaf)} at '{path}'")
        chances.append(values)
    return chances


def _length(kept: float, size: int) -> float:
    return math.log(size + 1) + log_binomial(size, kept)


def _entropy(chances: np.ndarray) -> float:
    """Compute `sum h(v_i)`."""
    inside = chances[(chances > 0) & (chances < 1)]
    return math.fsum(-inside * np.log(inside) - (1 - inside) * np.log1p(-inside))


def _divergence(chances: np.ndarray, prior: np.ndarray) -> float:
    """Compute `sum kl(v_i || pi_i)`."""

    def crossed(chances: np.ndarray, logarithms: np.ndarray) -> float:
        there = chances > 0
        return math.fsum(-chances[there] * logarithms[there])

    with np.errstate(divide="ignore"):
        crossing = crossed(chances, np.log(prior)) + crossed(1 - chances, np.log1p(-prior))
    return crossing - _entropy(chances)
