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
      holds: a function from a case to whether the identity is true.
      cases: a function that yields all cases, always the same. They are finitely many cases that prove the
        identity, or a list of examples. The first line of its docstring says which.
      mutations: other identities on the same cases, keyed by what was broken.
      kind: `formal` if the cases are symbols that stand for everything of their kind, else `exact`.
    """

    holds: Callable[..., bool]
    cases: Callable[[], Iterable[Mapping[str, Any]]]
    mutations: Mapping[str, Callable[..., bool]] = dataclasses.field(default_factory=dict)
    kind: Literal["exact", "formal"] = "exact"

    @property
    def domain(self) -> str:
        """The cases in words, from the first line of the docstring of `cases`."""
        # docs/claims.md lists the domains, so it changes with those docstrings.
        first, *_ = (inspect.getdoc(self.cases) or "").split("\n")
        return first.removesuffix(".")

    def run(self, key: Array, cases: int, mutation: str | None = None) -> Evidence:
        """Check the identity, or a mutation of it, in every case until one fails. Nothing is drawn."""
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
