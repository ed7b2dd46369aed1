"""Every search on models that people have: a residual network with batch norm, and a language model."""

import inspect
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from methods import IN_JAX, METHODS
from small import keys

import jaxarch
from jaxarch.lab.claims.checks.core import quick

pytestmark = pytest.mark.long

SEARCHES = [
    name for name in IN_JAX if METHODS[name].parent == "any" and METHODS[name].needs.network != "required"
]
PICTURES = np.random.default_rng(0).normal(size=(12, 8, 8, 3)).astype(np.float32)
TOKENS = np.random.default_rng(1).integers(0, 11, size=(12, 9))
NEEDS_NUMBERS = {"synflow"}
"""Searches whose input of ones no token is."""


def cross_entropy(outputs, labels):
    return optax.softmax_cross_entropy_with_integer_labels(outputs, labels)


def next_token(outputs, tokens):
    return cross_entropy(outputs, tokens).mean(-1)


# Models and their data are traced once for all searches.
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


@pytest.mark.parametrize("problem_of", [residual, language], ids=["residual network", "GPT"])
@pytest.mark.parametrize("name", SEARCHES)
def test_what_a_search_finds_there_is_finite_and_of_its_density(name, problem_of):
    problem, method = problem_of(), METHODS[name]
    first = next(iter(inspect.signature(method.make).parameters))
    has_density = first in ("density", "densities")
    search = jaxarch.chain(method.make(**{**method.example, first: 0.5}) if has_density else method.stage())
    if name in NEEDS_NUMBERS and problem_of is language:
        with pytest.raises(jaxarch.ArgumentError, match=r"saliency\.synflow"):
            jax.eval_shape(search, keys()[0], problem)
        return
    network = jax.jit(search, compiler_options=quick())(keys()[0], problem)
    params, _ = jax.eval_shape(problem.init, keys()[0])
    assert jax.tree.structure(network.params) == jax.tree.structure(params)
    assert jaxarch.named_leaves(network.mask).keys() == jaxarch.named_leaves(jaxarch.select(params)).keys()
    assert (network.failed_at is None) or network.failed_at == -1
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(network.params))
    if has_density:
        np.testing.assert_allclose(jaxarch.density(network.mask), 0.5, atol=1e-3)
