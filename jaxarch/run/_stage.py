"""Stages, which make or transform a network, and the requirements of each."""

from __future__ import annotations

import dataclasses
import inspect
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import jax
import numpy as np
from jax import Array

from jaxarch._internal.errors import ArgumentError, ResultWarning, is_traced
from jaxarch._internal.trees import PyTree
from jaxarch.run._keyed import equal_by_key
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._records import ByDensity, NeuronMask

Removed = Literal["connections", "neurons"]


@dataclasses.dataclass(frozen=True)
class Needs:
    """Requirements of a stage, so that a chain can be refused before anything is trained.

    Attributes:
      network: `none` for a stage that makes a network from nothing, `required` for one that turns a network
        into another, `optional` for one that does either.
      fields: fields of that network that must be set.
      records: types of records that an earlier stage must have left in it, `Start` for instance.
      forgets: parts that the stage would restore after an earlier one removed them: `connections`, `neurons`.
      validation: whether the problem must have validation rows.
      predict: whether the problem must have a `predict`.
      batches: how many training batches a stage other than a training looks at, by `problem.batch`, if they
        come from a stream; the stage gets the batches of the first steps.
      before: which stage to put first, for an error message: `search.dense()`, for instance.

    Example:
      >>> import jaxarch
      >>> def restart(settings, key, problem, network):
      ...     return network.replace(params=problem.init(key)[0])
      >>> needs = jaxarch.Needs("required", ("params",), forgets=("connections",))
      >>> stage = jaxarch.FunctionStage("restart", restart, needs=needs)
      >>> jaxarch.chain(jaxarch.search.snip(0.5), stage)  # doctest: +ELLIPSIS
      Traceback (most recent call last):
          ...
      jaxarch.ArgumentError: chain: restart would restore the connections that snip removed; ...
    """

    network: Literal["none", "required", "optional"] = "none"
    fields: tuple[str, ...] = ()
    forgets: tuple[Removed, ...] = ()
    validation: bool = False
    predict: bool = False
    batches: int = 0
    before: str = "search.dense()"
    records: tuple[type, ...] = ()


NOTHING = Needs()
A_NETWORK = Needs("required", ("params", "mask"))


@runtime_checkable
class Stage(Protocol):
    """A stage: `stage(key, problem, network | None) -> Network`, a pure function of one run.

    Attributes:
      name: shown in progress, reports and errors.
      needs: the stage's requirements.
      removes: what the stage may remove from its network.
    """

    @property
    def name(self) -> str:
        """Name of the stage."""

    @property
    def needs(self) -> Needs:
        """Requirements of the stage."""

    @property
    def removes(self) -> tuple[Removed, ...]:
        """Parts that the stage may remove from its network."""

    def __call__(self, key: Array, problem: Problem, network: Network | None = None) -> Network:
        """Make the network of one run."""


@equal_by_key
@dataclasses.dataclass(frozen=True, eq=False)
class FunctionStage:
    """A stage that is one function of its settings; two with equal settings are equal.

    Attributes:
      name: shown in progress, reports and errors.
      apply: `(settings, key, problem, network) -> Network`, defined at the top of a module. It returns the
        whole network: if it is given one, it returns `network.replace(...)`.
      settings: a frozen dataclass of numbers, texts and functions, or one such value.
      needs: the stage's requirements.
      removes: what the stage may remove from its network.
      remarks: `network -> lines`, called with all runs, concrete: what users should know about the result.
        Each line becomes a `ResultWarning`, and in `over_seeds` a note of the report. To refuse a useless
        result, raise `ArgumentError`.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> def signs(settings, key, problem, network):
      ...     return network.replace(params=jax.tree.map(jnp.sign, network.params))
      >>> stage = jaxarch.FunctionStage("signs", signs, needs=jaxarch.Needs("required", ("params",)))
      >>> drawn = jaxarch.search.random_mask(0.5, scope="layer")
      >>> network = jaxarch.chain(drawn, stage)(jax.random.key(0), problem)
      >>> print(jnp.abs(network.params["W2_1"]).sum())  # half of 32 connections, each 1 or -1
      16.0
    """

    name: str
    apply: Callable[[Any, Array, Problem, Any], Network]
    settings: Any = None
    needs: Needs = NOTHING
    removes: tuple[Removed, ...] = ("connections",)
    remarks: Callable[[Network], Iterable[str]] | None = None

    def __call__(self, key: Array, problem: Problem, network: Network | None = None) -> Network:
        """Make the network of one run."""
        check_network(self, network)
        check_problem(self, problem)
        after = check_made(self, self.apply(self.settings, key, problem, network))
        if self.remarks is not None and not is_traced(after):
            warn_of(self, self.name, jax.tree.map(lambda leaf: leaf[None], after))
        if network is None or after.get(ByDensity) is not network.get(ByDensity):
            return after
        if after.params is network.params and after.mask is network.mask:
            return after
        # The masks by density belong to other weights, or to a larger architecture.
        return after.without(ByDensity)


def warn_of(stage: Any, name: str, network: Network) -> tuple[str, ...]:
    """Warn of a stage's remarks on the networks of all runs, and return them as lines.

    Raises:
      ArgumentError: useless networks.
    """
    if getattr(stage, "remarks", None) is None:
        return ()
    try:
        notes = tuple(f"{name}: {line}" for line in stage.remarks(network))
    except ArgumentError as error:
        raise ArgumentError(f"{name}: {error}") from None
    for note in notes:
        warnings.warn(note, ResultWarning, stacklevel=3)
    return notes


@equal_by_key
@dataclasses.dataclass(frozen=True, eq=False)
class HostSearch:
    """A search outside of JAX, such as scikit-learn's: it runs on the host, and cannot be jitted or mapped.

    Attributes:
      name: shown in progress and reports.
      search: `(settings, keys, problem) -> Network`, for all runs, with a leading axis of runs.
      predict: `(params, state, batch) -> outputs` in JAX, replacing the problem's own.
      settings: as for a `FunctionStage`.
      needs: as for a `FunctionStage`; by default nothing.
      removes: as for a `FunctionStage`; by default nothing.
    """

    name: str
    search: Callable[[Any, Array, Problem], Network]
    predict: Callable[[PyTree, PyTree, PyTree], Any]
    settings: Any = None
    needs: Needs = NOTHING
    removes: tuple[Removed, ...] = ()

    def __call__(self, key: Array, problem: Problem, network: Network | None = None) -> Network:
        """Refuse the call: the search has no single run."""
        raise ArgumentError(f"{self.name}: it runs on the host; use over_seeds")


def as_stage(part: Any) -> Stage:
    """Return a stage as it is, and wrap a plain function as a stage.

    Args:
      part: a stage; or a function `(key, problem) -> Network`, which makes a network from nothing;
        `(key, problem, network) -> Network`, which turns one into another; with a default for `network`,
        which does either.

    Raises:
      ArgumentError: anything else.
    """
    if isinstance(part, Stage):
        return part
    expected = "chain: expected stages, or functions (key, problem) or (key, problem, network)"
    if (method := getattr(part, "method", None)) is not None:
        raise ArgumentError(
            f"chain: expected a stage, got the function {method.name} that makes one; call it, as in "
            f"{method.name}(...)"
        )
    if not callable(part):
        raise ArgumentError(f"{expected}; got {type(part).__name__}")
    try:
        signature = inspect.signature(part)
        count = sum(p.kind in _POSITIONAL for p in signature.parameters.values())
        required = sum(p.kind in _POSITIONAL and p.default is p.empty for p in signature.parameters.values())
    except (TypeError, ValueError):
        count = required = 0
    name = getattr(part, "__name__", type(part).__name__)
    if required > 3 or count < 2:
        raise ArgumentError(f"{expected}; {name} takes {required} arguments")
    if count == 2:
        return FunctionStage(name, _from_nothing, part)
    return FunctionStage(name, _of_network, part, Needs("required" if required == 3 else "optional"))


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _from_nothing(function: Callable[..., Network], key: Array, problem: Problem, network: None) -> Network:
    return function(key, problem)


def _of_network(
    function: Callable[..., Network], key: Array, problem: Problem, network: Network | None
) -> Network:
    after = function(key, problem, network)
    return network.then(after) if isinstance(after, Network) and network is not None else after


def check_follows(stage: Stage, earlier: Sequence[Stage]) -> None:
    """Raise unless a stage can come after the earlier ones.

    Raises:
      ArgumentError: naming the stage, the earlier one that conflicts with it, and the way out.
    """
    before = earlier[-1]
    if isinstance(before, HostSearch):
        raise ArgumentError(f"chain: {before.name} runs on the host, so no stage can follow it; put it last")
    if stage.needs.network == "none":
        raise ArgumentError(
            f"chain: {stage.name} makes a network from nothing, and would discard what {before.name} found; "
            f"{_INSTEAD}"
        )
    for other in earlier:
        for removed in other.removes:
            if removed in stage.needs.forgets:
                raise ArgumentError(
                    f"chain: {stage.name} would restore the {removed} that {other.name} removed; "
                    f"{_INSTEAD if removed == 'connections' else _REFIT}"
                )


_REFIT = "to train the remaining neurons, use search.spectral(0.0) instead"
_INSTEAD = 'to train what was found, use retrain("cold", nonnegative=False) instead'


def check_network(stage: Stage, network: Network | None) -> None:
    """Raise unless a network fits a stage's needs: present or absent as required, with the required fields.

    Raises:
      ArgumentError: naming the stage, what it lacks, and the way out.
    """
    needs = stage.needs
    if network is None:
        if needs.network == "required":
            raise ArgumentError(
                f"{stage.name}: it needs a network; put a search before it, as in chain({needs.before}, "
                "...), or pass network="
            )
        return
    if needs.network == "none":
        raise ArgumentError(
            f"{stage.name}: it makes a network from nothing, and would discard the given one; {_INSTEAD}"
        )
    lacks = [field for field in needs.fields if getattr(network, field) is None]
    lacks += [kind.__name__ for kind in needs.records if network.get(kind) is None]
    for lacked in lacks:
        raise ArgumentError(
            f"{stage.name}: it needs a network with `{lacked}`; put a stage that sets it before, as in "
            f"chain({needs.before}, ...)"
        )
    if "connections" in needs.forgets and not _may_be_whole(network.mask):
        raise ArgumentError(
            f"{stage.name}: it would restore the connections that the given network lacks; {_INSTEAD}"
        )
    if "neurons" in needs.forgets and not _may_be_whole(network.get(NeuronMask)):
        raise ArgumentError(
            f"{stage.name}: it would restore the neurons that the given network lacks; {_REFIT}"
        )


def _may_be_whole(mask: PyTree) -> bool:
    """Return whether nothing is removed, as far as concrete masks tell."""
    leaves = [leaf for leaf in jax.tree.leaves(mask) if isinstance(leaf, (np.ndarray, Array))]
    return all(bool(leaf.all()) for leaf in leaves if not is_traced(leaf))


def check_made(stage: Any, made: Any) -> Network:
    """Return a stage's result if it is a network.

    Raises:
      ArgumentError: naming the stage, and what it made instead.
    """
    if not isinstance(made, Network):
        raise ArgumentError(f"{stage.name}: expected a stage to return a Network, got {type(made).__name__}")
    return made


def check_problem(stage: Stage, problem: Problem) -> None:
    """Raise unless a problem has what a stage needs from it.

    Raises:
      ArgumentError: naming the stage, what the problem lacks, and the way out.
    """
    if stage.needs.validation and problem.validation is None:
        raise ArgumentError(
            f"validation: {stage.name} needs a problem with validation rows; give it `validation=rows`"
        )
    if stage.needs.predict and problem.predict is None:
        raise ArgumentError(f"problem: it has no `predict`, which {stage.name} needs; give it one")
