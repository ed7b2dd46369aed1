"""The strategies of [D] section 5 by name: each a search and what finishes it."""

from __future__ import annotations

from typing import Any, Literal

from jax.typing import ArrayLike

from jaxarch.finish import retrain, share_weight, threshold
from jaxarch.running.strategy import chain
from jaxarch.search.agnostic import agnostic
from jaxarch.search.dense import dense
from jaxarch.search.logistic_regression import logistic_regression
from jaxarch.search.lottery import lottery
from jaxarch.search.two_temperature import two_temperature
from jaxarch.search.untrained import untrained


def disentangling_strategies(
    hard: ArrayLike = 50.0,
    soft: ArrayLike = 5.0,
    std: ArrayLike = 0.2,
    *,
    lottery_rounds: int = 10,
    lottery_form: Literal["rewind", "printed"] = "rewind",
    agnostic_draws: int = 20,
    agnostic_weights: int = 10,
) -> dict[str, Any]:
    """By the names of [D], with two reference points: a strategy of your own is one more line.

    Args:
      hard: inverse temperature of the forward pass of `bin`.
      soft: inverse temperature of its gradient.
      std: standard deviation of u at the start of weights `w = u^2`.
      lottery_rounds: rounds of pruning.
      lottery_form: `rewind`, or the recursion that [D] prints (see `search.lottery`).
      agnostic_draws: random architectures, each at ten densities.
      agnostic_weights: shared weights that each is tried with.

    Example:
      >>> import jaxarch
      >>> strategies = jaxarch.disentangling_strategies(lottery_rounds=3)
      >>> strategies["snip->bin"] = jaxarch.chain(jaxarch.search.snip(0.5), jaxarch.threshold())
      >>> list(strategies)[:3], list(strategies)[-2:]
      (['real', 'real->bin', 'bin'], ['logistic regression', 'snip->bin'])
    """
    real_ = dense(std=std)
    bin_ = two_temperature(hard, soft)
    lottery_ = lottery(lottery_rounds, first=real_, form=lottery_form)
    agnostic_ = agnostic(agnostic_draws, agnostic_weights)
    random_ = untrained()
    return {
        "real": real_,
        "real->bin": chain(real_, threshold()),
        "bin": bin_,
        "bin->real warm": chain(bin_, retrain("warm")),
        "bin->real cold": chain(bin_, retrain("cold", std=std)),
        "lottery": lottery_,
        "lottery->bin": chain(lottery_, threshold()),
        "agnostic": agnostic_,
        "agnostic->real best": chain(agnostic_, share_weight("best")),
        "agnostic->real random": chain(agnostic_, share_weight("random")),
        "random": random_,
        "random->bin": chain(random_, threshold()),
        "unconstrained real": dense(nonnegative=False),
        "logistic regression": logistic_regression(),
    }
