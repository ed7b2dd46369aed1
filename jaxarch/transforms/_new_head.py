"""New heads: an architecture on a task with another number of classes or inputs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch._internal.errors import ArgumentError
from jaxarch._internal.trees import check_structure, map_selected, named_leaves
from jaxarch.masks import apply_mask
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._records import Start
from jaxarch.run._stage import FunctionStage, Needs


@method("[A] section 3.3")
def new_head() -> FunctionStage:
    """Adapt the architecture to a task with another number of classes or inputs, by making new heads.

    Leaves of another shape than the problem's parameters get the problem's initial values. If they were
    masked, they get a random mask of their earlier density, to a connection. But if the mask was the same for
    all of several classes or inputs, as after a search for units, all new ones get it. All else stays as it
    was found; a bare architecture gets the problem's initial values throughout.

    Returns:
      A transform, to be put first: `over_seeds(chain(new_head(), retrain("cold", nonnegative=False)), keys,
      new_problem, network=network)`.

    Raises:
      ArgumentError: a model with other layers than the network's.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> mask = {"W2_1": jnp.ones((8, 4), bool), "W3_2": jnp.arange(16).reshape(2, 8) < 4}  # of 2 classes
      >>> network = jaxarch.new_head()(jax.random.key(0), problem, jaxarch.architecture(mask))
      >>> print(network.mask["W3_2"].shape, jaxarch.density(network.mask["W3_2"]))
      (4, 8) 0.25
    """
    return FunctionStage("new head", _new_head, None, Needs("required", ("mask",)))


def _new_head(settings: None, key: Array, problem: Problem, network: Network) -> Network:
    params_key, mask_key = jax.random.split(key)
    params, state = problem.init(params_key)
    if network.params is not None:
        ours, theirs = (", ".join(named_leaves(tree)) for tree in (params, network.params))
        if ours != theirs:
            raise ArgumentError(
                f"network: it has the parameters {theirs}, but the problem's model has {ours}; only shapes "
                "may differ"
            )
        params = jax.tree.map(lambda new, old: old if old.shape == new.shape else new, params, network.params)
    unknown = named_leaves(network.mask).keys() - named_leaves(params).keys()
    if unknown:
        raise ArgumentError(
            f"network: it masks {', '.join(sorted(unknown))}, but the problem's model has only "
            f"{', '.join(named_leaves(params))}"
        )
    check_structure("network", network.mask, params, "the problem's parameters")
    keys = iter(jax.random.split(mask_key, len(jax.tree.leaves(network.mask))))

    def fitting(old: Array, leaf: Array) -> Array:
        key = next(keys)
        if old.shape == leaf.shape:
            return old
        kept = jnp.round(jnp.sum(old) / old.size * leaf.size)
        drawn = jax.random.permutation(key, (jnp.arange(leaf.size) < kept)).reshape(leaf.shape)
        return _repeated(old, drawn)

    mask = map_selected(fitting, network.mask, params)
    same = jax.tree.map(jnp.shape, state) == jax.tree.map(jnp.shape, network.state)
    state = network.state if same else state
    return network.without(Start).replace(params=apply_mask(mask, params), mask=mask, state=state)


def _repeated(old: Array, drawn: Array) -> Array:
    """Return the old mask at the new sizes if it is constant along all changed axes, else the drawn mask."""
    if old.ndim != drawn.ndim:
        return drawn
    changed = [axis for axis in range(old.ndim) if old.shape[axis] != drawn.shape[axis]]
    if any(old.shape[axis] < 2 for axis in changed):
        # One class or input does not show whether the mask is the same for all.
        return drawn
    first = old[tuple(slice(1) if axis in changed else slice(None) for axis in range(old.ndim))]
    return jnp.where((old == first).all(), jnp.broadcast_to(first, drawn.shape), drawn)
