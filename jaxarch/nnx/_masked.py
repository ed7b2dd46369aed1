"""Masks that are learned inside a Flax NNX model, in a training loop of one's own."""

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
"""What a variable's metadata say of its axes."""


class Score(nnx.Variable):
    """A real score a connection: what `nnx.Optimizer(model, tx, wrt=Score)` trains in a `Masked` model."""


class Temperature(nnx.Variable):
    """An inverse temperature of the mask: a scalar that a loop may change as it goes on."""


class Masked(nnx.Module):
    r"""A model whose connections are learned: it computes with `sigma(hard w) o theta`.

    theta are the model's parameters, w scores, one a connection, whose gradient is that of `sigma(soft w)`
    ([D] eq. 5, Algorithm 1; [A] eq. 7). Scores alone are trained, and weights stay as they are to the bit,

        model = jaxarch.nnx.Masked(model, where="**/kernel", hard=50.0, soft=5.0)
        optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=jaxarch.nnx.Score)
        graph, scores, rest = nnx.split(model, jaxarch.nnx.Score, ...)
        of = lambda scores, rest: loss_of(nnx.merge(graph, scores, rest))
        loss, gradient = nnx.value_and_grad(of)(scores, rest)
        optimizer.update(model, gradient)

    or scores and weights together ([A] Algorithm 1; page 'In your own training loop'). The mask that was
    learned is `model.mask()`, and the plain network under it `model.strip()`.

    The model is the one that was given, not a copy: its batch statistics, random streams and caches go on as
    in a call of its own, and what it sows as `nnx.Intermediate` is in it. Parameters that modules share have
    one score; a stack of layers for `nnx.scan`, or of models under `nnx.vmap`, has a score for each
    connection of each.

    Args:
      model: any NNX module.
      where: the parameters that are masked, by path: a predicate on (path, leaf) or glob patterns.
      hard: inverse temperature of the forward pass, positive.
      soft: inverse temperature of the gradient, positive, at most `hard`.
      scores: where they begin: a number, in units of `1/hard`, for all of them (at 5, `sigma` is .993, so
        that the model begins as it was), or scores by path, such as `init_scores` draws them:
        `masks.init_scores(key, select(nnx.state(model, nnx.Param), where), -10.0, 5.0, hard)` as in [D].
      factor: whether the gradient carries the factor `soft` (see `masks.two_temperature`).

    Attributes:
      model: the model that was given.
      scores: the scores by path, each a `Score`, float32, split over devices as their parameters are.
      hard: a `Temperature`: `model.hard[...] = jnp.float32(80.0)` changes it, and compiles nothing anew.
      soft: the same.

    Raises:
      ArgumentError: no NNX module; a pattern that selects nothing; parameters that are not floating point;
        scores of other paths or shapes; temperatures that are not positive, soft > hard.

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
        """What the model computes from its arguments, with `sigma(hard w) o theta` in place of theta."""
        merged = self.merged()
        outputs = merged(*args, **kwargs)
        if sown := nnx.state(merged, nnx.Intermediate):
            nnx.update(self.model, sown)
        return outputs

    def merged(self) -> Any:
        """The model with `sigma(hard w) o theta` in place of theta, for methods other than `__call__`.

        It is made anew at each call, and shares with the model all but the masked parameters: batch
        statistics and random streams go on. What a method adds to the module, such as values that are
        sown for the first time, is in this one.
        """
        soft = soft_mask(self._scores(), self.hard[...], self.soft[...], factor=self.factor)
        return _under(soft, self.model)

    def mask(self, density: float | None = None) -> nnx.State:
        """The architecture in the structure of `nnx.state(model, nnx.Param)`, `None` where nothing is masked.

        Args:
          density: by default `1[w > 0]`; of a number d in (0, 1], the `round(d D)` of the largest scores.
        """
        return placed(self._mask(density), nnx.state(self.model, nnx.Param))

    def density(self) -> Array:
        """The share of connections whose scores are positive: a scalar."""
        return density_of(self._mask(None))

    def penalty(self, strength: ArrayLike = 1.0) -> Array:
        """`gamma sum ((1 + w)^2 + theta^2)` over what is masked ([A] eq. 18): see `masks.penalty`."""
        scores, weights = self._scores(), _variables(self.model)
        return penalty(scores, {path: weights[path][...] for path in scores}, strength)

    def strip(self, density: float | None = None) -> Any:
        """The plain model, a copy, its weights under `mask(density)`: what is pruned is 0.

        Train it with `optim.hold(model.mask(density), optimizer)`. It computes with a mask of {0, 1}, where
        `model` does with `sigma(hard w)`: compare the two before you believe either.
        """
        graph, state = nnx.split(_under(self._mask(density), self.model))
        return nnx.merge(graph, copied(state), copy=True)

    def _scores(self) -> dict[str, Array]:
        # Within `nnx.capture` every module has an attribute of Flax's own, `nnx.Dict` too.
        return {path: score[...] for path, score in self.scores.items() if isinstance(score, Score)}

    def _mask(self, density: float | None) -> dict[str, Array]:
        scores = self._scores()
        return hard_mask(scores) if density is None else keep(scores, density)


def _under(mask: dict[str, Array], model: nnx.Module) -> Any:
    """The model with masked parameters in place of its own, and with all else of its own."""
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
    """The values of the parameters that are masked, by path."""
    selected = named_leaves(select({path: each[...] for path, each in variables.items()}, where))
    check_floating("model", selected)
    return selected


def _begun(scores: Any, selected: dict[str, Array], hard: float) -> dict[str, Array]:
    """Scores to begin with, float32, in the shapes of what is masked and on its devices."""
    given = named_leaves(scores)
    if list(given) == [""]:
        check_one_finite("scores", scores)
        given = {path: jnp.full(leaf.shape, scores / hard, jnp.float32) for path, leaf in selected.items()}
    check_floating("scores", given)
    for path, leaf in selected.items():
        if path not in given:
            raise ArgumentError(f"scores: there are none of {path!r}, which is masked")
        if given[path].shape != leaf.shape:
            raise ArgumentError(f"scores: {path!r} has shape {given[path].shape}, the parameter {leaf.shape}")
    for path in given:
        if path not in selected:
            raise ArgumentError(f"scores: {path!r} is not masked; masked are {', '.join(selected)}")
    begun = {path: split_like(leaf, given[path].astype(jnp.float32)) for path, leaf in selected.items()}
    return {path: beside(selected[path], leaf) for path, leaf in begun.items()}


def _score_of(variable: nnx.Variable, scores: Array) -> Score:
    """Scores whose axes have the names that those of their parameter have, for meshes and `nnx.scan`."""
    score = Score(scores)
    named = {name: value for name, value in variable.get_metadata().items() if name in AXES}
    if named:
        score.set_metadata(**named)
    return score
