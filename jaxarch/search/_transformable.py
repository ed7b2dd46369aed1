"""Transformable architecture search: learned probabilities of widths of layers, and of depths (TAS)."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple, Unpack

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.epochs import epoch_rows
from jaxarch._internal.errors import (
    ArgumentError,
    check_choice,
    check_one_positive,
    check_one_strength,
    is_traced,
    shown,
)
from jaxarch._internal.trees import (
    PyTree,
    Where,
    map_selected,
    matrices,
    named_leaves,
    placed,
    select_floating,
)
from jaxarch.masks import apply_mask, check_density
from jaxarch.masks._units import GroupUnits
from jaxarch.run._descent import DescentChanges
from jaxarch.run._keyed import unkeyed
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._training import Training, TrainState
from jaxarch.run._training_info import TrainingInfo
from jaxarch.search._chains import Chains, Depth, Patterns, chains_of, check_depth, leaves_of
from jaxarch.search._scored import descent_of
from jaxarch.search._units import groups_and_units, needs_of, of_params, summed_over
from jaxarch.search._within import WITHIN_A_MASK, mask_before, within
from jaxarch.structure import Groups
from jaxarch.structure._branches import Branch
from jaxarch.structure._products import Product, Products, find_products
from jaxarch.structure._size_costs import cost_polynomials
from jaxarch.transforms._densities import layers_emptied

Quantity = Literal["multiply_adds", "parameters", "bytes", "activations", "units"]
QUANTITIES = ("multiply_adds", "parameters", "bytes", "activations", "units")
Monomial = tuple[tuple[int, int], ...]
"""Numbers of groups with their powers, and of chains with the number of a block."""
WORDS = ("neurons", "channels", "heads")
WIDTHS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
LEAST = 1e-7
"""Added to probabilities before two candidates are drawn: otherwise one of probability 0 has no logarithm."""
SPREAD = 0.01
"""Standard deviation of the initial logits, as in the authors' code: equal ones would have no largest."""
_ROUNDING = 1e-9
"""Added to a width times a number of units: .7 of 10 units are 7, whatever the rounding."""
_ROUNDED = 1e-6
"""Relative error allowed to a cost, which is a sum in float32: also a tolerance of 0 can be met."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """The target and its cost, the candidates, the temperatures, the pull towards the target, the blocks."""

    target: ArrayLike
    cost: Quantity
    units: tuple[str, ...]
    widths: tuple[float, ...]
    tau: tuple[ArrayLike, ArrayLike]
    strength: ArrayLike
    tolerance: ArrayLike
    where: Where
    depth: Patterns


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Shares:
    """A cost as a share of the dense model's: a polynomial in the shares of units that groups keep.

    Attributes:
      coefficients: one per monomial; their sum is 1.
      powers: for each monomial, the numbers of its groups with their powers. Chains of blocks are numbered
        after the groups, with the number of a block in place of a power.
    """

    coefficients: tuple[float, ...]
    powers: tuple[tuple[tuple[int, int], ...], ...]

    def expected(
        self,
        widths: Mapping[str, Array],
        probabilities: Mapping[str, Array],
        depths: Mapping[str, Array] | None = None,
    ) -> Array:
        """Return the expected cost if groups draw their widths and chains their depths, independently.

        Args:
          widths: by group, the shares of its units that the candidates keep.
          probabilities: by group and chain, those of its candidates.
          depths: by chain, the numbers of blocks that the candidates keep.
        """
        factors = [factor for monomial in self.powers for factor in monomial]
        highest = max((power for number, power in factors if number < len(widths)), default=1)
        powers = jnp.arange(1, highest + 1, dtype=jnp.float32)
        moments = [probabilities[name] @ shares[:, None] ** powers[None] for name, shares in widths.items()]
        # The k-th is the probability of at least k blocks.
        moments += [probabilities[name] @ _blocks(of) for name, of in (depths or {}).items()]
        # Place 0 holds a 1, for monomials with fewer factors than the longest.
        starts = np.cumsum([0, *(of.shape[0] for of in moments)])
        places = np.zeros((len(self.powers), max(map(len, self.powers), default=0)), int)
        for row, monomial in enumerate(self.powers):
            for column, (number, power) in enumerate(monomial):
                places[row, column] = starts[number] + power
        found = jnp.concatenate([jnp.ones(1, jnp.float32), *moments])[places]
        return jnp.asarray(self.coefficients, jnp.float32) @ found.prod(axis=1)


def _blocks(depths: Array) -> Array:
    """Return 1. where a candidate depth includes a block: one row per candidate, from 0 to all blocks."""
    return (depths[:, None] > jnp.arange(depths.shape[0] - 1)[None]).astype(jnp.float32)


class Fixed(NamedTuple):
    """Fixed parts of the state.

    Attributes:
      mask: the mask that the weights had before.
      key: the key of all noise.
      steps: the number of steps of the training.
      units: the groups' units in all their leaves.
      read: the same units where products read them.
      ranks: by group, the place of each unit in the order in which units are kept.
      counts: by group, the numbers of units of the candidates.
      shares: the cost.
      chains: the blocks that may be removed.
      depths: by chain, the numbers of blocks of the candidates.
    """

    mask: PyTree
    key: Array
    steps: Array
    units: GroupUnits
    read: GroupUnits
    ranks: dict[str, Array]
    counts: dict[str, Array]
    shares: Shares
    chains: Chains
    depths: dict[str, Array]


@method("X. Dong and Y. Yang, 2019")
def transformable(
    target: ArrayLike = 0.5,
    *,
    cost: Quantity = "multiply_adds",
    units: str | tuple[str, ...] | None = None,
    widths: tuple[float, ...] = WIDTHS,
    depth: Depth | None = None,
    tau: tuple[ArrayLike, ArrayLike] = (10.0, 0.1),
    strength: ArrayLike = 2.0,
    tolerance: ArrayLike = 0.05,
    where: Where = matrices,
    scores_optimizer: optax.GradientTransformation | None = None,
    **descent: Unpack[DescentChanges],
) -> Training:
    r"""Learn how wide each layer is, and how deep the model, by the probabilities of candidates (TAS).

        search = jaxarch.search.transformable(0.5, depth=("encoder/[12]", "encoder/[45]"))
        network, report = jaxarch.over_seeds(search, keys, problem)

    Each group of units has logits a, one per candidate number C_j of units, and p = softmax(a). At every step

        q = softmax((log p + o) / tau),  o_j = -log(-log u_j),  u_j uniform in (0, 1),

    and two candidates I are drawn by q, without replacement. Unit i then contributes as much as

        m_i = \sum_{j \in I} q_j [i < C_j] / \sum_{j \in I} q_j,

    the sum of a layer of C_1 units and a layer of C_2. With `depth`, each chain of n residual blocks has such
    logits too, over the depths d = 0, 1, ..., n: it keeps its first d blocks. Block k adds its branch times

        s_k = \sum_{d \in I} q_d [k <= d] / \sum_{d \in I} q_d.

    A removed block has all its leaves masked, so it is its shortcut and costs nothing.

    The weights descend on the loss of a training batch, the logits on that of a batch of validation rows,
    with a draw of their own, plus `strength` times

        log E[cost] if the most probable candidates cost more than `(1 + tolerance) target`,
        -log E[cost] if they cost less than `(1 - tolerance) target`, otherwise 0.

    tau falls linearly. The most probable widths and depths stay; if these miss the target at the last step,
    those of the last step at which they met it. X. Dong and Y. Yang, Network Pruning via Transformable
    Architecture Search, NeurIPS 2019, arXiv:1905.09717; q is its eq. (3). The loss of the cost is read from
    the authors' code. There the tolerance is a share of the dense model's cost and holds below the target
    alone, and tau falls by a cosine.

    Departures from the paper: a narrower layer is filled up with zeros, and not interpolated between
    channels. So unit i is the same unit in all candidates, and axes that a residual stream ties together keep
    their meaning. m_i multiplies where products read the unit, so also behind heads and gates. Units are
    ordered by their mean magnitude at the start. A fresh network has no better order, and for a trained one
    the first units are arbitrary. The expected cost is exact also where both axes of a kernel belong to one
    group. All candidates share one batch norm. Both descents start from the weights before the step; in the
    authors' code the logits see the weights after it. The authors train the last widths, whatever they cost.
    They add up the features after each depth. Here blocks behind the first drawn depth read features that are
    mixed already. At least one block stays in each stage of theirs; here the blocks that you name may all go.

    Widths within a removed block no longer matter, and are reported as 0. The less probable a block is, the
    smaller are the gradients of their logits. `jaxarch.shrink` leaves one unit of zeros in each removed
    layer, since it keeps your model's program. So the cost found is that of the `effective` connections of
    `jaxarch.cost`; its `shrunk` ones include these units.

    Args:
      target: the cost to reach, as a share of the dense model's, in (0, 1]. May be traced, like all numbers
        but widths.
      cost: what is counted: `multiply_adds` of one example, `parameters`, `bytes`, `activations`, or the
        number of `units`.
      units: `neurons`, `channels` or `heads`, or several of these words. By default all that the model has.
      widths: candidate shares of each group's units, in (0, 1], in any order; the largest must be 1. A group
        keeps at least one unit. By default those of the paper. `(1.0,)` searches for depth alone.
      depth: chains of residual blocks that may be removed, the last first, by a pattern on the beginning of
        paths: `"encoder/[12]"` is the blocks `encoder/1` and `encoder/2`. Several patterns are several
        chains; a tuple of patterns is one. Blocks of one pattern are in the natural order of their paths.
        Leave out a block that must stay, such as the first of each stage. `where` does not matter to blocks.
        Blocks after the last one with a connection in an earlier mask are in no depth.
      tau: the temperatures at the first and at the last step, positive.
      strength: lambda_cost of the paper, at least 0.
      tolerance: t, in [0, 1).
      where: the leaves whose units are searched, by path. A unit goes with all its parts, also with those in
        other leaves; the leaves selected give it its place in the order.
      scores_optimizer: any optax transformation for the logits; by default one optimizer trains everything.
        The paper has Adam at 1e-3 over 600 epochs; a few hundred steps need 1e-2 or more.
      **descent: `optimizer`, `steps`, `batch_size`, `sampling`, replacing the problem's.

    Returns:
      A search; after another stage, one from its weights and within its mask. The mask keeps whole units, so
      `jaxarch.shrink` makes the arrays smaller. In the paper, the logits descend on half of the training
      rows: give these as the problem's `validation` rows. Their batches are sampled like those of training;
      without a batch size, as of a stream, each step takes all of them. Without validation rows, the logits
      descend on training rows, and in a `paired` problem or a stream on the batch of the weights. `info` has
      the `probabilities`, the numbers of units `kept` by group, the numbers of blocks `depths` by chain, the
      `cost` found and the `target`, as shares, and `reached`, whether they differ by at most the tolerance.

    Raises:
      ArgumentError: a target, a tolerance or widths out of range; a quantity or units that are not
        understood, or that the model does not have; temperatures that are not positive; a strength that is
        negative or not finite; a target that the smallest candidates of a whole network exceed; a pattern
        without a block; a leaf of two blocks, by its path or because both use it; a block that is not known
        to be its shortcut once its leaves are 0, as read off the traced program. Such a block has no skip, or
        a shortcut with leaves; it divides by a leaf; or its branch does not end in leaves that multiply it,
        such as a kernel and its bias, or the scale and bias of a norm.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 10, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.adam(0.1), steps=50)
      >>> network = jaxarch.search.transformable(0.5)(jax.random.key(0), problem)
      >>> print(network.info["kept"], network.info["cost"])
      {'W2_1[0]': Array(5, dtype=int32)} 0.5
    """
    check_density("target", target)
    check_choice("cost", cost, QUANTITIES)
    check_one_strength("strength", strength)
    check_one_strength("tolerance", tolerance)
    if not is_traced(tolerance) and not np.asarray(tolerance) < 1:
        raise ArgumentError(f"tolerance: expected a number in [0, 1), got {shown(tolerance)}")
    words, chains = _check_words(units), check_depth(depth)
    shares = _check_widths(widths, 1 if chains else 2)
    return Training(
        "TAS",
        _init,
        _params,
        _network,
        Settings(target, cost, words, shares, _check_tau(tau), strength, tolerance, where, chains),
        descent_of(descent, scores_optimizer),
        after_step=_after_step,
        wrap_optimizer=_wrap_optimizer,
        remedy="start from other weights",
        remarks=partial(_remarks, chains),
        needs=needs_of(words, WITHIN_A_MASK),
    )


def _check_words(units: str | tuple[str, ...] | None) -> tuple[str, ...]:
    words = () if units is None else (units,) if isinstance(units, str) else units
    is_known = isinstance(words, tuple) and all(isinstance(word, str) and word in WORDS for word in words)
    if not is_known or units == ():
        raise ArgumentError(
            f"units: expected 'neurons', 'channels' or 'heads', or several of these, got {shown(units)}"
        )
    return words


def _check_widths(widths: tuple[float, ...], least: int) -> tuple[float, ...]:
    is_right = isinstance(widths, (tuple, list)) and all(
        isinstance(width, (int, float)) and not isinstance(width, bool) and 0 < width <= 1 for width in widths
    )
    found = tuple(sorted({float(width) for width in widths})) if is_right else ()
    if len(found) < least or found[-1] != 1:
        raise ArgumentError(
            f"widths: expected {('one', 'two')[least - 1]} or more shares in (0, 1], such as "
            f"(0.25, 0.5, 1.0), the largest of them 1, got {shown(widths)}"
        )
    return found


def _check_tau(tau: tuple[ArrayLike, ArrayLike]) -> tuple[ArrayLike, ArrayLike]:
    if not isinstance(tau, (tuple, list)) or len(tau) != 2:
        raise ArgumentError(f"tau: expected the first and the last temperature, got {shown(tau)}")
    for name, value in zip(("tau[0]", "tau[1]"), tau, strict=True):
        check_one_positive(name, value)
    return tau[0], tau[1]


def _init(settings: Settings, key: Array, problem: Problem, network: Network | None) -> TrainState:
    params_key, logits_key, noise_key = jax.random.split(key, 3)
    params, model = problem.start(params_key) if network is None else (network.params, network.state)
    selected = select_floating(params, settings.where)
    groups, asked = groups_and_units(settings.units, problem, params, model, selected)
    # Units go as a whole, with their parts in kernels that `where` leaves out: their cost goes with them.
    units = of_params(groups.units_of(asked.groups()), params)
    chains, branches = chains_of(settings.depth, groups, params, units.groups())
    before = mask_before(network)
    magnitudes = map_selected(lambda leaf: jnp.abs(leaf).astype(jnp.float32), selected)
    scores, left = units.score_within(magnitudes, before)
    sizes = units.groups()
    candidates = {name: _candidates(size, settings.widths) for name, size in sizes.items()}
    counts = {name: jnp.asarray(of, jnp.int32) for name, of in candidates.items()}
    if left is not None:
        # An earlier mask may have removed units. They come last, and no candidate has them.
        scores = {name: jnp.where(left[name], score, -1) for name, score in scores.items()}
        counts = {name: jnp.minimum(of, left[name].sum(dtype=jnp.int32)) for name, of in counts.items()}
    fixed = Fixed(
        before,
        noise_key,
        jnp.asarray(problem.descent.steps, jnp.float32),
        units,
        _read(units, summed_over(problem, params, model)),
        {name: jnp.argsort(jnp.argsort(-score)).astype(jnp.int32) for name, score in scores.items()},
        counts,
        _shares(settings.cost, groups, units, params, chains, branches),
        chains,
        chains.depths(before),
    )
    if left is None:
        _check_target(settings, fixed.shares, sizes, chains)
    choices = {name: len(of) for name, of in candidates.items()}
    choices |= {name: of.size for name, of in fixed.depths.items()}
    keys = jax.random.split(logits_key, len(choices))
    logits = {
        name: SPREAD * jax.random.normal(one, (count,), jnp.float32)
        for one, (name, count) in zip(keys, choices.items(), strict=True)
    }
    state = TrainState({"scores": logits, "weights": params}, fixed, model)
    return state._replace(memory=_chosen(settings, state))


def _candidates(size: int, widths: tuple[float, ...]) -> list[int]:
    """Return the numbers of units of a group's candidates, each once."""
    return sorted({max(1, math.floor(size * width + _ROUNDING)) for width in widths})


def _read(units: GroupUnits, summed: Mapping[str, set[int]]) -> GroupUnits:
    """Return units where products sum over them, so that each contribution is multiplied once.

    A unit's bias, its norm and the kernel that makes it stay as they are: between 0 and 1, their masks would
    multiply each other, and batch norm would undo some. Groups that no product reads are masked as a whole.
    """
    found = {
        name
        for path, axes in units.leaves
        for index, axis in enumerate(axes)
        if index in summed.get(path, ())
        for name, _ in axis.groups()
    }
    others = {name: size for name, size in units.groups().items() if name not in found}
    leaves = tuple(
        (
            path,
            tuple(
                axis if index in summed.get(path, ()) else axis.within(others)
                for index, axis in enumerate(axes)
            ),
        )
        for path, axes in units.leaves
    )
    return dataclasses.replace(units, leaves=leaves)


def _shares(
    cost: Quantity,
    groups: Groups,
    units: GroupUnits,
    params: PyTree,
    chains: Chains,
    branches: Mapping[tuple[str, int], Branch],
) -> Shares:
    """Return a cost in the shares of units that the searched groups keep, and in the blocks kept."""
    searched = units.groups()
    names, sizes = [*searched], [*searched.values()]
    numbers = {name: number for number, name in enumerate([*names, *dict(chains.chains)])}
    values: dict[Monomial, float] = {}
    if cost == "units":
        for name, inside in _around(units, chains).items():
            values[((numbers[name], 1), *_of_block(inside, numbers))] = float(searched[name])
    else:
        products = find_products(groups._program, dict.fromkeys(groups._leaves))
        fixed = {name: group.size for name, group in groups.groups.items()}
        for inside, (paths, found) in _parts(products, params, chains, branches).items():
            part = dataclasses.replace(products, found=found)
            polynomial = cost_polynomials(groups, part, 1, paths)[cost].with_fixed(names, fixed)
            blocks = _of_block(inside, numbers)
            for of, value in polynomial.terms.items():
                monomial = (*Counter(of).items(), *blocks)
                times = math.prod(sizes[number] for number in of)
                values[monomial] = values.get(monomial, 0.0) + value * times
    if not any(values):
        raise ArgumentError(f"cost: the {cost} do not depend on the searched units; give another cost")
    total = sum(values.values())
    return Shares(tuple(value / total for value in values.values()), tuple(values))


def _parts(
    products: Products, params: PyTree, chains: Chains, branches: Mapping[tuple[str, int], Branch]
) -> dict[tuple[str, int] | None, tuple[set[str], list[Product]]]:
    """Sort leaves and products by the block that they go with, or `None`."""
    parts: dict[tuple[str, int] | None, tuple[set[str], list[Product]]] = {}
    for path in named_leaves(params):
        parts.setdefault(chains.around([path]), (set(), []))[0].add(path)
    for product in products.found:
        # No step is in two blocks.
        inside = next((block for block, of in branches.items() if id(product.step) in of.steps), None)
        parts.setdefault(inside, (set(), []))[1].append(product)
    return parts


def _of_block(block: tuple[str, int] | None, numbers: Mapping[str, int]) -> tuple[tuple[int, int], ...]:
    """Return the factor of a cost that goes with a block."""
    return () if block is None else ((numbers[block[0]], block[1]),)


def _around(units: GroupUnits, chains: Chains) -> dict[str, tuple[str, int] | None]:
    """Return, for each group, the chain and the first of its blocks in which all its units are, or `None`."""
    paths: dict[str, set[str]] = {name: set() for name in units.groups()}
    for path, axes in units.leaves:
        for axis in axes:
            for name, _ in axis.groups():
                paths[name].add(path)
    return {name: chains.around(of) for name, of in paths.items()}


def _check_target(settings: Settings, shares: Shares, sizes: Mapping[str, int], chains: Chains) -> None:
    """Raise if even the smallest widths and depths cost more than the target."""
    if is_traced((settings.target, settings.tolerance)):
        return
    with jax.ensure_compile_time_eval():
        least = {
            name: jnp.asarray([_candidates(size, settings.widths)[0] / size], jnp.float32)
            for name, size in sizes.items()
        }
        only = {name: jnp.ones(1, jnp.float32) for name in sizes}
        depths = chains.depths(None)
        none = {name: jnp.zeros(of.shape, jnp.float32).at[0].set(1) for name, of in depths.items()}
        lowest = float(shares.expected(least, only | none, depths))
    most = float(np.asarray(settings.target)) * (1 + float(np.asarray(settings.tolerance)))
    if lowest > most * (1 + _ROUNDED):
        raise ArgumentError(
            f"target: {shown(settings.target)} of the {settings.cost} is out of reach, since the smallest "
            f"candidates cost {lowest:.3g}; give smaller widths, more units, or blocks in `depth`"
        )


def _params(settings: Settings, state: TrainState) -> PyTree:
    fixed = state.fixed
    key = jax.random.fold_in(fixed.key, state.step)
    key = jax.random.fold_in(key, 0 if state.sample is None else state.sample)
    done = jnp.asarray(state.step, jnp.float32) / jnp.maximum(fixed.steps - 1, 1)
    first, last = (jnp.asarray(value, jnp.float32) for value in settings.tau)
    tau = first + (last - first) * done
    logits = state.trainable["scores"]
    keys = jax.random.split(key, len(logits))
    drawn = {name: _two_drawn(keys[number], of, tau) for number, (name, of) in enumerate(logits.items())}
    weights = state.trainable["weights"]
    soft = {name: _kept(fixed, name, drawn[name]) for name in fixed.counts}
    mask = fixed.read.spread(soft, weights)
    # Each branch is multiplied where it ends: there, too, masks of its leaves would multiply each other.
    depths = {name: drawn[name] @ _blocks(of) for name, of in fixed.depths.items()}
    mask = within(mask, fixed.chains.spread(depths, weights, "scales"))
    return apply_mask(within(mask, fixed.mask), weights)


def _two_drawn(key: Array, logits: Array, tau: Array) -> Array:
    """Return the weights of a group's candidates: those of two drawn ones sum to 1, all others are 0."""
    noise_key, draw_key = jax.random.split(key)
    noisy = (jax.nn.log_softmax(logits) + jax.random.gumbel(noise_key, logits.shape, logits.dtype)) / tau
    # The two largest of log q plus other Gumbel variables are a draw by q without replacement.
    order = jnp.log(jax.nn.softmax(jax.lax.stop_gradient(noisy)) + LEAST)
    order += jax.random.gumbel(draw_key, logits.shape, logits.dtype)
    _, two = jax.lax.top_k(order, min(2, logits.shape[0]))
    return jnp.zeros_like(logits).at[two].set(jax.nn.softmax(noisy[two]))


def _kept(fixed: Fixed, name: str, weights: Array) -> Array:
    """Return the weight of the candidates that have each unit of a group."""
    has = fixed.ranks[name][:, None] < fixed.counts[name][None]
    return has.astype(weights.dtype) @ weights


def _wrap_optimizer(
    settings: Settings, key: Array, problem: Problem, state: TrainState
) -> optax.GradientTransformation:
    """Give the logits the gradient of their own loss, in place of the training batch's."""
    # `descent_of` gives each of the two trees its optimizer, in a transformation that takes the step.
    inner = optax.with_extra_args_support(problem.descent.optimizer)

    def loss(logits: dict[str, Array]) -> Array:
        # `sample` gives the logits another draw than the weights of this step.
        trainable = {**state.trainable, "scores": logits}
        at = state._replace(trainable=trainable, sample=jnp.asarray(1, jnp.int32))
        batch_key, loss_key = jax.random.split(jax.random.fold_in(key, state.step))
        if problem.descent.sampling == "epochs":
            batch_key = key  # One for all steps: a step takes its part of an epoch.
        batch = _held_out(problem, batch_key, state.step)
        value, _ = unkeyed(problem.loss)(_params(settings, at), state.model, batch, loss_key)
        return value.astype(jnp.float32) + _pull(settings, state.fixed, logits)

    def update(
        gradients: PyTree, inside: PyTree, params: PyTree = None, *, step: Any = None, **extra: Any
    ) -> tuple[PyTree, PyTree]:
        gradients = {**gradients, "scores": jax.grad(loss)(state.trainable["scores"])}
        told = extra | {"grad": gradients} if "grad" in extra else extra
        return inner.update(gradients, inside, params, step=step, **told)

    return optax.GradientTransformationExtraArgs(inner.init, update)


def _held_out(problem: Problem, key: Array, step: int | Array) -> PyTree:
    """Return the examples of the logits' step: validation rows, or training rows if there are none."""
    rows, size = problem.validation, problem.descent.batch_size
    if rows is None:
        return problem.batch(key, step)
    if size is not None and size < rows.shape[0]:
        if problem.descent.sampling == "epochs":
            rows = rows[epoch_rows(key, step, size, rows.shape[0])]
        else:
            rows = rows[jax.random.randint(key, (size,), 0, rows.shape[0])]
    return problem.gather(problem.data, problem.per_run, rows)


def _pull(settings: Settings, fixed: Fixed, logits: Mapping[str, Array]) -> Array:
    """Return lambda_cost times the loss of the cost."""
    side = _side(settings, _cost(fixed, jax.tree.map(_most_probable, logits)))
    expected = _cost(fixed, jax.tree.map(jax.nn.softmax, logits))
    return jnp.asarray(settings.strength, jnp.float32) * side * jnp.log(expected)


def _side(settings: Settings, cost: Array) -> Array:
    """Return 1. if a cost is above the target by more than the tolerance, -1. if it is below, otherwise 0."""
    target, tolerance = (jnp.asarray(of, jnp.float32) for of in (settings.target, settings.tolerance))
    is_above = cost > (1 + tolerance) * target * (1 + _ROUNDED)
    is_below = cost < (1 - tolerance) * target * (1 - _ROUNDED)
    return is_above.astype(jnp.float32) - is_below.astype(jnp.float32)


def _cost(fixed: Fixed, probabilities: Mapping[str, Array]) -> Array:
    """Return the expected cost, as a share of the dense model's."""
    # In the order in which the shares number them: that of the state is another one inside `jit`.
    sizes = fixed.units.groups()
    widths = {name: fixed.counts[name].astype(jnp.float32) / size for name, size in sizes.items()}
    depths = {name: fixed.depths[name] for name in dict(fixed.chains.chains)}
    return fixed.shares.expected(widths, probabilities, depths)


def _most_probable(logits: Array) -> Array:
    return jax.nn.one_hot(jnp.argmax(logits), logits.shape[0], dtype=jnp.float32)


class Chosen(NamedTuple):
    """Most probable widths and depths.

    Attributes:
      places: by group and chain, the place of the candidate.
      cost: their cost, as a share of the dense model's.
      reached: whether it is the target's, to the tolerance.
    """

    places: dict[str, Array]
    cost: Array
    reached: Array


def _chosen(settings: Settings, state: TrainState) -> Chosen:
    logits = state.trainable["scores"]
    cost = _cost(state.fixed, jax.tree.map(_most_probable, logits))
    return Chosen(jax.tree.map(jnp.argmax, logits), cost, _side(settings, cost) == 0)


def _after_step(settings: Settings, state: TrainState) -> Chosen:
    """Return the most probable widths, or the last ones that met the target if these do not."""
    now, before = _chosen(settings, state), state.memory
    stays = before.reached & ~now.reached
    return jax.tree.map(lambda old, new: jnp.where(stays, old, new), before, now)


def _network(settings: Settings, state: TrainState) -> Network:
    fixed, weights, chosen = state.fixed, state.trainable["weights"], state.memory
    kept = {name: of[chosen.places[name]] for name, of in fixed.counts.items()}
    whole = {name: fixed.ranks[name] < count for name, count in kept.items()}
    depths = {name: of[chosen.places[name]] for name, of in fixed.depths.items()}
    blocks = {name: _blocks(of)[chosen.places[name]] > 0 for name, of in fixed.depths.items()}
    mask = within(fixed.units.spread(whole, weights), fixed.chains.spread(blocks, weights, "paths"))
    mask = within(mask, fixed.mask)
    for name, inside in _around(fixed.units, fixed.chains).items():
        if inside is not None:
            chain, number = inside
            kept[name] = jnp.where(depths[chain] >= number, kept[name], 0)
    info = {
        "probabilities": jax.tree.map(jax.nn.softmax, state.trainable["scores"]),
        "kept": kept,
        **({"depths": depths} if depths else {}),
        "cost": chosen.cost,
        "target": jnp.asarray(settings.target, jnp.float32),
        "reached": chosen.reached,
    }
    return Network(apply_mask(mask, weights), mask, state.model, info=TrainingInfo(info))


def _remarks(depth: Patterns, network: Network) -> Iterable[str]:
    """Return lines about runs whose cost is not the target's, and about layers without a connection."""
    missed = ~np.asarray(network.info["reached"])
    if missed.any():
        costs, targets = (np.asarray(network.info[name])[missed] for name in ("cost", "target"))
        yield (
            f"the target was missed in {missed.sum()} of {len(missed)} runs: they cost {costs.min():.3g} to "
            f"{costs.max():.3g} of the dense model, and were to cost {targets.min():.3g} to "
            f"{targets.max():.3g}; take more steps, a higher rate for the logits, or more widths"
        )
    if network.mask is not None and depth:
        # A block that was removed is no surprise.
        mask = named_leaves(network.mask)
        blocks = {path for of in depth for paths in leaves_of(of, mask).values() for path in paths}
        left = {path: leaf for path, leaf in mask.items() if path not in blocks}
        network = network.replace(mask=placed(left, network.mask))
    yield from layers_emptied(network)
