"""The products and look-ups in which a model's leaves meet its inputs, found in the traced program."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import Literal

from jaxarch.calibration._layouts import has_rows
from jaxarch.calibration._views import Form, Reading, View, applied, constant_view, leaf_view
from jaxarch.structure._flow import AS_THEY_ARE, LOOKUPS, MOVES, PRODUCTS, Program, Step, literal, shape_of
from jaxarch.structure._scans import scan_counts
from jaxarch.structure._tracing import passed_on

_PRODUCTS = (*PRODUCTS, "ragged_dot_general")
_MOST = 10**6
"""The largest number of values of carried constants, over all rounds, that are computed."""


@dataclasses.dataclass(frozen=True, eq=False)
class Use:
    """A view of leaves in a product with values that depend on the inputs, or in a look-up by them.

    A program may use a view many times: as an unrolled loop does.

    Attributes:
      view: the view.
      step: the first equation that uses it.
      place: the place of the other factor among its inputs; `None` for a look-up.
    """

    view: View
    step: Step
    place: int | None

    @property
    def key(self) -> Hashable:
        """The view and how it is used: equal for uses whose inputs are inputs of the same connections."""
        names = ("dimension_numbers", "ragged_dot_dimension_numbers", "feature_group_count")
        params = tuple(str(self.step.eqn.params.get(name)) for name in names)
        return self.step.eqn.primitive.name, params, self.place, self.view.key

    @property
    def paths(self) -> list[str]:
        """The leaves whose entries are followed into the view."""
        return [path for path, form in self.view.forms.items() if not _why_not(form, self.place)]


def _why_not(form: Form, place: int | None) -> str:
    """Return why the inputs of a view's entries are no inputs of a leaf's entries; empty if they are."""
    # Several inputs of one entry in one output are added: their squares alone say too little.
    repeated = form.repeated and place is not None
    return form.lost or ("its entries are repeated before they meet the inputs" if repeated else "")


@dataclasses.dataclass
class Uses:
    """The uses of a program's leaves.

    Attributes:
      of_step: the use of each equation, by `id` of its step.
      missed: by path, why a use of a leaf could not be followed.
    """

    of_step: dict[int, Use] = dataclasses.field(default_factory=dict)
    missed: dict[str, str] = dataclasses.field(default_factory=dict)

    def miss(self, reasons: Mapping[str, str]) -> None:
        """Record why uses of leaves could not be followed, unless a reason is known or empty."""
        for path, why in reasons.items():
            if why:
                self.missed.setdefault(path, why)


def find_uses(program: Program, leaves: Mapping[str, Any]) -> Uses:
    """Find all uses of a model's leaves, including calls, loops and branches.

    Args:
      program: a program made by `_flow.follow`, whose first inputs are the leaves.
      leaves: the leaves by path, in this order, arrays or their shapes.
    """
    views: list[View | None] = [leaf_view(path, leaf) for path, leaf in leaves.items()]
    uses = Uses()
    _walk(program, [*views, *[None] * (len(program.inputs) - len(views))], 0, uses)
    return uses


class _Looked(NamedTuple):
    """Rows of tables that inputs choose, as long as they are only moved."""

    paths: tuple[str, ...]


_Views = list[View | None]
"""Views; `None` for values that depend on the inputs."""

_Values = list[View | _Looked | None]
"""Views, rows of tables, and `None` for all other values that depend on the inputs."""


def _walk(program: Program, inputs: Sequence[View | _Looked | None], depth: int, uses: Uses) -> _Values:
    """Find the uses in a program inside some loops, and return the views among its outputs."""
    jaxpr = program.closed.jaxpr
    consts = [constant_view(value, depth) for value in program.closed.consts]
    known: dict[Any, View | _Looked | None] = dict(zip(jaxpr.constvars, consts, strict=True))
    known.update(zip(jaxpr.invars, inputs, strict=True))

    def read(atom: Any) -> View | _Looked | None:
        return constant_view(literal(atom), depth) if isinstance(atom, Literal) else known[atom]

    for step in program.steps:
        made = _step(step, [read(atom) for atom in step.eqn.invars], depth, uses)
        known.update(zip(step.eqn.outvars, made, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _only_views(values: Sequence[View | _Looked | None]) -> _Views:
    return [value if isinstance(value, View) else None for value in values]


def _step(step: Step, values: _Values, depth: int, uses: Uses) -> Sequence[View | _Looked | None]:
    name = step.eqn.primitive.name
    if step.called:
        return _walk(step.called, values, depth, uses)
    taken = _only_views(values)
    with_programs = {"scan": _scan, "while": _while, "cond": _cond}
    if name in with_programs:
        return with_programs[name](step, taken, depth, uses)
    views = [view for view in taken if view is not None]
    if len(views) == len(taken) and not step.programs:
        return applied(step.eqn, views, depth)
    looked = tuple(path for value in values if isinstance(value, _Looked) for path in value.paths)
    if name in LOOKUPS and taken[0] is not None:
        looked = tuple(taken[0].forms)
    elif name in _PRODUCTS and taken[0] is None and taken[1] is None:
        # As where each example has its own expert: the inputs of these rows are those of the product.
        uses.miss(dict.fromkeys(looked, "rows of it that inputs choose are a factor of a product"))
    _note(step, taken, uses)
    is_moved = name in (*MOVES, *AS_THEY_ARE, *LOOKUPS, "convert_element_type")
    return [_Looked(looked) if looked and is_moved else None] * len(step.eqn.outvars)


def _note(step: Step, taken: _Views, uses: Uses) -> None:
    """Record the uses of leaves in an equation that depends on the inputs."""
    name, place, view = step.eqn.primitive.name, None, None
    if name in _PRODUCTS and None in taken[:2]:
        place = taken.index(None)
        view = taken[1 - place] if has_rows(step, place) else None
    elif name in LOOKUPS:
        view = taken[0]
    if view is None:
        _miss(taken, f"it meets the inputs in {name!r}", uses)
        return
    uses.of_step[id(step)] = Use(view, step, place)
    uses.miss({path: _why_not(form, place) for path, form in view.forms.items()})


def _miss(views: Sequence[View | None], why: str, uses: Uses) -> None:
    """Record that all leaves of some views are used in a way that is not followed."""
    for view in views:
        uses.miss({path: form.lost or why for path, form in view.forms.items()} if view else {})


# Loops and branches ----------------------------------------------------------------------------------


def _scan(step: Step, taken: _Views, depth: int, uses: Uses) -> _Views:
    """Walk a scan's body: constants are whole in each round, and rows vary from round to round."""
    (body,) = step.programs
    consts, carries = scan_counts(step.eqn)
    carried = range(consts, consts + carries)
    before = [view and view.inside(varies=number >= carried.stop) for number, view in enumerate(taken)]
    counters, last = _counters(step, before, carried, depth)
    before = [counters.get(number, view) for number, view in enumerate(before)]
    inside, made = _repeated(body, before, carried, depth, uses, last)
    _take(uses, inside)
    rows: _Views = []
    for var, view in zip(step.eqn.outvars[carries:], made[carries:], strict=True):
        if view is None or view.varies[-1]:
            rows.append(view and view.outside())
        else:  # It would have to be repeated.
            shape = jax.ShapeDtypeStruct(shape_of(var), var.aval.dtype)  # type: ignore[attr-defined]
            rows.append(constant_view(shape, depth).with_forms(view.forms).lost("a loop repeats it"))
    return [*(view and view.outside() for view in made[:carries]), *rows]


def _counters(
    step: Step, before: _Views, carried: range, depth: int
) -> tuple[dict[int, View], dict[int, View]]:
    """Return the values of a scan's carries that depend on constants alone, such as the index of a loop.

    Args:
      step: the scan.
      before: the inputs of its body.
      carried: the places of the carries among them.
      depth: the number of loops around the scan.

    Returns:
      By place, the carries in each round; and after the last one.
    """
    (body,), length = step.programs, step.eqn.params["length"]
    start = {
        place: view
        for place in carried
        if (view := before[place]) is not None and not (view.unknown or any(view.varies))
    }
    start = {place: view for place, view in start.items() if not view.forms and view.is_made_of(())}
    if not start:
        return {}, {}
    own = {place: constant_view(None, depth + 1) for place in start}
    inputs = [own.get(place, view) for place, view in enumerate(before)]
    made = _only_views(_walk(body, inputs, depth + 1, Uses()))
    after = {place: made[place - carried.start] for place in own}
    # A carry that reads anything but constants and such carries has no known values.
    while unfit := [place for place, view in after.items() if not _reads_only(view, own)]:
        for place in unfit:
            del after[place], own[place]
    with jax.ensure_compile_time_eval():
        values = {place: [np.asarray(Reading({}).of(start[place]))] for place in own}
        if length * sum(of[0].size for of in values.values()) > _MOST:
            return {}, {}
        for _ in range(length):
            reading = Reading({}, {view: values[place][-1] for place, view in own.items()})
            new = {place: np.asarray(reading.of(view)) for place, view in after.items() if view is not None}
            for place, value in new.items():
                values[place].append(value)
    rounds, last = {}, {}
    for place, of in values.items():
        stacked = np.stack(of[:-1] or of)[:: -1 if step.eqn.params["reverse"] else 1]
        is_fixed = bool((stacked == stacked[:1]).all())
        view = constant_view(stacked[0] if is_fixed else stacked, depth)
        rounds[place], last[place] = view.inside(varies=not is_fixed), constant_view(of[-1], depth + 1)
    return rounds, last


def _reads_only(view: View | None, own: Mapping[int, View]) -> bool:
    """Return whether a view is made of constants and of some carries alone."""
    return view is not None and not view.forms and not view.unknown and view.is_made_of({*own.values()})


def _while(step: Step, taken: _Views, depth: int, uses: Uses) -> _Views:
    condition, body = step.programs
    of_condition, of_body = step.eqn.params["cond_nconsts"], step.eqn.params["body_nconsts"]
    views = [view and view.inside(varies=False) for view in taken]
    rest = views[of_condition:]
    inside, made = _repeated(body, rest, range(of_body, len(rest)), depth, uses)
    _take(uses, inside)
    ignored = Uses()
    _walk(condition, [*views[:of_condition], *made], depth + 1, ignored)
    for use in ignored.of_step.values():
        _miss([use.view], "the condition of a loop reads it", uses)
    _take(uses, Uses(missed=ignored.missed))
    return [view and view.outside() for view in made]


def _repeated(
    body: Program,
    before: _Views,
    carried: range,
    depth: int,
    uses: Uses,
    last: Mapping[int, View] | None = None,
) -> tuple[Uses, _Views]:
    """Walk the body of a loop until the views that it carries stay the same.

    Args:
      body: the body.
      before: its inputs.
      carried: the places of those that it carries.
      depth: the number of loops around the loop.
      uses: where carried leaves are missed that come to depend on the inputs.
      last: by place, carries that are known in every round, after the last one.

    Returns:
      The uses in the body, and its outputs; a carried array that a round changes is lost.
    """
    last = last or {}
    inputs, same = list(before), passed_on(body.closed)
    while True:
        inside = Uses()
        made = _only_views(_walk(body, inputs, depth + 1, inside))
        again = False
        for number, index in enumerate(carried):
            view, after = inputs[index], made[number]
            if index in last:
                made[number] = last[index]
            elif view is None or same[number] == index:
                made[number] = view
            elif after is None:
                _miss([view], "a loop carries it and changes it", uses)
                inputs[index], again = None, True
            else:
                if not view.unknown or not set(view.forms) >= set(after.forms):
                    changed = view.with_forms({**after.forms, **view.forms})
                    inputs[index], again = changed.lost("a loop carries it and changes it"), True
                made[number] = inputs[index]
        if not again:
            return inside, made


def _cond(step: Step, taken: _Views, depth: int, uses: Uses) -> _Views:
    """Walk all branches; what they return is followed if it is the same in all of them."""
    made = [_only_views(_walk(program, taken[1:], depth, uses)) for program in step.programs]
    outputs: _Views = []
    for views in zip(*made, strict=True):
        if all(view is not None and view is views[0] for view in views):
            outputs.append(views[0])
            continue
        _miss(views, "a branch chooses it", uses)
        outputs.append(None)
    return outputs


def _take(uses: Uses, inside: Uses) -> None:
    uses.of_step |= inside.of_step
    uses.missed = {**inside.missed, **uses.missed}
