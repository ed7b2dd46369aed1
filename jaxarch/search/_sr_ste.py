"""SR-STE: N:M patterns from scratch, by straight-through gradients that also shrink removed weights."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, Unpack

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import check_one_strength
from jaxarch._internal.trees import PyTree, Where, map_selected, matrices, merge, select_floating
from jaxarch.masks import apply_mask
from jaxarch.masks._keeping import largest_within, masked_before
from jaxarch.masks._units import NOfM, UnitsLike
from jaxarch.run._descent import DescentChanges, own_descent
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._training import Training, TrainState
from jaxarch.search._straight_through import straight_through
from jaxarch.search._units import check_pattern, pattern_of
from jaxarch.search._within import WITHIN_A_MASK, mask_before, within
from jaxarch.transforms._densities import layers_emptied


@dataclasses.dataclass(frozen=True)
class Settings:
    """The pattern, the weight of the sparse-refined term, and the masked leaves."""

    units: NOfM
    strength: ArrayLike
    where: Where


class Fixed(NamedTuple):
    """Fixed parts of the state: the mask of an earlier stage, and the pattern along the model's axes."""

    mask: PyTree
    units: NOfM


@method("A. Zhou et al., 2021", units="1:2")
def sr_ste(
    units: UnitsLike = "2:4",
    *,
    strength: ArrayLike = 2e-4,
    where: Where = matrices,
    **descent: Unpack[DescentChanges],
) -> Training:
    r"""Train weights from scratch, and compute at each step with the N largest of every M.

    The network computes with `m o w`, m the mask of the N largest `|w|` of every M consecutive inputs of an
    output. All weights descend, removed ones too, along the sparse-refined straight-through gradient

        g = dL/d(m o w) + lambda (1 - m) o w,

    from which the optimizer makes its step. So a removed weight moves as if it were there, and shrinks
    besides. The second term makes masks change less from step to step: with lambda = 0 this is the plain
    straight-through estimator. A. Zhou et al., Learning N:M fine-grained structured sparse neural networks
    from scratch, 2021. The formula is the one of the authors' code, `devkit/sparse_ops/sparse_ops.py` of
    github.com/aojunzz/NM-sparsity, which also has the default of lambda.

    Departures from the authors' code: their ResNet keeps its last layer dense; here all kernels are masked,
    unless `where` leaves some out. The groups of their first convolution run across pixels, since 4 does not
    divide 3 channels; here such a leaf is refused. Of equal weights the first is kept. Weight decay and
    momentum are the optimizer's: theirs is SGD with a weight decay of 5e-5 on ImageNet.

    Args:
      units: `"2:4"`, any `"N:M"`, or `masks.NOfM(n, m, axis=...)`. M divides the inputs of each masked leaf.
      strength: lambda, at least 0. May be traced: a sweep is one program.
      where: the leaves that are masked, by path. The others are trained as well.
      **descent: `optimizer`, `steps`, `batch_size`, `sampling`, replacing the problem's.

    Returns:
      A search; after another stage, one from its weights and within its mask. Its network is trained. Its
      mask keeps exactly N of every M, or fewer where an earlier mask has left fewer. The loss in `info` lacks
      the sparse-refined term, which changes gradients alone.

    Raises:
      ArgumentError: units other than N:M, or an M that does not divide the inputs of a masked leaf; a
        negative strength.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> network = jaxarch.search.sr_ste("1:4")(jax.random.key(0), problem)
      >>> {path: float(share) for path, share in jaxarch.layer_density(network.mask).items()}
      {'W2_1': 0.25, 'W3_2': 0.25}
    """
    check_one_strength("strength", strength)
    return Training(
        "SR-STE",
        _init,
        _params,
        _network,
        Settings(check_pattern(units), strength, where),
        own_descent(descent),
        wrap_optimizer=_wrap_optimizer,
        remedy="keep more of every M, or start from other weights",
        remarks=layers_emptied,
        needs=WITHIN_A_MASK,
    )


def _init(settings: Settings, key: Array, problem: Problem, network: Network | None) -> TrainState:
    params, model = problem.start(key) if network is None else (network.params, network.state)
    units = pattern_of(settings.units, problem, params, model, select_floating(params, settings.where))
    return TrainState(params, Fixed(mask_before(network), units), model)


def _kept(settings: Settings, state: TrainState) -> PyTree:
    """Return the N largest of every M that an earlier mask has left, of the chosen leaves alone."""
    before, units = state.fixed
    weights = jax.lax.stop_gradient(select_floating(state.trainable, settings.where))
    sizes = map_selected(jnp.abs, weights)
    left = None if before is None else masked_before(sizes, before)
    return largest_within(units, sizes, None, left, sizes)


def _params(settings: Settings, state: TrainState) -> PyTree:
    def through(m: Array, w: Array) -> Array:
        return straight_through(jnp.where(m, w, 0), w)

    params = merge(map_selected(through, _kept(settings, state), state.trainable), state.trainable)
    # Connections that an earlier stage removed cannot return, so no gradient goes through to them.
    return params if state.fixed.mask is None else apply_mask(state.fixed.mask, params)


def _wrap_optimizer(
    settings: Settings, key: Array, problem: Problem, state: TrainState
) -> optax.GradientTransformation:
    inner = optax.with_extra_args_support(problem.descent.optimizer)

    def refined(m: Array, gradient: Array, w: Array) -> Array:
        return gradient + jnp.where(m, 0, jnp.asarray(settings.strength, w.dtype) * w)

    def update(
        gradients: PyTree, inside: PyTree, params: PyTree = None, **extra: Any
    ) -> tuple[PyTree, PyTree]:
        gradients = merge(map_selected(refined, _kept(settings, state), gradients, params), gradients)
        return inner.update(gradients, inside, params, **extra)

    return optax.GradientTransformationExtraArgs(inner.init, update)


def _network(settings: Settings, state: TrainState) -> Network:
    mask = within(_kept(settings, state), state.fixed.mask)
    return Network(apply_mask(mask, state.trainable), mask, state.model)
