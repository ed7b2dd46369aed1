"""Training on the few rows that a network serves worst, which bound its error on new examples."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxarch._internal.errors import (
    ArgumentError,
    check_callable,
    check_count,
    check_flag,
    check_instance,
    check_one_key,
    first_line,
    is_traced,
)
from jaxarch.certificates._certificate import Compression, Picked
from jaxarch.certificates._certify import check_options, check_rows_of_one_run
from jaxarch.certificates._counting import Wrong, count_errors, counted, judged, why_no_errors
from jaxarch.certificates._repeated import input_digests, why_repeated
from jaxarch.run._keyed import keyed_problem
from jaxarch.run._network import Network
from jaxarch.run._options import Progress
from jaxarch.run._problem import Problem, check_is_problem
from jaxarch.run._stage import check_network, check_problem
from jaxarch.run._training import Carry, Training, advance, begin, conclude, joined
from jaxarch.theory.generalization import compression_bound
from jaxarch.theory.generalization._binomial import check_delta

TRIED = 100
"""Number of rows on which errors are counted before any training, to refuse models that mix examples."""
NONE = "none: "
"""The beginning of a reason for there being no bound."""
AT_ONCE = 1000
"""Number of rows whose losses are computed at a time, by default."""


def pick_to_learn(
    search: Training,
    key: Array,
    problem: Problem,
    *,
    rounds: int,
    per_round: int,
    network: Network | None = None,
    wrong: Wrong | None = None,
    delta: float = 0.05,
    choices: int = 1,
    repeats: bool = False,
    batch_size: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Compression:
    r"""Train on the rows that the network serves worst, and bound its error on new examples.

        found = jaxarch.pick_to_learn(search, key, problem, rounds=40, per_round=5)

    Each round picks the `per_round` rows of largest loss among those not yet picked. It then trains on all
    picked rows, for the search's steps divided by `rounds`. So a network is a function of its picked rows.
    If any of the others that it gets right were left out, the same rows would be picked. With m picked of n
    rows and e errors on the others, a new example is wrong with probability at most

        theory.generalization.compression_bound(e, n, m, delta, choices=(rounds + 1) * choices),

    which is not far above (m + e)/n. The round of the smallest m + e is returned.

    The procedure is the Pick-to-Learn of D. Paccagnan, M. C. Campi and S. Garatti, NeurIPS 2023. Departures:
    the number of rounds is fixed, a round may pick several rows, and errors that are left are counted. So no
    round must get all rows right.

    Args:
      search: a search that trains, such as `search.dense(nonnegative=False)`. It may learn a mask as it
        trains, as `search.two_temperature()` does. For a mask that is drawn before, take `retrain("cold")`
        and `network`.
      key: one key. It draws the initial weights, and the batches among the picked rows.
      problem: the problem, of one run, with a `batch_size`. Its validation rows are not looked at.
      rounds: the number of rounds, at least 1; at most the search's steps.
      per_round: the number of rows to pick a round. `rounds * per_round` is less than the number of rows.
      network: the network that the search begins with, if it needs one. It must not come from the training
        rows: let it be a random mask, or a network trained on other rows.
      wrong: as in `certify`.
      delta: the accepted probability that the bound is wrong, in (0, 1).
      choices: the number of settings and seeds from which this result is chosen by the training rows. Rounds
        are paid for in any case.
      repeats: as in `certify`. By default rows that repeat an input are refused.
      batch_size: the number of rows whose losses are computed at a time.
      progress: called with a `Progress` at the beginning and after every round; its `network()` is that
        round's.

    Returns:
      A `Compression`; `print` shows it. Its `network` is of the best round, its `rows` are the picked ones.

    Raises:
      ArgumentError: a search that does not train; a problem without a `batch_size`, with a stream, with rows
        or keys for many runs, or with copies among its rows; a model whose outputs depend on the rest of the
        batch; labels that are not classes, without `wrong`; numbers out of range.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x = jax.random.normal(jax.random.key(0), (400, 2))
      >>> model = (lambda key: {"w": jnp.zeros((2, 2))}, lambda params, x: x @ params["w"])
      >>> problem = jaxarch.supervised(
      ...     model, (x, (x[:, 0] > 0).astype(int)), optimizer=optax.adam(0.1), steps=40, batch_size=8,
      ...     loss=optax.softmax_cross_entropy_with_integer_labels)
      >>> search = jaxarch.search.dense(nonnegative=False)
      >>> found = jaxarch.pick_to_learn(search, jax.random.key(1), problem, rounds=4, per_round=2)
      >>> print(found)
      picked             4 of 400 training examples
      error on new data  at most 0.06465 (7 errors in the other 396: 0.0177)
      confidence         the bound is wrong with probability at most 0.05
      assumed            that training examples were drawn independently, like new ones, and scaled no inputs
      assumed            that the model and the search did not come from the training rows
      assumed            that no other setting or seed was tried on these rows
    """
    check_instance(
        "search",
        search,
        Training,
        "a search that trains, such as search.dense(nonnegative=False); pass the result of stages before it "
        "as `network`",
    )
    check_one_key(key)
    check_is_problem(problem)
    if is_traced((key, problem, network)):
        raise ArgumentError("problem: its values are traced; call pick_to_learn outside of jit and vmap")
    check_delta(delta)
    check_count("choices", choices)
    check_flag("repeats", repeats)
    check_options(wrong, batch_size)
    if progress is not None:
        check_callable("progress", progress, "progress")
    rows = _rows(search, problem, rounds, per_round, repeats)
    problem = keyed_problem(dataclasses.replace(problem, validation=None))
    check_network(search, network)
    check_problem(search, problem)
    size = min(batch_size or AT_ONCE, len(rows))
    learner = _Learner(search, key, problem, network, wrong, rows, rounds, per_round, size)
    learner.check()
    found, picks, path = learner.learn(progress)
    others = np.setdiff1d(rows, picks)
    errors, why_not = count_errors(found, problem, wrong, others, size)
    if why_not:
        raise ArgumentError(f"problem: no bound: {why_not.removeprefix(NONE)}")
    paid = choices * (rounds + 1)
    return Compression(
        network=found,
        rows=picks,
        examples=len(rows),
        errors=errors,
        bound=compression_bound(errors, len(rows), len(picks), delta, choices=paid),
        rounds=path,
        delta=float(delta),
        choices=paid,
        assumptions=_assumptions(choices, repeats, network),
    )


def _rows(search: Training, problem: Problem, rounds: int, per_round: int, repeats: bool) -> np.ndarray:
    """Return the training rows.

    Raises:
      ArgumentError: rows or a number of rounds that do not fit.
    """
    check_count("rounds", rounds)
    check_count("per_round", per_round)
    check_rows_of_one_run(problem)
    if getattr(problem.paired, "ndim", 0):
        raise ArgumentError(
            "problem: each run has its own `paired` key; pass the problem of one run, problem.of_run(0)"
        )
    if problem.stream is not None:
        raise ArgumentError("problem: it trains on a stream, whose rows cannot be picked; pass arrays")
    descent = search.on(problem).descent
    if descent.batch_size is None:
        raise ArgumentError(
            "problem: it trains on all rows at once, and the picked rows grow in number; give it a batch_size"
        )
    if rounds > descent.steps:
        raise ArgumentError(f"rounds: expected at most the {descent.steps} steps of training, got {rounds}")
    rows = np.asarray(problem.training_rows())
    if rounds * per_round >= len(rows):
        raise ArgumentError(
            f"rounds: {rounds} rounds of {per_round} rows pick all {len(rows)} training rows; take fewer"
        )
    why_not = "" if repeats else why_repeated(input_digests(problem, rows), "training")
    if why_not:
        raise ArgumentError(f"problem: no bound: {why_not.removeprefix(NONE)}")
    return rows


def _assumptions(choices: int, repeats: bool, network: Network | None) -> tuple[str, ...]:
    """List the assumptions of the bound."""
    known = "the model and the search" if network is None else "the model, the search and the given network"
    tried = (
        "that no other setting or seed was tried on these rows"
        if choices == 1
        else f"that at most {choices:,} settings and seeds, fixed beforehand, were tried on these rows"
    )
    assumptions = [
        "that training examples were drawn independently, like new ones, and scaled no inputs",
        f"that {known} did not come from the training rows",
        tried,
    ]
    if repeats:
        assumptions.append("that rows with equal inputs were drawn independently, and none is a copy")
    return tuple(assumptions)


@dataclasses.dataclass(frozen=True)
class _Learner:
    """The procedure of one call."""

    search: Training
    key: Array
    problem: Problem
    network: Network | None
    wrong: Wrong | None
    rows: np.ndarray
    rounds: int
    per_round: int
    batch_size: int

    def check(self) -> None:
        """Raise, before any training, if errors of the model cannot be counted."""
        start = _found(self.search, self.network, self.begin())
        try:
            why_not = why_no_errors(self.problem, start, self.wrong, self.rows)
            if not why_not:
                tried = self.rows[:TRIED]
                _, why_not = count_errors(start, self.problem, self.wrong, tried, self.batch_size)
        except (TypeError, ValueError) as error:
            if isinstance(error, ArgumentError):
                raise
            raise ArgumentError(
                f"problem: its model fails on the training rows: {first_line(error)}"
            ) from error
        if why_not:
            raise ArgumentError(f"problem: no bound: {why_not.removeprefix(NONE)}")

    def begin(self) -> Carry:
        """Return the training before its first step."""
        return _begun(self.search, self.key, self.problem, self.network)

    def learn(
        self, progress: Callable[[Progress], None] | None
    ) -> tuple[Network, np.ndarray, tuple[Picked, ...]]:
        """Run all rounds.

        Returns:
          The network of the best round, its picked rows in order, and the counts of all rounds.
        """
        carry, taken, picks = self.begin(), np.zeros(len(self.rows), bool), self.rows[:0]
        path: list[Picked] = []
        best: tuple[int, Network, np.ndarray] | None = None
        for done in range(self.rounds + 1):
            network = _found(self.search, self.network, carry)
            losses, errors = self.judge(network, taken)
            path.append(Picked(len(picks), errors))
            if best is None or sum(path[-1]) < best[0]:
                best = sum(path[-1]), network, picks
            if progress is not None:
                look = partial(jax.tree.map, lambda leaf: leaf[None], network)
                progress(Progress("pick_to_learn", done, self.rounds, 0, 1, 1, None, look=look))
            # No later round can be better if it has picked as many rows as the best one picked or got wrong.
            if done == self.rounds or len(picks) + self.per_round >= best[0]:
                break
            worst = np.asarray(_worst(losses, jnp.asarray(taken), self.per_round))
            taken[worst] = True
            picks = np.concatenate([picks, self.rows[worst]])
            carry = self.train(carry, picks, done)
        assert best is not None
        return best[1], best[2], tuple(path)

    def judge(self, network: Network, taken: np.ndarray) -> tuple[Array, int]:
        """Return the loss of every row, and the number of errors on rows that are not taken."""
        rows, wrong = jnp.asarray(self.rows), counted(self.wrong)
        losses, errors = _losses_and_errors(wrong, self.problem, network, rows, self.batch_size)
        return losses, int((np.asarray(errors) & ~taken).sum())

    def train(self, carry: Carry, picks: np.ndarray, done: int) -> Carry:
        """Train on the picked rows for one more round."""
        steps = self.search.on(self.problem).descent.steps
        start, stop = (steps * at // self.rounds for at in (done, done + 1))
        # The padding is a picked row too: training sees no other one, whatever it looks at.
        padded = np.full(self.rounds * self.per_round, picks[0], self.rows.dtype)
        padded[: len(picks)] = picks
        size = -(-steps // self.rounds)
        among = dataclasses.replace(self.problem, train=padded, train_size=np.int32(len(picks)))
        return _trained(self.search, self.key, among, carry, start, stop, size)


@partial(jax.jit, static_argnames=("search",))
def _begun(search: Training, key: Array, problem: Problem, network: Network | None) -> Carry:
    """Begin a training that has seen no row: its problem has zeros in their place."""
    data = jax.tree.map(partial(jax.lax.full_like, fill_value=0), problem.data)
    one = jnp.zeros(1, jnp.int32)
    return begin(search, key, dataclasses.replace(problem, data=data, train=one), network)


@partial(jax.jit, static_argnames=("search", "size"))
def _trained(
    search: Training, key: Array, problem: Problem, carry: Carry, start: int, stop: int, size: int
) -> Carry:
    return advance(search, key, problem, carry, start, stop, size)[0]


@partial(jax.jit, static_argnames=("search",))
def _found(search: Training, network: Network | None, carry: Carry) -> Network:
    found = joined(network, conclude(search, carry))
    return found.replace(state={} if found.state is None else found.state)


@partial(jax.jit, static_argnames=("batch_size",))
def _losses_and_errors(
    wrong: Wrong, problem: Problem, network: Network, rows: Array, batch_size: int
) -> tuple[Array, Array]:
    """Return each row's loss, and whether the network gets it wrong, by itself."""

    def alone(row: Array) -> tuple[Array, Array]:
        batch = problem.gather(problem.data, problem.per_run, row[None])
        loss, _ = problem.loss(network.params, network.state, batch, None)
        errors, _ = judged(wrong, problem, network.params, network.state, row[None])
        return loss, errors[0]

    return jax.lax.map(alone, rows, batch_size=batch_size)


@partial(jax.jit, static_argnames=("count",))
def _worst(losses: Array, taken: Array, count: int) -> Array:
    """Return the rows of the largest losses that are not taken: NaN first, and of equal ones the first."""
    finite = jnp.maximum(jnp.where(jnp.isnan(losses), jnp.inf, losses), jnp.finfo(losses.dtype).min)
    return jax.lax.top_k(jnp.where(taken, -jnp.inf, finite), count)[1]
