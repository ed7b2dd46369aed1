"""Inequalities in drawn cases, which one program evaluates together."""

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
    """`left <= right` in drawn cases, evaluated in one program and in float64.

    Attributes:
      statement: a function from a case to its sides.
      cube: the cases.
      mutations: statements on the same cases, keyed by what was broken; each must fail in at least one case.
      cases: the number of cases, at least 1,000, for slow statements; by default the caller's number.
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
        """The ranges of the variables in words."""
        return self.cube.words

    def run(self, key: Array, cases: int, mutation: str | None = None) -> Evidence:
        """Evaluate the statement, or a mutation of it, at points drawn uniformly from the cube."""
        statement = self.statement if mutation is None else self.mutations[mutation]
        # NumPy draws, since JAX would compile a program for each number of coordinates.
        random = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        points = random.random((self.cases or cases, self.cube.dimension))
        return evaluate(statement, self.cube, points)


class Outcomes(NamedTuple):
    """Results of a statement at many points of its cube; every array has a leading axis of cases.

    Attributes:
      holds: whether the statement held.
      margins: see `Sides.margin`; -inf where a side is NaN.
      variables: the cases themselves.
    """

    holds: Array
    margins: Array
    variables: dict[str, Array]


@functools.cache
def compiled(statement: Statement, cube: Cube, cases: int) -> Compiled:
    """Compile a program from points of shape (cases, dimension) to a statement's `Outcomes`, in float64.

    The cache compares statements and cubes by identity.
    """

    def at(point: Array) -> Outcomes:
        variables = cube(point)
        sides = statement(**variables)
        return Outcomes(sides.holds, jnp.nan_to_num(sides.margin, nan=-jnp.inf), variables)

    with float64():
        points = jax.ShapeDtypeStruct((cases, cube.dimension), jnp.float64)
        program = jax.jit(lambda points: jax.lax.map(at, points, batch_size=1000), compiler_options=quick())
        return program.lower(points).compile()


def evaluate(statement: Statement, cube: Cube, points: np.ndarray) -> Evidence:
    """Evaluate a statement at points of its cube, of shape (cases, dimension), in one program."""
    program = compiled(statement, cube, len(points))
    with float64():
        start = time.perf_counter()
        holds, margins, variables = jax.tree.map(np.asarray, program(points))
        seconds = time.perf_counter() - start
    # A failing case ranks below every case that holds, whatever the margins are.
    worst = int(np.argmin(np.where(holds, margins, margins - 1e9)))
    case = {name: values[worst].tolist() for name, values in variables.items()}
    found = Evidence("sampled", bool(holds.all()), float(margins[worst]), len(points), case, seconds)
    return found._replace(domain=cube.words)
