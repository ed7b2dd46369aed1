"""The strategies of [D] section 5 by name: each a search and the transforms after it."""

from __future__ import annotations

from typing import Any, Literal

from jax.typing import ArrayLike

from jaxarch._internal.errors import check_choice, check_count
from jaxarch.run._strategy import Strategy, chain
from jaxarch.search._agnostic import agnostic
from jaxarch.search._dense import dense
from jaxarch.search._keep_best import keep, pick
from jaxarch.search._logistic_regression import logistic_regression
from jaxarch.search._magnitude_pruning import magnitude_pruning
from jaxarch.search._two_temperature import two_temperature
from jaxarch.search._untrained import untrained
from jaxarch.transforms import retrain, share_weight, threshold


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
    """Return the strategies of [D] by name, with two reference points; add your own in one line.

    Args:
      hard: inverse temperature of the forward pass of `bin`.
      soft: inverse temperature of its gradient.
      std: standard deviation of u at the start of weights `w = u^2`.
      lottery_rounds: rounds of pruning, of a fifth each; the round with the least F is returned, as in [D].
      lottery_form: `rewind` for `search.magnitude_pruning`; `printed` for the recursion that [D] prints:
        `w^t = w^(t-1) o B_inf(w^(t-1) - xi*)`, xi* of eq. (13), without rewinding and without training. Since
        eq. (13) takes its percentiles over the removed connections too, it changes next to nothing after the
        first round.
      agnostic_draws: random architectures, each at ten densities.
      agnostic_weights: shared weights that each is tried with.

    Raises:
      ArgumentError: rounds that are not a positive integer, an unknown form; errors of the searches.

    Example:
      >>> import jaxarch
      >>> strategies = jaxarch.disentangling_strategies(lottery_rounds=3)
      >>> strategies["snip->bin"] = jaxarch.chain(jaxarch.search.snip(0.5), jaxarch.threshold())
      >>> list(strategies)[:3], list(strategies)[-2:]
      (['real', 'real->bin', 'bin'], ['logistic regression', 'snip->bin'])
    """
    real_ = dense(std=std)
    bin_ = two_temperature(hard, soft)
    lottery_ = _lottery(lottery_rounds, lottery_form, std)
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


def _lottery(rounds: int, form: Literal["rewind", "printed"], std: ArrayLike) -> Strategy:
    check_count("lottery_rounds", rounds)
    check_choice("lottery_form", form, ("rewind", "printed"))
    if form == "rewind":
        return magnitude_pruning(rounds=rounds, choose="best", nonnegative=True, std=std)
    kept = keep(rounds + 1)
    again = (threshold(weights="found"), kept) * rounds
    return chain(dense(std=std), kept, *again, pick("round", "losses"))
