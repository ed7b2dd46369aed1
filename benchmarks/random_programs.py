"""Is a smaller program ever silently wrong?

    python benchmarks/random_programs.py smaller 0 1000   # programs of seeds 0 to 999, on one core
    python benchmarks/random_programs.py shrink 0 1000 --least   # each failure with its fewest operations

A seed draws a program of 4 to 14 operations of `random_operations.py`: products in any layout, convolutions,
norms, attention, reshapes, indexing, loops, branches, custom derivatives and others. `jaxarch.structure`
reads its groups of axes. Numbers have 64 bits, so that a difference is no rounding.

- smaller: random units of all groups are cut. The reference runs the traced program at its full size. Units
  that are gone hold garbage there, and sums, maxima and products leave them out. An operation that mixes
  units without being noticed takes up the garbage. `groups.smaller(kept)` must compute the reference's
  outputs. On every third seed its gradient must be the cut gradient, and on every fourth it must run under
  `vmap` and on more examples.
- shrink: random rows, columns, units and leaves are 0, some leaves are negative. The model cut to the units
  that `groups.fold` needs must compute the outputs of the whole on four batches of inputs, and on every third
  seed their gradients. Every fourth seed goes through `jaxarch.shrink`.

An exception is a failure too. The reference takes from jaxarch which units an array has, and nothing else.

No wrong number was found. Of the programs of seeds 0 to 999, 130 have no group. The 870 others computed the
reference's numbers when they were cut (`smaller`). With dead units, 764 became smaller and computed the same,
and 105 kept all units. Seed 460 is a false alarm: its outputs are means of centered values, which cancel to
1e-17, and `jaxarch.shrink` takes the rounding for an error. Seed 994 stopped with an exception until a
bias along which its product is repeated was left alone.
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.extend.core import Literal
from random_operations import OPERATIONS, Draw, head

import jaxarch
from jaxarch._internal.trees import inexact, merge
from jaxarch.structure import axis_groups
from jaxarch.structure._flow import CALLED, OWN_DERIVATIVE, PRODUCTS, REDUCTIONS, Program, Step, bind, literal
from jaxarch.structure._groups import Groups
from jaxarch.structure._liveness import there
from jaxarch.structure._scans import scan_counts
from jaxarch.structure._shrink import relative_difference

MOST = 400
"""Most numbers of a value, for one example."""
OUTPUTS, GRADIENTS = 1e-6, 1e-5
"""Largest relative differences."""
SHAPES = ((6,), (4, 6), (5, 4), (4, 4, 3), (6, 3), (2, 3, 4))
SUMS = (*REDUCTIONS, *PRODUCTS, "ragged_dot_general")

Operations = list[tuple[int, int]]
"""The number of each operation, and the seed of its decisions."""
Found = str | list[str]
"""A word for a program that has nothing to check, or its failures."""


# Programs --------------------------------------------------------------------------------------------


class Model(NamedTuple):
    """A random program: `function(params, x)`."""

    params: dict[str, Array]
    x: Array
    function: Callable[..., Any]
    differentiable: bool


def operations(seed: int) -> Operations:
    rng = np.random.default_rng([seed, 99])
    drawn = [
        (int(rng.integers(len(OPERATIONS))), int(rng.integers(1 << 30))) for _ in range(rng.integers(4, 15))
    ]
    if rng.random() < 0.8:
        drawn[0] = (0, drawn[0][1])
    if rng.random() < 0.5:
        drawn[-1] = (0, drawn[-1][1])
    return drawn


def run(draw: Draw, program: Operations, x: Array) -> tuple[Array, ...]:
    h, draw.pool = x, [x]
    for number, seed in program:
        draw.rng = np.random.default_rng(seed)
        made = OPERATIONS[number](draw, h)
        if made.size == 0 or int(np.prod(made.shape[1:])) > MOST or made.ndim < 2:
            continue
        h = made
        draw.pool.append(h)
        if draw.chance(0.25):
            h = draw.one(draw.pool)
    draw.rng = np.random.default_rng(draw.seed)
    outputs = [head(draw, h)]
    if draw.chance(0.3):
        outputs.append(head(draw, draw.pool[-1]))
    return tuple(outputs)


def example(seed: int, count: int = 3) -> Array:
    shape = SHAPES[np.random.default_rng([seed, 7]).integers(len(SHAPES))]
    return jnp.asarray(np.random.default_rng([seed, 7, count]).normal(size=(count, *shape)))


def model(seed: int, program: Operations) -> Model:
    x, draw = example(seed), Draw(seed)
    jax.eval_shape(lambda x: run(draw, program, x), x)
    params = {name: jnp.asarray(leaf) for name, leaf in draw.params.items()}
    return Model(params, x, lambda params, x: run(Draw(seed, params), program, x), draw.differentiable)


# The reference ---------------------------------------------------------------------------------------


def neutral(name: str, dtype: Any) -> Any:
    """Return the number that a sum or a reduction ignores."""
    if jnp.issubdtype(dtype, jnp.bool_):
        return name in ("reduce_and", "reduce_min", "reduce_prod")
    if name in ("reduce_max", "reduce_min"):
        if jnp.issubdtype(dtype, jnp.inexact):
            return -jnp.inf if name == "reduce_max" else jnp.inf
        return jnp.iinfo(dtype).min if name == "reduce_max" else jnp.iinfo(dtype).max
    return {"reduce_prod": 1, "reduce_and": -1}.get(name, 0)


def replaced(value: Any, axes: Any, kept: Any, number: Any) -> Any:
    """Put a number in place of the units that are gone."""
    stays = there(axes, kept)
    if stays.all() or jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return value
    return jnp.where(jnp.broadcast_to(stays, value.shape), value, jnp.asarray(number, value.dtype))


def reference(program: Program, kept: Any, inputs: Sequence[Any]) -> list[Any]:
    """Run a program at its full size, where units that are gone are 1 and no sum has them."""
    jaxpr = program.closed.jaxpr
    known = dict(zip(jaxpr.constvars, program.closed.consts, strict=True))
    for var, value, axes in zip(jaxpr.invars, inputs, program.inputs, strict=True):
        known[var] = replaced(jnp.asarray(value), axes, kept, 1)

    def read(atom: Any) -> Any:
        return jnp.asarray(literal(atom)) if isinstance(atom, Literal) else known[atom]

    for step in program.steps:
        outputs = computed(step, kept, [read(atom) for atom in step.eqn.invars])
        for var, value, axes in zip(step.eqn.outvars, outputs, step.outputs, strict=True):
            known[var] = replaced(value, axes, kept, 1)
    return [read(atom) for atom in jaxpr.outvars]


def computed(step: Step, kept: Any, taken: list[Any]) -> Sequence[Any]:
    name = step.eqn.primitive.name
    # A function of entries alone keeps its derivative.
    if name in OWN_DERIVATIVE and not sums(step.programs[0], kept):
        return bind(step.eqn, taken)
    if name in CALLED:
        return reference(step.programs[0], kept, taken)
    if name in CONTROL:
        return CONTROL[name](step, kept, taken)
    if name in SUMS:
        pairs = zip(taken, step.inputs, strict=True)
        taken = [replaced(value, axes, kept, neutral(name, value.dtype)) for value, axes in pairs]
    return bind(step.eqn, taken)


def sums(program: Program, kept: Any) -> bool:
    """Return whether a program sums over units that are gone."""
    return any(
        (step.eqn.primitive.name in SUMS and not all(there(axes, kept).all() for axes in step.inputs))
        or any(sums(inside, kept) for inside in step.programs)
        for step in program.steps
    )


def scanned(step: Step, kept: Any, taken: list[Any]) -> Sequence[Any]:
    params, (consts, carries) = step.eqn.params, scan_counts(step.eqn)

    def body(carry: list[Any], rows: list[Any]) -> tuple[list[Any], list[Any]]:
        made = reference(step.programs[0], kept, [*taken[:consts], *carry, *rows])
        return made[:carries], made[carries:]

    start, rows = taken[consts : consts + carries], taken[consts + carries :]
    carry, made = lax.scan(body, start, rows, params["length"], params["reverse"])
    return [*carry, *made]


def looped(step: Step, kept: Any, taken: list[Any]) -> Sequence[Any]:
    first, (condition, body) = step.eqn.params["cond_nconsts"], step.programs
    second = first + step.eqn.params["body_nconsts"]
    return lax.while_loop(
        lambda carry: reference(condition, kept, [*taken[:first], *carry])[0],
        lambda carry: reference(body, kept, [*taken[first:second], *carry]),
        taken[second:],
    )


def branched(step: Step, kept: Any, taken: list[Any]) -> Sequence[Any]:
    branches = [lambda *inputs, of=of: reference(of, kept, inputs) for of in step.programs]
    return lax.switch(taken[0].astype(jnp.int32), branches, *taken[1:])


CONTROL = {"scan": scanned, "while": looped, "cond": branched}


# Checks ----------------------------------------------------------------------------------------------


def with_gradient(function: Callable[..., Any], tree: Any, differentiable: bool, *inputs: Any) -> Any:
    outputs = function(tree, *inputs)

    def total(moves: Any) -> Array:
        made = jax.tree.leaves(inexact(function(merge(moves, tree), *inputs)))
        # The weights differ from output to output, so that no two gradients cancel.
        weights = [jnp.cos(jnp.arange(leaf.size)).reshape(leaf.shape) for leaf in made]
        return jnp.stack([(leaf * by).sum() for leaf, by in zip(made, weights, strict=True)]).sum()

    return outputs, jax.grad(total)(inexact(tree)) if differentiable else None


def apart(one: Any, other: Any) -> float:
    """Return how far outputs are apart; outputs that cancel are nothing but rounding."""
    one, other = (jax.tree.map(np.asarray, tree) for tree in (one, other))
    leaves = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    if not all(
        a.shape == b.shape and np.allclose(a, b, rtol=0, atol=1e-11, equal_nan=True) for a, b in leaves
    ):
        return relative_difference(one, other)
    return 0.0


def gradients_apart(one: Any, other: Any) -> float:
    """Return how far gradients are apart; a leaf far below the largest is nothing but rounding."""
    ones, others = ([np.asarray(leaf) for leaf in jax.tree.leaves(tree)] for tree in (one, other))
    sizes = [float(np.abs(leaf).max(initial=0)) for leaf in ones]
    least = max(1e-6 * max(sizes, default=0), 1e-30)
    leaves = zip(ones, others, sizes, strict=True)
    return max((float(np.abs(a - b).max(initial=0)) / max(size, least) for a, b, size in leaves), default=0)


def has_nan(tree: Any) -> bool:
    return any(np.isnan(leaf).any() for leaf in jax.tree.leaves(tree))


def failures(what: str, difference: float, bound: float = OUTPUTS) -> list[str]:
    return [f"{what} {difference:.1e}"] if difference > bound else []


def some_units(groups: Groups, rng: np.random.Generator) -> dict[str, np.ndarray]:
    kept = {}
    for name, group in groups.groups.items():
        kept[name] = rng.random(group.size) < rng.choice([0.3, 0.6, 1.0])
        kept[name][rng.integers(group.size)] = True
    return kept


def check_smaller(seed: int, program: Operations) -> Found:
    params, x, function, differentiable = model(seed, program)
    groups, differentiable = axis_groups(function, params, x), differentiable and seed % 3 == 0
    if not groups.groups:
        return "nothing"
    kept = some_units(groups, np.random.default_rng([seed, 5]))
    small, smaller = groups.cut(params, kept), groups.smaller(kept)

    def whole(params: Any, x: Array) -> tuple[Any, ...]:
        again = Groups(function, groups._shapes, (x,))
        units = again._of_atoms(again.of_these(kept))
        return tuple(reference(again._program, units, [*jax.tree.leaves(params), x]))

    @jax.jit
    def both(params: Any, small: Any, x: Array) -> Any:
        return (
            with_gradient(whole, params, differentiable, x),
            with_gradient(smaller, small, differentiable, x),
        )

    (expected, slopes), (made, own) = both(params, small, x)
    found = [] if has_nan(expected) else failures("outputs", apart(expected, made))
    if differentiable:
        floats = [path for path, leaf in params.items() if leaf.dtype.kind == "f"]
        cut = groups.cut({path: slopes[path] for path in floats}, kept)
        if not has_nan(cut):
            difference = gradients_apart(cut, {path: own[path] for path in floats})
            found += failures("gradients", difference, GRADIENTS)
    # JAX does not map ragged products yet.
    if seed % 4 == 0 and not found and "ragged_dot" not in str(groups._traced):
        two = jax.tree.map(lambda leaf: jnp.stack([jnp.asarray(leaf)] * 2), small)
        mapped = jax.jit(jax.vmap(smaller, (0, None)))(two, x)
        found += failures("vmap", apart(made, jax.tree.map(lambda leaf: leaf[1], mapped)))
        more = example(seed, 5)
        expected, made = jax.jit(whole)(params, more), jax.jit(smaller)(small, more)
        found += [] if has_nan(expected) else failures("more examples", apart(expected, made))
    return found


def deadened(seed: int, params: dict[str, Array], groups: Groups) -> dict[str, Array]:
    """Set random rows, columns, units and leaves to 0, and make some leaves negative."""
    rng = np.random.default_rng([seed, 6])
    tree = {path: np.array(leaf) for path, leaf in params.items()}
    for leaf in tree.values():
        if rng.random() < 0.1:
            leaf[...] = 0
        if rng.random() < 0.2 and leaf.dtype.kind == "f":
            np.copyto(leaf, -np.abs(leaf))
        for axis in range(leaf.ndim):
            if rng.random() < 0.5:
                leaf[(slice(None),) * axis + (rng.random(leaf.shape[axis]) < 0.4,)] = 0
    for name, group in groups.groups.items():
        if rng.random() < 0.5:
            units = rng.random(group.size) < 0.6
            units[rng.integers(group.size)] = True
            everywhere = rng.random() < 0.5
            for path, stays in groups.mask({name: units}).items():
                if everywhere or rng.random() < 0.6:
                    tree[path] = np.where(stays, tree[path], 0).astype(tree[path].dtype)
    return {path: jnp.asarray(leaf) for path, leaf in tree.items()}


def check_shrink(seed: int, program: Operations) -> Found:
    params, x, function, differentiable = model(seed, program)
    groups, differentiable = axis_groups(function, params, x), differentiable and seed % 3 == 0
    if not groups.groups:
        return "nothing"
    tree = deadened(seed, params, groups)
    if seed % 4 == 0:
        shrunk = jaxarch.shrink(function, tree, x)
        kept, small, smaller = shrunk.kept, shrunk.tree, shrunk.function
    else:
        kept, folded, _ = groups.fold(tree)
        small, smaller = groups.cut(folded, kept), groups.smaller(kept)
    if all(units.all() for units in kept.values()):
        return "whole"

    @jax.jit
    def both(tree: Any, small: Any, x: Array) -> Any:
        return (
            with_gradient(lambda x, tree: function(tree, x), x, differentiable, tree),
            with_gradient(lambda x, tree: smaller(tree, x), x, differentiable, small),
        )

    found: list[str] = []
    for number, change in enumerate((lambda y: y, lambda y: 4 * y, jnp.round, jnp.zeros_like)):
        y = change(jnp.asarray(np.random.default_rng([seed, 8, number]).normal(size=x.shape)))
        (expected, slopes), (made, own) = both(tree, small, y)
        if not has_nan(expected):
            found += failures("outputs", apart(expected, made))
            # At 0 and at integers the program may have no derivative.
            if differentiable and number < 2 and not has_nan(slopes):
                found += failures("gradients", gradients_apart(slopes, own), GRADIENTS)
    return found


CHECKS = {"smaller": check_smaller, "shrink": check_shrink}


def attempt(name: str, seed: int, program: Operations) -> Found:
    try:
        return CHECKS[name](seed, program)
    except Exception as error:
        if "computes NaN" in str(error):
            return "nan"
        return [f"{type(error).__name__} {str(error)[:300]}"]


def least(name: str, seed: int, program: Operations) -> Operations:
    """Leave out operations as long as the failure stays the same."""
    kind = attempt(name, seed, program)[0].split()[0]
    for index in range(len(program)):
        fewer = [*program[:index], *program[index + 1 :]]
        found = attempt(name, seed, fewer)
        if isinstance(found, list) and found and found[0].split()[0] == kind:
            return least(name, seed, fewer)
    return program


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("check", choices=CHECKS)
    parser.add_argument("start", type=int)
    parser.add_argument("stop", type=int)
    parser.add_argument("--least", action="store_true", help="show the fewest operations that fail")
    args = parser.parse_args()
    counts: Counter[str] = Counter()
    for seed in range(args.start, args.stop):
        program = operations(seed)
        found = attempt(args.check, seed, program)
        counts[found if isinstance(found, str) else "wrong" if found else "right"] += 1
        if isinstance(found, list) and found:
            print(seed, *found, flush=True)
            if args.least:
                few = least(args.check, seed, program)
                print("  ", [OPERATIONS[number].__name__ for number, _ in few], flush=True)
                print(jax.make_jaxpr(model(seed, few).function)(*model(seed, few)[:2]))
        if seed % 100 == 99:
            jax.clear_caches()
    print(dict(counts))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    jax.config.update("jax_enable_x64", True)
    main()
