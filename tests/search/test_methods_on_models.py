"""Every search on a model of all kinds of leaves, and one of each kind on models that people have."""

import inspect
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from methods import IN_JAX, METHODS, N_OF_M
from small import keys

import jaxarch
from jaxarch.lab.claims.checks.core import quick

pytestmark = pytest.mark.long

SEARCHES = [
    name for name in IN_JAX if METHODS[name].parent == "any" and METHODS[name].needs.network != "required"
]
PICTURES = np.random.default_rng(0).normal(size=(12, 8, 8, 3)).astype(np.float32)
TOKENS = np.random.default_rng(1).integers(0, 11, size=(12, 9))
NEEDS_NUMBERS = {"synflow", "ntk_sap"}
"""Searches whose inputs, ones or random numbers, no token is."""

GIVEN = {"transformable": {"target": 0.8}}
"""Arguments of methods whose defaults no small model meets: TAS leaves a group of 4 or 6 units at least 2."""

CUT_UNITS = {"transformable"}
"""Searches that cut whole units, with their biases and batch norm."""


def cross_entropy(outputs, labels):
    return optax.softmax_cross_entropy_with_integer_labels(outputs, labels)


def next_token(outputs, tokens):
    return cross_entropy(outputs, tokens).mean(-1)


class Mixed(nnx.Module):
    """An embedding, attention, a convolution and batch norm, of which little is compiled."""

    def __init__(self, rngs):
        self.embedding, self.mixed = nnx.Embed(11, 6, rngs=rngs), nnx.Linear(6, 6, rngs=rngs)
        self.convolution, self.norm = nnx.Conv(6, 4, 3, rngs=rngs), nnx.BatchNorm(4, rngs=rngs)
        self.head = nnx.Linear(4, 11, rngs=rngs)

    def __call__(self, tokens):
        x = self.mixed(self.embedding(tokens))
        x = jax.nn.softmax(x @ x.mT) @ x
        return self.head(jax.nn.relu(self.norm(self.convolution(x))))


# Models and their data are traced once for all searches.
@cache
def mixed():
    return jaxarch.supervised(
        Mixed,
        (TOKENS[:, :-1], TOKENS[:, 1:]),
        loss=next_token,
        optimizer=optax.adam(1e-3),
        steps=6,
        batch_size=4,
        validation=np.arange(4),
    )


@cache
def residual():
    """Build ResNet-20 with two stages of one block: an identity, a padded shortcut, and few to compile."""
    return jaxarch.supervised(
        lambda rngs: jaxarch.models.ResNet((4, 8), 1, shortcut="padding", inputs=3, outputs=4, rngs=rngs),
        (PICTURES, np.arange(12) % 4),
        loss=cross_entropy,
        optimizer=optax.adam(1e-3),
        steps=6,
        batch_size=4,
        validation=np.arange(4),
    )


@cache
def language():
    return jaxarch.supervised(
        lambda rngs: jaxarch.models.GPT(depth=1, features=8, heads=2, length=8, vocabulary=11, rngs=rngs),
        (TOKENS[:, :-1], TOKENS[:, 1:]),
        loss=next_token,
        optimizer=optax.adam(1e-3),
        steps=6,
        batch_size=4,
        validation=np.arange(4),
    )


OF_EACH_KIND = ["snip", "synflow", "two_temperature", "rigl"]
"""Before training, from ones, by scores, and while the weights descend."""
CASES = [(mixed, name) for name in SEARCHES]
CASES += [(problem_of, name) for problem_of in (residual, language) for name in OF_EACH_KIND]


@pytest.mark.parametrize(("problem_of", "name"), CASES, ids=lambda each: getattr(each, "__name__", each))
def test_what_a_search_finds_there_is_finite_and_of_its_density(problem_of, name):
    problem, method = problem_of(), METHODS[name]
    first = next(iter(inspect.signature(method.make).parameters))
    has_density = first in ("density", "densities")
    given = {first: 0.5} if has_density else GIVEN.get(name, {})
    search = jaxarch.chain(method.make(**{**method.example, **given}))
    if name in NEEDS_NUMBERS and problem_of is not residual:
        with pytest.raises(jaxarch.ArgumentError, match=rf"saliency\.{name}"):
            jax.eval_shape(search, keys()[0], problem)
        return
    if name in N_OF_M:  # the model looks its embedding up
        with pytest.raises(jaxarch.ArgumentError, match="cannot tell which axis of 'embedding/embedding'"):
            jax.eval_shape(search, keys()[0], problem)
        return
    network = jax.jit(search, compiler_options=quick())(keys()[0], problem)
    params, _ = jax.eval_shape(problem.init, keys()[0])
    assert jax.tree.structure(network.params) == jax.tree.structure(params)
    masks = network.mask, jaxarch.select(params)
    masked, connections = (jaxarch.named_leaves(each).keys() for each in masks)
    assert masked > connections if name in CUT_UNITS else masked == connections
    assert (network.info.failed_at is None) or network.info.failed_at == -1
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(network.params))
    if has_density:
        np.testing.assert_allclose(jaxarch.density(network.mask), 0.5, atol=1e-3)
