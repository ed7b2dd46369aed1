"""A network: an architecture and its weights, with the records that stages leave in it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import Array
from jax.tree_util import all_leaves

from jaxarch._internal.errors import ArgumentError, check_count, shown
from jaxarch._internal.trees import PyTree
from jaxarch.run._records import in_order, name_of
from jaxarch.run._training_info import TrainingInfo

Record = TypeVar("Record")

_FIELDS = ("params", "mask", "state", "records", "info")


@partial(jax.tree_util.register_dataclass, data_fields=_FIELDS, meta_fields=())
@dataclasses.dataclass(frozen=True)
class Network:
    """An architecture and its weights: the result of a stage, and the input of the next.

    A stage may leave a record for a later one: weights to rewind to, or masks of other densities. Each record
    has its own type, and is looked up by it: `network[Start].params`, or `network.get(Start)`, which is
    `None` if there is none. `info` is for inspection only.

    Args:
      params: the weights that the network computes with; already masked. `None` in a bare architecture.
      mask: the architecture: booleans that tell which connections exist; `None` for leaves that are not
        masked.
      state: the model's state (such as batch norm's) after training.
      records: what stages left for later ones, at most one of each type: `Start`, `ByDensity`, `NeuronMask`,
        `SharedWeight`, or one of your own, a dataclass that is registered with JAX. They are sorted by the
        names of their types, so the order in which they were left does not matter.
      info: what happened in training, a `TrainingInfo`.

    Raises:
      ArgumentError: two records of one type, or an object that is not a record; an `info` of another type.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> mask = {"kernel": jnp.array([[True, False], [True, True]])}  # two runs
      >>> network = jaxarch.Network({"kernel": jnp.array([[1.5, 0.0], [2.5, 3.5]])}, mask)
      >>> print(network.of_run(1).params["kernel"], jaxarch.density(network.of_run(0).mask))
      [2.5 3.5] 0.5
      >>> network = network.with_records(jaxarch.Start({"kernel": jnp.ones((2, 2))}))
      >>> print(network.of_run(1)[jaxarch.Start].params["kernel"], network.get(jaxarch.ByDensity))
      [1. 1.] None
    """

    params: PyTree = None
    mask: PyTree = None
    state: PyTree = None
    _: dataclasses.KW_ONLY
    records: tuple[Any, ...] = ()
    info: TrainingInfo = dataclasses.field(default_factory=TrainingInfo)

    def __post_init__(self) -> None:
        """Sort the records by type name; refuse objects that are not records."""
        # JAX also rebuilds this class with one leaf of any kind in place of a whole field.
        if type(self.records) in (tuple, list):
            object.__setattr__(self, "records", in_order(self.records))
        elif self.records is not None and not all_leaves([self.records]):
            raise ArgumentError(f"records: expected a tuple of records, got {shown(self.records)}")
        if isinstance(self.info, Mapping) and not isinstance(self.info, TrainingInfo):
            raise ArgumentError(f"info: expected TrainingInfo({{...}}), got {shown(self.info)}")

    def __getitem__(self, kind: type[Record]) -> Record:
        """Return the record of a type, which must be there.

        Raises:
          ArgumentError: no stage has left one.
        """
        record = self.get(kind)
        if record is None:
            left = ", ".join(type(one).__name__ for one in self.records) or "none"
            raise ArgumentError(f"network: it has no {kind.__name__} from any stage; its records: {left}")
        return record

    __iter__ = None
    """Not iterable, although it takes a type in brackets."""

    def get(self, kind: type[Record]) -> Record | None:
        """Return the record of a type, or `None` if no stage has left one.

        Raises:
          ArgumentError: an argument that is not a type.
        """
        if not isinstance(kind, type):
            raise ArgumentError(
                f"network: expected a record's type in brackets, such as network[Start], got {shown(kind)}; "
                "to take one run, call network.of_run(0)"
            )
        return next((record for record in self.records if type(record) is kind), None)

    def with_records(self, *records: Any) -> Network:
        """Return the network with the given records, which replace those of the same types.

        Raises:
          ArgumentError: two records of one type; an object that is not a record.
        """
        given = in_order(records)
        names = {name_of(type(record)) for record in given}
        others = (record for record in self.records if name_of(type(record)) not in names)
        return dataclasses.replace(self, records=(*others, *given))

    def without(self, *kinds: type) -> Network:
        """Return the network without the records of the given types; types that it lacks are ignored."""
        return dataclasses.replace(
            self, records=tuple(record for record in self.records if type(record) not in kinds)
        )

    def replace(self, **changes: Any) -> Network:
        """Return the network with some fields replaced."""
        return dataclasses.replace(self, **changes)

    def of_run(self, run: int) -> Network:
        """Return the network of one run out of many.

        Raises:
          ArgumentError: a run that does not exist.
        """
        check_run(run, self)
        # Losses are NaN after early stopping has stopped a run: that is no error.
        with jax.debug_nans(False):
            return _of_run(self, run)

    def repeated(self, runs: int) -> Network:
        """Return the network of one run once for each of some runs: the argument `network` of `over_seeds`.

        Args:
          runs: the number of runs, at least 1.

        Raises:
          ArgumentError: a number that is not a positive integer.

        Example:
          >>> import jax.numpy as jnp, jaxarch
          >>> network = jaxarch.architecture({"kernel": jnp.array([[True, False]])})
          >>> network.repeated(3).mask["kernel"].shape
          (3, 1, 2)
        """
        check_count("runs", runs)
        return jax.tree.map(lambda leaf: jnp.repeat(jnp.asarray(leaf)[None], runs, axis=0), self)

    def then(self, after: Network) -> Network:
        """Return the network updated by `after`: the fields set in `after` win, everything else stays."""
        made = {name: getattr(after, name) for name in ("params", "mask", "state")}
        set_ = {name: value for name, value in made.items() if value is not None}
        return self.with_records(*after.records).replace(**set_, info=self.info | after.info)


@jax.jit
def _of_run(network: Network, run: Array) -> Network:
    # One program for all leaves avoids one compilation for each of their many shapes.
    return jax.tree.map(lambda leaf: leaf[run], network)


def check_run(run: int, tree: PyTree) -> None:
    """Raise unless a run of that number exists; JAX would clamp the index to the last run."""
    sizes = [leaf.shape[0] for leaf in jax.tree.leaves(tree) if getattr(leaf, "ndim", 0)]
    runs = min(sizes, default=0)
    if not -runs <= run < runs:
        raise ArgumentError(f"run: expected {-runs} to {runs - 1}, got {shown(run)}")


def architecture(mask: PyTree) -> Network:
    """Wrap a mask as a network: a bare architecture to continue from, for instance one read from a file.

        network = jaxarch.architecture(jaxarch.load_mask("mask.npz", problem))
        jaxarch.over_seeds(jaxarch.retrain("cold", nonnegative=False), keys, problem, network=network)

    Args:
      mask: booleans, `None` for leaves that are not masked; with a leading axis of runs for `over_seeds`.

    Returns:
      A `Network` without parameters or state.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> network = jaxarch.architecture({"kernel": jnp.array([[True, False]]), "bias": None})
      >>> print(network.params, jaxarch.density(network.mask))
      None 0.5
    """
    return Network(mask=mask)
