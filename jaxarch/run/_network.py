"""What a search finds: a network, that is an architecture and weights, and what later stages need of it."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch._internal.errors import ArgumentError, shown
from jaxarch._internal.trees import PyTree


@partial(jax.tree_util.register_dataclass, data_fields=["kept"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class NeuronMask:
    """Which hidden neurons of a spectral network are left. It is no mask of connections, nor used as one.

    Attributes:
      kept: booleans of shape (N_i,) in the place of each hidden layer's eigenvalues, `None` elsewhere: the
        structure of the parameters.
    """

    kept: PyTree

    def count(self) -> Array:
        """How many neurons are left, all layers together; of many runs, one number each."""
        return jnp.sum(jnp.stack([jnp.sum(leaf, axis=-1) for leaf in jax.tree.leaves(self.kept)]), axis=0)


class ByDensity(NamedTuple):
    """The architectures of several densities that one search found, of which `at_density` takes one.

    Attributes:
      masks: by the name of the density, such as `0.05`, in any order.
      weights: those that the search ended with, without any mask.
      failed_at: by the same names, what `Network.failed_at` is of each, where some may fail and others not.
    """

    masks: dict[str, PyTree]
    weights: PyTree
    failed_at: dict[str, Array] | None = None


_FIELDS = (
    "params",
    "mask",
    "state",
    "neurons",
    "start",
    "start_state",
    "start_step",
    "by_density",
    "shared_weight",
    "memory",
    "failed_at",
    "dead_start",
    "info",
)


@partial(jax.tree_util.register_dataclass, data_fields=_FIELDS, meta_fields=())
@dataclasses.dataclass(frozen=True)
class Network:
    """An architecture and weights: what a stage makes, or turns into another.

    What one stage leaves for a later one is a field; `info` is for looking.

    Attributes:
      params: what the network computes with; masked already. `None` in a bare architecture.
      mask: the architecture: which connections there are, booleans; `None` for leaves that are not masked.
      state: the model's state (batch norm's and the like) after training.
      neurons: which hidden neurons of a spectral network are left.
      start: the weights that `retrain("rewind")` goes back to: those that training began from, or those of an
        early step.
      start_state: the model's state that belongs to them; `None` for the problem's own.
      start_step: after how many steps of training `start` was kept; `None` where it was kept untrained.
      by_density: the architectures of all densities that a search was asked for, for `at_density`.
      shared_weight: the weight that an architecture was chosen with, for `share_weight("best")`.
      memory: what the stages of one search hand to one another; `None` when it is over.
      failed_at: the first step whose loss was NaN or infinite, in the first training where that happened; -1
        for none. Of `search.synflow`, the first round whose saliencies were, or were all 0.
      dead_start: whether some leaf's gradient stayed exactly 0 as some training began.
      info: arrays to look at, by name, kept from stage to stage. A training adds `loss`, one value a step, of
        the last training in a chain.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> mask = {"kernel": jnp.array([[True, False], [True, True]])}  # two runs
      >>> network = jaxarch.Network({"kernel": jnp.array([[1.5, 0.0], [2.5, 3.5]])}, mask)
      >>> print(network.of_run(1).params["kernel"], jaxarch.density(network.of_run(0).mask))
      [2.5 3.5] 0.5
    """

    params: PyTree = None
    mask: PyTree = None
    state: PyTree = None
    _: dataclasses.KW_ONLY
    neurons: NeuronMask | None = None
    start: PyTree = None
    start_state: PyTree = None
    start_step: Array | None = None
    by_density: ByDensity | None = None
    shared_weight: Array | None = None
    memory: PyTree = None
    failed_at: Array | None = None
    dead_start: Array | None = None
    info: dict[str, Any] = dataclasses.field(default_factory=dict)

    def replace(self, **changes: Any) -> Network:
        """The network with some fields replaced."""
        return dataclasses.replace(self, **changes)

    def of_run(self, run: int) -> Network:
        """What one run found, out of many.

        Raises:
          ArgumentError: a run that there is none of.
        """
        check_run(run, self)
        # Losses are NaN where early stopping has stopped a run: no error.
        with jax.debug_nans(False):
            return _of_run(self, run)

    def then(self, after: Network) -> Network:
        """What was made of this network: what is set in `after`, and all else as it was."""
        changes = {name: getattr(after, name) for name in _FIELDS if getattr(after, name) is not None}
        return dataclasses.replace(self, **changes | {"info": {**self.info, **after.info}})


@jax.jit
def _of_run(network: Network, run: Array) -> Network:
    # One program for all leaves: their shapes are many.
    return jax.tree.map(lambda leaf: leaf[run], network)


def check_run(run: int, tree: PyTree) -> None:
    """Raise unless a number is that of a run: JAX would take the last one in its place."""
    sizes = [leaf.shape[0] for leaf in jax.tree.leaves(tree) if getattr(leaf, "ndim", 0)]
    runs = min(sizes, default=0)
    if not -runs <= run < runs:
        raise ArgumentError(f"run: expected 0 to {runs - 1}, got {shown(run)}")


def architecture(mask: PyTree) -> Network:
    """A mask as a network: a bare architecture, read from a file for instance, to go on from.

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
