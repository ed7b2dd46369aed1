"""How long the description of a mask is: what it costs to have chosen it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import gammaln, xlog1py, xlogy

from jaxarch._internal.errors import ArgumentError, check_array, check_leaves, is_traced, shown
from jaxarch._internal.trees import PyTree, check_structure, named_leaves
from jaxarch.theory.generalization._binomial import EPS, log_binomial, log_factorial


def description_length(mask: PyTree, prior: PyTree = None) -> float:
    r"""What a mask costs to name, in nats: `log 1/P(mask)`, rounded upwards.

        P = (P_all + P_leaf)/2,    P_all = 1/((D + 1) C(D, k)),    P_leaf = prod_l 1/((D_l + 1) C(D_l, k_l))

    k of all D connections, k_l of the D_l of a leaf, are there. Sizes are equally likely, and so are the
    masks of a size: of all leaves together, or leaf by leaf, which is shorter where densities differ.

    Of a mask of numbers v in [0, 1] it is that of the *randomised* mask, whose connections are there with
    chances v, independently: at least `KL(prod Bern(v_i) || P)`, as

        L(v) - sum_i h(v_i),    h(p) = -p log p - (1 - p) log (1 - p),

    L the formula above at `k = sum v` by gamma functions (docs/theory.md, `certificate.randomized`). Of
    numbers that are 0 or 1 both are the same.

    Args:
      mask: booleans, or numbers in [0, 1]; `None` for leaves that are not masked.
      prior: chances pi in [0, 1], in the mask's structure, for `P = prod Bern(pi_i)` in place of the above.
        They may come from other examples than those that the errors are counted on, and from nothing else.

    Returns:
      A float, infinite where the prior gave the mask no chance.

    Raises:
      ArgumentError: a mask that is neither boolean nor of numbers in [0, 1], or masks nothing; a prior of
        another structure or shape, or that is no chance.

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
    r"""The description length of masks with `k = sum v` connections, to be differentiated in v.

    `description_length` of masks of numbers without what the randomised mask saves, `sum h(v_i)`; at numbers
    that are 0 or 1 both are the same, up to rounding. As a penalty of a search, `strength * length / n`, it
    asks of a connection that it lowers the loss of n examples by `strength log((D - k)/k)` in sum.

    Args:
      mask: floating-point numbers in [0, 1]; `None` for leaves that are not masked.
      prior: chances pi in [0, 1], in the mask's structure, for `-sum v log pi + (1 - v) log (1 - pi)`, which
        is infinite where the prior excludes what v does not.

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
    # In half precision a count of thousands would be rounded.
    kept = [jnp.sum(leaf, dtype=jnp.promote_types(leaf.dtype, jnp.float32)) for leaf in leaves]
    sizes = [leaf.size for leaf in leaves]

    def length(k: Array, size: int) -> Array:
        return jnp.log(size + 1.0) + gammaln(size + 1.0) - gammaln(k + 1) - gammaln(size - k + 1)

    by_leaf = jnp.stack([length(k, size) for k, size in zip(kept, sizes, strict=True)]).sum()
    pooled = length(jnp.stack(kept).sum(), sum(sizes))
    return jnp.log(2.0) - jnp.logaddexp(-pooled, -by_leaf)


def _chances(name: str, tree: PyTree) -> Sequence[np.ndarray]:
    """The leaves in float64.

    Raises:
      ArgumentError: of what is neither boolean nor of numbers in [0, 1].
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
    """`sum h(v_i)`."""
    inside = chances[(chances > 0) & (chances < 1)]
    return math.fsum(-inside * np.log(inside) - (1 - inside) * np.log1p(-inside))


def _divergence(chances: np.ndarray, prior: np.ndarray) -> float:
    """`sum kl(v_i || pi_i)`."""

    def crossed(chances: np.ndarray, logarithms: np.ndarray) -> float:
        there = chances > 0
        return math.fsum(-chances[there] * logarithms[there])

    with np.errstate(divide="ignore"):
        crossing = crossed(chances, np.log(prior)) + crossed(1 - chances, np.log1p(-prior))
    return crossing - _entropy(chances)
