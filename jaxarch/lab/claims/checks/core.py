"""Claims and their verdicts, which are found by running the checks and never copied.

A claim is data: a statement with its source, and the checks that it must pass. Where the printed form fails,
the claim has a case in which it does. The checks have mutated statements, which they must reject.
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
"""Verdicts on a claim.

The last two are never recorded. `fails` means that a check or a control failed, `not refuted` that the
printed form holds at a counterexample.
"""

EPS = 2.0**-52
"""The spacing of float64 at 1, the unit of a-priori rounding bounds."""

CASES = 10_000
"""Default number of cases drawn for each inequality."""

QUICK = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}
"""XLA options for programs that run once or twice, whose time is mostly compilation.

A version of XLA may lack some of them; see `quick`.
"""


@functools.cache
def quick() -> dict[str, Any]:
    """Return the options of `QUICK` that this version of XLA knows."""

    # An unknown option is a compilation error, so a small program is compiled with each one.
    def is_known(name: str) -> bool:
        try:
            jax.jit(lambda: 0, compiler_options={name: QUICK[name]}).lower().compile()
        except jax.errors.JaxRuntimeError:
            return False
        return True

    return {name: QUICK[name] for name in filter(is_known, QUICK)}


class Sides(NamedTuple):
    """Both sides of a statement `left <= right` at one case.

    An identity is a statement too: the size of its residual is on the left, and an a-priori bound on rounding
    errors on the right.

    Attributes:
      left: the bounded quantity.
      right: the bound.
      rounding: an a-priori bound on the excess of `left` over `right` through floating-point errors; 0 where
        `right` is itself such a bound.
    """

    left: Array
    right: Array
    rounding: ArrayLike = 0.0

    @property
    def margin(self) -> Array:
        """`(R - left) / max(|left|, |R|)` with `R = right + rounding`.

        It is 1 where left is 0, 0 where both sides agree, and negative where the statement fails.
        """
        right = self.right + self.rounding
        larger = jnp.maximum(jnp.abs(self.left), jnp.abs(right))
        margin = (right - self.left) / jnp.where(larger > 0, larger, 1)
        return jnp.where(jnp.isposinf(right) & jnp.isfinite(self.left), 1.0, margin)

    @property
    def holds(self) -> Array:
        """True where `left <= right` up to rounding; False where a side is NaN."""
        return self.left <= self.right + self.rounding


Statement = Callable[..., Sides]
"""A pure function, written in JAX, of a case's variables, which are passed by name."""


class Evidence(NamedTuple):
    """The result of a check.

    Attributes:
      kind: `formal` (in symbols, for all values), `exact`, `proved on the box`, `sampled` or `searched`.
      holds: whether the statement held in every case.
      margin: the smallest margin; 0 for exact identities.
      cases: the number of cases.
      worst: the case with the smallest margin, or the case that failed.
      seconds: the running time without compilation.
      domain: the cases in words.
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
        """True if the evidence covers more than the cases that were counted."""
        return self.kind in ("formal", "proved on the box")

    @property
    def ratio(self) -> float:
        """`left/right` in the worst case, for sides that are not negative: 1 where both agree."""
        if self.margin >= 0:
            return 1 - self.margin
        return 1 / (1 + self.margin) if self.margin > -1 else math.inf


class Check(Protocol):
    """A check of a statement, with mutated statements that it must reject."""

    @property
    def kind(self) -> str:
        """The kind of the evidence; see `Evidence`."""

    @property
    def domain(self) -> str:
        """The cases in words."""

    @property
    def mutations(self) -> Mapping[str, Any]:
        """Statements on the same cases that must be rejected, keyed by what was broken."""

    def run(self, key: Array, cases: int, mutation: str | None = None) -> Evidence:
        """Check the statement, or one of its mutations.

        Checks that draw cases draw `cases` of them, unless they have a number of their own.
        """


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
        """Evaluate the printed statement at the case, in float64."""
        (found,) = evaluated((self,))
        return found

    @property
    def line(self) -> str:
        """A line of Python that evaluates the statement at the case."""
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.case.items())
        return f"{self.statement.__module__}.{self.statement.__name__}({arguments})"


def evaluated(cases: Sequence[PrintedCase]) -> tuple[Evaluated, ...]:
    """Evaluate each printed statement at its case, in float64 and in one program."""

    def program() -> list[tuple[Array, ...]]:
        every = [case.statement(**case.case) for case in cases]
        return [(sides.left, sides.right, sides.margin, sides.holds) for sides in every]

    with float64():
        found = jax.jit(program, compiler_options=quick())() if cases else []
        return tuple(Evaluated(float(a), float(b), float(margin), bool(h)) for a, b, margin, h in found)


class Counterexample(PrintedCase):
    """A case in which a printed statement fails."""


class Control(PrintedCase):
    """A case in which a printed statement holds; if it is a bound, nearly with equality.

    So a bound that was copied with too small a right side fails here.
    """


@dataclasses.dataclass(frozen=True)
class Claim:
    """A statement of a paper or of this library, with the checks that judge it.

    Attributes:
      id: such as `D.lemma-4.2`.
      source: the place of the statement, with the number of the equation.
      statement: one line of plain text; the corrected form if the claim is corrected.
      latex: the statement as a formula.
      verdict: the recorded verdict, which running the checks must confirm.
      assumptions: the assumptions of the statement; empty for none.
      remark: the error of the printed form, its reason, and its replacement.
      checks: the checks of the statement; none if the claim is refuted.
      printed: cases in which the printed form fails; none if it holds.
      controls: for a refuted claim, cases in which the printed form holds nevertheless.
      see: ids of claims that replace or sharpen this one.
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
    """A claim and the result of running its checks.

    Attributes:
      claim: the claim.
      verdict: the verdict found.
      evidence: the evidence of each of the claim's checks.
      printed: the printed form at each of the claim's counterexamples.
      controls: the printed form at each of the claim's controls.
    """

    claim: Claim
    verdict: Verdict
    evidence: tuple[Evidence, ...]
    printed: tuple[Evaluated, ...]
    controls: tuple[Evaluated, ...] = ()

    @property
    def as_recorded(self) -> bool:
        """True if the verdict is the recorded one."""
        return self.verdict == self.claim.verdict

    @property
    def margin(self) -> float:
        """The smallest margin of all checks; for a refuted claim, the (negative) one of counterexamples."""
        return min((found.margin for found in self.evidence or self.printed), default=float("nan"))

    @property
    def cases(self) -> int:
        """The number of cases in all checks; for a refuted claim, of counterexamples."""
        return sum(found.cases for found in self.evidence) or len(self.printed)

    @property
    def seconds(self) -> float:
        """The running time of all checks, without compilation."""
        return sum(found.seconds for found in self.evidence)

    @property
    def kinds(self) -> str:
        """The kinds of the evidence, separated by commas; `counterexample` if there are no checks."""
        kinds = dict.fromkeys(found.kind for found in self.evidence)
        return ", ".join(kinds) or "counterexample"


def judge(claim: Claim, key: Array, cases: int = CASES) -> Outcome:
    """Run a claim's checks, counterexamples and controls, and derive the verdict.

    Args:
      claim: the claim.
      key: the `jax.random.key` that draws the cases.
      cases: the number of cases to draw for each inequality, at least 1.

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
