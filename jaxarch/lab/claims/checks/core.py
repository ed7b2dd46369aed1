"""What a claim is, and how its verdict is found: by running its checks, never by copying.

A claim is data: a statement with its source, the checks that it must pass, the case in which what is printed
fails (where it does), and mutated statements, which the same checks must reject.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxarch import float64
from jaxarch.lab.checks import check_count, check_instance, check_one_key

Verdict = Literal["holds", "holds as corrected", "refuted", "fails", "not refuted"]
"""The last two are never recorded: a check or a control that fails, a counterexample that is none."""

EPS = 2.0**-52
"""The spacing of float64 at 1, the unit of a-priori rounding bounds."""

CASES = 10_000
"""Drawn for each inequality."""

QUICK = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}
"""Of programs that run once or twice: what takes long is to compile them. Of XLA, which may drop some."""


@functools.cache
def quick() -> dict[str, Any]:
    """Those of `QUICK` that this version of XLA has."""

    def is_known(name: str) -> bool:
        try:
            jax.jit(lambda: 0, compiler_options={name: QUICK[name]}).lower().compile()
        except jax.errors.JaxRuntimeError:
            return False
        return True

    return {name: QUICK[name] for name in filter(is_known, QUICK)}


class Sides(NamedTuple):
    """A statement at one case, as `left <= right`.

    An identity is one as well: the size of its residual on the left, on the right the bound on rounding
    errors that is known before computing.

    Attributes:
      left: what is bounded.
      right: the bound.
      rounding: by how much floating-point errors may make `left` exceed `right`, an a-priori bound; 0 where
        `right` is one itself.
    """

    left: Array
    right: Array
    rounding: ArrayLike = 0.0

    @property
    def margin(self) -> Array:
        """`(R - left) / max(|left|, |R|)` with `R = right + rounding`.

        1 where left is 0, 0 where both agree, negative where the statement fails.
        """
        right = self.right + self.rounding
        larger = jnp.maximum(jnp.abs(self.left), jnp.abs(right))
        margin = (right - self.left) / jnp.where(larger > 0, larger, 1)
        return jnp.where(jnp.isposinf(right) & jnp.isfinite(self.left), 1.0, margin)

    @property
    def holds(self) -> Array:
        """Whether `left <= right` up to rounding; not where a side is NaN."""
        return self.left <= self.right + self.rounding


Statement = Callable[..., Sides]
"""A pure function of a case's variables, by name, written in JAX."""


class Evidence(NamedTuple):
    """What a check found.

    Attributes:
      kind: `formal` (in symbols, for all values), `exact`, `proved on the box`, `sampled` or `searched`.
      holds: whether the statement held in every case.
      margin: the smallest one; 0 for exact identities.
      cases: how many.
      worst: the case of the smallest margin, or the one that failed.
      seconds: without compilation.
      domain: of which cases, in words.
    """

    kind: str
    holds: bool
    margin: float
    cases: int
    worst: Mapping[str, Any]
    seconds: float
    domain: str = ""

    @property
    def is_proof(self) -> bool:
        """Whether it covers more than the cases that were counted."""
        return self.kind in ("formal", "proved on the box")

    @property
    def ratio(self) -> float:
        """`left/right` in the worst case, for sides that are not negative: 1 where both agree."""
        if self.margin >= 0:
            return 1 - self.margin
        return 1 / (1 + self.margin) if self.margin > -1 else math.inf


class Check(Protocol):
    """Evidence for a statement, and mutated statements for which the same evidence must not be had."""

    @property
    def kind(self) -> str:
        """Of the evidence; see `Evidence`."""

    @property
    def domain(self) -> str:
        """Of which cases, in words."""

    @property
    def mutations(self) -> Mapping[str, Any]:
        """Statements of the same cases that must be rejected, by what was broken."""

    def run(self, key: Array, cases: int, mutation: str | None = None) -> Evidence:
        """Evidence for the statement, or for one of its mutations, from at least so many cases."""


class Evaluated(NamedTuple):
    """Both sides of a statement at one case, in plain numbers; see `Sides`."""

    left: float
    right: float
    margin: float
    holds: bool


@dataclasses.dataclass(frozen=True)
class PrintedCase:
    """A printed statement at one case.

    Attributes:
      statement: the printed statement, a public function of this package.
      case: its variables, as plain numbers and tuples of them.
    """

    statement: Statement
    case: Mapping[str, Any]

    def evaluate(self) -> Evaluated:
        """The printed statement there, in float64."""
        (found,) = evaluated((self,))
        return found

    @property
    def line(self) -> str:
        """A line of Python that evaluates it."""
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.case.items())
        return f"{self.statement.__module__}.{self.statement.__name__}({arguments})"


def evaluated(cases: Sequence[PrintedCase]) -> tuple[Evaluated, ...]:
    """Each printed statement at its case, in float64; one program for all."""

    def program() -> list[tuple[Array, ...]]:
        every = [case.statement(**case.case) for case in cases]
        return [(sides.left, sides.right, sides.margin, sides.holds) for sides in every]

    with float64():
        found = jax.jit(program, compiler_options=quick())() if cases else []
        return tuple(Evaluated(float(a), float(b), float(margin), bool(h)) for a, b, margin, h in found)


class Counterexample(PrintedCase):
    """A case in which a printed statement fails."""


class Control(PrintedCase):
    """One in which it holds, if it is a bound nearly with equality: copied as less than it is, it fails."""


@dataclasses.dataclass(frozen=True)
class Claim:
    """A statement of a paper or of this library, with what it takes to judge it.

    Attributes:
      id: such as `D.lemma-4.2`.
      source: where it is stated, with the number of the equation.
      statement: in plain text, one line; of a corrected claim, the corrected form.
      latex: the same as a formula.
      verdict: the recorded one, which running the checks must confirm.
      assumptions: under which it is stated; empty for none.
      remark: what is wrong with the printed form, why, and what replaces it.
      checks: of the statement; none for one that is refuted.
      printed: cases in which the printed form fails; none where it holds.
      controls: of a claim that is refuted, cases in which the printed form holds all the same.
      see: ids of claims that replace or sharpen it.
    """

    id: str
    source: str
    statement: str
    latex: str
    verdict: Verdict
    assumptions: str = ""
    remark: str = ""
    checks: tuple[Check, ...] = ()
    printed: tuple[Counterexample, ...] = ()
    controls: tuple[Control, ...] = ()
    see: tuple[str, ...] = ()


class Outcome(NamedTuple):
    """A claim and what running it found.

    Attributes:
      claim: the claim.
      verdict: the one found.
      evidence: of each of the claim's checks.
      printed: the printed form at each of the claim's counterexamples.
      controls: and at each of its controls.
    """

    claim: Claim
    verdict: Verdict
    evidence: tuple[Evidence, ...]
    printed: tuple[Evaluated, ...]
    controls: tuple[Evaluated, ...] = ()

    @property
    def as_recorded(self) -> bool:
        """Whether the verdict is the recorded one."""
        return self.verdict == self.claim.verdict

    @property
    def margin(self) -> float:
        """The smallest over all checks; of a refuted claim, the (negative) one of its counterexamples."""
        return min((found.margin for found in self.evidence or self.printed), default=float("nan"))

    @property
    def cases(self) -> int:
        """Of all checks together; of a refuted claim, its counterexamples."""
        return sum(found.cases for found in self.evidence) or len(self.printed)

    @property
    def seconds(self) -> float:
        """Of all checks together, without compilation."""
        return sum(found.seconds for found in self.evidence)

    @property
    def kinds(self) -> str:
        """How it was found."""
        kinds = dict.fromkeys(found.kind for found in self.evidence)
        return ", ".join(kinds) or "counterexample"


def judge(claim: Claim, key: Array, cases: int = CASES) -> Outcome:
    """Run a claim's checks and its counterexamples, and say what follows from them.

    Args:
      claim: the claim.
      key: a `jax.random.key`, for the cases that are drawn.
      cases: how many to draw for each inequality, at least 1.

    Example:
      >>> import jax
      >>> from jaxarch.lab.claims import Claim, Exact, judge
      >>> sums = Exact(lambda n: sum(range(n + 1)) == n * (n + 1) // 2, lambda: [{"n": n} for n in range(50)])
      >>> statement = "1 + ... + n = n (n + 1)/2"
      >>> claim = Claim("sums", "school", statement, latex=statement, verdict="holds", checks=(sums,))
      >>> outcome = judge(claim, jax.random.key(0))
      >>> outcome.verdict, outcome.kinds, outcome.cases
      ('holds', 'exact', 50)
    """
    check_instance("claim", claim, Claim, "a jaxarch.lab.claims.Claim")
    check_one_key(key)
    check_count("cases", cases)
    keys = jax.random.split(key, max(len(claim.checks), 1))
    evidence = tuple(check.run(k, cases) for check, k in zip(claim.checks, keys, strict=False))
    both = evaluated((*claim.printed, *claim.controls))
    printed, controls = both[: len(claim.printed)], both[len(claim.printed) :]
    return Outcome(claim, _verdict(evidence, printed, controls), evidence, printed, controls)


def _verdict(
    evidence: tuple[Evidence, ...], printed: tuple[Evaluated, ...], controls: tuple[Evaluated, ...]
) -> Verdict:
    if not all(found.holds for found in evidence) or not all(sides.holds for sides in controls):
        return "fails"
    if not printed:
        return "holds"
    if any(sides.holds for sides in printed):
        return "not refuted"
    return "holds as corrected" if evidence else "refuted"
