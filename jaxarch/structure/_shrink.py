"""Physically smaller models: the units that the outputs do not need are removed."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import ClosedJaxpr, Literal

from jaxarch._internal.errors import ArgumentError, is_traced
from jaxarch._internal.trees import PyTree, copied, inexact, is_key, merge, named_leaves
from jaxarch.run._network import Network
from jaxarch.run._problem import Key, Problem
from jaxarch.run._records import Start
from jaxarch.run._training_info import TrainingInfo
from jaxarch.structure._alike import are_alike
from jaxarch.structure._batches import differ_in_examples
from jaxarch.structure._columns import columns
from jaxarch.structure._constants import Value
from jaxarch.structure._cost import cost_of
from jaxarch.structure._cost_table import Counts
from jaxarch.structure._flow import OWN_DERIVATIVE, Program, inner
from jaxarch.structure._groups import ONE_IS_KEPT, Folded, Groups, some_axes
from jaxarch.structure._network_function import (
    Leaves,
    example_batch,
    function_of,
    joined_leaves,
    split_leaves,
)
from jaxarch.structure._symbols import MANY, NOT_A_SYMBOL, check_any_number, is_symbolic, with_numbers
from jaxarch.structure._tracing import traced

_TRACED, COMPARED = 2, 64
"""Numbers of examples to trace a network with, and to compare it on."""
_NO_MORE_THAN_ROUNDING = 1e-5
"""Largest relative difference of two biases that took up the same constants in another order."""


@dataclasses.dataclass(frozen=True)
class Shrunk:
    """A smaller model that computes the same outputs as the original. `print` shows what was removed.

    Attributes:
      tree: the leaves, with smaller arrays.
      function: `(tree, *inputs) -> outputs` for the smaller leaves. Inputs of new sizes are checked once: if
        other units do nothing at these sizes, the inputs are refused. Where only the number of examples
        differs and each example is computed on its own, the check costs one trace. `groups.smaller(kept)`
        makes no such check.
      same_function: whether the original function takes the smaller arrays unchanged and, operation by
        operation, computes from them what its traced program with the smaller sizes computes.
      groups: the groups of units.
      kept: by group name, booleans of shape (size,): the units that are left.
      left: by group name and by the reason why they stay, the kept units that do not depend on the inputs.
      difference: the largest difference of an output on the examples, in units of the largest number in the
        same array of outputs.
      batch: the number of examples that the model was traced with; `None` if no axis is known to be a batch.
        `shrink` knows it if each example is computed on its own.
    """

    tree: PyTree
    function: Callable[..., Any]
    same_function: bool
    groups: Groups
    kept: dict[str, np.ndarray]
    left: dict[str, dict[str, np.ndarray]]
    difference: float
    batch: int | None

    @property
    def layers(self) -> dict[str, tuple[Counts, Counts]]:
        """By layer, the cost before and after. All leaves count as parameters, running statistics too.

        The cost is that of one example, or of the whole call if `batch` is `None`.
        """
        before, after = (cost_of(self.groups, kept, batch=self.batch or 1) for kept in ({}, self.kept))
        return {name: (before[name], after[name]) for name in before}

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> list[str]:
        rows = [("group", "kind", "units", "kept")]
        for name, units in self.kept.items():
            rows.append((name, self.groups.groups[name].kind, str(units.size), str(int(units.sum()))))
        constants = [
            f"{name}: {int(units.sum())} of the kept units do not depend on the inputs: {why}"
            for name, reasons in self.left.items()
            for why, units in reasons.items()
            if why != ONE_IS_KEPT
        ]
        if empty := [name for name, reasons in self.left.items() if ONE_IS_KEPT in reasons]:
            constants.append(
                f"no unit is needed; one is kept so that the axis is not empty: {some_axes(empty)}"
            )
        before, after = self.groups.entries(), sum(leaf.size for leaf in jax.tree.leaves(self.tree))
        how = (
            "the function runs on these arrays unchanged"
            if self.same_function
            else "the function is replaced by its traced program with these sizes"
        )
        return [
            *(columns(rows, right=(2, 3)) if self.kept else [str(self.groups)]),
            *(self._layer_table() if any(not units.all() for units in self.kept.values()) else ()),
            *constants,
            *self.groups.not_cut(),
            f"{before:,} numbers before, {after:,} now; {how}",
            f"outputs on the example differ by at most {self.difference:.1e} of the largest",
        ]

    def _layer_table(self) -> list[str]:
        """Return a line for each layer with its numbers and multiply-adds before and after."""
        of = "of the call" if self.batch is None else "an example"
        costs = list(self.layers.items())
        total = tuple(sum((pair[index] for _, pair in costs), Counts()) for index in (0, 1))
        rows: list[tuple[str, ...]] = [("layer", "numbers", "now", f"multiply-adds {of}", "now")]
        for name, pair in [*costs, ("total", total)]:
            counts = [(each.parameters, each.multiply_adds) for each in pair]
            numbers, work = (tuple(f"{count:,.0f}" for count in of) for of in zip(*counts, strict=True))
            rows.append((name, *numbers, *work))
        return ["", *columns(rows, right=(1, 2, 3, 4)), ""]


@dataclasses.dataclass(frozen=True, repr=False)
class ShrunkNetwork(Shrunk):
    """A smaller network and the problem that it solves. `print` shows what was removed.

    Attributes:
      network: the parameters, mask and state, with smaller arrays.
      problem: the problem with a model of the smaller sizes. Use it as `problem.predict(network.params,
        network.state, batch)` or `over_seeds(retrain(...), keys, problem, network=...)`.
    """

    network: Network
    problem: Problem


@overload
def shrink(model: Network, about: Problem) -> ShrunkNetwork: ...
@overload
def shrink(model: Callable[..., Any], about: PyTree, *inputs: PyTree) -> Shrunk: ...
def shrink(model: Any, about: Any, *inputs: PyTree) -> Shrunk:
    r"""Remove the neurons, channels and heads that do nothing, exactly, from any JAX model.

        small = jaxarch.shrink(network.of_run(0), problem)   # what a search found
        small = jaxarch.shrink(function, params, x)          # any function of parameters and inputs
        print(small)                                         # what was removed, and what was left and why

    The traced program shows which axes of which arrays belong together, and which units do nothing (see
    `axis_groups`, `Groups.needed`). A unit is removed if it is 0, is not needed, or is a constant that a bias
    takes up (`Groups.fold`). This must hold wherever the unit is summed over: on a residual stream it is
    removed only if all writers are dead, or all readers. Axes that jaxarch does not understand stay whole and
    are named. Nothing is approximated: the smaller model is compared with the original before it is returned.

    The function runs as written if it takes the smaller arrays unchanged and is the same program with them.
    Flax NNX's layers are an example: they read sizes from their arrays. Otherwise its traced program runs
    with the smaller sizes (see `Groups.smaller`), as with Flax Linen's modules, heads in a reshape or a mean
    over units. In both cases it takes any batch size and can be jitted, mapped and differentiated.

    Units are found to do nothing for inputs of the example's sizes, whatever their values, and for one
    example more. Numbers that overflow are not considered. Leaves that the model does not read are not
    cut. The result shares no array with the arguments.

    A network is read in evaluation mode: dropout does nothing and batch norm uses its running statistics. The
    result's `problem` trains the network too, with batch statistics, as the original would train without
    these units. Its loss and metrics are the problem's own if they take the smaller arrays unchanged,
    otherwise their traced programs. Its `init` draws the original network's weights and cuts them.

    Args:
      model: a network of one run, `network.of_run(0)`, or a function `(tree, *inputs) -> outputs` that JAX
        can trace.
      about: the network's problem; or the function's tree: the parameters and whatever else may be cut, with
        pruned entries set to 0 (`masks.apply_mask`).
      *inputs: example inputs of the function, on which the two models are compared.

    Returns:
      `ShrunkNetwork` for a network, with `network` and `problem`; `Shrunk` for a function, with `tree` and
      `function`.

    Raises:
      ArgumentError: many runs at once, a bare architecture, traced values, a problem that predicts nothing; a
        function that cannot be traced or has side effects; a module in place of a function; a masked model
        that computes NaN.
      RuntimeError: the smaller model computes other outputs; this is a bug in `shrink`.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch
      >>> def function(params, x):
      ...     x = x + jax.nn.relu(x @ params["in"] + params["bias"]) @ params["out"]
      ...     return x @ params["head"]
      >>> # Of three neurons one has no inputs, and one no outputs.
      >>> into, out = jnp.array([[1.0, 0, 1], [1, 0, 0]]), jnp.array([[1.0, 1], [1, 1], [0, 0]])
      >>> params = {"in": into, "bias": jnp.zeros(3), "out": out, "head": jnp.ones((2, 1))}
      >>> small = jaxarch.shrink(function, params, jnp.ones((1, 2)))
      >>> print(small.tree["in"].shape, small.kept, function(small.tree, jnp.ones((1, 2))))
      (2, 1) {'bias[0]': array([ True, False, False])} [[6.]]
    """
    function, tree, examples = function_of(model, about, inputs, _TRACED)
    if isinstance(model, Network):
        return _shrunk_network(model, about, function, tree, examples)
    return shrink_function(function, tree, inputs)


@contextlib.contextmanager
def named_if_slow(doing: str) -> Iterator[None]:
    """Print a message to stderr if the work takes longer than `_PATIENCE` seconds."""
    timer = threading.Timer(_PATIENCE, lambda: print(f"jaxarch: {doing}", file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


_PATIENCE = 2.0
_DOING = "shrink traces the model, then compiles it and the smaller one to compare their outputs"


@named_if_slow(_DOING)
def shrink_function(
    function: Callable[..., Any], tree: PyTree, inputs: tuple[PyTree, ...], updates: bool = False
) -> Shrunk:
    """Remove the units of a function that do nothing; see `shrink`.

    Args:
      function: `(tree, *inputs) -> outputs`.
      tree: the leaves.
      inputs: example inputs.
      updates: whether the function returns `(outputs, leaves)`, with some leaves as they are after the call.
        The values of these leaves before the call then count as unknown. The resulting function returns the
        outputs alone.
    """
    leaves = jax.tree.leaves(inputs)
    if is_traced(inputs) or any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves):
        raise ArgumentError(
            "inputs: expected arrays, on which the two models are compared; got shapes or traced values"
        )
    held = _snapshot(tree)
    fold = partial(_folded, function, held, fixed=(), updates=updates)
    found = fold(inputs)
    groups, folded = found.groups, found.folded
    small = _cut(groups, folded, held, tree)
    same, chosen, difference = smaller_function(groups, folded.kept, small, function, tree, inputs)
    if updates:
        both = chosen
        chosen = lambda small, *inputs: both(small, *inputs)[0]  # noqa: E731
    guarded = _guarded(chosen, fold, found, inputs)
    return Shrunk(small, guarded, same, groups, folded.kept, folded.left, difference, found.batch)


def _snapshot(tree: PyTree) -> PyTree:
    """Copy a tree to the host; it is read again when inputs of other sizes come."""
    if is_traced(tree):
        return tree  # Traced leaves are refused where their values are read, like leaves that are no arrays.

    def held(leaf: Any) -> Any:
        if not isinstance(leaf, (jax.Array, np.ndarray)):
            return leaf
        return jnp.copy(leaf) if is_key(leaf) else np.array(leaf)

    return jax.tree.map(held, tree)


def _cut(groups: Groups, folded: Folded, held: PyTree, tree: PyTree) -> PyTree:
    """Return the smaller leaves as new arrays, on the devices of the original leaves."""

    def placed_as(leaf: Any, before: Any, now: Any) -> Any:
        if before is now or not isinstance(leaf, jax.Array):
            return leaf if before is now else now
        return jax.device_put(now, leaf.sharding)

    # Folding keeps unchanged leaves as the same objects, so identity shows which biases are new.
    whole = jax.tree.map(placed_as, tree, held, folded.tree)
    return copied(groups.cut(whole, folded.kept))


class _Found(NamedTuple):
    """The units of a function that are needed.

    Attributes:
      groups: the groups of the function.
      folded: the units that are needed, and the leaves with changed biases.
      programs: the traced programs that were analyzed. The result also holds for every program that differs
        from one of them only in the number of examples.
      batch: the number of examples, if each is computed on its own, or else `None`.
    """

    groups: Groups
    folded: Folded
    programs: tuple[ClosedJaxpr, ...]
    batch: int | None = None


def _folded(
    function: Callable[..., Any],
    tree: PyTree,
    inputs: tuple[PyTree, ...],
    *,
    fixed: Collection[str],
    updates: bool = False,
    beside: Groups | None = None,
) -> _Found:
    """Find the groups and the needed units for these inputs and, if possible, for one example more.

    A sum over examples, or a value that vanishes for a single example, differs between the two. If each
    example is computed on its own, nothing differs.
    """
    groups = Groups(function, tree, inputs, updates, beside)
    folded = groups.fold(tree, fixed)
    found = _Found(groups, folded, (groups._traced,))
    try:
        longer = _one_more(inputs)
        traced_again, _ = traced(function, groups._shapes, *longer)
        if differ_in_examples(groups._traced, traced_again):
            return found._replace(batch=_first_size(inputs))
        more = Groups(function, tree, longer, updates, beside)
    except ArgumentError:
        return found
    other = more.fold(tree, fixed)
    if groups.apart(more, folded.kept) is None and _equal(folded, other):
        return found._replace(programs=(groups._traced, more._traced))
    first, second = groups.needed(tree), groups.of_these(more.needed(tree))
    kept = {name: units | second.get(name, np.ones_like(units)) for name, units in first.items()}
    return found._replace(folded=Folded(kept, tree, {}))


def _one_more(inputs: tuple[PyTree, ...]) -> tuple[PyTree, ...]:
    """Return the shapes of the inputs with every first axis one longer."""

    def longer(leaf: Any) -> Any:
        first, *others = jnp.shape(leaf) or (None,)
        return leaf if first is None else jax.ShapeDtypeStruct((first + 1, *others), leaf.dtype)

    return jax.tree.map(longer, inputs)


def _first_size(inputs: tuple[PyTree, ...]) -> int | None:
    """Return the size of the first axes, if they have one size."""
    sizes = {shape[0] for leaf in jax.tree.leaves(inputs) if (shape := jnp.shape(leaf))}
    return sizes.pop() if len(sizes) == 1 else None


def _equal(first: Folded, second: Folded) -> bool:
    """Return whether the same units are left, with the same biases."""
    leaves = zip(jax.tree.leaves(first.tree), jax.tree.leaves(second.tree), strict=True)
    return (
        first.kept.keys() == second.kept.keys()
        and all(np.array_equal(units, second.kept[name]) for name, units in first.kept.items())
        and all(
            one is other or relative_difference(one, other) <= _NO_MORE_THAN_ROUNDING for one, other in leaves
        )
    )


def _guarded(
    smaller: Callable[..., Any],
    fold: Callable[[tuple[PyTree, ...]], _Found],
    found: _Found,
    inputs: tuple[PyTree, ...],
    examples: bool = False,
) -> Callable[..., Any]:
    """Make the smaller function refuse inputs of other sizes for which other units do nothing.

    Args:
      smaller: the smaller function.
      fold: finds the needed units of the original function, given its inputs.
      found: the needed units for some inputs.
      inputs: the inputs of `found`.
      examples: whether the first axis of the inputs is known to be the axis of examples.
    """

    def sizes_of(inputs: tuple[PyTree, ...]) -> Any:
        leaves, structure = jax.tree.flatten(inputs)
        shapes = [jnp.shape(leaf) for leaf in leaves]
        return structure, tuple(shape[1:] if examples else shape for shape in shapes)

    known = {sizes_of(inputs)}

    def guarded(small: PyTree, *others: PyTree) -> Any:
        if (sizes := sizes_of(others)) not in known:
            shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), leaf.dtype), others)
            there = found
            if not _is_known(found, shapes):
                if is_symbolic(others):
                    raise ArgumentError(NOT_A_SYMBOL)
                # Under jit the analysis needs concrete numbers, so it must not be traced.
                with jax.ensure_compile_time_eval():
                    there = fold(shapes)
            if not _equal(found.folded, there.folded):
                raise ArgumentError(
                    "inputs: with these sizes, other units do nothing than with the inputs that the model "
                    "was shrunk on; shrink it again with inputs of these sizes"
                )
            known.add(sizes)  # Each combination of sizes is checked once.
        return smaller(small, *others)

    return guarded


def _is_known(found: _Found, inputs: tuple[PyTree, ...]) -> bool:
    """Return whether other inputs only have more or fewer examples, each computed as before."""
    groups = found.groups
    if is_symbolic(inputs):
        check_any_number(groups._function, groups._shapes, inputs)
        return _is_known(found, with_numbers(inputs, MANY))
    program, _ = traced(groups._function, groups._shapes, *inputs)
    return any(differ_in_examples(known, program) for known in found.programs)


def smaller_function(
    groups: Groups,
    kept: dict[str, np.ndarray],
    small: PyTree,
    function: Callable[..., Any],
    tree: PyTree,
    inputs: tuple[PyTree, ...],
    exact: bool = True,
) -> tuple[bool, Callable[..., Any], float]:
    """Choose a function of the smaller arrays, and compare it with the original.

    Args:
      groups: the groups of the function.
      kept: by group name, the units that are left.
      small: the smaller leaves.
      function: the original function.
      tree: its leaves; the units that go are 0 here.
      inputs: the inputs on which both are compared.
      exact: whether a difference beyond rounding is an error.

    Returns:
      A boolean, true if the original function takes the smaller arrays unchanged; a function that takes them;
      and its difference from the original, as `relative_difference` measures it.
    """
    program = jax.jit(groups.smaller(kept))
    same = runs_alike(function, program, small, *inputs)
    same = same and derives_alike(function, program, groups, small, inputs)
    chosen = function if same else program
    whole, difference = compared_outputs(groups, kept, small, chosen, function, tree, inputs)
    place, failed = _not_a_number(whole), exact and difference > groups.rounding()
    if place and (failed or _nothing_else(whole)):
        source, broken = _first_nan(groups, tree), _not_finite(tree)
        if broken:
            why = f"since {broken!r} has NaN or infinite numbers; check its training"
        elif source:
            why = (
                f"first in {source}, for instance as 0 / 0 in a norm of weights that are all 0; keep one of "
                "them, or mask others"
            )
        else:
            why = "so outputs cannot be compared; pass inputs on which they are finite"
        raise ArgumentError(f"model: the masked model computes NaN at {place}, {why}")
    if failed:
        raise RuntimeError(
            f"shrink: the smaller model differs by {difference:.1e} of the largest output, a bug; please "
            "report it"
        )
    return same, chosen, difference


def derives_alike(
    function: Callable[..., Any],
    program: Callable[..., Any],
    groups: Groups,
    small: PyTree,
    inputs: tuple[PyTree, ...],
) -> bool:
    """Return whether a function that runs like the program of the smaller arrays has its gradient too.

    Custom derivative rules are not part of the compared programs, so where there are any, gradients are.
    """
    return not _has_rules(groups._program) or _derive_alike(function, program, small, inputs)


def compared_outputs(
    groups: Groups,
    kept: dict[str, np.ndarray],
    small: PyTree,
    chosen: Callable[..., Any],
    function: Callable[..., Any],
    tree: PyTree,
    inputs: tuple[PyTree, ...],
) -> tuple[PyTree, float]:
    """Return the original's outputs, cut where they are leaves, and the smaller function's difference."""
    whole, made = jax.jit(function)(tree, *inputs), jax.jit(chosen)(small, *inputs)
    if groups._updates:
        whole = whole[0], groups.cut(whole[1], kept)
    return whole, relative_difference(whole, made)


def _has_rules(program: Program) -> bool:
    """Return whether the program calls a function with a user's derivative rule, not one of JAX's own."""
    for step in program.steps:
        if step.eqn.primitive.name in OWN_DERIVATIVE:
            source = inner(step.eqn).jaxpr.debug_info.func_src_info
            if "/jax/_src/" not in source and "/jax/nn/" not in source:
                return True
        if any(map(_has_rules, step.programs)):
            return True
    return False


def _derive_alike(
    function: Callable[..., Any], program: Callable[..., Any], small: PyTree, inputs: tuple[PyTree, ...]
) -> bool:
    """Return whether a function has the program's gradient, which is the cut gradient of the original.

    A user's derivative rule may read a width, and so compute something else on smaller arrays.
    """
    moves = inexact(small)

    def gradient(apply: Callable[..., Any]) -> PyTree:
        def total(moves: PyTree) -> Array:
            outputs = jax.tree.leaves(inexact(apply(merge(moves, small), *inputs)))
            # The weights differ from output to output, so that no two gradients cancel.
            real = [jnp.real(leaf).ravel().astype(jnp.float32) for leaf in outputs]
            sums = [(leaf * jnp.cos(jnp.arange(leaf.size, dtype=jnp.float32))).sum() for leaf in real]
            return jnp.stack(sums).sum()

        return jax.jit(jax.grad(total))(moves)

    try:
        of_program = gradient(program)
    except ArgumentError:
        return False  # The rule mixes units that were cut; differentiating the program raises this error.
    except Exception:
        return True  # The function has no gradient.
    return relative_difference(of_program, gradient(function)) <= 1e-4


def _not_a_number(outputs: PyTree) -> str | None:
    """Name the first place of a NaN, as in `outputs[0, 1]`; `None` if there is none."""
    for path, leaf in named_leaves(outputs).items():
        if jnp.issubdtype(leaf.dtype, jnp.inexact) and (lost := np.argwhere(np.isnan(leaf))).size:
            return f"outputs{path and '/' + path}{lost[0].tolist() or ''}"
    return None


def _not_finite(tree: PyTree) -> str:
    """Name the first leaf that contains NaN or infinity; empty if there is none."""
    leaves = named_leaves(inexact(tree)).items()
    return next((path for path, leaf in leaves if not bool(jnp.isfinite(leaf).all())), "")


def _nothing_else(outputs: PyTree) -> bool:
    """Return whether some inexact output consists of NaN only, so that it cannot be compared."""
    floats = [leaf for leaf in jax.tree.leaves(outputs) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    return any(leaf.size and bool(np.isnan(leaf).all()) for leaf in floats)


def _first_nan(groups: Groups, tree: PyTree) -> str:
    """Name the operation and the leaves that make the first NaN, for a message; empty if none is known."""
    record = groups._known(tree)

    def walk(program: Program, inputs: Sequence[frozenset[str]]) -> tuple[list[frozenset[str]], str]:
        jaxpr = program.closed.jaxpr
        known: dict[Any, frozenset[str]] = dict(zip(jaxpr.invars, inputs, strict=True))

        def read(atom: Any) -> frozenset[str]:
            return frozenset() if isinstance(atom, Literal) else known.get(atom, frozenset())

        for step in program.steps:
            taken = [read(atom) for atom in step.eqn.invars]
            made = [frozenset().union(*taken)] * len(step.eqn.outvars)
            if step.called:
                made, found = walk(step.called, taken)
                if found:
                    return [], found
            elif id(step) in record and any(map(_has_nan, record[id(step)][1])) and made[0]:
                return [], f"{step.eqn.primitive.name} of {some_axes(sorted(map(repr, made[0])))}"
            known.update(zip(step.eqn.outvars, made, strict=True))
        return [read(atom) for atom in jaxpr.outvars], ""

    others = len(groups._program.inputs) - len(groups._leaves)
    return walk(groups._program, [*(frozenset([path]) for path in groups._leaves), *[frozenset()] * others])[
        1
    ]


def _has_nan(value: Value) -> bool:
    return jnp.issubdtype(value.number.dtype, jnp.inexact) and bool(np.isnan(value.number).any())


def runs_alike(
    function: Callable[..., Any],
    program: Callable[..., Any],
    *arguments: PyTree,
    but_for_numbers: bool = False,
) -> bool:
    """Return whether a function of the smaller arrays traces, operation by operation, to a program.

    Args:
      function: the function.
      program: the program of the smaller arrays.
      *arguments: the smaller arrays, and the inputs.
      but_for_numbers: whether single numbers in the program may differ, such as the number of units that a
        mean divides by.
    """
    expected = jax.make_jaxpr(program)(*arguments)
    try:
        given = jax.make_jaxpr(function)(*arguments)
    except Exception:
        return False
    return are_alike(given, expected, but_for_numbers)


def relative_difference(whole: PyTree, made: PyTree) -> float:
    """Return the largest difference of two trees of outputs, each leaf in units of its largest number.

    That is the largest finite number of the leaf in the first tree. Integers, booleans and random keys must
    be equal.
    """
    structures: list[Any] = [jax.tree.structure(outputs) for outputs in (whole, made)]
    if structures[0] != structures[1]:
        return np.inf
    largest = 0.0
    for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(made), strict=True):
        if one.shape != other.shape or one.dtype != other.dtype:
            return np.inf
        if is_key(one):
            one, other = jax.random.key_data(one), jax.random.key_data(other)
        if not jnp.issubdtype(one.dtype, jnp.inexact):
            largest = max(largest, 0.0 if np.array_equal(one, other) else np.inf)
            continue
        one, other = (np.asarray(array).astype(_wide(array)) for array in (one, other))
        # Two NaNs count as equal, as do equal infinities.
        with np.errstate(invalid="ignore"):  # of equal infinities
            apart = np.where((one == other) | (np.isnan(one) & np.isnan(other)), 0, np.abs(one - other))
        scale = np.abs(one[np.isfinite(one)]).max(initial=0)
        largest = max(largest, float(np.nan_to_num(apart, nan=np.inf).max(initial=0) / (scale or 1)))
    return largest


def _wide(array: Any) -> Any:
    return np.complex128 if jnp.iscomplexobj(array) else np.float64


# Networks and their problems -------------------------------------------------------------------------


@named_if_slow(_DOING)
def _shrunk_network(
    network: Network,
    problem: Problem,
    function: Callable[[Leaves, PyTree], Any],
    leaves: Leaves,
    examples: tuple[PyTree, ...],
) -> ShrunkNetwork:
    # A bias with pruned entries must not take up constants, which would fill these entries.
    pruned = [path for path, mask in named_leaves(network.mask).items() if not np.asarray(mask).all()]
    held = _snapshot(leaves)
    trained = groups_in_training(network, problem, leaves, examples)
    fold = partial(_folded, function, held, fixed=pruned, beside=trained)
    found = fold(examples)
    groups, folded = found.groups, found.folded
    small = _cut(groups, folded, held, leaves)
    compared = (example_batch(problem, COMPARED),)
    same, chosen, difference = smaller_function(groups, folded.kept, small, function, leaves, compared)
    guarded = _guarded(chosen, fold, found, compared, examples=True)
    cut = Shrunk(small, guarded, same, groups, folded.kept, folded.left, difference, _TRACED)
    return smaller_network(cut, network, problem, trained)


def groups_in_training(
    network: Network, problem: Problem, leaves: Leaves, examples: tuple[PyTree, ...]
) -> Groups:
    """Return the groups of a problem's training loss.

    Evaluation does not read all leaves, such as the sums behind running means. They are cut as the training
    loss relates their axes to the other leaves.
    """
    loss = _loss_of(problem, *_shapes(network))
    return Groups(loss, leaves, (*examples, jax.random.key(0)), updates=True)


def smaller_network(small: Shrunk, network: Network, problem: Problem, trained: Groups) -> ShrunkNetwork:
    """Return a smaller model as a network, with a problem of its sizes.

    Args:
      small: the smaller model of all leaves.
      network: the original network.
      problem: its problem.
      trained: the groups of its training loss.
    """
    groups, kept = small.groups, small.kept
    params, state = split_leaves(small.tree, network.params, network.state)
    mask = copied(groups.cut(network.mask, kept))
    ran = TrainingInfo(failed_at=network.info.failed_at, dead_start=network.info.dead_start)
    # Only `Start` is cut and kept: other records may hold arrays of the original sizes.
    records = copied(_start_cut(groups, kept, network.get(Start)))
    cut = Network(params, mask, state, records=records, info=ran)
    about = _smaller_problem(problem, network, groups, trained, kept, cut, small.same_function)
    fields = {field.name: getattr(small, field.name) for field in dataclasses.fields(Shrunk)}
    return ShrunkNetwork(**fields, network=cut, problem=about)


def _start_cut(groups: Groups, kept: dict[str, np.ndarray], start: Start | None) -> tuple[Start, ...]:
    """Remove the units that are gone from the weights to rewind to, if there are such weights."""
    if start is None:
        return ()
    if start.state is None:
        return (dataclasses.replace(start, params=groups.cut(start.params, kept)),)
    early = groups.cut(joined_leaves(start.params, start.state), kept)
    params, state = split_leaves(early, start.params, start.state)
    return (dataclasses.replace(start, params=params, state=state),)


def _shapes(network: Network) -> tuple[PyTree, PyTree]:
    """Return the shapes of the parameters and of the state."""
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), (network.params, network.state)
    )


def _loss_of(problem: Problem, params: PyTree, state: PyTree) -> Callable[..., Any]:
    """Return the loss as a function of all leaves; it also returns the leaves of the state after the call."""

    def loss(leaves: Leaves, batch: PyTree, key: Key) -> tuple[Array, Leaves]:
        own_params, own_state = split_leaves(leaves, params, state)
        value, after = problem.loss(own_params, own_state, batch, key)
        of_params, both = named_leaves(own_params), joined_leaves(own_params, after)
        return value, {path: leaf for path, leaf in both.items() if path not in of_params}

    return loss


def _on_leaves(function: Callable[..., Any], params: PyTree, state: PyTree) -> Callable[..., Any]:
    """Turn a function of parameters, state and other inputs into a function of all leaves and inputs."""
    return lambda leaves, *inputs: function(*split_leaves(leaves, params, state), *inputs)


def _smaller_problem(
    problem: Problem,
    network: Network,
    groups: Groups,
    trained: Groups,
    kept: dict[str, np.ndarray],
    small: Network,
    same_function: bool,
) -> Problem:
    """Return the problem with a model of the smaller sizes."""
    params, state = _shapes(network)

    def init(key: Array) -> tuple[PyTree, PyTree]:
        drawn = problem.init(key)
        return split_leaves(groups.cut(joined_leaves(*drawn), kept), *drawn)

    def by_its_program(function: Callable[..., Any], updates: bool = False) -> Callable[..., Any]:
        """Turn a function of all leaves and other inputs into one of the smaller parameters and state."""

        def run(params_: PyTree, state_: PyTree, *inputs: PyTree) -> Any:
            beside = None if updates else trained
            found = Groups(function, joined_leaves(params, state), inputs, updates, beside)
            if apart := groups.apart(found, kept):
                raise ArgumentError(
                    f"problem: units of {apart} are cut from the model as it predicts, but this call cannot "
                    "be cut the same way; build a model with these sizes"
                )
            return found.smaller(found.of_these(kept))(joined_leaves(params_, state_), *inputs)

        return run

    smaller_loss = by_its_program(_loss_of(problem, params, state), updates=True)

    def loss(params: PyTree, state: PyTree, batch: PyTree, key: Key) -> tuple[Array, PyTree]:
        value, after = smaller_loss(params, state, batch, key)
        return value, split_leaves({**named_leaves(params), **after}, params, state)[1]

    arguments = (small.params, small.state, example_batch(problem, _TRACED))
    changes: dict[str, Any] = {"init": init}
    if not runs_alike(problem.loss, loss, *arguments, jax.random.key(0)):
        changes["loss"] = loss
    if not same_function:
        changes["predict"] = by_its_program(_on_leaves(problem.predict, params, state))  # type: ignore[arg-type]
    if problem.metrics is not None:
        metrics = by_its_program(_on_leaves(problem.metrics, params, state))
        if not runs_alike(problem.metrics, metrics, *arguments):
            changes["metrics"] = metrics
    return dataclasses.replace(problem, **changes)
