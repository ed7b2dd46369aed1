"""Magnitude pruning: lottery tickets in rounds, rewound to the start or to an early step, or in one shot."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal, NamedTuple, Unpack

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import ArgumentError, check_choice, shown
from jaxarch._internal.trees import PyTree, Where, map_selected, matrices
from jaxarch.masks import apply_mask
from jaxarch.masks._keeping import largest_within
from jaxarch.masks._units import NOfM, Units, UnitsLike
from jaxarch.run._descent import DescentChanges
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._records import Start
from jaxarch.run._stage import A_NETWORK, FunctionStage, Needs
from jaxarch.run._strategy import Strategy, chain
from jaxarch.run._training import Training
from jaxarch.search._dense import dense
from jaxarch.search._keep_best import keep, pick
from jaxarch.search._rounds import Rounds, Scope, by_density, by_fraction, of_each
from jaxarch.search._units import check_counts, check_units, needs_of, units_of
from jaxarch.transforms._densities import Densities, check_densities, layers_lost, with_densities
from jaxarch.transforms._retrain import retrain


class Tickets(NamedTuple):
    """State of the rounds: a record that the last stage removes.

    Attributes:
      round: how many rounds there were so far.
      masks: masks of all targets, with a leading axis of targets; False for those to come.
      failed_at: for each target, the step at which the training behind its mask, or one before, failed.
      units: connections that are removed together.
    """

    round: Array
    masks: PyTree
    failed_at: Array
    units: Units


@dataclasses.dataclass(frozen=True)
class Settings:
    """Target densities, units, scope, and the stage that remembers trained networks, if any."""

    targets: tuple[float, ...]
    units: tuple[str, ...] | Units
    scope: Scope
    keep: FunctionStage | None = None


@method("J. Frankle and M. Carbin, 2019; J. Frankle et al., 2020; [D] section 5", densities=0.5)
def magnitude_pruning(
    densities: Densities | None = None,
    *,
    rounds: int | None = None,
    fraction: float | Mapping[str, float] | None = 0.2,
    scope: Scope = "global",
    rewind_to: int = 0,
    choose: Literal["ticket", "best", "last"] = "ticket",
    nonnegative: bool = False,
    std: ArrayLike = 0.2,
    where: Where = matrices,
    units: UnitsLike = None,
    **descent: Unpack[DescentChanges],
) -> Strategy:
    r"""Keep the connections of the largest weights of trained networks, `round(d D)` of D for a density d.

    Iterative magnitude pruning with rewinding (J. Frankle and M. Carbin, The lottery ticket hypothesis,
    2019): train the whole network for T steps; keep the largest `|w|`; set the remaining weights back to
    those after k steps of that first training, and train again, for T - k steps; so on. k = 0, the default,
    rewinds to the initial weights. k > 0 is the late rewinding of J. Frankle, G. Dziugaite, D. Roy and M.
    Carbin, Linear mode connectivity and the lottery ticket hypothesis, 2020, and sets the model's state back
    with the weights. There are two ways to set how much is left:

    - by `densities`, all of which are met exactly: between two of them all rounds keep the same share, at
      least `1 - fraction`. This is the IMP of [A], which gives neither rounds nor fraction;
    - by a number of `rounds`, each of which removes `round(fraction n)` of the n connections left. This is
      *lottery* of [D] section 5 with `choose="best", nonnegative=True`. With .1 for the last leaf and .2 for
      the others, it is the method of Frankle and Carbin for fully connected networks.

    The optimizer starts afresh in each round, and so does its learning-rate schedule, which in the paper
    continues at step k. Batches are drawn anew. For a `paired` problem or a stream they are the batches of
    steps 0 to T - k - 1; the paper uses those from step k on.

    Args:
      densities: d, the share of connections to keep, in (0, 1]. For several, the search returns the smallest,
        and `at_density` selects the others.
      rounds: number of pruning rounds, instead of densities. After ten rounds of .2 a share of .107 is left.
      fraction: the share of the connections left that a round removes, in (0, 1); with densities, the largest
        share. With `rounds`, a dict has one in [0, 1) for each masked leaf, by path, or for each group of
        units. `None` for one shot: every density from the whole network, trained once.
      scope: `global` to compare weights of all leaves together; `layer` to prune each leaf by itself, to
        `round(d n)` of its n connections. With a fraction for each leaf, each is pruned by itself in any
        case.
      rewind_to: k, less than T. A later `retrain("rewind")` goes back to the same step.
      choose: `ticket` for the network that is pruned and rewound, and not yet trained; `last` to train that
        one too; `best` for the network with the least F on the training rows, of all that are trained,
        including the whole one, as in [D].
      nonnegative: whether the masked leaves are `w = u^2` (see `dense`).
      std: standard deviation of u at the start, if so.
      where: the leaves that are masked, by path.
      units: connections to keep or remove together (see `masks.keep`): `neurons`, `channels` or `heads` of
        the problem's model, or several of them, `("heads", "neurons")`; `Groups.units`; `(4, 4)`; `"2:4"`.
        The size of a unit is the mean `|w|` of its connections that are left, and densities are shares of
        units. N:M is made in one shot.
      **descent: `optimizer`, `steps`, `batch_size`, `sampling`, replacing the problem's.

    Returns:
      A strategy. A ticket's weights are those of step k, masked: `retrain("warm", nonnegative=False)` trains
      it, with `steps=T - k` to train it as in the rounds. In one shot the weights are those of the trained
      network. With `last` and `best` they are trained. `info` then has `losses` and `densities`, F and
      density of the whole network and after every round, shape (rounds + 1,). It also has `round`, the one
      returned. A network whose F is NaN is never the best.

    Raises:
      ArgumentError: both densities and rounds, or neither; a density outside (0, 1], or none; rounds that are
        not a positive integer, or leave nothing; a fraction outside (0, 1), or any with N:M; one shot with
        rounds, or with a choice; k not below T; an unknown word; units that are not understood, or that the
        model does not have.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> search = jaxarch.search.magnitude_pruning((0.5, 0.25), fraction=0.5, rewind_to=1)
      >>> network = search(jax.random.key(0), problem)
      >>> print(jaxarch.density(network.mask), sorted(network[jaxarch.ByDensity].masks))
      0.25 ['0.25', '0.5']
      >>> search = jaxarch.search.magnitude_pruning(rounds=2, fraction=0.5, choose="best")
      >>> network = search(jax.random.key(0), problem)
      >>> print(network.info["densities"], network.info["losses"].shape)
      [1.   0.5  0.25] (3,)
    """
    check_choice("scope", scope, ("global", "layer"))
    check_choice("choose", choose, ("ticket", "best", "last"))
    if (densities is None) == (rounds is None):
        raise ArgumentError(
            f"densities: expected either densities or rounds, got {'neither' if rounds is None else 'both'}"
        )
    together, targets = check_units(units), () if densities is None else check_densities(densities)
    check_counts(together, targets)
    first = dense(nonnegative=nonnegative, std=std, where=where, rewind_to=rewind_to, **descent)
    if isinstance(together, NOfM):
        _check_one_shot(f"{together.n}:{together.m}", fraction, scope)
    if fraction is None:
        if rounds is not None or choose != "ticket":
            name = "choose" if rounds is None else "rounds"
            raise ArgumentError(
                f"{name}: with fraction=None, pruning is in one shot; leave {name} out, or give a fraction"
            )
        needs = needs_of(together, A_NETWORK)
        settings = Settings(targets, together, scope)
        return chain(first, FunctionStage("largest weights", _one_shot, settings, needs, remarks=layers_lost))
    sizes = by_density(targets, fraction, scope) if rounds is None else by_fraction(rounds, fraction, scope)
    again = retrain("rewind", nonnegative=nonnegative, **descent)
    rest = dataclasses.replace(again, descent=dataclasses.replace(again.descent, taken=int(rewind_to)))
    return _in_rounds(first, rest, sizes, together, choose)


def _check_one_shot(units: str, fraction: object, scope: Scope) -> None:
    if fraction is not None:
        raise ArgumentError(f"fraction: {units} is pruned in one shot, not in rounds; give fraction=None")
    if scope != "global":
        raise ArgumentError(f"scope: {units} has the same density in every leaf; leave {shown(scope)} out")


A_TICKET = Needs("required", ("params", "mask"), records=(Start, Tickets))


def _in_rounds(
    first: Training,
    again: Training,
    rounds: Rounds,
    together: tuple[str, ...] | Units,
    choose: Literal["ticket", "best", "last"],
) -> Strategy:
    """Chain the stages of all rounds; a first `keep` runs within "first round", not as a stage of its own.

    Stages draw from keys by their place in the chain, so an additional stage would change the numbers of all
    later ones.
    """
    kept = None if choose == "ticket" else keep(rounds.count + 1, choose=choose)
    settings = Settings(rounds.targets, together, rounds.scope, kept)
    needs = needs_of(together, A_NETWORK)
    begin = FunctionStage("first round", _first_round, settings, needs, removes=())
    prune = FunctionStage("prune", _prune_to_next, rounds, A_TICKET)
    if kept is None:
        stages = [prune, *(again, prune) * (rounds.count - 1)]
        tickets = FunctionStage("tickets", _tickets, rounds.targets, A_TICKET, remarks=layers_lost)
        return chain(first, begin, *stages, tickets)
    stages = [prune, again, kept] * rounds.count
    found = FunctionStage("pick", _pick, pick("round", "losses"), A_TICKET, remarks=layers_lost)
    return chain(first, begin, *stages, found)


def _one_shot(settings: Settings, key: Array, problem: Problem, network: Network) -> Network:
    units, sizes = _units(settings, problem, network), _sizes(network)
    measured = units.score(sizes)

    def mask(density: float) -> PyTree:
        counts = units.counts(measured, of_each(density, settings.scope, measured))
        return largest_within(units, sizes, counts, network.mask, network.params)

    masks = {density: mask(density) for density in settings.targets}
    return network.then(with_densities(masks, network.params, network.state))


def _first_round(settings: Settings, key: Array, problem: Problem, network: Network) -> Network:
    """Make room for the masks of all targets, so that all rounds are one program."""
    units = _units(settings, problem, network)
    everything = map_selected(lambda leaf: jnp.ones_like(leaf, bool), units.score(network.mask))
    mask = units.spread(everything, network.params)
    room = map_selected(lambda leaf: jnp.zeros((len(settings.targets), *leaf.shape), bool), mask)
    nowhere = jnp.full(len(settings.targets), -1, jnp.int32)
    network = network.replace(mask=mask).with_records(Tickets(jnp.asarray(0), room, nowhere, units))
    return network if settings.keep is None else settings.keep(key, problem, network)


def _units(settings: Settings, problem: Problem, network: Network) -> Units:
    masked = map_selected(lambda m, w: w, network.mask, network.params)
    return units_of(settings.units, problem, network.params, network.state, masked)


def _sizes(network: Network) -> PyTree:
    return map_selected(lambda m, w: jnp.abs(w), network.mask, network.params)


def _prune_to_next(rounds: Rounds, key: Array, problem: Problem, network: Network) -> Network:
    tickets, failed_at = network[Tickets], network.info.failed_at
    assert failed_at is not None
    units, sizes = tickets.units, _sizes(network)
    measured = units.score(sizes)
    counts = jnp.asarray([units.counts(measured, density) for density in rounds.after_each(measured)])
    mask = largest_within(units, sizes, counts[tickets.round], network.mask, network.params)
    met = jnp.asarray(rounds.met_in, jnp.int32) == tickets.round

    def keep(before: Array, leaf: Array) -> Array:
        return jnp.where(met.reshape(-1, *[1] * leaf.ndim), leaf, before)

    masks = map_selected(keep, tickets.masks, mask)
    after = tickets._replace(
        round=tickets.round + 1, masks=masks, failed_at=jnp.where(met, failed_at, tickets.failed_at)
    )
    return network.with_records(after).replace(params=apply_mask(mask, network.params), mask=mask)


def _pick(stage: FunctionStage, key: Array, problem: Problem, network: Network) -> Network:
    return stage(key, problem, network.without(Tickets))


def _tickets(targets: tuple[float, ...], key: Array, problem: Problem, network: Network) -> Network:
    tickets, start, network = network[Tickets], network[Start], network.without(Tickets)
    if not targets:
        return network.replace(params=apply_mask(network.mask, start.params), state=start.state)
    masks = {d: map_selected(lambda leaf, i=i: leaf[i], tickets.masks) for i, d in enumerate(targets)}
    failed_at = dict(zip(targets, tickets.failed_at, strict=True))
    return network.then(with_densities(masks, start.params, start.state, failed_at=failed_at))
