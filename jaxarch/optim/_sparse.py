"""Masks that change during training: they live in the state of the optimizer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from jaxarch._internal.errors import (
    LARGEST_COUNT,
    ArgumentError,
    check_count,
    check_one_key,
    is_choice,
    is_traced,
    one_line,
    shown,
)
from jaxarch._internal.order_statistics import count_dtype
from jaxarch._internal.trees import PyTree, Where, matrices, named_leaves, select
from jaxarch.masks import Scope, check_density, check_scope, full_mask
from jaxarch.masks._largest import counts_kept, largest_of
from jaxarch.masks._sharding import split_like
from jaxarch.optim._masked_leaves import (
    begun,
    booleans,
    check_mask_as_begun,
    check_masked,
    check_optimizer,
    cleared,
    of_mask,
    of_parameters,
    own_mask,
    step_under,
)
from jaxarch.optim._same_update import same_update
from jaxarch.run._descent import value_at

Leaves = dict[str, Array]
Score = Callable[[Leaves, Leaves], Leaves]
Growth = Callable[[Array, Leaves, Leaves], Leaves]


class SparseState(NamedTuple):
    """State carried from step to step.

    Attributes:
      step: the number of steps so far, int32.
      mask: booleans in the shapes of the masked parameters, by path.
      inner: the state of the optimizer inside.
    """

    step: Array
    mask: Leaves
    inner: Any


def sparse(
    tx: optax.GradientTransformation,
    density: float | optax.Schedule | None = None,
    score: Score | Literal["magnitude"] = "magnitude",
    *,
    replaced: float | optax.Schedule = 0.0,
    regrow: Growth | Literal["gradients"] | None = None,
    every: int = 100,
    until: int | None = None,
    mask: PyTree | None = None,
    scope: Scope = "global",
    regrow_scope: Literal["layer"] | None = None,
    where: Where = matrices,
) -> optax.GradientTransformationExtraArgs:
    r"""Train under a mask that changes: connections are dropped, and others grow, during gradient descent.

    The mask changes at steps t = `every`, 2 `every`, ... before `until`. Let n be `round(d(t) D)`, or the
    present number of connections if that is smaller. The `n - round(rho n)` connections with the largest
    scores are retained. Then others grow until there are `round(d(t) D)`. Grown weights begin at 0. A change
    with growth replaces a step of the optimizer. At every other step the optimizer sees only the gradients of
    present connections, and all other weights are 0, as with `hold`.

    *Gradual magnitude pruning*, the cubic schedule of M. Zhu and S. Gupta, To prune, or not to prune, 2017,
    equation (1):

        density = optax.polynomial_schedule(1.0, 0.1, power=3, transition_steps=700, transition_begin=100)
        tx = jaxarch.optim.sparse(optax.adamw(1e-3), density, every=20)

    *SET*, D. Mocanu et al., Scalable training of artificial neural networks with adaptive sparse
    connectivity, 2018. SET drops small weights on either side of 0, and grows connections at random:

        drawn = jaxarch.masks.init_scores(key, jaxarch.select(params))
        mask = jaxarch.masks.keep(drawn, 0.1, scope="erk")
        tx = jaxarch.optim.sparse(
            tx, mask=mask, replaced=0.3, regrow=jaxarch.optim.at_random(key), every=200
        )

    *RigL*, U. Evci et al., Rigging the lottery, 2020, Algorithm 1:

        replaced = optax.cosine_decay_schedule(0.3, 7500)
        tx = jaxarch.optim.sparse(tx, mask=mask, replaced=replaced, regrow="gradients", until=7500)

    The state's own count of updates tells when the mask changes. Under `vmap` over states, each state has its
    own count, so a change is computed at every step and mostly discarded. To avoid this, pass the number of
    the step, as the training loops of jaxarch do:

        updates, state = tx.update(gradients, state, params, step=step)  # as many as there were before

    Leave `step` out if something around `sparse` skips updates, such as `optax.MultiSteps`: the two counts
    differ.

    Wrap the optimizer itself; transformations that skip or gather steps (`optax.MultiSteps`,
    `apply_if_finite`) go around `sparse`. `lookahead` and `schedule_free` average weights of different masks:
    mask again the weights that they evaluate. `find_mask(state)` returns the mask.

    Dropped weights are exactly 0 in any dtype: updates narrower than the weights are widened. If gradients
    are narrower than the weights, `apply_if_finite` goes inside, since it wants updates in the gradients'
    dtype.

    Args:
      tx: any optax transformation of the weights.
      density: d, the share of connections after a change: a number in (0, 1], or a function of the step with
        values in [0, 1]. It may be traced. By default every leaf keeps its number of connections.
      score: the criterion for retained connections: `magnitude`, `|theta|`, or a function
        `(params, gradients) -> scores` of the masked leaves by path, such as `saliency.snip`. Ties go to the
        first; NaN ranks last.
      replaced: rho, the share of connections replaced at a change: a number in [0, 1), or a function of the
        step with values in [0, 1]. A function is checked at the first change, and at the last one before
        `until`, where its values are concrete. At all other steps, values below 0 count as 0 and above 1 as
        1.
      regrow: the criterion for growth: `gradients`, where `|dL/dtheta|` is largest; or a function `(step,
        params, gradients) -> scores`, such as `at_random(key)`. By default nothing grows, and a density that
        rises again changes nothing.
      every: steps from one change to the next.
      until: the step from which the mask stays fixed; by default there is none. A change must come before it,
        and a density schedule must have ended by the last change.
      mask: initial booleans, see `hold`; by default all connections of the leaves `where`. They are copied,
        so that the state can be donated.
      scope: where connections are counted, as in `masks.keep`: over all leaves or in each. Without growth, a
        leaf may lack a connection that rounding now adds; then another leaf keeps one more.
      regrow_scope: where the replaced connections are counted: by default as in `scope`. With `layer`, a
        change first meets the density as in `scope`; then each leaf replaces the share rho of its own, and
        keeps its number.
      where: the leaves that are masked, by path, if no mask is given.

    Returns:
      An optax transformation, whose `update` needs the parameters. A change costs as much as two
      `masks.keep`. Between changes the only cost is that of holding the mask, unless `vmap` is over states
      and `step` is not given.

    Raises:
      ArgumentError: numbers out of range, also of functions where they are checked; `replaced` without
        `regrow`; no change before `until`, or a density that still changes after the last one; a mask that is
        not boolean. In `init`: a mask of other paths or shapes, parameters that are not masked, scores of
        other leaves or shapes. In `update`: no parameters; gradients that lack a masked leaf; a `step` that
        differs from the state's count, where both are concrete.

    Example:
      >>> import jax.numpy as jnp, jaxarch, optax
      >>> params = {"kernel": jnp.array([[4.0, -3.0, 2.0, 1.0]])}
      >>> tx = jaxarch.optim.sparse(optax.sgd(0.125), lambda step: 1 - step / 4, every=1)
      >>> state = tx.init(params)
      >>> for _ in range(3):
      ...     updates, state = tx.update({"kernel": jnp.ones((1, 4))}, state, params)
      ...     params = optax.apply_updates(params, updates)
      >>> print(params["kernel"])
      [[ 3.625 -3.375  0.     0.   ]]
    """
    inner = check_optimizer("tx", tx, "sparse(optax.adamw(1e-3), 0.1)")
    _check(density, replaced, regrow, score, every, until, scope)
    if regrow_scope not in (None, "layer"):
        raise ArgumentError(f"regrow_scope: expected 'layer' or None, got {shown(regrow_scope)}")
    begin = None if mask is None else booleans(mask)
    of: Any = (lambda weights, slopes: _sizes(weights)) if isinstance(score, str) else score
    grow: Any = (lambda step, weights, slopes: _sizes(slopes)) if isinstance(regrow, str) else regrow

    def init(params: PyTree) -> SparseState:
        if isinstance(params, optax.LookaheadParams):
            raise ArgumentError(
                "params: lookahead would average weights under different masks; use sparse without lookahead"
            )
        weights = named_leaves(params)
        if begin is None:
            masked = named_leaves(full_mask(select(params, where)))
        else:
            masked = of_parameters(begin, params)
        check_masked(masked, weights, "start from masks.apply_mask(mask, params)")
        theta = of_mask("params", masked, params)
        jax.eval_shape(partial(_scored, "score", of), theta, theta)
        if grow is not None:
            jax.eval_shape(partial(_scored, "regrow", partial(grow, jnp.zeros((), jnp.int32))), theta, theta)
        return SparseState(jnp.zeros((), jnp.int32), own_mask(masked, weights), begun(inner, params))

    def update(
        gradients: PyTree,
        state: SparseState,
        params: PyTree | None = None,
        *,
        step: Array | int | None = None,
        **extra: Any,
    ) -> tuple[PyTree, SparseState]:
        if params is None:
            raise ArgumentError("params: sparse needs the parameters: tx.update(gradients, state, params)")
        check_mask_as_begun(state.mask)
        # Not passed on: the optimizer inside takes no step when connections grow, so its own count differs.
        at = _at(state, step)
        weights, slopes = of_mask("params", state.mask, params), of_mask("gradients", state.mask, gradients)

        def changed() -> tuple[Leaves, Leaves]:
            scores = _scored("score", of, weights, slopes)
            growth = None if grow is None else _scored("regrow", partial(grow, at), weights, slopes)
            if regrow_scope is None or growth is None:
                counts = _counts(state.mask, at, density, replaced, scope, grows=growth is not None)
                return _changed(state.mask, counts, scores, growth)
            counts = _counts(state.mask, at, density, 0.0, scope, grows=True)
            met, _ = _changed(state.mask, counts, scores, growth)
            # Connections that have just grown are retained only by score: their weights are 0 either way.
            return _changed(met, _counts(met, at, None, replaced, scope, grows=True), scores, growth)

        now = _is_change(at, every, until)
        # If `now` is batched by vmap, `cond` becomes a select, and every step computes a change.
        kept, retained = jax.lax.cond(now, changed, lambda: (state.mask, state.mask))
        stepped = partial(step_under, kept, inner, gradients, state.inner, params, extra)
        skipped = partial(_skipped, stepped, gradients, state.inner)
        updates, after = stepped() if grow is None else jax.lax.cond(now, skipped, stepped)
        # Grown weights begin at 0, so only retained weights take the update.
        moves = cleared(updates, retained, weights)
        return moves, SparseState(optax.safe_increment(state.step), kept, after)

    return same_update(
        init, update, (tx, density, score, replaced, regrow, every, until, scope, regrow_scope)
    )


def _changed(mask: Leaves, counts: _Counts, scores: Leaves, growth: Leaves | None) -> tuple[Leaves, Leaves]:
    """Return the mask after a change, and the part of the previous mask that it retains."""
    retained = largest_of(_among(mask, scores), counts.retained)
    if growth is None:
        return retained, retained
    free = {path: ~leaf for path, leaf in retained.items()}
    grown = largest_of(_among(free, growth), counts.kept - counts.retained)
    return {path: leaf | grown[path] for path, leaf in retained.items()}, retained


def _is_change(step: Array, every: int, until: int | None) -> Array:
    """Return whether the mask changes at a step."""
    now = (step > 0) & (step % every == 0)
    return now if until is None else now & (step < until)


def _skipped(stepped: Callable[[], tuple[PyTree, Any]], gradients: PyTree, inner: Any) -> tuple[PyTree, Any]:
    """Return updates of 0 and the optimizer's state, in the dtypes of a step that is not taken."""
    moves, after = jax.eval_shape(stepped)
    zeros = jax.tree.map(lambda leaf, move: jnp.zeros_like(leaf, move.dtype), gradients, moves)
    # A step may widen moments that begin in the weights' dtype, as in optax.adam.
    return zeros, jax.tree.map(_as_wide, inner, after)


def _as_wide(leaf: Any, like: jax.ShapeDtypeStruct) -> Any:
    return leaf if jnp.result_type(leaf) == like.dtype else jnp.asarray(leaf, like.dtype)


def at_random(key: Array) -> Growth:
    """Return a growth rule in which all absent connections are equally likely, for `sparse(regrow=...)`.

    Args:
      key: a `jax.random.key`; each step draws with `fold_in(key, step)`.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> params = {"kernel": jnp.array([3.0, 1.0, 0.0, 0.0])}
      >>> mask, grow = {"kernel": params["kernel"] > 0}, jaxarch.optim.at_random(jax.random.key(0))
      >>> tx = jaxarch.optim.sparse(optax.sgd(0.1), mask=mask, replaced=0.5, regrow=grow, every=1)
      >>> state = tx.init(params)
      >>> for _ in range(2):
      ...     _, state = tx.update({"kernel": jnp.zeros(4)}, state, params)
      >>> print(state.mask["kernel"][0], state.mask["kernel"].sum())  # the larger one, and one that has grown
      True 2
    """
    check_one_key(key)

    def growth(step: Array, params: Leaves, gradients: Leaves) -> Leaves:
        keys = jax.random.split(jax.random.fold_in(key, step), len(params))
        return {
            path: split_like(leaf, jax.random.uniform(each, leaf.shape))
            for each, (path, leaf) in zip(keys, params.items(), strict=True)
        }

    return growth


def _sizes(leaves: Leaves) -> Leaves:
    return {path: jnp.abs(leaf) for path, leaf in leaves.items()}


class _Counts(NamedTuple):
    """Counts of connections after a change, and of retained ones among them: in total, or per leaf."""

    kept: Any
    retained: Any


def _at(state: SparseState, step: Array | int | None) -> Array:
    """Return the number of updates so far."""
    if step is None:
        return state.step
    if not is_traced((step, state.step)) and jnp.ndim(state.step) == 0 and int(step) != int(state.step):
        raise ArgumentError(
            f"step: expected {int(state.step)}, the number of updates so far, got {shown(step)}"
        )
    return jnp.asarray(step, jnp.int32)


def _counts(mask: Leaves, step: Array, density: Any, replaced: Any, scope: Scope, grows: bool) -> _Counts:
    dtype = count_dtype(sum(leaf.size for leaf in mask.values()))
    there: Any = jnp.stack([jnp.sum(leaf, dtype=dtype) for leaf in mask.values()])
    if density is None:
        kept = there
    else:
        share = _share_at(density, step) if callable(density) else density
        kept = counts_kept(mask, share, scope)
        there = there.sum() if scope == "global" else there
    least = jnp.minimum(kept, there)
    if not grows:
        return _Counts(kept, least if scope == "global" or density is None else _made_up(kept, there))
    share = _share_at(replaced, step) if callable(replaced) else replaced
    # Cast explicitly, since strict promotion refuses a float times an integer.
    replaced_count = jnp.rint(share * least.astype(jnp.result_type(share, float)))
    return _Counts(kept, least - replaced_count.astype(least.dtype))


def _made_up(kept: Array, there: Array) -> Array:
    """Return how many connections each leaf retains, with others making up for a leaf that lacks one.

    At a lower density, the largest remainders may belong to other leaves, whose share then rises by one.
    """
    least = jnp.minimum(kept, there)
    lacking = jnp.sum(kept - there == 1, dtype=least.dtype)
    free = there - least
    return least + jnp.clip(lacking - (jnp.cumsum(free) - free), 0, free)


def _share_at(schedule: optax.Schedule, step: Array) -> Array:
    return jnp.clip(jnp.asarray(value_at(schedule, step), jnp.float32), 0, 1)


def _scored(name: str, function: Callable[..., Any], weights: Leaves, slopes: Leaves) -> Leaves:
    """Return scores by path, for the masked leaves."""
    scores = named_leaves(function(weights, slopes))
    for path, weight in weights.items():
        if path not in scores or scores[path].shape != weight.shape:
            shape = scores[path].shape if path in scores else "none"
            raise ArgumentError(f"{name}: expected scores of shape {weight.shape} for {path!r}, got {shape}")
    return {path: scores[path] for path in weights}


def _among(there: Leaves, scores: Leaves) -> Leaves:
    """Set scores to NaN, which ranks last of all, wherever no connection can be taken."""
    return {
        path: jnp.where(
            there[path], jnp.nan_to_num(leaf, nan=-jnp.inf, posinf=jnp.inf, neginf=-jnp.inf), jnp.nan
        )
        for path, leaf in scores.items()
    }


def _check(
    density: Any, replaced: Any, regrow: Any, score: Any, every: int, until: int | None, scope: Scope
) -> None:
    check_count("every", every)
    if until is not None:
        check_count("until", until)
    check_scope(scope)
    if density is not None and not callable(density):
        check_density("density", density)
    if not callable(replaced) and not (isinstance(replaced, (int, float)) and 0 <= replaced < 1):
        raise ArgumentError(
            f"replaced: expected a number in [0, 1) or a function of the step, got {shown(replaced)}"
        )
    if replaced != 0 and regrow is None:
        raise ArgumentError(
            "replaced: nothing would grow in place of dropped connections; pass regrow='gradients'"
        )
    if not callable(score) and not is_choice(score, ("magnitude",)):
        raise ArgumentError(f"score: expected 'magnitude' or a function, got {shown(score)}")
    if regrow is not None and not callable(regrow) and not is_choice(regrow, ("gradients",)):
        raise ArgumentError(f"regrow: expected 'gradients' or a function, got {shown(regrow)}")
    _check_changes(density, replaced, regrow, every, until)


def _check_changes(density: Any, replaced: Any, regrow: Any, every: int, until: int | None) -> None:
    """Raise unless the mask changes and schedules take effect at its changes."""
    if until is not None and until <= every and (density is not None or regrow is not None):
        raise ArgumentError(
            f"until: the mask would never change: its first change would be at step every={every}, but "
            f"until={until}; set until above {every}, or take a smaller every"
        )
    for name, share in (("density", density), ("replaced", replaced)):
        if callable(share):
            _check_schedule(name, share, every, until)
    if callable(density):
        _check_comes("density", density, 1.0, every, until)
        if until is not None:
            _check_ended(density, every, until)
    if callable(replaced) and density is None:
        _check_comes("replaced", replaced, 0.0, every, until)


def _check_schedule(name: str, schedule: optax.Schedule, every: int, until: int | None) -> None:
    """Raise unless a share lies in [0, 1] at the changes that are sure to come."""
    for step in sorted({every, every if until is None else _last_change(every, until)}):
        try:
            share = _value_at(schedule, step)
        except TypeError as error:
            raise ArgumentError(f"{name}: expected a function of the step; {one_line(error)}") from None
        if is_traced(share):
            return
        if jnp.shape(share) != () or not 0 <= float(share) <= 1:
            raise ArgumentError(f"{name}: expected a number in [0, 1], got {shown(share)} at step {step}")


def _check_comes(name: str, schedule: optax.Schedule, nothing: float, every: int, until: int | None) -> None:
    """Raise if a share does nothing at any change of the mask, but would at steps between them."""
    last = min(64 * every, LARGEST_COUNT - every) if until is None else _last_change(every, until)
    changes = list(range(every, last + 1, every))[:64]
    if until is None:
        changes += [every * 4**power for power in range(4, 12) if every * 4**power < LARGEST_COUNT]

    def is_nothing(step: int) -> bool:
        return not _differ(float(_value_at(schedule, step)), nothing)

    try:
        if is_traced(_value_at(schedule, every)) or not all(map(is_nothing, changes)):
            return
        between = [0, 1, every // 2, every - 1, every + 1]
        lost = [step for step in between if not is_nothing(step)]
    except (IndexError, KeyError):  # a table without entries for some of these steps
        return
    if lost:
        raise ArgumentError(
            f"{name}: it is {nothing:g} at every change of the mask, first at step every={every}, but not "
            f"at step {lost[0]}; take a smaller every, or a longer schedule"
        )


def _check_ended(schedule: optax.Schedule, every: int, until: int) -> None:
    """Raise if a density still changes after the last change of the mask, as far as this can be seen."""
    last = _last_change(every, until)

    def share_at(step: int) -> float:
        return float(np.clip(float(_value_at(schedule, step)), 0, 1))

    # No training takes longer, and counts of steps may overflow in a user's schedule.
    farthest = min(max(10**7, last + every), LARGEST_COUNT)
    steps = sorted({last + 1, until, *(min(last + every * 4**power, farthest) for power in range(12))})
    try:
        if is_traced(_value_at(schedule, last)):
            return
        begin, *shares = map(share_at, [last, *steps])
    except (IndexError, KeyError):  # a table of densities that has no entry for steps as late as these
        return
    end = shares[-1]
    late = [step for step, share in zip([last, *steps], [begin, *shares], strict=True) if _differ(share, end)]
    if not late:
        return
    # Bisect for the schedule's end: it lies between two of the steps above.
    low, high = late[-1] // every, farthest // every + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _differ(share_at(middle * every), end) else (low, middle)
    ends = end > 0 and high * every < farthest // 2
    raise ArgumentError(
        f"until: the last change of the mask, at step {last}, has density {begin:.3g}, but the schedule "
        f"goes on to {end:.3g}; "
        + (f"set until={high * every + 1} or more" if ends else f"let the schedule end by step {last}")
        + ", or leave until out"
    )


def _differ(share: float, other: float) -> bool:
    return abs(share - other) > 1e-6


def _last_change(every: int, until: int) -> int:
    return (until - 1) // every * every


def _value_at(schedule: optax.Schedule, step: int) -> Any:
    with jax.ensure_compile_time_eval():
        return value_at(schedule, jnp.asarray(step, jnp.int32))
