"""Lottery tickets: real-valued networks that are pruned, rewound to their start, and trained again."""

from __future__ import annotations

from typing import Any, Literal, Unpack

from jax.typing import ArrayLike

from jaxarch.descent import DescentChanges
from jaxarch.errors import ArgumentError, check_count, shown
from jaxarch.finish.prune import prune
from jaxarch.finish.retrain import retrain
from jaxarch.finish.threshold import threshold
from jaxarch.running.methods import method
from jaxarch.running.strategy import Strategy, chain
from jaxarch.running.training import Training
from jaxarch.search.dense import dense
from jaxarch.search.keep_best import keep, pick


@method("[D] section 5, after J. Frankle and M. Carbin, 2019", rounds=1)
def lottery(
    rounds: int = 10,
    fraction: ArrayLike = 0.2,
    *,
    first: Training | None = None,
    form: Literal["rewind", "printed"] = "rewind",
    choose: Literal["best", "last"] = "best",
    nonnegative: bool = True,
    **descent: Unpack[DescentChanges],
) -> Strategy:
    r"""Iterative magnitude pruning with rewinding (Frankle & Carbin, 2019; *lottery* of [D] section 5).

    Train; remove the share `fraction` of the connections left that have the smallest weights; set the others
    back to where training began, and train again; so on for `rounds` rounds. Of the networks w^1 (dense) to
    w^(rounds + 1), the one with the least F on the training rows is found, as in [D].

    [D] prints another recursion: `w^t = w^(t-1) o B_inf(w^(t-1) - xi*)`, xi* of eq. (13), without rewinding
    and without training. Since eq. (13) takes its percentiles over the removed connections too, it changes
    next to nothing after the first round. It is there with `form="printed"`, where `fraction` plays no part.

    Args:
      rounds: of pruning, at least 1. After ten rounds of .2 a share of .107 is left.
      fraction: of the connections left that a round removes, in [0, 1).
      form: `rewind`, or `printed` for the recursion of [D].
      choose: `best` for the round with the least F, or `last`, for a given density.
      first: the search for the dense network, `dense` with other arguments than its defaults, for instance,
        which trains as it says itself: of the `descent` given here, it takes nothing;
        `compare` runs it once for all strategies that begin with the same one.
      nonnegative: whether the masked leaves are `w = u^2` (see `dense`), in `first` as well if there is one.
      **descent: `optimizer`, `steps`, `batch_size`, `sampling` in place of the problem's.

    Returns:
      A strategy, to be run as it is or finished. Its `info` has `losses` and `densities`, F and density of
      every round, shape (rounds + 1,), and `round`, the one found. A network whose F is NaN never is.

    Raises:
      ArgumentError: rounds that are no positive integer, a fraction outside [0, 1), an unknown `form` or
        `choose`.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> network = jaxarch.search.lottery(2, 0.5)(jax.random.key(0), problem)
      >>> print(network.info["densities"], network.info["losses"].shape)
      [1.   0.5  0.25] (3,)
    """
    check_count("rounds", rounds)
    if form not in ("rewind", "printed"):
        raise ArgumentError(f"form: expected 'rewind' or 'printed', got {shown(form)}")
    if choose not in ("best", "last"):
        raise ArgumentError(f"choose: expected 'best' or 'last', got {shown(choose)}")
    first = first or dense(nonnegative=nonnegative, **descent)
    if form == "printed":
        again: tuple[Any, ...] = (threshold(weights="found"),)
    else:
        again = (prune(fraction), retrain("rewind", nonnegative=nonnegative, **descent))
    kept = keep(rounds + 1, choose=choose)
    return chain(first, kept, *(*again, kept) * rounds, pick("round", "losses"))
