"""Masks that are learned inside a Flax NNX model, in your own training loop."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import ArgumentError, check_flag, check_one_finite, check_one_number, shown
from jaxarch._internal.trees import (
    PyTree,
    Where,
    check_floating,
    copied,
    matrices,
    named_leaves,
    path_name,
    placed,
    select,
)
from jaxarch.masks import apply_mask, check_temperatures, hard_mask, keep, penalty, soft_mask
from jaxarch.masks import density as density_of
from jaxarch.masks._sharding import beside, split_like
from jaxarch.run._partition import AXIS_NAMES

AXES = (*AXIS_NAMES, "sharding_rules", "mesh")
"""Metadata of a variable that describe its axes."""


class Score(nnx.Variable):
    """Real scores, one per connection: `nnx.Optimizer(model, tx, wrt=Score)` trains them in `Masked`."""


class Temperature(nnx.Variable):
    """An inverse temperature of the mask: a scalar that a loop may change during training."""


class Masked(nnx.Module):
    r"""A model whose connections are learned: it computes with `sigma(hard w) o theta`.

    theta are the model's parameters. w are scores, one per connection, with the gradient of `sigma(soft w)`
    ([D] eq. 5, Algorithm 1; [A] eq. 7). You can train the scores alone, which leaves the weights unchanged to
    the bit,

        model = jaxarch.nnx.Masked(model, where="**/kernel", hard=50.0, soft=5.0)
        optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=jaxarch.nnx.Score)
        graph, scores, rest = nnx.split(model, jaxarch.nnx.Score, ...)
        of = lambda scores, rest: loss_of(nnx.merge(graph, scores, rest))
        loss, gradient = nnx.value_and_grad(of)(scores, rest)
        optimizer.update(model, gradient)

    or scores and weights together ([A] Algorithm 1; page 'In your own training loop'). `model.mask()` returns
    the learned mask, and `model.strip()` the plain network under it.

    The model is used itself, not copied: its batch statistics, random streams and caches advance as in a
    direct call, and it receives the values sown as `nnx.Intermediate`. Parameters that modules share have one
    score. A stack of layers for `nnx.scan`, or of models under `nnx.vmap`, has a score for each connection of
    each member.

    Args:
      model: any NNX module.
      where: the parameters that are masked, by path: a predicate on (path, leaf) or glob patterns.
      hard: inverse temperature of the forward pass, positive.
      soft: inverse temperature of the gradient, positive, at most `hard`.
      scores: the initial scores. A number, in units of `1/hard`, applies to all (at 5, `sigma` is .993, so
        the model begins nearly unchanged). Or give scores by path, such as those drawn in [D]:
        `masks.init_scores(key, select(nnx.state(model, nnx.Param), where), -10.0, 5.0, hard)`.
      factor: whether the gradient carries the factor `soft` (see `masks.two_temperature`).

    Attributes:
      model: the model that was given.
      scores: the scores by path, each a `Score`, float32, split over devices like its parameter.
      hard: a `Temperature`: `model.hard[...] = jnp.float32(80.0)` changes it without a new compilation.
      soft: a `Temperature`, likewise.

    Raises:
      ArgumentError: a `model` that is not an NNX module; a pattern that selects nothing; parameters that are
        not floating point; scores of other paths or shapes; temperatures that are not positive, soft > hard.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> from flax import nnx
      >>> model = jaxarch.nnx.Masked(nnx.Linear(3, 2, rngs=nnx.Rngs(0)), where="kernel")
      >>> model.scores["kernel"][0] = -1.0
      >>> print(model.mask()["kernel"][...].astype(int))
      [[0 0]
       [1 1]
       [1 1]]
    """

    def __init__(
        self,
        model: nnx.Module,
        where: Where = matrices,
        hard: float = 50.0,
        soft: float = 5.0,
        *,
        scores: float | PyTree = 5.0,
        factor: bool = True,
    ):
        if not isinstance(model, nnx.Module):
            raise ArgumentError(f"model: expected a Flax NNX module, got {shown(model)}")
        check_one_number("hard", hard)
        check_one_number("soft", soft)
        check_temperatures(hard, soft)
        check_flag("factor", factor)
        params = _variables(model)
        begun = _begun(scores, _selected(params, where), hard)
        self.model = model
        self.scores = nnx.Dict({path: _score_of(params[path], leaf) for path, leaf in begun.items()})
        self.hard = Temperature(jnp.asarray(hard, jnp.float32))
        self.soft = Temperature(jnp.asarray(soft, jnp.float32))
        self.factor = factor

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the model's outputs, with `sigma(hard w) o theta` in place of theta."""
        merged = self.merged()
        outputs = merged(*args, **kwargs)
        if sown := nnx.state(merged, nnx.Intermediate):
            nnx.update(self.model, sown)
        return outputs

    def merged(self) -> Any:
        """Return the model with `sigma(hard w) o theta` in place of theta, for methods other than `__call__`.

        Each call makes a new module. It shares everything but the masked parameters with the model, so batch
        statistics and random streams advance. What a method adds, such as values sown for the first time,
        stays in this module alone.
        """
        soft = soft_mask(self._scores(), self.hard[...], self.soft[...], factor=self.factor)
        return _under(soft, self.model)

    def mask(self, density: float | None = None) -> nnx.State:
        """Return the mask in the structure of `nnx.state(model, nnx.Param)`, `None` for unmasked leaves.

        Args:
          density: by default the mask is `1[w > 0]`; for d in (0, 1], it keeps the `round(d D)` largest
            scores.
        """
        return placed(self._mask(density), nnx.state(self.model, nnx.Param))

    def density(self) -> Array:
        """Return the share of connections whose scores are positive: a scalar."""
        return density_of(self._mask(None))

    def penalty(self, strength: ArrayLike = 1.0) -> Array:
        """Return `gamma sum ((1 + w)^2 + theta^2)` over masked leaves ([A] eq. 18): see `masks.penalty`."""
        scores, weights = self._scores(), _variables(self.model)
        return penalty(scores, {path: weights[path][...] for path in scores}, strength)

    def strip(self, density: float | None = None) -> Any:
        """Return a copy of the plain model with its weights under `mask(density)`: pruned weights are 0.

        Train it with `optim.hold(model.mask(density), optimizer)`. The copy computes with a mask of {0, 1},
        but `model` with `sigma(hard w)`: compare the two before you believe either.
        """
        graph, state = nnx.split(_under(self._mask(density), self.model))
        return nnx.merge(graph, copied(state), copy=True)

    def _scores(self) -> dict[str, Array]:
        # Inside `nnx.capture`, Flax gives every module an attribute of its own, also `nnx.Dict`.
        return {path: score[...] for path, score in self.scores.items() if isinstance(score, Score)}

    def _mask(self, density: float | None) -> dict[str, Array]:
        scores = self._scores()
        return hard_mask(scores) if density is None else keep(scores, density)


def _under(mask: dict[str, Array], model: nnx.Module) -> Any:
    """Return the model with masked parameters in place of its own, and everything else shared."""
    graph, params, *rest = nnx.split(model, nnx.Param, ...)
    weights = {path: variable[...] for path, variable in _by_path(params).items() if path in mask}
    masked = apply_mask(mask, weights)

    def of(path: Any, variable: nnx.Variable) -> nnx.Variable:
        name = path_name(path)
        return variable.replace(masked[name]) if name in masked else variable

    return nnx.merge(graph, jax.tree_util.tree_map_with_path(of, params, is_leaf=_is_variable), *rest)


def _variables(model: nnx.Module) -> dict[str, nnx.Variable]:
    return _by_path(nnx.state(model, nnx.Param))


def _by_path(state: nnx.State) -> dict[str, nnx.Variable]:
    leaves: Any = jax.tree_util.tree_leaves_with_path(state, is_leaf=_is_variable)
    return {path_name(path): variable for path, variable in leaves}


def _is_variable(node: Any) -> bool:
    return isinstance(node, nnx.Variable)


def _selected(variables: dict[str, nnx.Variable], where: Where) -> dict[str, Array]:
    """Return the values of the masked parameters, by path."""
    selected = named_leaves(select({path: each[...] for path, each in variables.items()}, where))
    check_floating("model", selected)
    return selected


def _begun(scores: Any, selected: dict[str, Array], hard: float) -> dict[str, Array]:
    """Return initial scores in float32, with the shapes and on the devices of the masked parameters."""
    given = named_leaves(scores)
    if list(given) == [""]:
        check_one_finite("scores", scores)
        given = {path: jnp.full(leaf.shape, scores / hard, jnp.float32) for path, leaf in selected.items()}
    check_floating("scores", given)
    for path, leaf in selected.items():
        if path not in given:
            raise ArgumentError(f"scores: expected scores for every masked parameter, got none for {path!r}")
        if given[path].shape != leaf.shape:
            raise ArgumentError(
                f"scores: {path!r} has shape {given[path].shape}, but the parameter has shape {leaf.shape}"
            )
    for path in given:
        if path not in selected:
            raise ArgumentError(f"scores: {path!r} is not masked; known: {', '.join(selected)}")
    begun = {path: split_like(leaf, given[path].astype(jnp.float32)) for path, leaf in selected.items()}
    return {path: beside(selected[path], leaf) for path, leaf in begun.items()}


def _score_of(variable: nnx.Variable, scores: Array) -> Score:
    """Make scores whose axes are named like those of their parameter, for meshes and `nnx.scan`."""
    score = Score(scores)
    named = {name: value for name, value in variable.get_metadata().items() if name in AXES}
    if named:
        score.set_metadata(**named)
    return score
