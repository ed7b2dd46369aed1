"""Methods that take part: their searches, the trainings that follow, and the work of both."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple

import optax
from jax.typing import ArrayLike

from jaxarch import Training, chain, reshuffle, retrain, search
from jaxarch.search import round_densities

DENSE, WHOLE = "dense", "random"
"""The dense network, and the method whose result at density 1 it is."""
BATCHES = 10
"""Batches by which connections are judged before training."""
HUTCHINSON_SAMPLES = 10
"""Products with the Hessian for each batch, as the authors have them."""
HUTCHINSON_GRADIENTS = 1 + 2 * HUTCHINSON_SAMPLES
"""Cost of one batch for Hutchinson's estimate, in gradients."""
GRASP_TEMPERATURE = 200.0
"""Temperature by which GraSP's authors divide the outputs, and those of the Hutchinson scores."""
GRASP_GRADIENTS = 3
"""Cost of one batch for GraSP, in gradients."""
PROSPR_STEPS = 3
"""Steps of training that ProsPr looks ahead, as the authors have them."""
PROSPR_GRADIENTS = 4 * PROSPR_STEPS + 1
"""Cost of ProsPr: a step's gradient, again on the way back, its derivative, and the last gradient."""
SYNFLOW_ROUNDS = 100
PX_ROUNDS = 100
PX_GRADIENTS = 2 / 3
"""Cost of one batch for a round of PX, in gradients: two forward passes of the three."""
NTK_SAP_ROUNDS, NTK_SAP_DRAWS = 20, 5
NTK_SAP_GRADIENTS = 2
"""Cost of one draw of NTK-SAP, in gradients: it has two copies of the network."""
GRADUAL = (0.1, 0.7)
"""Shares of the steps after which gradual magnitude pruning begins and ends."""
GRANET = (0.0, 0.7)
"""Shares of the steps after which GraNet's density begins and ends to fall."""
ACDC_WHOLE = 0.5
"""Share of the steps that AC/DC takes with all connections: its warm-up and decompressed phases."""
RIGL_UNTIL = 0.75
SPANS = 50
"""Number of spans into which the changes of RigL and GraNet divide a training."""
EXPLORATION = 0.1
"""Share of the connections that Top-KAST trains beside those of the network."""
PROBMASK_SAMPLES = 2
"""Samples of ProbMask's mask a step, each of which is a gradient evaluation."""
SAMPLES = 2
"""Sub-networks of random search at an equal budget."""
ROWS_AT_ONCE = 2000
"""Examples by which they are judged at a time: the outputs of a whole text are too many."""
PUBLISHED_SAMPLES = 8
PUBLISHED_FRACTION = 0.2
EQUAL_FRACTION = 0.5
"""Largest share of the remaining connections that a round of lottery tickets removes at an equal budget."""
LATE = 0.1
"""Share of a training after which late rewinding takes the weights that it returns to."""

NUMBERS_ALONE = ("SynFlow", "PX", "NTK-SAP")
"""Methods that replace the inputs by numbers of their own, which tokens cannot be."""


class At(NamedTuple):
    """Numbers for which a strategy is built.

    Attributes:
      density: the share of the connections to keep; traced. For a search for all densities, the numbers, the
        largest first.
      steps: steps of a phase.
      budget: `equal` or `published`.
      rate: learning rate of Adam, which trains the weights; traced.
      own: the method's own number, see `Entrant.own`; traced.
      hard: the inverse temperature of two-temperature's mask in the loss.
      soft: the inverse temperature of the mask that its gradient passes through.
    """

    density: Any
    steps: int
    budget: str
    rate: ArrayLike
    own: ArrayLike
    hard: float
    soft: float

    @classmethod
    def of(cls, settings: Any, **numbers: Any) -> At:
        """Take the settings of a study; `numbers` are `density`, by default all, `rate` and `own`."""
        given: dict[str, Any] = {"density": settings.densities, "rate": 0.0, "own": 0.0} | numbers
        steps, budget = settings.steps, settings.budget
        return cls(steps=steps, budget=budget, hard=settings.hard, soft=settings.soft, **given)

    @property
    def whole(self) -> int:
        """Return the steps of a method that trains once: two phases, or one as published."""
        return 2 * self.steps if self.budget == "equal" else self.steps

    @property
    def adam(self) -> optax.GradientTransformation:
        """Return the optimizer of the weights."""
        return optax.adam(self.rate)

    def train(self, steps: int, start: Literal["warm", "rewind", "cold"] = "warm") -> Training:
        """Return the training of weights on the found connections, from the found weights or from others."""
        return retrain(start, nonnegative=False, steps=steps, optimizer=self.adam)


class Phase(NamedTuple):
    """A number of gradient evaluations of a network.

    Attributes:
      evaluations: number of evaluations.
      whole: the share of the work done by the whole network; the rest is done on the found connections.
      one_example: whether each evaluation is of one example and not of a batch.
    """

    evaluations: float
    whole: float
    one_example: bool = False


@dataclasses.dataclass(frozen=True)
class Entrant:
    """A method as it takes part.

    Attributes:
      family: when and how the mask is found.
      find: `At -> strategy`; for all densities at once if it is `nested`.
      finish: `At -> stages` that turn the found network into the tested one; `None` if they are the same.
      phases: `(At, density) -> phases` of a network of that density.
      own: name of the number tuned beside the learning rate, its default, and the bounds of its trials.
      nested: whether one search finds the architectures of all densities.
    """

    family: str
    find: Callable[[At], Any]
    finish: Callable[[At], Any] | None
    phases: Callable[[At, float], list[Phase]]
    own: tuple[str, float, float, float] | None = None
    nested: bool = True

    @property
    def trains_weights(self) -> bool:
        """Tell whether the weights' learning rate matters to the method."""
        return self.family != FIXED or self.finish is not None


def trained_whole(at: At) -> Any:
    """Return a training for all steps of a method that trains once."""
    return at.train(at.whole)


def trained_once(at: At) -> Any:
    """Return a training for one phase."""
    return at.train(at.steps)


def before_training(evaluations: float) -> Callable[[At, float], list[Phase]]:
    """Return the `phases` of methods that take some gradients of the whole network, then train the rest."""
    return lambda at, density: [Phase(evaluations, 1), Phase(at.whole, 0)]


def search_and_training(at: At, density: float) -> list[Phase]:
    """Return one phase of search with the whole network, and one phase of training."""
    return [Phase(at.steps, 1), Phase(at.steps, 0)]


def search_alone(at: At, density: float) -> list[Phase]:
    """Return one phase: the search takes all steps, and computes with all connections."""
    return [Phase(at.whole, 1)]


def _random(at: At, scope: Any) -> Any:
    return search.random_mask(at.density, scope=scope)


def _one_shot(at: At) -> Any:
    return search.magnitude_pruning(at.density, fraction=None, steps=at.steps, optimizer=at.adam)


def _as_magnitude(at: At) -> Any:
    return chain(reshuffle(), at.train(at.steps, "rewind"))


def _fraction(at: At) -> float:
    return EQUAL_FRACTION if at.budget == "equal" else PUBLISHED_FRACTION


def _round_steps(at: At) -> int:
    """Return the steps of each training of lottery tickets but the last one."""
    if at.budget == "published":
        return at.steps
    trainings = len(round_densities(at.density, _fraction(at)))
    return max(at.steps // trainings, 1)


def _tickets(at: At, late: bool) -> Any:
    return search.magnitude_pruning(
        at.density,
        fraction=_fraction(at),
        rewind_to=_rewind_to(at, late),
        steps=_round_steps(at),
        optimizer=at.adam,
    )


def _ticket_phases(at: At, density: float, late: bool) -> list[Phase]:
    """Return the trainings before the round that meets the density, each at its own, and the last one.

    Trainings after the first one begin at the rewind step.
    """
    steps = _round_steps(at)
    left = [1.0, *round_densities(at.density, _fraction(at))]
    before = left[: left.index(density)]
    taken = [0, *[_rewind_to(at, late)] * (len(before) - 1)]
    rounds = [
        Phase(steps - back, _whole_share(share, density)) for share, back in zip(before, taken, strict=True)
    ]
    return [*rounds, Phase(_ticket_steps(at, late), 0)]


def _ticket_steps(at: At, late: bool) -> int:
    """Return the steps of the last training: one phase, shortened by the rewind step if published."""
    return at.steps - _rewind_to(at, late) if at.budget == "published" else at.steps


def _rewind_to(at: At, late: bool) -> int:
    steps = _round_steps(at)
    return min(max(round(LATE * steps), 1), steps - 1) if late else 0


def _whole_share(share: float, density: float) -> float:
    """Solve `share = w + (1 - w) density` for w, the part of whole networks in a share of the connections."""
    return 0.0 if density >= 1 else (share - density) / (1 - density)


def _random_search(at: At) -> Any:
    samples = SAMPLES if at.budget == "equal" else PUBLISHED_SAMPLES
    return search.random_search(
        at.density, samples, rows_at_once=ROWS_AT_ONCE, steps=at.steps, optimizer=at.adam
    )


def _random_search_phases(at: At, density: float) -> list[Phase]:
    return [Phase(at.steps * (SAMPLES if at.budget == "equal" else PUBLISHED_SAMPLES), 0)]


def _architecture_pruning(at: At) -> Any:
    return search.architecture_pruning(at.density, strength=at.own, steps=at.steps)


def _two_temperature(at: At, steps: int, scope: Literal["global", "erk"]) -> Any:
    return search.two_temperature(
        at.hard,
        at.soft,
        weights="signed constant",
        rescale=True,
        density=at.density,
        scope=scope,
        steps=steps,
        optimizer=_falling(at, steps),
    )


def _falling(at: At, steps: int) -> optax.GradientTransformation:
    """Return Adam for scores, at a learning rate that falls to 0."""
    return optax.adam(optax.cosine_decay_schedule(at.own, steps))


def _popped_up(method: Callable[..., Any], at: At) -> Any:
    return method(at.density, steps=at.whole, optimizer=optax.adam(at.own))


def _scaled(method: Callable[..., Any], at: At, **numbers: Any) -> Any:
    """Return a search over fixed weights in the form of two-temperature: ranked over all layers, rescaled."""
    optimizer = _falling(at, at.whole)
    return method(at.density, scope="global", rescale=True, steps=at.whole, optimizer=optimizer, **numbers)


def _changing(method: Callable[..., Any], at: At, **numbers: Any) -> Any:
    return method(at.density, steps=at.whole, optimizer=at.adam, **numbers)


def _gradual_phases(at: At, density: float) -> list[Phase]:
    """Return its phase: on its cubic schedule the mean density is a quarter of the way from the last to 1."""
    return [Phase(at.whole, GRADUAL[0] + (GRADUAL[1] - GRADUAL[0]) / 4)]


def _granet_phases(at: At, density: float) -> list[Phase]:
    """Return its phases: the mean density of its cubic schedule, and all gradients at each change."""
    changes = (at.whole - 1) // _spacing(at)
    return [Phase(at.whole - changes, GRANET[0] + (GRANET[1] - GRANET[0]) / 4), Phase(changes, 1)]


def _spacing(at: At) -> int:
    """Return the number of steps between two changes of RigL or GraNet."""
    return max(round(at.whole / SPANS), 1)


def _rigl_phases(at: At, density: float) -> list[Phase]:
    """Return its phases: each change looks at all gradients, and counts as the whole network."""
    changes = (round(RIGL_UNTIL * at.whole) - 1) // _spacing(at)
    return [Phase(at.whole - changes, 0), Phase(changes, 1)]


def _top_kast_phases(at: At, density: float) -> list[Phase]:
    """Return its phase: one of the three products of a step is for the larger set of weights."""
    share = (2 * density + min(density + EXPLORATION, 1)) / 3
    return [Phase(at.whole, _whole_share(share, density))]


def _synflow_phases(at: At, density: float) -> list[Phase]:
    return [Phase(SYNFLOW_ROUNDS, 1, one_example=True), Phase(at.whole, 0)]


def _px_phases(at: At, density: float) -> list[Phase]:
    return [Phase(PX_ROUNDS * PX_GRADIENTS, 1), Phase(PX_ROUNDS, 1, one_example=True), Phase(at.whole, 0)]


def _ntk_sap(at: At) -> Any:
    return search.ntk_sap(at.density, rounds=NTK_SAP_ROUNDS, draws=NTK_SAP_DRAWS)


def _penalised(method: Callable[..., Any], at: At) -> Any:
    return method(at.density, strength=at.own, steps=at.steps, optimizer=at.adam)


def _movement(at: At) -> Any:
    return search.movement(at.density, steps=at.steps, optimizer=at.adam, scores_optimizer=optax.adam(at.own))


def _probmask_steps(at: At) -> int:
    """Return the steps of ProbMask's search: its samples divide a phase between them at an equal budget."""
    return max(at.steps // PROBMASK_SAMPLES, 1) if at.budget == "equal" else at.steps


def _probmask(at: At) -> Any:
    return search.probmask(
        at.density,
        samples=PROBMASK_SAMPLES,
        steps=_probmask_steps(at),
        optimizer=at.adam,
        scores_optimizer=optax.adam(at.own),
    )


def _probmask_phases(at: At, density: float) -> list[Phase]:
    return [Phase(PROBMASK_SAMPLES * _probmask_steps(at), 1), Phase(at.steps, 0)]


AT_START, AFTER, WHILE = "at initialisation", "after training", "while weights train"
SOFT, FIXED, RANDOM = "masks learned with weights", "masks of fixed weights", "random"
MASK_RATE = ("mask rate", 3e-3, 3e-4, 3e-2)
SIZED_MASK_RATE = ("mask rate", 4e-2, 4e-3, 4e-1)

ENTRANTS: Mapping[str, Entrant] = {
    "random": Entrant(RANDOM, lambda at: _random(at, "global"), trained_whole, before_training(0)),
    "random uniform": Entrant(RANDOM, lambda at: _random(at, "layer"), trained_whole, before_training(0)),
    "random ERK": Entrant(RANDOM, lambda at: _random(at, "erk"), trained_whole, before_training(0)),
    "random as magnitude": Entrant(RANDOM, _one_shot, _as_magnitude, search_and_training),
    "random search": Entrant(RANDOM, _random_search, None, _random_search_phases, nested=False),
    "magnitude at start": Entrant(
        AT_START, lambda at: search.initial_magnitude(at.density), trained_whole, before_training(0)
    ),
    "SNIP": Entrant(
        AT_START,
        lambda at: search.snip(at.density, batches=BATCHES),
        trained_whole,
        before_training(BATCHES),
    ),
    # Without the paper's warm-up of batch norm: with it the last layers of a VGG16 lose all connections.
    "Fisher": Entrant(
        AT_START,
        lambda at: search.fisher(at.density, batches=BATCHES, first_order=False),
        trained_whole,
        before_training(BATCHES),
    ),
    "Hutchinson": Entrant(
        AT_START,
        lambda at: search.hutchinson(
            at.density,
            batches=BATCHES,
            samples=HUTCHINSON_SAMPLES,
            temperature=GRASP_TEMPERATURE,
        ),
        trained_whole,
        before_training(HUTCHINSON_GRADIENTS * BATCHES),
    ),
    "GraSP": Entrant(
        AT_START,
        lambda at: search.grasp(at.density, batches=BATCHES, temperature=GRASP_TEMPERATURE),
        trained_whole,
        before_training(GRASP_GRADIENTS * BATCHES),
    ),
    "ProsPr": Entrant(
        AT_START,
        lambda at: search.prospr(at.density, steps=PROSPR_STEPS, learning_rate=at.own),
        trained_whole,
        before_training(PROSPR_GRADIENTS),
        ("inner rate", 0.1, 0.01, 1.0),
    ),
    "SynFlow": Entrant(
        AT_START, lambda at: search.synflow(at.density, rounds=SYNFLOW_ROUNDS), trained_whole, _synflow_phases
    ),
    "PX": Entrant(
        AT_START, lambda at: search.path_exclusion(at.density, rounds=PX_ROUNDS), trained_whole, _px_phases
    ),
    "NTK-SAP": Entrant(
        AT_START,
        _ntk_sap,
        trained_whole,
        before_training(NTK_SAP_GRADIENTS * NTK_SAP_ROUNDS * NTK_SAP_DRAWS),
    ),
    "magnitude": Entrant(AFTER, _one_shot, trained_once, search_and_training),
    "lottery tickets": Entrant(
        AFTER, partial(_tickets, late=False), trained_once, partial(_ticket_phases, late=False)
    ),
    "late tickets": Entrant(
        AFTER,
        partial(_tickets, late=True),
        lambda at: at.train(_ticket_steps(at, late=True)),
        partial(_ticket_phases, late=True),
    ),
    "gradual magnitude": Entrant(
        WHILE,
        lambda at: _changing(search.gradual_magnitude, at, begin=GRADUAL[0], end=GRADUAL[1]),
        None,
        _gradual_phases,
        nested=False,
    ),
    "GraNet": Entrant(
        WHILE,
        lambda at: _changing(
            search.granet, at, replaced=at.own, begin=GRANET[0], end=GRANET[1], every=_spacing(at)
        ),
        None,
        _granet_phases,
        ("replaced", 0.5, 0.1, 0.8),
        nested=False,
    ),
    "AC/DC": Entrant(
        WHILE,
        lambda at: _changing(search.acdc, at),
        None,
        lambda at, density: [Phase(at.whole, ACDC_WHOLE)],
        nested=False,
    ),
    "SET": Entrant(
        WHILE,
        lambda at: _changing(search.sparse_evolution, at, replaced=at.own),
        None,
        lambda at, density: [Phase(at.whole, 0)],
        ("replaced", 0.3, 0.1, 0.6),
        nested=False,
    ),
    "CHT": Entrant(
        WHILE,
        lambda at: _changing(search.cht, at, replaced=at.own, scope="erk"),
        None,
        lambda at, density: [Phase(at.whole, 0)],
        ("replaced", 0.3, 0.1, 0.6),
        nested=False,
    ),
    "RigL": Entrant(
        WHILE,
        lambda at: _changing(search.rigl, at, replaced=at.own, until=RIGL_UNTIL, every=_spacing(at)),
        None,
        _rigl_phases,
        ("replaced", 0.3, 0.1, 0.6),
        nested=False,
    ),
    "Top-KAST": Entrant(
        WHILE,
        lambda at: _changing(search.top_kast, at, exploration=EXPLORATION, strength=at.own),
        None,
        _top_kast_phases,
        ("strength", 1e-3, 1e-4, 1e-2),
        nested=False,
    ),
    "AP": Entrant(
        SOFT, _architecture_pruning, trained_once, search_and_training, ("strength", 3e-4, 3e-5, 3e-3)
    ),
    "STR": Entrant(
        SOFT,
        lambda at: _penalised(search.soft_threshold, at),
        trained_once,
        search_and_training,
        ("strength", 1e-2, 1e-3, 1e-1),
    ),
    "continuous sparsification": Entrant(
        SOFT,
        lambda at: _penalised(search.continuous_sparsification, at),
        trained_once,
        search_and_training,
        ("strength", 1e-3, 1e-4, 1e-2),
    ),
    "hard concrete": Entrant(
        SOFT,
        lambda at: _penalised(search.hard_concrete, at),
        trained_once,
        search_and_training,
        ("strength", 3e-3, 3e-4, 3e-2),
    ),
    "movement": Entrant(
        SOFT,
        _movement,
        trained_once,
        search_and_training,
        ("mask rate", 1e-2, 1e-3, 1e-1),
        nested=False,
    ),
    "ProbMask": Entrant(
        SOFT,
        _probmask,
        trained_once,
        _probmask_phases,
        ("mask rate", 1e-2, 1e-3, 1e-1),
        nested=False,
    ),
    "two-temperature": Entrant(
        FIXED,
        lambda at: _two_temperature(at, at.whole, "global"),
        None,
        search_alone,
        SIZED_MASK_RATE,
        nested=False,
    ),
    # Erdos-Renyi densities keep layers from starving. An untrained network has one size for all layers, since
    # in a small one such a density may be 1: nothing is learned in a layer that is kept whole.
    "two-temperature trained": Entrant(
        FIXED,
        lambda at: _two_temperature(at, at.steps, "erk"),
        trained_once,
        search_and_training,
        SIZED_MASK_RATE,
        nested=False,
    ),
    "edge-popup": Entrant(
        FIXED, lambda at: _popped_up(search.edge_popup, at), None, search_alone, MASK_RATE, nested=False
    ),
    "edge-popup scaled": Entrant(
        FIXED,
        lambda at: _scaled(search.edge_popup, at, weights="signed constant"),
        None,
        search_alone,
        MASK_RATE,
        nested=False,
    ),
    "biprop": Entrant(
        FIXED, lambda at: _popped_up(search.biprop, at), None, search_alone, MASK_RATE, nested=False
    ),
    "biprop scaled": Entrant(
        FIXED, lambda at: _scaled(search.biprop, at), None, search_alone, MASK_RATE, nested=False
    ),
}
"""All methods, by their names in results."""
