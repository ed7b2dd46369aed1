"""Distributions over patterns of groups: soft masks beside NumPy, priors, gradients, a known answer."""

import dataclasses
import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxarch
from jaxarch.run import begin
from jaxarch.search import _maskllm as at

KEY = jax.random.key(0)


def regression(truth=None, steps=1, optimizer=None, inputs=8, bias=False):
    """A linear model whose targets come from some of its own fixed weights."""
    x = np.random.default_rng(0).normal(size=(64, inputs)).astype(np.float32)
    w = np.random.default_rng(1).normal(size=(inputs, 3)).astype(np.float32)

    def init(key):
        return {"kernel": jnp.asarray(w), "bias": jnp.ones(3)} if bias else {"kernel": jnp.asarray(w)}

    y = x @ (w if truth is None else w * truth)
    return jaxarch.supervised(
        (init, lambda params, x: x @ params["kernel"]),
        (x, y),
        loss=optax.l2_loss,
        optimizer=optimizer or optax.sgd(0.0),
        steps=steps,
    )


def state_of(training, problem, index=0):
    """The state before a step that has not been trained, and the noise of its leaf."""
    state = begin(training, KEY, problem, None).state._replace(step=jnp.asarray(index))
    noise = at._drawn(jax.random.gumbel, jax.random.fold_in(state.fixed.key, index), state.trainable)
    return state, noise


def groups(leaf, m=4):
    """Groups of consecutive inputs of each output: shape (outputs, groups, M)."""
    return np.asarray(leaf).T.reshape(3, -1, m)


@pytest.mark.parametrize("index", [0, 5, 9])
def test_the_soft_mask_by_hand_as_scale_and_temperature_change(index):
    training = jaxarch.search.maskllm(scale=(1.0, 11.0), temperature=(4.0, 1.0), std=1.0, prior=None)
    state, noise = state_of(training, regression(steps=10), index)
    kappa, tau = 1 + index, 4 - 0.3 * index
    scores = np.exp((kappa * np.float64(state.trainable["kernel"]) + noise["kernel"]) / tau)
    kinds = np.array([[1.0 * (i in kept) for i in range(4)] for kept in itertools.combinations(range(4), 2)])
    expected = scores / scores.sum(-1, keepdims=True) @ kinds
    found = training.params(training.settings, state)["kernel"] / state.fixed.weights["kernel"]
    np.testing.assert_allclose(groups(found), expected, atol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("n, m", [(2, 4), (1, 4), (4, 8)])
def test_the_soft_mask_of_a_group_sums_to_n_and_the_mask_has_n(n, m):
    training = jaxarch.search.maskllm(f"{n}:{m}", std=0.02)
    state, _ = state_of(training, regression(inputs=16))
    assert state.trainable["kernel"].shape == (3, 16 // m, math.comb(m, n))
    soft = at._soft_mask(training.settings, state)["kernel"]
    np.testing.assert_allclose(groups(soft, m).sum(-1), n, atol=1e-5)
    assert 0.01 < soft.min() < soft.max() < 0.99
    assert (groups(training.network(training.settings, state).mask["kernel"], m).sum(-1) == n).all()


@pytest.mark.long
def test_another_axis_of_inputs():
    training = jaxarch.search.maskllm(jaxarch.masks.NOfM(1, 3, axis=-1), prior_strength=100.0)
    network = training(KEY, regression())
    sizes = np.abs(network[jaxarch.Start].params["kernel"])
    assert (np.asarray(network.mask["kernel"]) == (sizes == sizes.max(1, keepdims=True))).all()


def drawn_mask(key, selected):
    scores = jax.tree.map(lambda leaf: jax.random.uniform(jax.random.key(7), leaf.shape), selected)
    return jaxarch.masks.keep(scores, units="2:4")


BIASED = regression(bias=True)


@functools.cache
def without_prior():
    return jaxarch.search.maskllm(prior=None)(KEY, BIASED)


@pytest.mark.long
@pytest.mark.parametrize("prior", ["magnitude", drawn_mask])
def test_without_training_a_strong_prior_s_mask_comes_out(prior):
    problem = BIASED
    network = jaxarch.search.maskllm(prior=prior, prior_strength=30.0)(KEY, problem)
    start = network[jaxarch.Start].params
    sizes = jaxarch.saliency.magnitude(start)
    expected = jaxarch.masks.keep(sizes, units="2:4") if prior == "magnitude" else drawn_mask(None, sizes)
    assert (network.mask["kernel"] == expected["kernel"]).all() and network.mask["bias"] is None
    assert (network.params["kernel"] == jnp.where(expected["kernel"], start["kernel"], 0)).all()
    assert (without_prior().mask["kernel"] != expected["kernel"]).any()


def test_a_prior_adds_its_centered_overlaps_times_the_deviation_of_the_logits():
    with_prior, _ = state_of(jaxarch.search.maskllm(prior_strength=2.0), regression())
    without, _ = state_of(jaxarch.search.maskllm(prior=None), regression())
    logits = np.asarray(without.trainable["kernel"])
    mask = jaxarch.masks.keep({"kernel": jnp.abs(without.fixed.weights["kernel"])}, units="2:4")["kernel"]
    overlap = groups(mask).astype(float) @ at.patterns(2, 4).T - 1
    expected = logits + 2 * logits.std(ddof=1) * overlap
    np.testing.assert_allclose(with_prior.trainable["kernel"], expected, atol=1e-6)


@pytest.mark.parametrize("strength", [0.0, 0.2])
def test_gradients_are_finite_differences_of_the_expected_mask_under_fixed_noise(strength):
    problem = regression(drawn_mask(None, {"kernel": jnp.ones((8, 3))})["kernel"], steps=10)
    training = jaxarch.search.maskllm(
        scale=(1.0, 3.0), temperature=(2.0, 1.0), std=1.0, strength=strength, prior=None
    )
    state, _ = state_of(training, problem, 4)

    @jax.jit
    def loss(logits):
        changed = state._replace(trainable={"kernel": logits})
        value = problem.objective(training.params(training.settings, changed), {})
        return value + training.penalty(training.settings, changed)

    logits = state.trainable["kernel"]
    gradient, eps = jax.grad(loss)(logits).ravel(), 1e-2
    for place in range(logits.size):
        moved = jnp.zeros(logits.size).at[place].set(eps).reshape(logits.shape)
        difference = (loss(logits + moved) - loss(logits - moved)) / (2 * eps)
        np.testing.assert_allclose(gradient[place], difference, atol=5e-4)
    assert abs(gradient).max() > 0.01


@pytest.mark.parametrize("index, share", [(0, 1.0), (6, 0.4)])
def test_the_penalty_is_the_squared_norm_of_what_remains_and_fades(index, share):
    training = jaxarch.search.maskllm(strength=0.5)
    state, _ = state_of(training, regression(steps=10), index)
    remaining = training.params(training.settings, state)["kernel"]
    expected = -0.5 * share * jnp.sum(remaining**2)
    np.testing.assert_allclose(training.penalty(training.settings, state), expected, rtol=1e-5)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_weights_of_few_bits_keep_their_dtype(dtype):
    problem = regression(steps=2, optimizer=optax.adam(1e-2))
    few = dataclasses.replace(problem, init=lambda key: ({"kernel": jnp.ones((8, 3), dtype)}, {}))
    training = jaxarch.search.maskllm()
    state, _ = state_of(training, few)
    with jax.numpy_dtype_promotion("strict"):
        network = training.network(training.settings, state)
        assert training.penalty(training.settings, state).dtype == jnp.float32
    assert (
        network.params["kernel"].dtype == training.params(training.settings, state)["kernel"].dtype == dtype
    )


@pytest.mark.long
def test_it_finds_the_mask_that_made_the_targets_against_the_prior():
    truth = drawn_mask(None, {"kernel": jnp.ones((8, 3))})["kernel"]
    problem = regression(truth, steps=300, optimizer=optax.adam(1e-2))
    keys = jax.random.split(KEY, 3)
    found = jax.jit(jax.vmap(jaxarch.search.maskllm(), (0, None)))(keys, problem)
    assert (found.mask["kernel"] == truth[None]).all()
    preferred = jaxarch.masks.keep(jaxarch.saliency.magnitude(problem.init(KEY)[0]), units="2:4")
    assert (preferred["kernel"] != truth).any()


@pytest.mark.long
def test_weights_of_an_earlier_stage_stay_as_they_are():
    problem = regression(steps=5, optimizer=optax.adam(1e-2))
    search = jax.jit(jaxarch.search.maskllm())
    kernel = problem.init(KEY)[0]["kernel"]
    earlier = jaxarch.Network({"kernel": kernel[::-1] - 1})
    found = search(KEY, problem, earlier)
    expected = jnp.where(found.mask["kernel"], earlier.params["kernel"], 0)
    assert (found.params["kernel"] == expected).all() and not found.mask["kernel"].all()
    mask = {"kernel": kernel > 0}
    within = search(KEY, problem, jaxarch.Network(jaxarch.masks.apply_mask(mask, {"kernel": kernel}), mask))
    assert not (within.mask["kernel"] & ~mask["kernel"]).any()


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"units": (4, 4)}, "units: expected N:M such as '2:4', or masks.NOfM, got "),
        ({"units": "8:16"}, "units: 8:16 has more than 1000 patterns"),
        ({"units": "2:3"}, "units: 2:3 does not fit 'kernel' of shape .8, 3."),
        ({"scale": 100.0}, "scale: expected two numbers, the first and the last, got 100.0"),
        ({"temperature": (4.0, 0.0)}, "temperature: "),
        ({"std": 0.0}, "std: "),
        ({"strength": -1.0}, "strength: "),
        ({"prior": "largest"}, "prior: expected 'magnitude', a function or None, got 'largest'"),
        ({"prior": lambda key, selected: {}}, r"prior: expected scores of shape \(8, 3\) for 'kernel', got"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(settings, message):
    with pytest.raises(jaxarch.ArgumentError, match=message):
        jaxarch.search.maskllm(**settings)(KEY, regression())
