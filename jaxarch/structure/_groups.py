"""Groups of axes that must be cut together (neurons, channels, heads), for any JAX function."""

from __future__ import annotations

import dataclasses
import math
import textwrap
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from jax.tree_util import GetAttrKey, KeyPath, SequenceKey, tree_map_with_path

from jaxarch._internal.errors import (
    ArgumentError,
    ResultWarning,
    check_concrete,
    check_flag,
    check_function,
    check_mapping,
    did_you_mean,
    is_traced,
    shown,
)
from jaxarch._internal.trees import PyTree, check_distinct, named_leaves, path_name
from jaxarch.masks._sharding import automatic
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
from jaxarch.structure._symbols import at_any_number, is_symbolic, with_numbers
from jaxarch.structure._tracing import traced

ONE_IS_KEPT = "a group keeps one unit"
LINE = 100
"""Characters of a line of the printed table, where names leave at least 30 for the axes."""


@dataclasses.dataclass(frozen=True)
class Group:
    """Axes that share their units: unit i of one axis is unit i of all.

    Attributes:
      name: the name of its first axis, such as `layers/0/kernel[1]`.
      size: the number of units.
      kind: the kind of the units, by what the program does with them. `heads`: two arrays that depend on
        the inputs are multiplied side by side along them, or queries share keys and values. `experts`: a
        gate weighs their outputs or chooses among them, by a softmax or a top k. `channels`: channels of
        convolutions. `neurons`: other outputs of products with leaves. `features`: units that cannot be
        removed one by one without changing the others, since they are normalized or reduced together or are
        parts of heads. Units that are multiplied with nothing are features too. In a loop over stacked
        layers a unit is one unit in all layers, of the kind that it has without the loop.
      axes: path and axis of every leaf that has these units. The units may be only a part of an axis: a
        factor of a product (flattened attention heads) or a piece of a concatenation.
    """

    name: str
    size: int
    kind: Kind
    axes: tuple[tuple[str, int], ...]


class Folded(NamedTuple):
    """The needed units of a model whose constants were folded into biases.

    Attributes:
      kept: by group name, booleans of shape (size,): the units that are needed.
      tree: the leaves with the changed biases, still of their original shapes.
      left: by group name and by the reason why they stay, booleans of shape (size,): the kept units that do
        not depend on the inputs.
    """

    kept: dict[str, np.ndarray]
    tree: PyTree
    left: dict[str, dict[str, np.ndarray]]


class Groups:
    """The groups of a model, as returned by `axis_groups`. `print` shows them as a table.

    Attributes:
      groups: the groups by name, in the order of the model's leaves.
      frozen: by path and axis, the reason why an axis of a leaf, or a part of it, stays whole.
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
        check_arrays(tree)
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
        """Freeze the axes that no output depends on: another function of the same leaves may read them.

        The groups of that other function may be known, such as those of training beside evaluation. If they
        join such an axis with one that is read here, both axes have the same units.
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
        """Return, for each output, the axes of the leaf that it updates; `None` for other outputs."""
        if not self._updates:
            return [None] * len(jax.tree.leaves(outputs))
        if not isinstance(outputs, tuple) or len(outputs) != 2:
            raise ArgumentError(
                "function: expected it to return (outputs, leaves), since it updates leaves of the tree"
            )
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
        """Name the atoms, and record why axes are frozen."""
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
        """Return the name, with a number if another part of the axis already has it."""
        names = (name if number == 1 else f"{name}#{number}" for number in range(1, len(self._atoms) + 2))
        return next(free for free in names if free not in self._atoms)

    def needed(self, tree: PyTree) -> dict[str, np.ndarray]:
        """Find the units that the outputs need for any inputs; cut to them, the model computes the same.

        Nothing is run on data. For every value of the program, the analysis finds the constant entries and
        the signs of the others: a neuron whose weights are all masked equals its bias, and the ReLU of a
        value that is never positive is 0. A unit is removed if it is 0 or useless to the outputs wherever its
        axis is summed over, in products, convolutions and sums. A unit that is normalized with others stays,
        and so does a constant other than 0. A group keeps at least one unit.

        Args:
          tree: the masked leaves: a pruned connection is 0.

        Returns:
          By group name, booleans of shape (size,): the argument `kept` of `cut` and of `smaller`.

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
        """Fold constant units into the biases behind them, and find the units that are still needed.

        A unit may be the same number c for all inputs, such as a neuron of which only the bias is left. With
        outgoing weights W it adds c W to the next product. If a bias b is added to that product, and to
        other products only if they are the same, replacing b by b + c W makes the unit superfluous. A bias
        here is any leaf that is added or subtracted at this place, such as the running mean of a batch norm.
        Before a convolution that pads its input, a constant contributes differently at the border and inside,
        so the unit stays.

        Args:
          tree: as in `needed`.
          fixed: paths of leaves that take up no constants, for instance pruned biases.

        Returns:
          `Folded`: `cut(folded.tree, folded.kept)` computes the same as `tree`.

        Raises:
          ArgumentError: as in `needed`; a path that no leaf has.

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
        """Return the kept units that do not depend on the inputs, by group name and by reason."""
        left: dict[str, dict[str, np.ndarray]] = {}
        for name, atom in self._atoms.items():
            constant = kept[atom] & ~sums.varying.get(atom, np.zeros(atom.size, bool))
            found = {why: constant & units[atom] for why, units in sums.constants.items() if atom in units}
            found[ONE_IS_KEPT] = kept[atom] & ~sums.needed(atom)
            if reasons := {why: units for why, units in found.items() if units.any()}:
                left[name] = reasons
        return left

    def _known(self, tree: PyTree) -> Record:
        """Return what the leaves' values tell about every value of the program.

        A leaf that the function updates has another value at the next call, so it counts as unknown.
        """
        if any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(tree)):
            raise ArgumentError(
                "tree: expected arrays, since their values decide which units are needed; got shapes"
            )
        if is_traced(tree):
            raise ArgumentError(
                "tree: its values decide which units are needed, but are traced; call this outside of jit"
            )
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
        """Return the needed units by group name, and the units that each kind of sum needs.

        Removing units can make others superfluous, so the analysis is repeated until nothing changes.
        """
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
        """Return neurons, channels or heads as units that `masks.keep` and the searches treat as a whole.

            mask = jaxarch.masks.keep(scores, 0.5, units=groups.units("neurons"))

        Units of these kinds that must stay are left out, for instance in an operation that is not understood.
        A `ResultWarning` names their axes and the reason.

        Args:
          *which: kinds of units (see `Group`), or names of single groups.

        Returns:
          The units of these groups. Equal models give equal units.

        Raises:
          ArgumentError: a kind or a name that the model does not have.

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
        names = self.of_kinds(which)
        if why := self._left_whole(which):
            warnings.warn(f"units: {why}", ResultWarning, stacklevel=2)
        return self.units_of(names)

    def of_kinds(self, which: Collection[str]) -> list[str]:
        """Return the names of the groups of some kinds, or of these names.

        Raises:
          ArgumentError: a kind or a name that the model does not have; none at all.
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
                    f"units: unknown units {shown(word)}; {did_you_mean(str(word), [*there, *self.groups])}"
                )
        if not which:
            raise ArgumentError(
                "units: expected 'neurons', 'channels', 'heads' or 'experts', or names of groups, got none"
            )
        return [name for name, group in self.groups.items() if group.kind in which or name in which]

    def units_of(self, names: Collection[str]) -> GroupUnits:
        """Return the units of some groups, given their names."""
        of_atoms = {self._atoms[name]: name for name in names}
        leaves = (
            (path, tuple(span_of(axis, of_atoms) for axis in axes)) for path, axes in self._leaves.items()
        )
        return GroupUnits(tuple(leaves))

    def _left_whole(self, kinds: Collection[str]) -> str:
        """Describe the axes that have units of some kinds but stay whole, with the reasons."""
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
        return f"axes that cannot be cut are left out: {where[0]}{others} ({why}); see `frozen`"

    def cut(self, tree: PyTree, kept: Mapping[str, Any]) -> PyTree:
        """Cut the leaves to some units of some groups.

        Args:
          tree: leaves with the paths and shapes that the groups were found with, or some of them. A mask can
            be cut as well, and so can a whole optimizer state: a path may have more parts in front, as in
            `0/mu/layer/kernel`, and scalars such as a step counter stay. States whose arrays have other
            shapes than the leaves are refused, such as those of Adafactor, Muon, SM3 and L-BFGS.
          kept: by group name, booleans of shape (size,): the units that stay. Groups that are left out keep
            all units.

        Returns:
          The tree with smaller arrays; arrays that lose nothing are the same objects. Arrays that are sharded
          over devices stay sharded, except along axes whose smaller size the devices do not divide.

        Raises:
          ArgumentError: an unknown group, booleans of another shape, a group without a kept unit; leaves of
            other shapes.
        """
        of_atom = self._of_atoms(kept)
        return self._map_axes(lambda leaf, axes: _cut_as_split(leaf, axes, of_atom), tree)

    def permute(self, tree: PyTree, orders: Mapping[str, Any]) -> PyTree:
        """Put the units of some groups in another order, in all leaves at once.

        The function computes the same with the permuted tree, up to rounding, if it treats the units of each
        group alike. A function that tells them apart, for instance by a constant of its own for each, does
        not. `analysis.align` finds such groups, and leaves them as they are.

        Args:
          tree: as in `cut`: leaves, a mask, or an optimizer state.
          orders: by group name, a permutation of shape (size,): unit i of the result is unit `orders[i]`
            here. Groups that are left out keep their order.

        Returns:
          The tree with permuted arrays, each on the devices of the original.

        Raises:
          ArgumentError: an unknown group; integers that are no permutation; leaves of other shapes.

        Example:
          >>> import jax, jax.numpy as jnp
          >>> from jaxarch.structure import axis_groups
          >>> params = {"in": jnp.array([[1.0, 2.0, 3.0]]), "out": jnp.array([[4.0], [5.0], [6.0]])}
          >>> def model(params, x):
          ...     return jnp.tanh(x @ params["in"]) @ params["out"]
          >>> groups = axis_groups(model, params, jnp.ones((1, 1)))
          >>> turned = groups.permute(params, {"in[1]": [2, 0, 1]})
          >>> turned["in"].tolist(), turned["out"].ravel().tolist()
          ([[3.0, 1.0, 2.0]], [6.0, 4.0, 5.0])
        """
        of_atom = {self._atoms[name]: order for name, order in self._checked_orders(orders).items()}
        return self._map_axes(lambda leaf, axes: _permuted(leaf, axes, of_atom), tree)

    def _map_axes(self, change: Callable[[Any, Axes], Any], tree: PyTree) -> PyTree:
        """Change each leaf of the model, or of an optimizer state, given its axes; scalars stay."""

        def changed(keys: KeyPath, leaf: Any) -> Any:
            path, ends = path_name(keys), _model_paths(keys)
            axes = next((self._leaves[end] for end in ends if end in self._leaves), None)
            if jnp.ndim(leaf) == 0 and path not in self._leaves:
                return leaf
            if axes is None or jnp.shape(leaf) != tuple(axis.size for axis in axes):
                raise ArgumentError(
                    f"tree: the groups have no leaf {path!r} of shape {jnp.shape(leaf)}; pass the tree they "
                    "were found with, or an optimizer state with arrays of the same shapes"
                )
            return change(leaf, axes)

        return tree_map_with_path(changed, tree)

    def mask(self, kept: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Return a mask of the entries that `cut` keeps: the connections among the kept units.

        Args:
          kept: as in `cut`.

        Returns:
          By path, booleans of the leaf's shape: an entry is kept if the units on all of its axes are kept.

        Raises:
          ArgumentError: an unknown group, booleans of another shape, a group without a kept unit.

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
        """Return the function as a program of smaller arrays: `smaller(kept)(cut(tree, kept), *inputs)`.

        A model that reads its sizes from its parameters, as Flax NNX's linear layers do, takes smaller
        parameters unchanged. Other models have sizes in their code: heads in a reshape, padded channels,
        groups of a convolution. The returned function runs the traced program with the smaller sizes. It can
        be jitted, mapped and differentiated, and takes inputs of other sizes, batches or lengths, for which
        the function is traced again. Functions with custom derivatives (`jax.custom_jvp`, `jax.custom_vjp`)
        keep them: the rule is traced when a derivative is asked for, and cut like the function. A rule that
        ties the units that were cut, such as one that sorts them, then raises an `ArgumentError`.

        For `jax.export`, the number of examples may be a symbol, if each example is computed on its own.
        Derivatives are exported without symbols.

        The result is the function without these units, so it is unchanged if they contributed nothing. A mean
        over units, as in a layer norm, still divides by the original number of units, as does the scale of an
        attention. A model that takes the smaller arrays unchanged divides by the new number.

        Args:
          kept: as in `cut`.

        Returns:
          A function `(tree, *inputs) -> outputs`; jit it, or each call traces anew.

        Raises:
          ArgumentError: as in `cut`. The function raises it too: for a tree that is not cut in this way, and
            for inputs with which other units belong together.
        """
        of_atoms = self._of_atoms(kept)
        expected = {path: sizes(axes, of_atoms) for path, axes in self._leaves.items()}

        def run(tree: PyTree, *inputs: PyTree) -> Any:
            check_shapes(tree, expected, "cut to")
            again = Groups(self._function, self._shapes, with_numbers(inputs), self._updates, self._beside)
            if apart := self.apart(again, kept):
                raise ArgumentError(
                    f"inputs: with inputs of these shapes, other units of {apart} belong together; find the "
                    "groups again with inputs of these shapes"
                )
            of_again = again._of_atoms(again.of_these(kept))
            leaves = [*jax.tree.leaves(tree), *jax.tree.leaves(inputs)]
            program = again._program
            if is_symbolic(inputs):
                program = at_any_number(program, again._traced, self._function, self._shapes, inputs)
            outputs = run_smaller(program, of_again, leaves)
            return jax.tree.unflatten(again._outputs, outputs)

        return run

    def entries(self) -> int:
        """Count the entries of all leaves."""
        return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(self._shapes))

    def of_these(self, kept: Mapping[str, Any]) -> dict[str, Any]:
        """Select the entries of `kept` whose group exists here with the same size."""
        groups = self.groups
        return {
            name: units for name, units in kept.items() if name in groups and len(units) == groups[name].size
        }

    def apart(self, other: Groups, kept: Mapping[str, Any]) -> str | None:
        """Find an axis that `kept` cuts differently by these groups than by other groups.

        Args:
          other: groups of the same leaves.
          kept: as in `cut`, by the names of these groups.

        Returns:
          `path[axis]`; `None` if both cut all leaves in the same way.
        """
        of_atoms, of_others = self._of_atoms(kept), other._of_atoms(other.of_these(kept))
        for path, axes in self._leaves.items():
            for index, axis in enumerate(axes):
                if not np.array_equal(axis.spread(of_atoms), other._leaves[path][index].spread(of_others)):
                    return f"{path}[{index}]"
        return None

    def rounding(self) -> float:
        """Return the tolerance for rounding: the square root of the program's coarsest machine epsilon."""
        return max(map(float, _epsilons(self._program)), default=0.0) ** 0.5

    def _check_whole(self, tree: PyTree) -> None:
        """Raise unless a tree has all leaves of the groups, with the same shapes and dtypes."""
        check_arrays(tree)
        given, expected = named_leaves(tree), named_leaves(self._shapes)
        for path in [*expected, *given]:
            one, other = (
                (jnp.shape(leaves[path]), leaves[path].dtype) if path in leaves else None
                for leaves in (expected, given)
            )
            if one != other:
                raise ArgumentError(
                    f"tree: expected {path!r} with the shape and dtype that the groups were found with, "
                    f"{shown(one)}, got {shown(other)}; a masked model is masks.apply_mask(mask, params)"
                )

    def _of_atoms(self, kept: Mapping[str, Any]) -> dict[Axis, np.ndarray]:
        if not isinstance(kept, Mapping):
            raise ArgumentError(f"kept: expected a dict from group names to booleans, got {shown(kept)}")
        of_atom = {}
        for name, units in kept.items():
            self._check_group("kept", name)
            if is_traced(units):
                raise ArgumentError(
                    f"kept: the units of {shown(name)} are traced, but decide sizes; call this outside of jit"
                )
            units, size = np.asarray(units), self.groups[name].size
            if units.shape != (size,) or units.dtype != bool or not units.any():
                raise ArgumentError(
                    f"kept: expected {size} booleans for {shown(name)}, at least one of them true, got "
                    f"{shown(units)}"
                )
            of_atom[self._atoms[name]] = units
        return of_atom

    def _checked_orders(self, orders: Mapping[str, Any]) -> dict[str, np.ndarray]:
        check_mapping("orders", orders, "permutations, by name of the group")
        checked = {}
        for name, order in orders.items():
            self._check_group("orders", name)
            check_concrete("orders", order)
            size = self.groups[name].size
            checked[name] = np.asarray(order)
            if not np.array_equal(np.sort(checked[name], axis=None), np.arange(size)):
                raise ArgumentError(
                    f"orders: expected a permutation of {size} units for {shown(name)}, got {shown(order)}"
                )
        return checked

    def _check_group(self, argument: str, name: Any) -> None:
        if name not in self.groups:
            there = did_you_mean(str(name), self.groups) if self.groups else str(self)
            raise ArgumentError(f"{argument}: unknown group {shown(name)}; {there}")

    def reasons(self) -> dict[str, str]:
        """Return the axes that stay whole, by reason.

        Axes that jaxarch does not understand come first, axes that must stay come last.
        """
        found: dict[str, list[str]] = {}
        for (path, axis), why in self.frozen.items():
            found.setdefault(why, []).append(f"{path}[{axis}]")
        order = sorted(found, key=lambda why: (why in AS_THEY_MUST_BE, not why.startswith(NO_RULE)))
        return {why: some_axes(found[why]) for why in order}

    def not_cut(self) -> list[str]:
        """Return a line for each reason why axes stay whole that a user may want to remove."""
        reasons = self.reasons().items()
        return [f"not cut, since {why}: {axes}" for why, axes in reasons if why not in AS_THEY_MUST_BE]

    def _why(self) -> str:
        """Return the reasons that a user can change, or else all reasons, in one line."""
        reasons = self.reasons()
        lasting = (*AS_THEY_MUST_BE, UNREAD)
        shown = {why: axes for why, axes in reasons.items() if why not in lasting} or reasons
        return "; ".join(f"{why}: {axes}" for why, axes in shown.items())

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        if not self.groups:
            return f"no groups, since no axis can be cut: {self._why() or 'no leaves'}"
        rows = [("group", "units", "kind", "axes")]
        for group in self.groups.values():
            # A line breaks between two axes, and not within a path that has spaces.
            axes = ", ".join(f"{path}[{axis}]".replace(" ", "\0") for path, axis in group.axes)
            rows.append((group.name, str(group.size), group.kind, axes))
        widths = [max(len(row[column]) for row in rows) for column in (0, 1, 2)]
        before = sum(widths) + 6
        lines = []
        for name, size, kind, axes in rows:
            first, *others = textwrap.wrap(
                axes, max(LINE - before, 30), break_long_words=False, break_on_hyphens=False
            )
            lines.append(f"{name:<{widths[0]}}  {size:>{widths[1]}}  {kind:<{widths[2]}}  {first}")
            lines += [f"{'':{before}}{other}" for other in others]
        return "\n".join(lines).replace("\0", " ")


def _model_paths(keys: KeyPath) -> list[str]:
    """Return the paths that a leaf of a tree may have in the model: its own, and what is behind a prefix.

    The prefix ends in or behind a field or a place in a tuple, as in an optimizer's state. A dict alone may
    be another model, whose leaves have other units.
    """
    places = [place for place, key in enumerate(keys) if isinstance(key, (GetAttrKey, SequenceKey))]
    if not places:
        return [path_name(keys)]
    return [path_name(keys), *(path_name(keys[start:]) for start in range(places[0] + 1, len(keys) + 1))]


def span_of(axis: Axis, names: Mapping[Axis, str]) -> Span:
    """Describe the indices of an axis in terms of the named groups alone."""
    axis = axis.root()
    if axis.form == "atom":
        return Span(axis.size, names.get(axis, ""))
    return Span(axis.size, form=axis.form, parts=tuple(span_of(part, names) for part in axis.parts))


def _cut_as_split(leaf: Any, axes: Axes, kept: Kept) -> Any:
    """Cut a leaf to the kept units; it stays sharded over devices as before where that is possible."""
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

    # An axis that loses units is gathered on its devices before it is cut.
    same = [now == size for now, size in zip(shape, leaf.shape, strict=True)]
    whole = [name if stays else None for name, stays in zip(names, same, strict=True)]
    after = [None if size % count else name for name, size, count in zip(names, shape, parts, strict=True)]
    return jax.device_put(cut(jax.device_put(leaf, over(whole)), axes, kept), over(after))


def _permuted(leaf: Any, axes: Axes, orders: Mapping[Axis, np.ndarray]) -> Any:
    """Permute the entries of a leaf along its axes; it stays where it is."""
    places = [axis.order(orders) for axis in axes]
    moved = [i for i, order in enumerate(places) if not np.array_equal(order, np.arange(len(order)))]

    def permuted(leaf: Any) -> Any:
        for index in moved:
            leaf = leaf.take(places[index], index)
        return leaf

    if not moved or isinstance(leaf, np.ndarray):
        return permuted(leaf)
    made = automatic(permuted, leaf, like=leaf)
    return made if is_traced(made) else jax.device_put(made, leaf.sharding)


def check_shapes(
    tree: PyTree, expected: Mapping[str, tuple[int, ...]], how: str, hint: str = "", name: str = "tree"
) -> None:
    """Raise unless a tree, called `name`, has the expected leaves, by path, with these shapes."""
    given = {path: jnp.shape(leaf) for path, leaf in named_leaves(tree).items()}
    if given != expected:
        path = next(path for path in [*expected, *given] if given.get(path) != expected.get(path))
        raise ArgumentError(
            f"{name}: expected {path!r} {how} shape {expected.get(path)}, got {given.get(path)}{hint}"
        )


def check_arrays(tree: PyTree) -> None:
    """Raise unless all leaves are arrays or shapes, and have distinct paths."""
    check_distinct("tree", tree)
    for path, leaf in named_leaves(tree).items():
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            raise ArgumentError(f"tree: expected arrays or their shapes, got {shown(leaf)} as {path!r}")


def _epsilons(program: Program) -> Iterator[Any]:
    """Yield the machine epsilons of all inexact values of a program."""
    for step in program.steps:
        for inside in step.programs:
            yield from _epsilons(inside)
        for var in step.eqn.outvars:
            if jnp.issubdtype(var.aval.dtype, jnp.inexact):  # type: ignore[attr-defined]
                yield jnp.finfo(var.aval.dtype).eps  # type: ignore[attr-defined]


def some_axes(axes: Sequence[str]) -> str:
    """List the first four axes and the number of further ones."""
    more = f" and {len(axes) - 4} more" if len(axes) > 4 else ""
    return ", ".join(axes[:4]) + more


def _raised(leaf: Any, by: np.ndarray) -> jax.Array:
    raised = (np.asarray(leaf) + by).astype(leaf.dtype)
    return jax.device_put(raised, leaf.sharding if isinstance(leaf, jax.Array) else None)


def _at_least_one(units: np.ndarray) -> np.ndarray:
    return units if units.any() else np.arange(len(units)) == 0


def axis_groups(function: Callable[..., Any], tree: PyTree, *inputs: PyTree, updates: bool = False) -> Groups:
    """Find the axes of a model's leaves that must be cut together, from its traced program.

    The function is traced, and every axis of every array is followed through it. Whether a unit is a neuron,
    a channel or a head follows from what the program does with it. Inputs and outputs keep their sizes, as
    does every axis in a primitive that is not understood. Only shapes are needed: arrays may be
    `jax.ShapeDtypeStruct`.

    Args:
      function: `(tree, *inputs) -> outputs`, traceable by JAX.
      tree: the leaves that may be cut: parameters, or a pytree of parameters and state.
      *inputs: example inputs of the function.
      updates: whether the function returns `(outputs, leaves)`. The second part has some leaves of the tree
        as they are after the call, under the same paths, such as running statistics in training. Updated
        leaves have the same units, and `needed` and `fold` do not rely on their values.

    Raises:
      ArgumentError: a function that cannot be traced, or that has side effects; updated leaves that the tree
        does not have.

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
