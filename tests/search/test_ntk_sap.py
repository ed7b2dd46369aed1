"""NTK-SAP: the derivative by hand and beside the kernel's trace, independence of data, and exact sizes."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import same

import jaxarch
from jaxarch import masks, saliency
from jaxarch.search import ntk_sap

KEY = jax.random.key(0)
PARAMS = {"a": jax.random.normal(KEY, (3, 4)), "b": jax.random.normal(jax.random.key(1), (4, 2))}
X = jax.random.normal(jax.random.key(2), (5, 3))


def outputs(params, x=X):
    return jnp.tanh(x @ params["a"]) @ params["b"]


def test_a_score_is_the_derivative_by_a_mask_on_the_weights_and_on_the_noisy_ones():
    # At masks a and b: (2 a 3 b - 3 a 2 b)^2 = 0; (6 a b - 3 a 3 b)^2 = 9 a^2 b^2; (6 a b - a 2 b)^2.
    params = {"a": jnp.full((1, 1), 2.0), "b": jnp.full((1, 1), 3.0)}
    for noise, slope in (((1.0, -1.0), 0.0), ((1.0, 0.0), 18.0), ((-1.0, -1.0), 32.0)):
        noises = {name: jnp.full((1, 1), of) for name, of in zip("ab", noise, strict=True)}
        scores = saliency.ntk_sap(lambda p: p["a"] * p["b"], params, noises)
        assert (scores["a"], scores["b"]) == (slope, slope)


def test_removed_connections_have_no_score():
    kept = jax.tree.map(lambda leaf: leaf > 0, PARAMS)
    noise = jax.tree.map(lambda leaf: 0.1 * leaf**2, PARAMS)
    some = masks.apply_mask(kept, PARAMS), masks.apply_mask(kept, noise)
    scores = jax.jit(lambda *some: saliency.ntk_sap(outputs, *some))(*some)
    for score, left in zip(jax.tree.leaves(scores), jax.tree.leaves(kept), strict=True):
        assert not score[~left].any()
        assert score[left].any()


def test_its_expectation_is_the_derivative_of_the_trace_of_the_kernel():
    def trace(mask):
        jacobian = jax.jacobian(lambda p: outputs(jax.tree.map(jnp.multiply, p, mask)))(PARAMS)
        return sum(jnp.square(leaf).sum() for leaf in jax.tree.leaves(jacobian))

    def drawn(key):
        noise = masks.init_scores(key, PARAMS, 0.0, 1e-2)
        return saliency.ntk_sap(outputs, PARAMS, noise)

    found = jax.tree.map(lambda leaf: leaf.mean(0), jax.jit(jax.vmap(drawn))(jax.random.split(KEY, 20_000)))
    exact = jax.jit(jax.grad(trace))(jax.tree.map(jnp.ones_like, PARAMS))
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(exact), strict=True):
        np.testing.assert_allclose(one / 1e-4, other, atol=0.03 * np.abs(other).max())


def learning(x=X, scale=1.0):
    def init(key):
        keys = jax.random.split(key)
        return {
            "a": scale * jax.random.normal(keys[0], (3, 4)),
            "b": scale * jax.random.normal(keys[1], (4, 2)),
        }

    y = jnp.zeros(len(x), jnp.int32)
    loss = optax.softmax_cross_entropy_with_integer_labels
    return jaxarch.supervised((init, outputs), (x, y), loss=loss, optimizer=optax.sgd(0.1), steps=1)


PROBLEM = learning()
SEARCH = jax.jit(ntk_sap(0.3, rounds=3, draws=4, noise=2.0))
"""Tests share this search and the problem, so that one program serves them all."""


@pytest.mark.long
def test_in_one_s_own_loop_it_gives_the_mask_of_the_search():
    problem = PROBLEM
    params_key, draws_key = jax.random.split(KEY)
    mask = masks.full_mask(problem.init(params_key)[0])

    @jax.jit
    def scored(key, mask):
        init_key, noise_key, inputs_key = jax.random.split(key, 3)
        weights = masks.apply_mask(mask, problem.init(init_key)[0])
        noise = masks.apply_mask(mask, masks.init_scores(noise_key, weights, 0.0, 2.0))
        x = jax.random.normal(jax.random.split(inputs_key, 2)[0], X.shape)
        return saliency.ntk_sap(lambda p: outputs(p, x), weights, noise)

    for round_ in range(3):
        total = jax.tree.map(jnp.zeros_like, PARAMS)
        for key in jax.random.split(jax.random.fold_in(draws_key, round_), 4):
            total = jax.tree.map(jnp.add, scored(key, mask), total)
        scores = jax.tree.map(lambda of, kept: jnp.where(kept, jnp.abs(of), -1), total, mask)
        mask = masks.keep(scores, 0.3 ** ((round_ + 1) / 3))
    assert same(SEARCH(KEY, problem).mask, mask)


@pytest.mark.long
def test_no_data_are_looked_at():
    other = dataclasses.replace(PROBLEM, data=(7 - X, PROBLEM.data[1]))
    assert same(SEARCH(KEY, PROBLEM).mask, SEARCH(KEY, other).mask)


@pytest.mark.long
def test_every_draw_has_weights_of_its_own_and_the_problem_s_are_kept():
    paired = dataclasses.replace(PROBLEM, paired=jax.random.key(5))
    found = SEARCH(KEY, paired)
    assert same(found.params, masks.apply_mask(found.mask, paired.start(KEY)[0]))
    # Pairs share the initial weights, and not the weights of draws.
    assert same(found.mask, SEARCH(KEY, PROBLEM).mask)


@pytest.mark.long
def test_every_density_is_exact_and_what_it_is_alone():
    several = jax.jit(ntk_sap((0.7, 0.3), rounds=3, draws=4, noise=2.0))(KEY, PROBLEM)
    for density, size in (("0.7", 14), ("0.3", 6)):
        assert int(masks.connections(several[jaxarch.ByDensity].masks[density])) == size  # of 20
    assert same(several.mask, SEARCH(KEY, PROBLEM).mask)


@pytest.mark.long
def test_weights_of_zero_are_told():
    with pytest.warns(jaxarch.ResultWarning, match="saliencies are infinite, NaN or all 0 in 1 of 1 runs"):
        network = ntk_sap(0.5, rounds=2, draws=1, noise=1e-30)(KEY, learning(scale=0.0))
    assert network.info.failed_at == 0


def test_inputs_that_are_no_floats_are_refused():
    model = (lambda key: {"table": jnp.ones((5, 2))}, lambda params, x: params["table"][x].mean(1))
    loss = optax.softmax_cross_entropy_with_integer_labels
    data = (np.zeros((12, 4), np.int32), np.zeros(12, np.int32))
    problem = jaxarch.supervised(model, data, loss=loss, optimizer=optax.sgd(0.1), steps=1)
    with pytest.raises(jaxarch.ArgumentError, match="inputs, which ntk_sap draws at random, got int32"):
        ntk_sap(0.5, rounds=1)(KEY, problem)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ntk_sap(2.0), r"densities: expected a number in \(0, 1\]"),
        (lambda: ntk_sap(0.5, draws=0), "draws: expected an integer of at least 1"),
        (lambda: ntk_sap(0.5, noise=0.0), "noise: expected a positive finite number"),
        (lambda: ntk_sap(0.5, units="2:4"), "rounds: 2:4 is pruned in one round; give rounds=1"),
        (lambda: saliency.ntk_sap(outputs, PARAMS, {"a": PARAMS["a"]}), "noise: 'b' has none"),
        (lambda: saliency.ntk_sap(outputs, PARAMS, {"a": X, "b": X}), r"noise: expected shape \(3, 4\)"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(make, message):
    with pytest.raises(jaxarch.ArgumentError, match=message):
        make()
