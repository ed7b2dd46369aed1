"""Training in a random subspace of the parameters, through a fast projection with orthonormal columns."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxarch._internal.errors import ArgumentError, check_choice, check_count, is_traced
from jaxarch._internal.precision import at_least_float32
from jaxarch._internal.trees import PyTree, named_leaves, placed
from jaxarch.masks import apply_mask, check_booleans, check_fits
from jaxarch.run._descent import DescentChanges, OwnDescent, own_descent
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._records import NeuronMask, Start
from jaxarch.run._stage import Needs
from jaxarch.run._training import Training, TrainState, weights_before
from jaxarch.run._training_info import TrainingInfo

From = Literal["cold", "warm", "rewind"]
"""Initial weights, by the names that `retrain` has for them."""
STARTS = ("cold", "warm", "rewind")
NEEDS = {
    "cold": Needs("optional"),
    "warm": Needs("required", ("params",)),
    "rewind": Needs("required", records=(Start,)),
}
_ROUNDS = 3
"""Number of rotations and transforms. After one round a column still has entries of a few sizes only."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of a training in a subspace.

    Attributes:
      dimension: dimension of the subspace; may be traced.
      length: number of coordinates that are held, at least the dimension.
      slots: length of the transform, a power of 2; `None` for one that fits all parameters.
      start: the initial weights.
    """

    dimension: Any
    length: int
    slots: int | None
    start: From


class Subspace(NamedTuple):
    """Fixed parts of a training in a subspace.

    Attributes:
      start: the parameters theta_0, masked.
      mask: the mask; `None` without.
      kept: the number D of floating-point parameters that are kept.
      angles: the random angles of the projection, shape (rounds, slots / 2).
      slot: the slot of each floating-point parameter; beyond all slots for a removed one. `None` if each
        parameter's slot is its place.
    """

    start: PyTree
    mask: PyTree
    kept: Array
    angles: Array
    slot: Array | None


def in_subspace(dimension: int, start: From = "cold", **descent: Unpack[DescentChanges]) -> Training:
    r"""Train a network in a random subspace of its parameters.

        network, report = jaxarch.over_seeds(jaxarch.analysis.in_subspace(100), keys, problem)
        masked = jaxarch.chain(jaxarch.search.snip(0.1), jaxarch.analysis.in_subspace(100, "warm"))

    Only the d coordinates z are trained, from 0:

        theta = m o (theta_0 + P z)

    (Li, Farkhoor, Liu and Yosinski, *Measuring the intrinsic dimension of objective landscapes*, 2018,
    https://arxiv.org/abs/1804.08838). P is D x d with orthonormal columns, D the number of parameters that
    the mask m keeps, leaves without a mask included. So a step in z moves theta by its length.

    Departure: P is not drawn dense, which would take D d numbers. It is the first d columns of

        H R_3 H R_2 H R_1

    where R_i rotates each pair of neighbours by a random angle, and H mixes the pairs by a Hadamard
    transform. Its time is O(D log D), and its memory O(D). Products with random signs in place of R_i stand
    in for random rotations (Yu et al., *Orthogonal random features*, 2016,
    https://arxiv.org/abs/1610.09072). Angles are used because few signs may leave a subspace in which a
    gradient is exactly 0. Where D is not a power of 2, H leaves out the butterflies that would reach beyond
    D, so that columns stay orthonormal.

    Args:
      dimension: the dimension d of the subspace, at most D.
      start: theta_0. `cold` for the problem's own initial weights; `warm` for the found weights of the
        network before; `rewind` for the weights that its search started from.
      **descent: `optimizer`, `steps`, `batch_size`, `sampling`, replacing the problem's. The optimizer sees z
        alone, one array. Adam moves each coordinate by its learning rate, so a step's length in theta is that
        of sqrt(d) weights in place of sqrt(D).

    Returns:
      A search, or a transform after one: the mask of the network before is held. The returned network has
      all parameters; `info["coordinates"]` is z, and `info["kept"]` is D. A key draws nested subspaces: the
      first columns of a larger dimension are those of a smaller. Leaves that are not floating point stay
      as they are, and the model's state is updated as in any training.

    Raises:
      ArgumentError: a dimension above D, complex parameters, a mask of neurons. In a program for many
        runs, where masks are traced, a dimension above D is reported by a warning after the training.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> strategy = jaxarch.chain(jaxarch.search.random_mask(0.25), jaxarch.analysis.in_subspace(3))
      >>> network = strategy(jax.random.key(0), problem)
      >>> print(network.info["coordinates"].shape, network.info["kept"], (network.params["W2_1"] != 0).sum())
      (3,) 16 8
    """
    check_count("dimension", dimension)
    check_choice("start", start, STARTS)
    return subspace_training(int(dimension), int(dimension), None, start, own_descent(descent))


def subspace_training(
    dimension: Any, length: int, slots: int | None, start: From, descent: OwnDescent
) -> Training:
    """Return the training of `in_subspace`; see `Settings`."""
    return Training(
        "in subspace",
        _init,
        _params,
        _network,
        Settings(dimension, length, slots, start),
        descent,
        remedy="start from other weights, or use a larger dimension",
        remarks=_remarks,
        needs=NEEDS[start],
        removes=(),
    )


def direct_training(start: From) -> Training:
    """Return the training of all parameters that are kept, from the same weights as `in_subspace`."""
    return Training(
        "direct", _direct_init, _direct_params, _direct_network, start, needs=NEEDS[start], removes=()
    )


def floating_leaves(params: PyTree) -> dict[str, Any]:
    """Return the leaves that are trained, by path.

    Raises:
      ArgumentError: complex leaves.
    """
    leaves = named_leaves(params)
    for path, leaf in leaves.items():
        if jnp.issubdtype(leaf.dtype, jnp.complexfloating):
            raise ArgumentError(
                f"problem: parameter {path!r} is complex; train its real and imaginary parts instead"
            )
    return {path: leaf for path, leaf in leaves.items() if jnp.issubdtype(leaf.dtype, jnp.floating)}


def slots_for(count: int) -> int:
    """Return the length of a transform of so many parameters: a power of 2, at least one pair."""
    return 1 << max(count - 1, 1).bit_length()


def _begin(
    start: From, key: Array, problem: Problem, network: Network | None
) -> tuple[PyTree, PyTree, PyTree]:
    """Return theta_0, masked, the mask, and the model's state."""
    if network is None:
        params, model = problem.start(key)
        return params, None, model
    if network.get(NeuronMask) is not None:
        raise ArgumentError(
            "in_subspace: the network's mask is over hidden neurons, not connections; put a search of "
            "connections before it"
        )
    if start == "cold":
        params, model = problem.init(key)
    else:
        params, model = weights_before(start, key, problem, network)
    if network.mask is None:
        return params, None, model
    check_booleans(network.mask)
    check_fits(network.mask, params)
    return apply_mask(network.mask, params), network.mask, model


def _init(settings: Settings, key: Array, problem: Problem, network: Network | None) -> TrainState:
    start_key, angles_key = jax.random.split(key)
    params, mask, model = _begin(settings.start, start_key, problem, network)
    leaves = floating_leaves(params)
    size = sum(leaf.size for leaf in leaves.values())
    slots = slots_for(size) if settings.slots is None else settings.slots
    kept, slot = _slots_of(leaves, mask, slots)
    if not is_traced((kept, settings.dimension)) and settings.dimension > int(kept):
        raise ArgumentError(
            f"dimension: expected at most {int(kept)}, the number of parameters that are kept, got "
            f"{settings.dimension}"
        )
    dtype = _widest(leaves)
    angles = jax.random.uniform(angles_key, (_ROUNDS, slots // 2), dtype, maxval=2 * math.pi)
    coordinates = jnp.zeros(settings.length, dtype)
    return TrainState(coordinates, Subspace(params, mask, kept, angles, slot), model)


def _slots_of(leaves: dict[str, Any], mask: PyTree, slots: int) -> tuple[Array, Array | None]:
    """Return the number of parameters that are kept, and the slot of each: the kept ones come first."""
    masks = named_leaves(mask)
    if not masks.keys() & leaves.keys():
        return jnp.asarray(sum(leaf.size for leaf in leaves.values()), jnp.int32), None
    flat = [masks.get(path, np.ones(leaf.shape, bool)).reshape(-1) for path, leaf in leaves.items()]
    is_kept = jnp.concatenate(flat)
    rank = jnp.cumsum(is_kept, dtype=jnp.int32)
    return rank[-1], jnp.where(is_kept, rank - 1, slots)


def _widest(leaves: dict[str, Any]) -> Any:
    """Return the dtype to project in: in half precision many small terms would be lost."""
    return max((at_least_float32(leaf.dtype) for leaf in leaves.values()), key=lambda of: jnp.finfo(of).bits)


def _params(settings: Settings, state: TrainState) -> PyTree:
    """Return m o (theta_0 + P z)."""
    space, coordinates = state.fixed, state.trainable
    # Coordinates beyond a traced dimension are held, so that runs of all dimensions share one program.
    used = jnp.where(jnp.arange(settings.length) < settings.dimension, coordinates, 0)
    moved = project(used, space.angles, space.kept)
    if space.slot is not None:
        moved = moved.at[space.slot].get(mode="fill", fill_value=0)
    leaves, begin = named_leaves(space.start), 0
    for path, leaf in floating_leaves(space.start).items():
        change = moved[begin : begin + leaf.size].reshape(leaf.shape)
        leaves[path] = (leaf.astype(moved.dtype) + change).astype(leaf.dtype)
        begin += leaf.size
    return placed(leaves, space.start)


def project(coordinates: Array, angles: Array, count: Array) -> Array:
    """Return H R_3 H R_2 H R_1 z in all slots, 0 beyond the first `count`.

    Args:
      coordinates: z, shape (length,).
      angles: angles of the rotations, shape (rounds, pairs of slots).
      count: the number D of slots that are used; may be traced.
    """
    slots = 2 * angles.shape[-1]
    # Coordinates beyond all slots belong to a dimension that a traced mask does not leave.
    held = coordinates[:slots]
    padded = jnp.pad(held, (0, slots - len(held)))

    def one(values: Array, angles: Array) -> tuple[Array, None]:
        return _mixed(values, angles, count), None

    return jax.lax.scan(one, padded, angles)[0]


def _mixed(values: Array, angles: Array, count: Array) -> Array:
    """Rotate neighbours by random angles, and mix the pairs by the butterflies of a Hadamard transform.

    A pair of which one is beyond the count stays as it is. So each layer is orthonormal for any count, traced
    or not; a transform of the first values of a longer one would not be.
    """
    slots = len(values)
    places = jnp.arange(slots, dtype=jnp.int32)
    for bit in range(slots.bit_length() - 1):
        first, second = jnp.moveaxis(values.reshape(-1, 2, 1 << bit), 1, 0)
        is_pair = places.reshape(-1, 2, 1 << bit)[:, 1] < count
        # The butterflies of neighbours are part of their rotation by a random angle.
        turn = jnp.asarray(math.pi / 4, angles.dtype) if bit else angles[:, None]
        cos, sin = jnp.cos(turn), jnp.sin(turn)
        turned = [
            jnp.where(is_pair, cos * first + sin * second, first),
            jnp.where(is_pair, sin * first - cos * second, second),
        ]
        values = jnp.stack(turned, 1).reshape(slots)
    return values


def _network(settings: Settings, state: TrainState) -> Network:
    info = TrainingInfo({"coordinates": state.trainable, "kept": state.fixed.kept})
    return Network(_params(settings, state), state.fixed.mask, state.model, info=info)


def _remarks(network: Network) -> Iterable[str]:
    """Report runs whose masks keep fewer parameters than the subspace has dimensions."""
    dimension, kept = network.info["coordinates"].shape[-1], np.asarray(network.info["kept"])
    if (kept < dimension).any():
        yield (
            f"{(kept < dimension).sum()} of {kept.size} masks keep fewer parameters than the dimension "
            f"{dimension}, the fewest {kept.min()}: these runs have all dimensions that they can"
        )


def _direct_init(start: From, key: Array, problem: Problem, network: Network | None) -> TrainState:
    params, mask, model = _begin(start, jax.random.split(key)[0], problem, network)
    floating_leaves(params)
    return TrainState(params, mask, model)


def _direct_params(start: From, state: TrainState) -> PyTree:
    return state.trainable if state.fixed is None else apply_mask(state.fixed, state.trainable)


def _direct_network(start: From, state: TrainState) -> Network:
    return Network(_direct_params(start, state), state.fixed, state.model)
