"""Kinds of units in a program: experts, heads, channels, neurons, or features that are normalized together.

The program is walked once, and `Meetings` records which atoms meet in products, sums and gates. The walk
follows the nature of every value, since a product with weights and a product of two activations imply
different kinds of axes. Loops are walked until the natures of their carries no longer change. A layer in a
scan then has the same kinds as in an unrolled program. `Meetings.kinds` decides at the end.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Any, Literal, NamedTuple

from jax.extend.core import Literal as Number

from jaxarch.structure._axes import Axis
from jaxarch.structure._flow import ENTRYWISE, LOOKUPS, MOVES, REDUCTIONS, Axes, Program, Step
from jaxarch.structure._scans import scan_counts

Kind = Literal["neurons", "channels", "heads", "experts", "features"]
"""The kind of a unit; see `Group`."""

ORDER: tuple[Kind, ...] = ("features", "experts", "heads", "channels", "neurons")
"""All kinds, in the order in which errors list them backwards."""


def find_kinds(program: Program, leaves: int) -> dict[Axis, Kind]:
    """Find the kinds of a program's atoms.

    Args:
      program: a program made by `_flow.follow`.
      leaves: the number of its inputs, the first ones, that are leaves of a model.
    """
    inputs = [_LEAF] * leaves + [_ACTIVATION] * (len(program.inputs) - leaves)
    meetings = Meetings()
    _walk(program, inputs, meetings)
    return meetings.kinds()


# Atoms that meet -------------------------------------------------------------------------------------

Atoms = frozenset[Axis]


class Gate(NamedTuple):
    """An activation that scales a value.

    Attributes:
      has: the atoms of the activation.
      lacks: atoms of the value that the activation lacks.
      compared: the atoms among whose units the activation weighs or chooses, as a softmax does.
      chosen: whether the activation comes from a top k, an argmax or a sort.
    """

    has: Atoms
    lacks: Atoms
    compared: Atoms
    chosen: bool


@dataclasses.dataclass
class Meetings:
    """The atoms that meet, by the operation in which they meet.

    Attributes:
      of_weights: axes of weights in products with activations.
      partners: for each such atom, the other atoms on the same side of the product. For example, if weights
        (inputs, experts, neurons) make (experts, neurons), experts and neurons are partners.
      of_kernels: channels of convolutions.
      beside: axes that two activations share in a product, and that the product keeps.
      mixed: axes that are reduced, or over which a product of two activations sums.
      free: axes that two activations do not share in a product.
      weighted: axes over which a gate sums, with the axes that are left, and the axes that the gate shares.
      gates: all gates.
    """

    of_weights: set[Axis] = dataclasses.field(default_factory=set)
    partners: dict[Axis, Atoms] = dataclasses.field(default_factory=dict)
    of_kernels: set[Axis] = dataclasses.field(default_factory=set)
    beside: set[Axis] = dataclasses.field(default_factory=set)
    mixed: set[Axis] = dataclasses.field(default_factory=set)
    free: set[Axis] = dataclasses.field(default_factory=set)
    weighted: list[tuple[Atoms, Atoms, Atoms]] = dataclasses.field(default_factory=list)
    gates: list[Gate] = dataclasses.field(default_factory=list)

    def take(self, other: Meetings) -> None:
        """Add the meetings found in another part of the program."""
        for name in ("of_weights", "of_kernels", "beside", "mixed", "free"):
            getattr(self, name).update(getattr(other, name))
        self.weighted += other.weighted
        self.gates += other.gates
        for atom, beside in other.partners.items():
            self.partners[atom] = self.partners.get(atom, frozenset()) | beside

    def product(self, batched: Atoms, summed: Atoms, made: Atoms) -> None:
        """Record that weights meet an activation: matrices (summed, made), side by side along `batched`."""
        self.of_weights |= batched | summed | made
        if summed:
            for side in (summed, made):
                for atom in batched | side:
                    self.partners[atom] = self.partners.get(atom, frozenset()) | (side - {atom})

    def kinds(self) -> dict[Axis, Kind]:
        """Return the kind of every atom that met another one; `features` if two kinds are possible."""
        gated: set[Axis] = set()
        experts: set[Axis] = set()
        for gate in self.gates:
            scaled = {atom: self.partners.get(atom, frozenset()) & gate.lacks for atom in gate.has}
            blocks = {atom for atom, inside in scaled.items() if inside}
            experts |= blocks if gate.chosen else blocks & gate.compared
            # A gate that scales each unit by a norm of its own entries keeps the units independent. Places of
            # a picture, which a dense layer may read beside its channels, are no neurons of a block.
            if not gate.compared & gate.lacks:
                gated |= {atom for atom in blocks if not all(inside.frozen for inside in scaled[atom])}
        mixed, free = set(self.mixed), set(self.free)
        for summed, left, shared in self.weighted:
            # A mixture of experts does not mix the features of their outputs. All other averages do.
            if summed <= experts:
                continue
            mixed |= summed
            # The states of a channel are read by sums over units. An average over places has values of heads.
            if not summed <= self.of_weights or shared & self.of_weights:
                free |= left
        # The first kind that has an atom wins.
        by_kind: tuple[tuple[Kind, set[Axis]], ...] = (
            ("features", experts & self.beside),
            ("experts", experts),
            ("features", mixed),
            ("heads", self.beside),
            # Heads may share an array that lacks them, such as the keys of all heads.
            ("features", free),
            # Blocks of neurons that are each scaled as a whole, such as the heads of a state space model.
            ("features", gated),
            ("channels", self.of_kernels),
            ("neurons", self.of_weights),
        )
        kinds: dict[Axis, Kind] = {}
        for kind, atoms in by_kind:
            kinds = dict.fromkeys(atoms, kind) | kinds
        return kinds


# From equation to equation ---------------------------------------------------------------------------


class Nature(IntEnum):
    """The origin of a value; the result of two values has the larger one."""

    LEAF = 0
    """Made of leaves of the model and constants alone."""
    WEIGHTS = 1
    """Leaves that inputs scale or choose, such as an expert's matrix that is looked up."""
    ACTIVATION = 2


class Value(NamedTuple):
    """Facts about an array.

    Attributes:
      nature: the origin of the array.
      compared: as in `Gate`: the atoms that were reduced since the last product with weights.
      chosen: as in `Gate`, since the last product with weights.
      repeated: the axes along which the array was broadcast, so that its entries are equal.
      queries: atoms that two activations did not share when they were multiplied and summed over features,
        since the last product with weights.
    """

    nature: Nature
    compared: Atoms = frozenset()
    chosen: bool = False
    repeated: frozenset[int] = frozenset()
    queries: Atoms = frozenset()


_LEAF, _ACTIVATION = Value(Nature.LEAF), Value(Nature.ACTIVATION)
_CHOICES = ("approx_top_k", "argmax", "argmin", "sort", "top_k")
Values = list[Value]


def _walk(program: Program, inputs: Sequence[Value], meetings: Meetings) -> Values:
    jaxpr = program.closed.jaxpr
    known: dict[Any, Value] = dict.fromkeys(jaxpr.constvars, _LEAF)
    known.update(zip(jaxpr.invars, inputs, strict=True))

    def read(atom: Any) -> Value:
        return _LEAF if isinstance(atom, Number) else known[atom]

    for step in program.steps:
        made = _step(step, [read(atom) for atom in step.eqn.invars], meetings)
        known.update(zip(step.eqn.outvars, made, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _step(step: Step, taken: Values, meetings: Meetings) -> Values:
    name, outputs = step.eqn.primitive.name, len(step.outputs)
    if step.called:
        return _walk(step.called, taken, meetings)
    if step.programs:
        return {"cond": _cond, "scan": _scan, "while": _while}.get(name, _anything)(step, taken, meetings)
    made = _joined(taken)
    if made.nature == Nature.LEAF:
        return [made] * outputs
    if name in ("dot_general", "ragged_dot_general"):
        return [_product(step, taken, meetings)]
    if name == "conv_general_dilated":
        return [_convolution(step, taken, meetings)]
    if name in ENTRYWISE:
        return [_entrywise(step, taken, meetings)] * outputs
    if name in MOVES:
        return [made._replace(repeated=_repeated(step, taken[0]))] * outputs
    if name in REDUCTIONS:
        reduced = _atoms(step.inputs[0][axis] for axis in step.eqn.params["axes"])
        meetings.mixed |= reduced
        return [made._replace(compared=made.compared | reduced)] * outputs
    if name in LOOKUPS and taken[0].nature < Nature.ACTIVATION:
        return [Value(_looked_up(step), made.compared, made.chosen)]
    return [Value(Nature.ACTIVATION, made.compared, made.chosen or name in _CHOICES)] * outputs


def _joined(values: Iterable[Value]) -> Value:
    """Return the facts about a result of several values."""
    made = _LEAF
    for value in values:
        made = Value(
            max(made.nature, value.nature),
            made.compared | value.compared,
            made.chosen or value.chosen,
            queries=made.queries | value.queries,
        )
    return made


def _atoms(axes: Iterable[Axis]) -> Atoms:
    return frozenset(atom for axis in axes for atom in axis.atoms() if atom.size > 1)


def _entrywise(step: Step, taken: Values, meetings: Meetings) -> Value:
    """Follow a function of entries; an activation that scales values, and lacks some axes, is a gate."""
    shape = step.eqn.outvars[0].aval.shape  # type: ignore[attr-defined]
    made, axes = _joined(taken), step.outputs[0]
    lacking = [
        {
            index
            for index, size in enumerate(shape)
            if size > 1 and (len(of) < len(shape) or of[index].size == 1 or index in value.repeated)
        }
        for of, value in zip(step.inputs, taken, strict=True)
    ]
    everywhere = frozenset(set.intersection(*lacking))
    made = made._replace(repeated=everywhere)
    if step.eqn.primitive.name not in ("mul", "select_n"):
        return made
    banks = True
    for value, lacks in zip(taken, lacking, strict=True):
        if value.nature == Nature.ACTIVATION and (lacks := lacks - everywhere):
            has = _atoms(axis for index, axis in enumerate(axes) if index not in lacks)
            gate = Gate(has, _atoms(axes[index] for index in lacks), value.compared, value.chosen)
            meetings.gates.append(gate)
        # Matrices that are scaled as a whole remain weights.
        banks &= value.nature < Nature.ACTIVATION or len(lacks) > 1
    return made._replace(nature=Nature.WEIGHTS) if banks else made


def _repeated(step: Step, value: Value) -> frozenset[int]:
    """Return the axes along which a moved value has equal entries."""
    name, params = step.eqn.primitive.name, step.eqn.params
    if name == "broadcast_in_dim":
        places = params["broadcast_dimensions"]
        shape = [axis.size for axis in step.inputs[0]]
        kept = {
            place
            for index, (place, size) in enumerate(zip(places, shape, strict=True))
            if size == params["shape"][place] and index not in value.repeated
        }
        return frozenset(set(range(len(params["shape"]))) - kept)
    if name == "transpose":
        return frozenset(
            place for place, index in enumerate(params["permutation"]) if index in value.repeated
        )
    if name in ("reshape", "squeeze"):
        before, after = (
            [(index, axis.size) for index, axis in enumerate(axes) if axis.size > 1]
            for axes in (step.inputs[0], step.outputs[0])
        )
        if [size for _, size in before] == [size for _, size in after]:
            pairs = zip(before, after, strict=True)
            return frozenset(into for (index, _), (into, _) in pairs if index in value.repeated)
    return frozenset()


def _looked_up(step: Step) -> Nature:
    """Return the nature of weights looked up by inputs: matrices stay weights, rows are activations."""
    sizes = step.eqn.params["slice_sizes"]
    whole = [size for size, axis in zip(sizes, step.inputs[0], strict=True) if 1 < size == axis.size]
    return Nature.WEIGHTS if len(whole) > 1 else Nature.ACTIVATION


class _Side(NamedTuple):
    """A factor of a product, and its atoms by their role in it."""

    value: Value
    batched: Atoms
    summed: Atoms
    free: Atoms


def _convolution(step: Step, taken: Values, meetings: Meetings) -> Value:
    channels = step.eqn.params["dimension_numbers"].rhs_spec[:2]
    if taken[0].nature > Nature.LEAF:
        meetings.of_kernels |= _atoms(step.inputs[1][axis] for axis in channels)
    return _ACTIVATION


def _product(step: Step, taken: Values, meetings: Meetings) -> Value:
    params = step.eqn.params
    summed, (of_first, of_second) = params.get("dimension_numbers") or (
        params["ragged_dot_dimension_numbers"].dot_dimension_numbers
    )
    if "ragged_dot_dimension_numbers" in params:
        # Rows come in groups, and each group has its own matrix.
        of_second = (*of_second, *params["ragged_dot_dimension_numbers"].rhs_group_dimensions)
    first = _side(step.inputs[0], taken[0], summed[0], of_first)
    second = _side(step.inputs[1], taken[1], summed[1], of_second)
    sums = bool(summed[0])
    for weights, other in ((second, first), (first, second)):
        if weights.value.nature < other.value.nature:
            meetings.product(weights.batched, weights.summed, weights.free)
            # Without a sum, the product scales matrices as a whole, and they remain weights.
            bank = not sums and len(weights.free) > 1 and other.value.nature == Nature.ACTIVATION
            if not bank:
                return _ACTIVATION
            meetings.gates.append(_gate(other, weights))
            return _joined(taken)._replace(nature=Nature.WEIGHTS)
    _note_activations(first, second, sums, meetings)
    made = _joined(taken)._replace(nature=Nature.ACTIVATION)
    # Sums over places make values, and sums over features make scores.
    if first.summed and first.summed <= meetings.of_weights:
        made = made._replace(queries=made.queries | ((first.free | second.free) & meetings.of_weights))
    return made


def _note_activations(first: _Side, second: _Side, sums: bool, meetings: Meetings) -> None:
    """Record a product of two activations: its gates, and the axes that it keeps or mixes."""
    scales = [side for side in (first, second) if not side.free]
    for side, other in ((first, second), (second, first)):
        if other.free and (sums or not side.free):
            meetings.gates.append(_gate(side, other))
    if sums or not scales:
        meetings.beside |= first.batched
    if sums and len(scales) == 1:
        meetings.weighted.append((first.summed, first.free | second.free, first.batched))
    elif sums or not scales:
        for side in (first, second):
            meetings.mixed |= side.summed
            # Queries of several heads may attend to the same keys and values.
            heads = (side.free & side.value.queries) - side.summed if sums else frozenset()
            meetings.beside |= heads
            meetings.free |= side.free - heads


def _side(axes: Axes, value: Value, summed: Sequence[int], batched: Sequence[int]) -> _Side:
    free = [axis for index, axis in enumerate(axes) if index not in (*summed, *batched)]
    return _Side(
        value, _atoms(axes[index] for index in batched), _atoms(axes[index] for index in summed), _atoms(free)
    )


def _gate(side: _Side, other: _Side) -> Gate:
    return Gate(side.batched | side.summed, other.free, side.value.compared, side.value.chosen)


# Loops and branches ----------------------------------------------------------------------------------


def _until_they_stay(
    body: Program, before: Values, carried: Values, after: Values, meetings: Meetings
) -> tuple[Values, Values]:
    """Walk a loop until its carry no longer changes; return the carry and the outputs.

    Only the last walk is recorded, since earlier ones start from natures that are too low.
    """
    while True:
        inside = Meetings()
        made = _walk(body, [*before, *carried, *after], inside)
        joined = [
            _joined(pair)._replace(repeated=pair[0].repeated & pair[1].repeated)
            for pair in zip(carried, made, strict=False)
        ]
        if joined == carried:
            meetings.take(inside)
            return carried, made
        carried = joined


def _scan(step: Step, taken: Values, meetings: Meetings) -> Values:
    (body,) = step.programs
    consts, carries = scan_counts(step.eqn)
    # The first axis of the rows is the axis of rounds.
    rows = [
        value._replace(repeated=frozenset(index - 1 for index in value.repeated if index))
        for value in taken[consts + carries :]
    ]
    carried = taken[consts : consts + carries]
    carried, made = _until_they_stay(body, taken[:consts], carried, rows, meetings)
    return [*carried, *(value._replace(repeated=frozenset()) for value in made[carries:])]


def _while(step: Step, taken: Values, meetings: Meetings) -> Values:
    condition, body = step.programs
    of_condition, of_body = step.eqn.params["cond_nconsts"], step.eqn.params["body_nconsts"]
    before, carried = taken[of_condition : of_condition + of_body], taken[of_condition + of_body :]
    # The first walk only finds the natures of the carry. The body is walked again after the condition.
    carried, _ = _until_they_stay(body, before, carried, [], Meetings())
    (goes_on,) = _walk(condition, [*taken[:of_condition], *carried], meetings)
    if goes_on.nature > Nature.LEAF:
        # The inputs decide the number of rounds, so everything that the body changes depends on them.
        jaxpr = body.closed.jaxpr
        pairs = zip(carried, jaxpr.invars[of_body:], jaxpr.outvars, strict=True)
        carried = [value if into is out else _joined([value, _ACTIVATION]) for value, into, out in pairs]
    return _until_they_stay(body, before, carried, [], meetings)[0]


def _cond(step: Step, taken: Values, meetings: Meetings) -> Values:
    index, *operands = taken
    branches = [_walk(program, operands, meetings) for program in step.programs]
    chosen = [] if index.nature == Nature.LEAF else [_ACTIVATION]
    return [_joined([*values, *chosen]) for values in zip(*branches, strict=True)]


def _anything(step: Step, taken: Values, meetings: Meetings) -> Values:
    made = _joined(taken)
    for program in step.programs:
        same = len(program.inputs) == len(taken)
        _walk(program, taken if same else [made] * len(program.inputs), meetings)
    return [made] * len(step.outputs)
