"""Every method of the library with a small problem for it, out of the one list that there is."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from long_suite import partly_long
from small import digits

import jaxarch
from jaxarch import HostSearch
from jaxarch.models import signed_output_loss, tanh_network
from jaxarch.run._methods import methods_of

RUNS = 3
METHODS = methods_of(jaxarch.search, jaxarch.transforms)
IN_JAX = [name for name, method in METHODS.items() if not isinstance(method.stage(), HostSearch)]
LONG = {
    "acdc",
    "agnostic",
    "architecture_pruning",
    "biprop",
    "cht",
    "continuous_sparsification",
    "dense",
    "edge_popup",
    "fisher",
    "flip",
    "gradual_magnitude",
    "granet",
    "grasp",
    "group_lasso",
    "hard_concrete",
    "hutchinson",
    "magnitude_pruning",
    "maskllm",
    "movement",
    "network_slimming",
    "probmask",
    "prospr",
    "random_search",
    "recruit",
    "retrain",
    "rigl",
    "share_weight",
    "slim",
    "soft_threshold",
    "sparse_evolution",
    "spectral",
    "spectral_depth",
    "spectral_width",
    "sr_ste",
    "top_kast",
    "transformable",
}
RUN = partly_long(IN_JAX, LONG)
"""All of them, for tests that run each: what compiles for seconds only in the long suite."""
N_OF_M = ("maskllm", "sr_ste")
"""Those of N:M patterns alone, which must know the axis of a leaf's inputs."""


def strategy_of(name):
    """A method behind the stage that its own error message names, if it needs one."""
    method = METHODS[name]
    if method.needs.network != "required":
        return jaxarch.chain(method.stage())
    before = eval(method.needs.before, {"search": jaxarch.search})  # what a user would type
    return jaxarch.chain(before, method.stage())


PARENTS = {
    "any": lambda: tanh_network((8, 6, 6)),
    "binary": lambda: tanh_network((8, 6, 6)),
    "spectral": lambda: jaxarch.spectral_network((8, 5, 1), eigenvalues="random"),
    "direct": lambda: jaxarch.direct_network((8, 5, 1)),
    "batch norm": lambda: Normalised,
    "piecewise linear": lambda: Normalised,
}


class Normalised(nnx.Module):
    """A perceptron with batch norm."""

    def __init__(self, rngs):
        self.first = nnx.Linear(8, 5, rngs=rngs)
        self.norm = nnx.BatchNorm(5, rngs=rngs)
        self.last = nnx.Linear(5, 1, rngs=rngs)

    def __call__(self, x):
        return self.last(nnx.relu(self.norm(self.first(x))))


def _losses(outputs, y):
    if outputs.ndim == 1:
        return signed_output_loss(outputs, y)
    if outputs.shape[-1] == 1:
        return jnp.square(outputs[:, 0] - y.astype(outputs.dtype))
    return optax.softmax_cross_entropy_with_integer_labels(outputs, y)


@cache
def problem_for(parent, steps=3, runs=RUNS):
    """Eight pixels of digits, 0 to 4 against 5 to 9, on a model of a kind; each run has rows of its own."""
    rows = np.stack([np.random.default_rng(run).permutation(60) for run in range(runs)])
    return jaxarch.supervised(
        PARENTS[parent](),
        (digits().x[:60, 18:26], (digits().y[:60] >= 5).astype(np.int32)),
        loss=_losses,
        optimizer=optax.sgd(0.1),
        steps=steps,
        batch_size=10,
        train=rows[:, :40],
        validation=rows[:, 40:],
    )


def problem_of(name, **sizes):
    """The small problem for a method, by name."""
    return problem_for(METHODS[name].parent, **sizes)


def keys(runs=RUNS):
    return jax.random.split(jax.random.key(1), runs)
