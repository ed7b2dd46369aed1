"""Which axes of a model's parameters must be cut together: neurons, channels, heads, of any JAX function."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from jax.tree_util import tree_map_with_path

from jaxarch._internal.errors import (
    ArgumentError,
    ResultWarning,
    check_flag,
    check_function,
    did_you_mean,
    is_traced,
    shown,
)
from jaxarch._internal.trees import PyTree, check_distinct, named_leaves, path_name
from jaxarch.masks._units import GroupUnits, Span
from jaxarch.structure._axes import Axis, unify
from jaxarch.structure._constants import Record, anything, constant, find_known, is_key
from jaxarch.structure._flow import (
    AS_THEY_MUST_BE,
    INPUTS,
    NO_RULE,
    OUTPUTS,
    UNREAD,
    Axes,
    Program,
    follow,
    freeze,
    fresh,
    unify_all,
)
from jaxarch.structure._folding import changed_biases, find_foldable, find_folds
from jaxarch.structure._kinds import ORDER, Kind, find_kinds
from jaxarch.structure._liveness import Constants, Sums, find_needed, reached, there
from jaxarch.structure._smaller import Kept, cut, run_smaller, sizes
from jaxarch.structure._tracing import traced

ONE_IS_KEPT = "a group keeps one unit"


@dataclasses.dataclass(frozen=True)
class Group:
    """Axes that are one: unit i of one is unit i of all.

    Attributes:
      name: of its first axis: `layers/0/kernel[1]`.
      size: how many units.
      kind: what they are, by what the program does with them: `heads`, along which two arrays that depend on
        the inputs are multiplied side by side; `experts`, whose outputs a gate weighs or chooses among by a
        softmax or a top k; `channels` of convolutions; `neurons`, other outputs of products with leaves;
        `features`, which cannot be taken out one by one without a change to the others, since they are
        normalized or reduced together or are parts of heads, or which are multiplied with nothing. In a loop
        over stacked layers a unit is one in all layers, of the kind that it has without the loop.
      axes: path and axis of every leaf that has these units; where they are a part of an axis, in a product
        (heads of an attention, flattened) or in a row (a concatenation), that axis.
    """

    name: str
    size: int
    kind: Kind
    axes: tuple[tuple[str, int], ...]


class Folded(NamedTuple):
    """What is left of a model whose constants were folded into biases.

    Attributes:
      kept: by name of the group, booleans of shape (size,): the units that are needed.
      tree: the leaves with the biases that they need then, still of their old shapes.
      left: of the units that are kept, those that do not depend on the inputs: by name of the group and by
        why they stay, booleans of shape (size,).
    """

    kept: dict[str, np.ndarray]
    tree: PyTree
    left: dict[str, dict[str, np.ndarray]]


class Groups:
    """The groups of a model: what `axis_groups` returns. `print` shows them as a table.

    Attributes:
      groups: by name, in the order of the model's leaves.
      frozen: why axes of leaves, by path and axis, or parts of them, stay as they are.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        tree: PyTree,
        inputs: tuple[PyTree, ...],
        updates: bool = False,
        beside: Groups | None = None,
    ) -> None:
        check_function("function", function, tree, *inputs)
        self._function, self._updates, self._beside = function, updates, beside
        _check_arrays(tree)
        self._shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), leaf.dtype), tree)
        closed, outputs = traced(function, self._shapes, *inputs)
        self._traced = closed
        axes = [fresh(var) for var in closed.jaxpr.invars]
        self._leaves = dict(zip(named_leaves(self._shapes), axes, strict=False))
        for of_input in axes[len(self._leaves) :]:
            freeze(of_input, INPUTS)
        self._program = follow(closed, axes)
        self._outputs = jax.tree.structure(outputs)
        self._written: set[str] = set()
        for output, leaf in zip(self._program.outputs, self._updated(outputs), strict=True):
            if leaf is None:
                freeze(output, OUTPUTS)
            else:
                unify_all(output, leaf)
        self._freeze_unread()
        self._read()

    def _freeze_unread(self) -> None:
        """Leave whole what no output depends on: another function of the same leaves may read it.

        If that function's groups are known, such as those of training beside evaluation, what is one axis
        there with one that is read here has its units.
        """
        outputs = self._program.closed.jaxpr.outvars
        live: set[Axis] = set()
        reached(self._program, [True] * len(outputs), live)
        there = self._leaves if self._beside is None else self._beside._leaves
        axes = [
            (axis, {*axis.atoms()} - live, beside.root())
            for path, own in self._leaves.items()
            for axis, beside in zip(own, there[path], strict=True)
        ]
        read = {beside: axis for axis, unread, beside in axes if not unread and axis.size > 1}
        for axis, unread, beside in axes:
            if unread and beside in read and self._beside is not None:
                unify(axis, read[beside])
            else:
                freeze([*unread], UNREAD)

    def _updated(self, outputs: PyTree) -> list[Axes | None]:
        """For each output, the axes of the leaf that it is the next value of, if it is that of one."""
        if not self._updates:
            return [None] * len(jax.tree.leaves(outputs))
        if not isinstance(outputs, tuple) or len(outputs) != 2:
            raise ArgumentError("function: expected (outputs, leaves), since it updates leaves of the tree")
        shapes, found = named_leaves(self._shapes), []
        for path, leaf in named_leaves(outputs[1]).items():
            if path not in shapes:
                raise ArgumentError(f"function: it updates {path!r}, but the tree has no such leaf")
            if (shape := shapes[path].shape) != leaf.shape:
                raise ArgumentError(f"function: it updates {path!r} of shape {shape} to shape {leaf.shape}")
            found.append(self._leaves[path])
            self._written.add(path)
        return [*[None] * len(jax.tree.leaves(outputs[0])), *found]

    def _read(self) -> None:
        """Name the atoms, and say why axes are frozen."""
        members: dict[Axis, list[tuple[str, int]]] = {}
        self.frozen: dict[tuple[str, int], str] = {}
        for path, axes in self._leaves.items():
            for index, axis in enumerate(axes):
                for atom in dict.fromkeys(axis.atoms()):
                    if atom.frozen:
                        self.frozen.setdefault((path, index), atom.frozen)
                    elif atom.size > 1:
                        members.setdefault(atom, []).append((path, index))
        self._kinds = kinds = find_kinds(self._program, len(self._leaves))
        self._atoms: dict[str, Axis] = {}
        self.groups: dict[str, Group] = {}
        for atom, of_atom in members.items():
            name = self._free(f"{of_atom[0][0]}[{of_atom[0][1]}]")
            self._atoms[name] = atom
            self.groups[name] = Group(name, atom.size, kinds.get(atom, "features"), tuple(of_atom))

    def _free(self, name: str) -> str:
        """The name, or, where another part of the axis has it, with a number."""
        names = (name if number == 1 else f"{name}#{number}" for number in range(1, len(self._atoms) + 2))
        return next(free for free in names if free not in self._atoms)

    def needed(self, tree: PyTree) -> dict[str, np.ndarray]:
        """Which units the outputs need, whatever the inputs: `cut` to these, the model computes the same.

        Nothing is run on data. Of every value of the program it is found which entries are constants, and of
        which sign the others are: a neuron whose weights are all masked is its bias, ReLU of what is never
        positive is 0. A unit goes if it is 0, or of no use to the outputs, wherever its axis is summed over,
        in products, convolutions and sums; where it is normalized with others, it stays. What is a constant
        other than 0 stays too. A group keeps one unit at least.

        Args:
          tree: the leaves, masked: a connection that is pruned is one that is 0.

        Returns:
          By name of the group, booleans of shape (size,): the argument `kept` of `cut` and of `smaller`.

        Raises:
          ArgumentError: leaves that are missing, left over, or of other shapes or dtypes; values that are
            traced.

        Example:
          >>> import jax, jax.numpy as jnp
          >>> from jaxarch.structure import axis_groups
          >>> kernel, head = jnp.array([[1.0, 2.0, 0.0, -3.0]]), jnp.array([[1.0], [0.0], [1.0], [1.0]])
          >>> def model(params, x):  # of squares, which are never negative
          ...     return jax.nn.relu(jnp.square(x) @ params["in"]) @ params["out"]
          >>> params = {"in": kernel, "out": head}
          >>> groups = axis_groups(model, params, jnp.ones((1, 1)))
          >>> groups.needed(params)["in[1]"].tolist()  # used; not read; 0; not positive before the ReLU
          [True, False, False, False]
        """
        self._check_whole(tree)
        return self._needed(self._known(tree), {})[0]

    def fold(self, tree: PyTree, fixed: Collection[str] = ()) -> Folded:
        """Which units the outputs need if constants are folded into the biases behind them, and these biases.

        A unit that is the same number c whatever the inputs, such as a neuron that only its bias is left of,
        adds c W to what it is multiplied into. Where a bias of its own is added to that, b + c W in its place
        makes the unit superfluous. A bias is here any leaf that is added or subtracted there, such as the
        running mean of a batch norm. Before a convolution that pads its input a constant is one thing at the
        border and another within, and stays.

        Args:
          tree: as of `needed`.
          fixed: paths of leaves that take nothing up: biases that are pruned, for instance.

        Returns:
          `Folded`: `cut(folded.tree, folded.kept)` computes what `tree` does.

        Raises:
          ArgumentError: as of `needed`; a path that no leaf has.

        Example:
          >>> import jax, jax.numpy as jnp
          >>> from jaxarch.structure import axis_groups
          >>> params = {"in": jnp.array([[1.0, 0.0]]), "b": jnp.array([0.0, 2.0]), "out": jnp.ones((2, 1))}
          >>> def model(params, x):
          ...     return jax.nn.relu(x @ params["in"] + params["b"]) @ params["out"] + params["last"]
          >>> params["last"] = jnp.array([0.5])
          >>> groups = axis_groups(model, params, jnp.ones((1, 1)))
          >>> folded = groups.fold(params)  # the second neuron is relu(2) = 2, and 2 * 1 + .5 = 2.5
          >>> print(folded.kept["b[0]"], folded.tree["last"], model(params, jnp.ones((1, 1))))
          [ True False] [2.5] [[3.5]]
          >>> print(model(groups.cut(folded.tree, folded.kept), jnp.ones((1, 1))))
          [[3.5]]
        """
        self._check_whole(tree)
        if isinstance(fixed, str) or not isinstance(fixed, Collection) or set(fixed) - set(self._leaves):
            raise ArgumentError(f"fixed: expected paths of leaves, got {shown(fixed)}")
        changing = {*fixed, *self._written}
        biases = [number for number, path in enumerate(self._leaves) if path not in changing]
        folds = find_folds(self._program, biases)
        record = self._known(tree)
        folded = find_foldable(folds, record)
        kept, sums = self._needed(record, folded)
        of_atoms = {self._atoms[name]: units for name, units in kept.items()}
        changes = changed_biases(folds, folded, record, of_atoms)
        leaves = [
            leaf if index not in changes else _raised(leaf, changes[index])
            for index, leaf in enumerate(jax.tree.leaves(tree))
        ]
        whole = jax.tree.unflatten(jax.tree.structure(tree), leaves)
        return Folded(kept, whole, self._left(of_atoms, sums))

    def _left(self, kept: Kept, sums: Sums) -> dict[str, dict[str, np.ndarray]]:
        """The units that stay though they do not depend on the inputs: by name of the group and by why."""
        left: dict[str, dict[str, np.ndarray]] = {}
        for name, atom in self._atoms.items():
            constant = kept[atom] & ~sums.varying.get(atom, np.zeros(atom.size, bool))
            found = {why: constant & units[atom] for why, units in sums.constants.items() if atom in units}
            found[ONE_IS_KEPT] = kept[atom] & ~sums.needed(atom)
            if reasons := {why: units for why, units in found.items() if units.any()}:
                left[name] = reasons
        return left

    def _known(self, tree: PyTree) -> Record:
        """Return what is known of every value of the program, of what the leaves are.

        A leaf that the function updates has another value at the next call: nothing is known of it.
        """
        if any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(tree)):
            raise ArgumentError(
                "tree: which units are needed depends on its values; expected arrays, got shapes"
            )
        if is_traced(tree):
            raise ArgumentError("tree: which units are needed depends on its values, which are traced")
        leaves = [*zip(self._leaves, jax.tree.leaves(tree), strict=True)]
        values = []
        for index, var in enumerate(self._program.closed.jaxpr.invars):
            path, leaf = leaves[index] if index < len(leaves) else (None, None)
            known = path is not None and path not in self._written and not is_key(var.aval)
            values.append(constant(leaf) if known else anything(var.aval))
        record: Record = {}
        find_known(self._program, values, record)
        return record

    def _needed(self, record: Record, folds: Constants) -> tuple[dict[str, np.ndarray], Sums]:
        """The units that are needed, by name of the group, and what sums need of them."""
        outputs = [np.ones(var.aval.shape, bool) for var in self._program.closed.jaxpr.outvars]
        kept = {atom: np.ones(atom.size, bool) for atom in self._atoms.values()}
        while True:
            sums = Sums.none(folds)
            find_needed(self._program, outputs, record, kept, sums)
            left = {atom: _at_least_one(sums.needed(atom)) for atom in kept}
            if all((kept[atom] == left[atom]).all() for atom in kept):
                return {name: kept[atom] for name, atom in self._atoms.items()}, sums
            kept = left

    def units(self, *which: str) -> GroupUnits:
        """Neurons, channels or heads as what `masks.keep` and the searches keep or remove together.

            mask = jaxarch.masks.keep(scores, 0.5, units=groups.units("neurons"))

        Units of these kinds that must stay whole, in an operation that is not understood for instance, are
        left out. A `ResultWarning` names their axes and the reason.

        Args:
          *which: kinds of units (see `Group`), or names of single groups.

        Returns:
          The units of these groups: equal to those of an equal model.

        Raises:
          ArgumentError: a kind that the model has none of, a name that it has not.

        Example:
          >>> import jax, jax.numpy as jnp, jaxarch
          >>> params = {"in": jnp.ones((1, 3)), "bias": jnp.ones(3), "out": jnp.ones((3, 1))}
          >>> def model(params, x):
          ...     return jnp.tanh(x @ params["in"] + params["bias"]) @ params["out"]
          >>> groups = jaxarch.structure.axis_groups(model, params, jnp.ones((1, 1)))
          >>> of = {"in": [[1.0, 9.0, 1.0]], "out": [[2.0], [1.0], [3.0]]}
          >>> scores = {"in": jnp.array(of["in"]), "bias": None, "out": jnp.array(of["out"])}
          >>> mask = jaxarch.masks.keep(scores, 2 / 3, units=groups.units("neurons"))  # means 1.5, 5 and 2
          >>> {path: leaf.astype(int).tolist() for path, leaf in mask.items()}
          {'bias': [0, 1, 1], 'in': [[0, 1, 1]], 'out': [[0], [1], [1]]}
        """
        kinds = {group.kind for group in self.groups.values()}
        for word in which:
            if word not in kinds and word not in self.groups:
                if not self.groups:
                    raise ArgumentError(f"units: {self}")
                there = [kind for kind in ORDER[::-1] if kind in kinds]
                if word in ORDER:
                    unread = (f"{why}: {axes}" for why, axes in self.reasons().items() if NO_RULE in why)
                    why = "; ".join(unread) or self._left_whole([word])
                    raise ArgumentError(
                        f"units: the model has no {word}; it has {', '.join(there)}{why and f'; {why}'}"
                    )
                raise ArgumentError(
                    f"units: no such units: {shown(word)}; {did_you_mean(str(word), [*there, *self.groups])}"
                )
        if not which:
            raise ArgumentError(
                "units: expected 'neurons', 'channels', 'heads' or 'experts', or names of groups, got none"
            )
        if why := self._left_whole(which):
            warnings.warn(f"units: {why}", ResultWarning, stacklevel=2)
        names = {
            self._atoms[name]: name
            for name, group in self.groups.items()
            if group.kind in which or name in which
        }
        leaves = ((path, tuple(_span(axis, names) for axis in axes)) for path, axes in self._leaves.items())
        return GroupUnits(tuple(leaves))

    def _left_whole(self, kinds: Collection[str]) -> str:
        """The axes of leaves that have units of some kinds, but stay as they are, with the reasons."""
        ends = {
            atom
            for axes in (*self._program.inputs[len(self._leaves) :], *self._program.outputs)
            for axis in axes
            for atom in axis.atoms()
        }
        found: dict[str, list[str]] = {}
        for path, axes in self._leaves.items():
            for index, axis in enumerate(axes):
                for atom in axis.atoms():
                    expected = atom in ends or atom.frozen in ("", INPUTS, OUTPUTS, UNREAD)
                    if not expected and self._kinds.get(atom) in kinds:
                        found.setdefault(atom.frozen, []).append(f"{path}[{index}]")
        if not found:
            return ""
        why, where = next(iter(found.items()))
        more = sum(map(len, found.values())) - 1
        others = f" and {more} more" if more else ""
        return f"left out, since they stay whole: {where[0]}{others} ({why}); see `frozen`"

    def cut(self, tree: PyTree, kept: Mapping[str, Any]) -> PyTree:
        """The leaves with some units of some groups alone.

        Args:
          tree: of paths and shapes that the groups were found with, or some of these leaves: a mask, or the
            moments of an optimiser, as well.
          kept: by name of the group, booleans of shape (size,): which units stay. All stay of groups that are
            left out.

        Returns:
          The tree with smaller arrays; the arrays of which nothing is cut are the same. Arrays that are split
          over devices stay so, but along axes whose smaller size the devices do not divide.

        Raises:
          ArgumentError: a group that there is none of, booleans of another shape, none that is kept; leaves
            of other shapes.
        """
        of_atom = self._of_atoms(kept)

        def smaller(path: str, leaf: Any) -> Any:
            axes = self._leaves.get(path)
            if axes is None or jnp.shape(leaf) != tuple(axis.size for axis in axes):
                raise ArgumentError(f"tree: the groups are not of {path!r} of shape {jnp.shape(leaf)}")
            return _cut_as_split(leaf, axes, of_atom)

        return tree_map_with_path(lambda path, leaf: smaller(path_name(path), leaf), tree)

    def mask(self, kept: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The connections of some units: which entries of the leaves `cut` leaves.

        Args:
          kept: as of `cut`.

        Returns:
          By path, booleans of the leaf's shape: an entry is kept if the units of all of its axes are.

        Raises:
          ArgumentError: a group that there is none of, booleans of another shape, none that is kept.

        Example:
          >>> import jax, jax.numpy as jnp
          >>> from jaxarch.structure import axis_groups
          >>> params = {"in": jnp.ones((1, 3)), "out": jnp.ones((3, 2))}
          >>> groups = axis_groups(lambda p, x: jnp.tanh(x @ p["in"]) @ p["out"], params, jnp.ones((1, 1)))
          >>> mask = groups.mask({"in[1]": jnp.array([True, False, True])})
          >>> mask["in"].astype(int).tolist(), mask["out"].astype(int).tolist()
          ([[1, 0, 1]], [[1, 1], [0, 0], [1, 1]])
        """
        of_atoms = self._of_atoms(kept)
        shapes = named_leaves(self._shapes)
        return {
            path: np.broadcast_to(there(axes, of_atoms), shapes[path].shape)
            for path, axes in self._leaves.items()
        }

    def smaller(self, kept: Mapping[str, Any]) -> Callable[..., Any]:
        """The function as a program of smaller arrays: `smaller(kept)(cut(tree, kept), *inputs)`.

        A model whose code reads its sizes from its parameters, as Flax NNX's linear layers do, takes the
        smaller ones as it is. Others have sizes written down: heads in a reshape, channels that are padded,
        groups of a convolution. This runs the traced program with every size as it is then. It takes inputs
        of other sizes, batches or lengths, for which the function is traced again, and can be jitted, mapped
        and differentiated. Functions with a derivative of their own (`jax.custom_jvp`, `jax.custom_vjp`) keep
        it: their rule is traced when it is asked for, and cut like the function. A rule that ties the units
        which were cut, such as one that sorts them, is refused then, with an `ArgumentError`.

        What it computes is what the function computes without these units: the same, where they contributed
        nothing. A mean over units, as of a layer norm, divides by their old number still, and so does the
        scale of an attention; a model that takes the smaller arrays as it is divides by the new one.

        Args:
          kept: as of `cut`.

        Returns:
          A function `(tree, *inputs) -> outputs`; jit it, or each call traces anew.

        Raises:
          ArgumentError: as of `cut`; of the function: a tree that is not cut so, inputs with which the units
            that go are others.
        """
        of_atoms = self._of_atoms(kept)
        expected = {path: sizes(axes, of_atoms) for path, axes in self._leaves.items()}

        def run(tree: PyTree, *inputs: PyTree) -> Any:
            given = {path: jnp.shape(leaf) for path, leaf in named_leaves(tree).items()}
            if given != expected:
                path = next(path for path in [*expected, *given] if given.get(path) != expected.get(path))
                raise ArgumentError(
                    f"tree: expected {path!r} of shape {expected.get(path)}, as it is cut, got "
                    f"{given.get(path)}"
                )
            again = Groups(self._function, self._shapes, inputs, self._updates, self._beside)
            if apart := self.apart(again, kept):
                raise ArgumentError(
                    f"inputs: with inputs of these shapes other units of {apart} belong together; find the "
                    "groups with an example of such inputs"
                )
            of_again = again._of_atoms(again.of_these(kept))
            leaves = [*jax.tree.leaves(tree), *jax.tree.leaves(inputs)]
            outputs = run_smaller(again._program, of_again, leaves)
            return jax.tree.unflatten(again._outputs, outputs)

        return run

    def entries(self) -> int:
        """How many numbers all leaves have together."""
        return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(self._shapes))

    def of_these(self, kept: Mapping[str, Any]) -> dict[str, Any]:
        """Those of some units, by name of the group, whose groups are there in the same size."""
        groups = self.groups
        return {
            name: units for name, units in kept.items() if name in groups and len(units) == groups[name].size
        }

    def apart(self, other: Groups, kept: Mapping[str, Any]) -> str | None:
        """An axis of which some units, by name of these groups, are others by those of the other groups.

        Args:
          other: groups of the same leaves.
          kept: as of `cut`.

        Returns:
          `path[axis]`; `None` if `cut` makes the same of all leaves.
        """
        of_atoms, of_others = self._of_atoms(kept), other._of_atoms(other.of_these(kept))
        for path, axes in self._leaves.items():
            for index, axis in enumerate(axes):
                if not np.array_equal(axis.spread(of_atoms), other._leaves[path][index].spread(of_others)):
                    return f"{path}[{index}]"
        return None

    def rounding(self) -> float:
        """How much outputs may differ by rounding: the root of the program's coarsest machine epsilon."""
        return max(map(float, _epsilons(self._program)), default=0.0) ** 0.5

    def _check_whole(self, tree: PyTree) -> None:
        """Raise unless a tree has all leaves that the groups were found with, as they were."""
        _check_arrays(tree)
        given, expected = named_leaves(tree), named_leaves(self._shapes)
        for path in [*expected, *given]:
            one, other = (
                (jnp.shape(leaves[path]), leaves[path].dtype) if path in leaves else None
                for leaves in (expected, given)
            )
            if one != other:
                raise ArgumentError(
                    f"tree: expected {path!r} as the groups were found with it, {shown(one)}, got "
                    f"{shown(other)}; a masked model is masks.apply_mask(mask, params)"
                )

    def _of_atoms(self, kept: Mapping[str, Any]) -> dict[Axis, np.ndarray]:
        if not isinstance(kept, Mapping):
            raise ArgumentError(f"kept: expected a dict, of booleans by name of the group, got {shown(kept)}")
        of_atom = {}
        for name, units in kept.items():
            if name not in self.groups:
                there = did_you_mean(str(name), self.groups) if self.groups else str(self)
                raise ArgumentError(f"kept: no such group: {shown(name)}; {there}")
            if is_traced(units):
                raise ArgumentError(f"kept: the units of {shown(name)} decide sizes, and are traced")
            units, size = np.asarray(units), self.groups[name].size
            if units.shape != (size,) or units.dtype != bool or not units.any():
                raise ArgumentError(
                    f"kept: expected {size} booleans of {shown(name)}, at least one of them true, got "
                    f"{shown(units)}"
                )
            of_atom[self._atoms[name]] = units
        return of_atom

    def reasons(self) -> dict[str, str]:
        """Axes that stay, by why they do: first what jaxarch does not understand, last what must stay."""
        found: dict[str, list[str]] = {}
        for (path, axis), why in self.frozen.items():
            found.setdefault(why, []).append(f"{path}[{axis}]")
        order = sorted(found, key=lambda why: (why in AS_THEY_MUST_BE, not why.startswith(NO_RULE)))
        return {why: some_axes(found[why]) for why in order}

    def _why(self) -> str:
        """The reasons that a user can change, or all if there are none of these, in one line."""
        reasons = self.reasons()
        lasting = (*AS_THEY_MUST_BE, UNREAD)
        shown = {why: axes for why, axes in reasons.items() if why not in lasting} or reasons
        return "; ".join(f"{why}: {axes}" for why, axes in shown.items())

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        if not self.groups:
            return f"no group, since everything stays: {self._why() or 'no leaves'}"
        rows = [("group", "units", "kind", "axes")]
        for group in self.groups.values():
            axes = ", ".join(f"{path}[{axis}]" for path, axis in group.axes)
            rows.append((group.name, str(group.size), group.kind, axes))
        widths = [max(len(row[column]) for row in rows) for column in (0, 1, 2)]
        lines = [
            f"{name:<{widths[0]}}  {size:>{widths[1]}}  {kind:<{widths[2]}}  {axes}"
            for name, size, kind, axes in rows
        ]
        return "\n".join(lines)


def _span(axis: Axis, names: Mapping[Axis, str]) -> Span:
    """What the indices of an axis are, in terms of some groups alone."""
    axis = axis.root()
    if axis.form == "atom":
        return Span(axis.size, names.get(axis, ""))
    return Span(axis.size, form=axis.form, parts=tuple(_span(part, names) for part in axis.parts))


def _cut_as_split(leaf: Any, axes: Axes, kept: Kept) -> Any:
    """A leaf with some units alone, split over devices as it was where that is possible."""
    split = None if is_traced(leaf) else getattr(leaf, "sharding", None)
    shape = sizes(axes, kept)
    if shape == jnp.shape(leaf):
        return leaf
    if not isinstance(split, NamedSharding):
        made = cut(leaf, axes, kept)
        return made if is_traced(made) else jax.device_put(made, split)
    names = [*split.spec, *[None] * (leaf.ndim - len(split.spec))]
    parts = [size // part for size, part in zip(leaf.shape, split.shard_shape(leaf.shape), strict=True)]

    def over(spec: list[Any]) -> NamedSharding:
        return NamedSharding(split.mesh, PartitionSpec(*spec), memory_kind=split.memory_kind)

    # While units are taken from an axis, it lies whole on its devices.
    same = [now == size for now, size in zip(shape, leaf.shape, strict=True)]
    whole = [name if stays else None for name, stays in zip(names, same, strict=True)]
    after = [None if size % count else name for name, size, count in zip(names, shape, parts, strict=True)]
    return jax.device_put(cut(jax.device_put(leaf, over(whole)), axes, kept), over(after))


def _check_arrays(tree: PyTree) -> None:
    """Raise unless all leaves are arrays, or their shapes, with a path each."""
    check_distinct("tree", tree)
    for path, leaf in named_leaves(tree).items():
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            raise ArgumentError(f"tree: expected arrays or their shapes, got {shown(leaf)} as {path!r}")


def _epsilons(program: Program) -> Iterator[Any]:
    """The machine epsilons of all values of a program."""
    for step in program.steps:
        for inside in step.programs:
            yield from _epsilons(inside)
        for var in step.eqn.outvars:
            if jnp.issubdtype(var.aval.dtype, jnp.inexact):  # type: ignore[attr-defined]
                yield jnp.finfo(var.aval.dtype).eps  # type: ignore[attr-defined]


def some_axes(axes: Sequence[str]) -> str:
    """The first axes of some, and how many more there are."""
    more = f" and {len(axes) - 4} more" if len(axes) > 4 else ""
    return ", ".join(axes[:4]) + more


def _raised(leaf: Any, by: np.ndarray) -> jax.Array:
    raised = (np.asarray(leaf) + by).astype(leaf.dtype)
    return jax.device_put(raised, leaf.sharding if isinstance(leaf, jax.Array) else None)


def _at_least_one(units: np.ndarray) -> np.ndarray:
    return units if units.any() else np.arange(len(units)) == 0


def axis_groups(function: Callable[..., Any], tree: PyTree, *inputs: PyTree, updates: bool = False) -> Groups:
    """The groups of axes of a model's leaves that must be cut together, read from its computation.

    The function is traced, and every axis of every array followed through it: what a neuron, a channel or a
    head is, is what the program does with it. Inputs and outputs keep their sizes, and so does whatever goes
    through a primitive that is not understood. Shapes alone are needed: arrays may be `jax.ShapeDtypeStruct`.

    Args:
      function: `(tree, *inputs) -> outputs`, traceable by JAX.
      tree: what may be cut: parameters, or a pytree of parameters and state.
      *inputs: an example of what the function is called with.
      updates: whether the function returns `(outputs, leaves)`, with some leaves of the tree as they are
        after the call, by the same paths: running statistics in training. They have the same units, and
        `needed` and `fold` take no value of theirs for granted.

    Raises:
      ArgumentError: a function that cannot be traced, or that has side effects; leaves that are updated
        and that the tree has none of.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from jaxarch.structure import axis_groups
      >>> params = {"in": jnp.ones((3, 8)), "bias": jnp.ones(8), "out": jnp.ones((8, 2))}
      >>> def model(params, x):
      ...     return jax.nn.relu(x @ params["in"] + params["bias"]) @ params["out"]
      >>> groups = axis_groups(model, params, jnp.ones((1, 3)))
      >>> print(groups)
      group    units  kind     axes
      bias[0]      8  neurons  bias[0], in[1], out[0]
      >>> small = groups.cut(params, {"bias[0]": jnp.arange(8) < 5})
      >>> small["in"].shape, model(small, jnp.ones((1, 3))).tolist()  # five neurons of 3 + 1
      ((3, 5), [[20.0, 20.0]])
    """
    check_flag("updates", updates)
    return Groups(function, tree, inputs, updates)
