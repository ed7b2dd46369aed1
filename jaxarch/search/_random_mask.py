"""Random architectures of a given size: the baseline for every search of one."""

from __future__ import annotations

import dataclasses

import jax
from jax import Array

from jaxarch._internal.trees import Where, matrices, select_floating
from jaxarch.masks import Scope, check_scope, init_scores
from jaxarch.masks._units import Units, UnitsLike
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._stage import NOTHING, FunctionStage
from jaxarch.search._units import check_counts, check_units, needs_of, units_of
from jaxarch.transforms._densities import Densities, check_densities, layers_lost, with_densities


@dataclasses.dataclass(frozen=True)
class Settings:
    """Densities, their spread over the leaves, the masked leaves, and the units."""

    densities: tuple[float, ...]
    scope: Scope
    where: Where
    units: tuple[str, ...] | Units


@method("[A] section 3", densities=0.5)
def random_mask(
    densities: Densities, *, scope: Scope = "global", where: Where = matrices, units: UnitsLike = None
) -> FunctionStage:
    """Draw a random mask with exactly `round(d D)` of the D connections, on the problem's initial weights.

    Args:
      densities: d, the share of connections to keep, in (0, 1]. For several, the search returns the smallest,
        and `at_density` selects the others. All masks come from one draw: a larger one contains a smaller
        one. With `units`, shares of units.
      scope: how connections are spread over the masked leaves, as in `masks.keep`: `global`, every set of
        connections is equally likely; `layer`, the same density in every leaf; `erk`, the densities of
        `masks.erk_densities`. For the densities of another architecture: `chain(that, reshuffle())`.
      where: the leaves that are masked, by path.
      units: connections to keep or remove together (see `masks.keep`): `neurons`, `channels` or `heads` of
        the problem's model, or several of them, `("heads", "neurons")`; `Groups.units`; `(4, 4)`; `"2:4"`.
        Units are drawn, with one random number each.

    Returns:
      A search. It trains nothing: `chain(random_mask(.05), retrain("cold", nonnegative=False))`.

    Raises:
      ArgumentError: a density outside (0, 1], an unknown word; units that are not understood, or that the
        model does not have.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> network = jaxarch.search.random_mask(0.25, scope="layer")(jax.random.key(0), problem)
      >>> {path: float(share) for path, share in jaxarch.layer_density(network.mask).items()}
      {'W2_1': 0.25, 'W3_2': 0.25}
    """
    check_scope(scope)
    together, targets = check_units(units), check_densities(densities)
    check_counts(together, targets)
    settings = Settings(targets, scope, where, together)
    spreads = {"global": "", "layer": ", the same density in each leaf", "erk": ", Erdos-Renyi densities"}
    spread = spreads[scope]
    needs = needs_of(together, NOTHING)
    return FunctionStage(f"random mask{spread}", _random_mask, settings, needs, remarks=layers_lost)


def _random_mask(settings: Settings, key: Array, problem: Problem, network: None) -> Network:
    params_key, mask_key = jax.random.split(key)
    params, state = problem.start(params_key)
    selected = select_floating(params, settings.where)
    units = units_of(settings.units, problem, params, state, selected)
    drawn = init_scores(mask_key, units.score(selected), 0.0, 1.0)
    masks = {}
    for density in settings.densities:
        kept = units.largest(drawn, units.counts(drawn, density, settings.scope))
        masks[density] = units.spread(kept, selected)
    return with_densities(masks, params, state)
