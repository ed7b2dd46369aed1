"""Inequalities in drawn cases, all of them in one program."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.stages import Compiled

from jaxarch.lab.claims.checks.core import Evidence, Statement, float64, quick
from jaxarch.lab.claims.checks.cube import Cube


@dataclasses.dataclass(frozen=True, eq=False)
class Inequality:
    """`left <= right` in drawn cases, all of them in one program, in float64.

    Attributes:
      statement: the sides at a case.
      cube: the cases.
      mutations: by what was broken, statements of the same cases that must fail in at least one.
      cases: how many to draw, where that is not the caller's number (slow statements), at least 1,000.
    """

    statement: Statement
    cube: Cube
    mutations: Mapping[str, Statement] = dataclasses.field(default_factory=dict)
    cases: int | None = None

    @property
    def kind(self) -> str:
        """`sampled`."""
        return "sampled"

    @property
    def domain(self) -> str:
        """What the cases are drawn from, in words."""
        return self.cube.words

    def run(self, key: Array, cases: int, mutation: str | None = None) -> Evidence:
        """The statement, or a mutation of it, at points drawn uniformly from the cube."""
        statement = self.statement if mutation is None else self.mutations[mutation]
        # Drawn by NumPy: JAX would compile a program for each number of coordinates.
        random = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        points = random.random((self.cases or cases, self.cube.dimension))
        return evaluate(statement, self.cube, points)


class Outcomes(NamedTuple):
    """Of a statement at many points of its cube; all with a leading axis of cases.

    Attributes:
      holds: whether it held.
      margins: see `Sides.margin`; -inf where a side is NaN.
      variables: the cases themselves.
    """

    holds: Array
    margins: Array
    variables: dict[str, Array]


@functools.cache
def compiled(statement: Statement, cube: Cube, cases: int) -> Compiled:
    """A statement at points of shape (cases, dimension), as its `Outcomes`, in float64."""

    def at(point: Array) -> Outcomes:
        variables = cube(point)
        sides = statement(**variables)
        return Outcomes(sides.holds, jnp.nan_to_num(sides.margin, nan=-jnp.inf), variables)

    with float64():
        points = jax.ShapeDtypeStruct((cases, cube.dimension), jnp.float64)
        program = jax.jit(lambda points: jax.lax.map(at, points, batch_size=1000), compiler_options=quick())
        return program.lower(points).compile()


def evaluate(statement: Statement, cube: Cube, points: np.ndarray) -> Evidence:
    """A statement at many points of its cube, of shape (cases, dimension), in one program."""
    program = compiled(statement, cube, len(points))
    with float64():
        start = time.perf_counter()
        holds, margins, variables = jax.tree.map(np.asarray, program(points))
        seconds = time.perf_counter() - start
    # A case that fails is worse than any that holds by less.
    worst = int(np.argmin(np.where(holds, margins, margins - 1e9)))
    case = {name: values[worst].tolist() for name, values in variables.items()}
    found = Evidence("sampled", bool(holds.all()), float(margins[worst]), len(points), case, seconds)
    return found._replace(domain=cube.words)
