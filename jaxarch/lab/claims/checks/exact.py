"""Identities in exact arithmetic: integers, fractions, symbols."""

from __future__ import annotations

import dataclasses
import inspect
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from jax import Array

from jaxarch.lab.claims.checks.core import Evidence


@dataclasses.dataclass(frozen=True)
class Exact:
    """An identity in exact arithmetic: integers, fractions, symbols.

    Attributes:
      holds: whether it is true in a case.
      cases: all of them, always the same; finitely many that prove it, or as many as are listed; in its
        docstring, which.
      mutations: by what was broken, other identities of the same cases.
      kind: `formal` where the cases are symbols that stand for everything of their kind, else `exact`.
    """

    holds: Callable[..., bool]
    cases: Callable[[], Iterable[Mapping[str, Any]]]
    mutations: Mapping[str, Callable[..., bool]] = dataclasses.field(default_factory=dict)
    kind: Literal["exact", "formal"] = "exact"

    @property
    def domain(self) -> str:
        """Which cases, in words."""
        first, *_ = (inspect.getdoc(self.cases) or "").split("\n")
        return first.removesuffix(".")

    def run(self, key: Array, cases: int, mutation: str | None = None) -> Evidence:
        """The identity, or a mutation of it, in every case until one fails. Nothing is drawn."""
        holds = self.holds if mutation is None else self.mutations[mutation]
        start, count = time.perf_counter(), 0
        for case in self.cases():
            count += 1
            if not holds(**case):
                return self._evidence(False, -1.0, count, case, start)
        return self._evidence(True, 0.0, count, {}, start)

    def _evidence(
        self, holds: bool, margin: float, count: int, case: Mapping[str, Any], start: float
    ) -> Evidence:
        return Evidence(self.kind, holds, margin, count, case, time.perf_counter() - start, self.domain)
