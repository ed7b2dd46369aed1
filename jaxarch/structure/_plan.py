"""Plans of smaller models: the units to keep so that a model meets a budget."""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np

from jaxarch._internal.errors import (
    ArgumentError,
    ResultWarning,
    check_choice,
    check_count,
)
from jaxarch._internal.trees import PyTree, copied, named_leaves, placed
from jaxarch.masks import apply_mask
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.structure._allocation import (
    Candidates,
    Limits,
    allowed_counts,
    by_score,
    fits,
    knapsack,
    smallest,
)
from jaxarch.structure._budgets import LATENCY, Budget, read_budgets
from jaxarch.structure._columns import columns
from jaxarch.structure._cost import batch_of, cost_without
from jaxarch.structure._cost_table import Counts
from jaxarch.structure._groups import Groups, some_axes
from jaxarch.structure._latency import latency, within_latency
from jaxarch.structure._network_function import check_arrays_given, example_batch, function_of
from jaxarch.structure._products import find_products
from jaxarch.structure._scored_units import compared_scores, shares_of, unit_scores
from jaxarch.structure._shrink import (
    COMPARED,
    Shrunk,
    compared_outputs,
    groups_in_training,
    named_if_slow,
    smaller_function,
    smaller_network,
)
from jaxarch.structure._size_costs import Polynomial, cost_polynomials

PlanScope = Literal["global", "relative", "isomorphic", "layer", "knapsack"]
"""Units whose scores are compared; see `plan`."""
Shares = Mapping[str, float | tuple[float, float]]
"""By pattern on leaf paths, the share of a group that stays, or the least and the largest share."""


class Subject(NamedTuple):
    """A model to be made smaller.

    Attributes:
      function: `(tree, *inputs) -> outputs`.
      tree: its leaves.
      inputs: inputs to compare and to time models on.
      groups: the groups of the function.
      batch: the number of examples that the groups were traced with; `None` if no axis is a batch.
      parameters: the paths of the leaves that count as parameters.
      finish: turns the smaller function into what the user gave: a network or a module.
    """

    function: Callable[..., Any]
    tree: PyTree
    inputs: tuple[PyTree, ...]
    groups: Groups
    batch: int | None
    parameters: Collection[str]
    finish: Callable[[Shrunk], Shrunk]


@dataclasses.dataclass(frozen=True)
class Plan:
    """The units to keep so that a model meets its budgets, as returned by `plan`. `print` shows a table.

    Attributes:
      groups: the groups of the model.
      kept: by group name, booleans of shape (size,): the units that stay.
      scores: by group name, floats of shape (size,): the scores of the units that could go.
      layers: by layer, the cost before and after.
      before: the cost of the dense model, for one example.
      after: the cost of the smaller model.
      seconds: the measured latency of the dense and of the smaller model, if the budget is one.
      gap: for the scope `knapsack`, the bound on the relative distance to the largest total score.
    """

    groups: Groups
    kept: dict[str, np.ndarray]
    scores: dict[str, np.ndarray]
    layers: dict[str, tuple[Counts, Counts]]
    before: Counts
    after: Counts
    seconds: tuple[float, float] | None
    gap: float | None
    _budgets: tuple[Budget, ...] = dataclasses.field(repr=False)
    _subject: Subject = dataclasses.field(repr=False)

    @property
    def mask(self) -> PyTree:
        """Booleans in the structure of the model's leaves: the connections among the units that stay.

        Leaves that lose no unit are `None`, so that `masks.apply_mask` leaves them alone.
        """
        entries = self.groups.mask(self.kept).items()
        return placed({path: kept for path, kept in entries if not kept.all()}, self._subject.tree)

    def cut(self, tree: PyTree) -> PyTree:
        """Cut a tree of the model's leaves to the kept units, or an optimizer state; see `Groups.cut`."""
        return self.groups.cut(tree, self.kept)

    def apply(self) -> Shrunk:
        """Return the smaller model.

        It is compared with the masked model, in which all connections of the removed units are 0: on the
        inputs of the plan, and on one example more if the model can be traced with it. A `ResultWarning`
        gives the difference if it is beyond rounding. It may be where units are normalized together: a
        softmax or a variance counts a unit that is 0, and does not count one that is gone.

        Returns:
          `ShrunkNetwork` for a network, `ShrunkModule` for a Flax NNX module, `Shrunk` for a function.

        Raises:
          ArgumentError: a masked model that computes NaN.
        """
        return self._subject.finish(_applied(self._subject, self.kept, self.mask))

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return "\n".join([*self._groups_table(), "", *self._cost_table(), *self._remarks()])

    def _groups_table(self) -> list[str]:
        rows = [("group", "kind", "units", "kept")]
        for name, units in self.kept.items():
            if name in self.scores:
                group = self.groups.groups[name]
                rows.append((name, group.kind, f"{group.size:,}", f"{int(units.sum()):,}"))
        return columns(rows, right=(2, 3))

    def _cost_table(self) -> list[str]:
        texts = {budget.quantity: budget.text for budget in self._budgets}
        rows = [("", "dense", "smaller", "share", "budget")]
        for field in dataclasses.fields(Counts):
            before, after = getattr(self.before, field.name), getattr(self.after, field.name)
            share = f"{after / before:.1%}" if before else ""
            name = field.name.replace("_", "-")
            rows.append((name, f"{before:,.0f}", f"{after:,.0f}", share, texts.get(field.name, "")))
        if self.seconds is not None:
            dense, now = self.seconds
            times = f"{1e3 * dense:.3g} ms", f"{1e3 * now:.3g} ms", f"{now / dense:.1%}"
            rows.append((LATENCY, *times, texts[LATENCY]))
        return columns(rows, right=(1, 2, 3))

    def _remarks(self) -> list[str]:
        lines = []
        if self._subject.batch is None:
            lines.append("multiply-adds and activations of the whole call")
        elif self._subject.batch > 1:
            lines.append(f"multiply-adds and activations of one example, in a batch of {self._subject.batch}")
        if self.gap is not None:
            lines.append(
                "of all choices among the sizes tried, none has a total score more than "
                f"{max(self.gap, 0):.2%} larger"
            )
        if last := [name for name in self.scores if self.kept[name].sum() == 1 < self.kept[name].size]:
            lines.append(f"one unit is left, which may cost accuracy; set `shares`: {some_axes(last)}")
        if whole := [name for name in self.kept if name not in self.scores]:
            lines.append(
                "groups left whole, by `units`, `shares`, `round_to`, `kept` or for want of a score: "
                f"{some_axes(whole)}"
            )
        return [*lines, *self.groups.not_cut()]


def plan(
    model: Any,
    about: Any,
    /,
    *inputs: PyTree,
    budget: str | Sequence[str] | None = None,
    scores: Any = None,
    scope: PlanScope = "relative",
    units: str | Sequence[str] | None = None,
    shares: Shares | None = None,
    round_to: int = 1,
    kept: Mapping[str, Any] | None = None,
) -> Plan:
    r"""Choose the neurons, channels and heads to keep, so that a model meets a budget.

        plan = jaxarch.structure.plan(apply, params, x, budget="50% multiply_adds")
        print(plan)           # units and costs, before and after
        small = plan.apply()  # small.function(small.tree, x)

    Removing a unit removes it from every array of its group (see `axis_groups`). The cost of the smaller
    model follows from the number of units of each group, exactly, before anything is cut.

    Budgets are the most that the smaller model may cost: `50% multiply_adds` of the dense model's, or an
    absolute number, `2e6 multiply_adds`. Quantities are `multiply_adds`, `parameters`, `bytes` (of
    parameters; also `500 kB`, `2 MB`), `activations` and `latency` (`5 ms`, or `60% latency`). The first four
    are those of `cost`, for one example. Latency is measured: median seconds of a call of the compiled
    function on `inputs`, on the default device. Several smaller models are compiled for it, until one takes
    between 95% and 100% of the budget.

    `scores` say how much each unit is needed. Scores of connections, such as those of `jaxarch.saliency`,
    give a unit the mean over its connections, or their sum where totals matter: in the scopes `global` and
    `knapsack`. Then units go in the order of their scores until the budget is met. Units with larger scores
    come back where they fit, so that the rest of the budget is used. `scope` says which scores are compared:

    - `relative` (default): all units, by their score divided by the mean magnitude of their group's scores.
      Layers differ in the scale of their weights, which says little about need.
    - `global`: all units, by their scores as they are. Suits scores that estimate a change of the loss, whose
      sum over the connections of a unit estimates the change without it.
    - `isomorphic`: units of alike groups, those of one kind with the same names and axes of leaves. They are
      ranked by their relative scores, and each class of groups loses the same share of its units (Fang et
      al., Isomorphic Pruning, 2024).
    - `layer`: units of the same group. Every group loses the same share.
    - `knapsack`: sizes with the largest total score within the budget, by integer linear programming (as Shen
      et al., HALP, 2022, do for latency). A unit that costs much needs a larger score to stay. `Plan.gap`
      bounds the distance to the optimum.

    Args:
      model: a network of one run, or a function `(tree, *inputs) -> outputs` that JAX can trace.
      about: the network's problem, or the function's tree of leaves.
      *inputs: for a function, example inputs. Multiply-adds are those of one example if the first axis of an
        input is the batch, and otherwise those of the whole call (see `cost`).
      budget: one budget or several of different quantities, all of which must hold.
      scores: larger for units that are needed more. Either one number per connection, in the structure of the
        leaves, with `None` for leaves that have no say; or by group name, arrays of shape (size,). By default
        the magnitude of all matrices, `saliency.magnitude`.
      scope: see above.
      units: the kinds of units that may go, or names of groups. By default `neurons`, `channels`, `heads` and
        `experts`, as far as the model has them. Add `features` to make residual streams of transformers
        narrower.
      shares: by pattern on the paths of a group's leaves, the share of its units that stays, or the smallest
        and the largest share. The first pattern that fits counts: `{"stem/*": 1.0, "*": (0.2, 1.0)}` leaves
        the stem alone and at least a fifth of every other group.
      round_to: sizes are multiples of this number. Groups with no more units than that stay whole. If no
        multiple lies within the shares, the next smaller one is taken, or this number itself.
      kept: in place of a budget and all other options, the units that stay: by group name, booleans of shape
        (size,), such as those of `load_cut`. Other groups stay whole.

    Returns:
      `Plan`, with `kept`, `mask`, `apply()` and `cut()`.

    Raises:
      ArgumentError: neither a budget nor `kept`, or both; a budget that cannot be read, or that the smallest
        allowed model exceeds; scores that fit neither leaves nor groups, or are not finite; patterns that fit
        no group; the errors of `axis_groups` and, for `kept`, of `Groups.cut`.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch
      >>> params = {"in": jnp.arange(24.0).reshape(3, 8), "out": jnp.ones((8, 2))}
      >>> def model(params, x):
      ...     return jax.nn.relu(x @ params["in"]) @ params["out"]
      >>> plan = jaxarch.structure.plan(model, params, jnp.ones((1, 3)), budget="50% multiply_adds")
      >>> print(plan)
      group  kind     units  kept
      in[1]  neurons      8     4
      <BLANKLINE>
                     dense  smaller  share  budget
      parameters        40       20  50.0%
      bytes            160       80  50.0%
      multiply-adds     40       20  50.0%  50% multiply_adds
      activations       10        6  60.0%
      >>> small = plan.apply()
      >>> small.function(small.tree, jnp.ones((1, 3))).tolist()
      [[162.0, 162.0]]
    """
    subject = _subject(model, about, inputs)
    return plan_of(subject, Options(budget, scores, scope, units, shares, round_to, kept))


def _subject(model: Any, about: Any, inputs: tuple[PyTree, ...]) -> Subject:
    function, tree, examples = function_of(model, about, inputs, examples=1)
    if isinstance(model, Network):
        problem: Problem = about
        trained = groups_in_training(model, problem, tree, examples)
        groups = Groups(function, tree, examples, beside=trained)
        compared = (example_batch(problem, COMPARED),)
        return Subject(
            function,
            tree,
            compared,
            groups,
            1,
            {*named_leaves(model.params)},
            lambda small: smaller_network(small, model, problem, trained),
        )
    check_arrays_given(tree=tree, inputs=inputs)
    return subject_of(function, tree, inputs, {*named_leaves(tree)}, lambda small: small)


def subject_of(
    function: Callable[..., Any],
    tree: PyTree,
    inputs: tuple[PyTree, ...],
    parameters: Collection[str],
    finish: Callable[[Shrunk], Shrunk],
    updates: bool = False,
) -> Subject:
    """Find the groups of a function and the number of its examples; see `Subject` and `axis_groups`."""
    groups = Groups(function, tree, inputs, updates)
    size, batch_is = batch_of(groups, inputs)
    return Subject(function, tree, inputs, groups, size if batch_is == "found" else None, parameters, finish)


class Options(NamedTuple):
    """The options of `plan`."""

    budget: Any
    scores: Any = None
    scope: Any = "relative"
    units: Any = None
    shares: Any = None
    round_to: Any = 1
    kept: Any = None


def plan_of(subject: Subject, options: Options) -> Plan:
    """Plan a smaller model; see `plan`."""
    if options.kept is not None:
        return _plan_of_units(subject, options)
    budget, scores, scope, units, shares, round_to, _ = options
    if budget is None:
        raise ArgumentError(
            "budget: expected one, such as '50% multiply_adds', or the units that stay as `kept`"
        )
    budgets = read_budgets(budget)
    check_choice("scope", scope, get_args(PlanScope))
    check_count("round_to", round_to)
    groups = subject.groups
    of_units = unit_scores(groups, units, scores, subject.tree, summed=scope in ("global", "knapsack"))
    limits = shares_of(groups, shares)
    found = {
        name: score
        for name, score in of_units.items()
        if limits[name] != (1.0, 1.0) and groups.groups[name].size > round_to
    }
    if not found:
        raise ArgumentError("units: no unit may go, by `units`, `shares`, `round_to` and `scores`")
    compared = compared_scores(groups, found, scope)
    candidates = [
        Candidates(allowed_counts(found[name].size, *limits[name], round_to), np.sort(compared[name])[::-1])
        for name in found
    ]
    products = find_products(groups._program, dict.fromkeys(groups._leaves))
    batch = subject.batch or 1
    costs = cost_polynomials(groups, products, batch, subject.parameters)
    allocation = _Allocation(groups, costs, [*found], candidates, scope)
    chosen, seconds = _within(subject, budgets, allocation, found)
    return _plan(subject, _kept(groups, found, chosen), found, budgets, seconds, allocation.gap)


def _plan_of_units(subject: Subject, options: Options) -> Plan:
    """Return the plan in which the user said which units stay."""
    others = (options.budget, options.scores, options.units, options.shares)
    is_default = isinstance(options.scope, str) and (options.scope, options.round_to) == ("relative", 1)
    if any(given is not None for given in others) or not is_default:
        raise ArgumentError("kept: it says which units stay; leave out the budget and all other options")
    groups = subject.groups
    groups.mask(options.kept)  # Refuse what does not fit the groups.
    given = {name: np.array(units) for name, units in options.kept.items()}
    whole = {name: np.ones(group.size, bool) for name, group in groups.groups.items()}
    scores = {name: units.astype(np.float64) for name, units in given.items()}
    return _plan(subject, whole | given, scores)


def _plan(
    subject: Subject,
    kept: dict[str, np.ndarray],
    scores: dict[str, np.ndarray],
    budgets: tuple[Budget, ...] = (),
    seconds: tuple[float, float] | None = None,
    gap: float | None = None,
) -> Plan:
    """Return a plan with its costs."""
    groups, batch = subject.groups, subject.batch or 1
    products = find_products(groups._program, dict.fromkeys(groups._leaves))
    before, after = (cost_without(groups, units, batch, subject.parameters, products) for units in ({}, kept))
    return Plan(
        groups,
        kept,
        scores,
        {name: (before[name], after[name]) for name in before},
        sum(before.values(), Counts()),
        sum(after.values(), Counts()),
        seconds,
        gap,
        budgets,
        subject,
    )


@dataclasses.dataclass
class _Allocation:
    """The choice of sizes under some limits.

    Attributes:
      groups: the groups of the model.
      costs: the costs as polynomials in the sizes of all groups.
      names: the groups that may lose units.
      candidates: their possible sizes.
      scope: see `plan`.
      gap: the gap of the last knapsack.
    """

    groups: Groups
    costs: Mapping[str, Polynomial]
    names: list[str]
    candidates: list[Candidates]
    scope: str
    gap: float | None = None

    def __post_init__(self) -> None:
        whole = {name: group.size for name, group in self.groups.groups.items()}
        self.costs = {name: cost.with_fixed(self.names, whole) for name, cost in self.costs.items()}

    def __call__(self, limits: Mapping[str, tuple[float, str]]) -> np.ndarray:
        """Return the sizes under limits by quantity, each with its text.

        Raises:
          ArgumentError: limits that the smallest sizes exceed.
        """
        of = [(self.costs[quantity], limit) for quantity, (limit, _) in limits.items()]
        least = smallest(self.candidates)
        for quantity, (limit, text) in limits.items():
            if not fits(least, [(self.costs[quantity], limit)]):
                raise ArgumentError(
                    f"budget: {text} cannot be met; the smallest model that `units`, `shares` and `round_to` "
                    f"allow has {self.costs[quantity](least):,.0f} {quantity} of {self._dense(quantity):,.0f}"
                )
        if self.scope != "knapsack":
            return by_score(self.candidates, of)
        return self._knapsack(of)

    def _knapsack(self, limits: Limits) -> np.ndarray:
        counts, bound = knapsack(self.candidates, limits)
        total = sum(group.value(count) for group, count in zip(self.candidates, counts, strict=True))
        self.gap = float((bound - total) / max(abs(bound), abs(total), 1e-300))
        return counts

    def _dense(self, quantity: str) -> float:
        return self.costs[quantity](np.array([group.scores.size for group in self.candidates]))

    def limit_of(self, budget: Budget) -> tuple[float, str]:
        """Return the limit of a budget that is not latency, and its text."""
        return budget.limit(self._dense(budget.quantity)), budget.text

    def multiply_adds_at(self, share: float) -> float:
        """Return the multiply-adds between those of the smallest sizes, at 0, and the dense ones, at 1."""
        least = self.costs["multiply_adds"](smallest(self.candidates))
        return least + share * (self._dense("multiply_adds") - least)


def _within(
    subject: Subject, budgets: Sequence[Budget], allocation: _Allocation, scores: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, tuple[float, float] | None]:
    """Choose sizes within all budgets, and return the latencies of both models if that is a budget."""
    limits = {each.quantity: allocation.limit_of(each) for each in budgets if each.quantity != LATENCY}
    timed = next((each for each in budgets if each.quantity == LATENCY), None)
    if timed is None:
        return allocation(limits), None

    def choose(share: float) -> np.ndarray:
        limit = allocation.multiply_adds_at(share), timed.text
        own = limits.get("multiply_adds", limit)
        return allocation({**limits, "multiply_adds": min(limit, own)})

    def measure(chosen: np.ndarray) -> float:
        kept = _kept(subject.groups, scores, chosen)
        smaller = subject.groups.smaller(kept)
        return latency(smaller, subject.groups.cut(subject.tree, kept), subject.inputs)

    with named_if_slow("plan compiles and times smaller models until one meets the latency"):
        dense = latency(subject.function, subject.tree, subject.inputs)
        chosen, now = within_latency(choose, measure, dense, timed.limit(dense), timed.text)
    return chosen, (dense, now)


def _kept(groups: Groups, scores: Mapping[str, np.ndarray], counts: np.ndarray) -> dict[str, np.ndarray]:
    """Return the units with the largest scores; of equal ones the first. Other groups stay whole."""
    kept = {name: np.ones(group.size, bool) for name, group in groups.groups.items()}
    for (name, score), count in zip(scores.items(), counts.tolist(), strict=True):
        kept[name] = np.isin(np.arange(score.size), np.argsort(-score, kind="stable")[:count])
    return kept


@named_if_slow("Plan.apply compiles the masked and the smaller model to compare their outputs")
def _applied(subject: Subject, kept: dict[str, np.ndarray], mask: PyTree) -> Shrunk:
    """Cut a model, and compare it with the masked one."""
    function, tree, inputs, groups = subject.function, subject.tree, subject.inputs, subject.groups
    masked = apply_mask(mask, tree)
    small = copied(groups.cut(tree, kept))
    same, chosen, difference = smaller_function(groups, kept, small, function, masked, inputs, exact=False)
    # With another number of examples, other units may belong together: then there is nothing to compare.
    with contextlib.suppress(ArgumentError):
        if longer := _one_more(subject, inputs):
            _, more = compared_outputs(groups, kept, small, chosen, function, masked, longer)
            difference = max(difference, more)
    if difference > groups.rounding():
        warnings.warn(
            f"apply: the outputs differ from the masked model's by {difference:.1e} of the largest, since "
            "units are normalized together with some that are gone; compare accuracies",
            ResultWarning,
            stacklevel=4,
        )
    if groups._updates:
        both = chosen
        chosen = lambda small, *inputs: both(small, *inputs)[0]  # noqa: E731
    return Shrunk(small, chosen, same, groups, kept, {}, difference, subject.batch)


def _one_more(subject: Subject, inputs: tuple[PyTree, ...]) -> tuple[PyTree, ...]:
    """Return the inputs with the first example once more; () if the function does not take them."""

    def longer(leaf: Any) -> Any:
        return leaf if np.ndim(leaf) == 0 else jnp.concatenate([leaf, leaf[:1]])

    try:
        made = jax.tree.map(longer, inputs)
        jax.eval_shape(subject.function, subject.tree, *made)
    except Exception:
        return ()
    return made
