"""Masks of a given size: their sum, their gradient, and the searches that hold a size."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small import keys, problem

import jaxarch
from jaxarch.masks import sized_mask
from jaxarch.masks._sized import TOLERANCE, size_thresholds

DENSITIES = st.sampled_from([1e-3, 0.02, 0.3, 0.5, 0.97, 1.0])
TEMPERATURES = st.sampled_from([0.1, 5.0, 200.0, 1e4])


def sigmoid(x):
    return 0.5 * (1 + np.tanh(np.float64(x) / 2))


@pytest.fixture(scope="module")
def scores():
    first, second = jax.random.split(jax.random.key(0))
    return {
        "a": jax.random.normal(first, (40, 30)),
        "bias": None,
        "b": 3 * jax.random.normal(second, (30, 10)),
    }


@pytest.fixture(scope="module")
def mask_of():
    return jax.jit(sized_mask, static_argnames="scope")


@given(
    density=DENSITIES, hard=st.sampled_from([0.1, 5.0, 200.0, 1e4]), far=st.sampled_from([0.0, -7.0, 100.0])
)
def test_its_numbers_sum_to_the_size_wherever_the_scores_are(scores, mask_of, density, hard, far):
    moved = jax.tree.map(lambda w: w + far, scores)
    total = sum(leaf.sum() for leaf in jax.tree.leaves(mask_of(moved, density, hard, hard / 10)))
    np.testing.assert_allclose(total, round(density * 1500), rtol=2 * TOLERANCE)


@pytest.mark.long
def test_the_sizes_of_layers_are_those_that_keep_gives_them(scores, mask_of):
    for scope in ("layer", "erk"):
        soft = mask_of(scores, 0.1, 50.0, 5.0, scope=scope)
        hard = jaxarch.masks.keep(scores, 0.1, scope=scope)
        for path in ("a", "b"):
            np.testing.assert_allclose(soft[path].sum(), hard[path].sum(), rtol=2 * TOLERANCE)


def test_a_sharp_mask_is_the_mask_of_the_largest_scores(scores, mask_of):
    sharp, kept = mask_of(scores, 0.1, 1e5, 5.0), jaxarch.masks.keep(scores, 0.1)
    for path in ("a", "b"):
        np.testing.assert_allclose(sharp[path], kept[path], atol=1e-2)


@pytest.mark.long
def test_the_gradient_is_the_soft_slope_times_the_gradient_less_its_mean():
    # Worked out in NumPy: p weighs the mean, and the steps along it leave the size as it is.
    w, g = np.array([0.02, -0.01, 0.3, -0.2]), np.array([1.0, -2.0, 0.5, 3.0])
    hard, soft = 50.0, 5.0
    tau = np.float64(size_thresholds(jnp.asarray(w, jnp.float32), 2, hard))
    v, u = sigmoid(hard * (w - tau)), sigmoid(soft * (w - tau))
    s = soft * u * (1 - u)
    p = s * hard * v * (1 - v)
    expected = s * (g - (p * g).sum() / p.sum())
    gradient = jax.jit(jax.grad(lambda w: jnp.sum(g * sized_mask(w, 0.5, hard, soft))))(
        jnp.asarray(w, jnp.float32)
    )
    np.testing.assert_allclose(gradient, expected, rtol=1e-3, atol=1e-4)
    _, tangent = jax.jvp(lambda w: sized_mask(w, 0.5, hard, soft), (jnp.float32(w),), (jnp.float32(g),))
    np.testing.assert_allclose(tangent.sum(), 0, atol=1e-5)


def test_scores_of_minus_infinity_have_no_mask_and_no_gradient():
    w = jnp.array([0.1, -jnp.inf, 0.3, 0.2])
    mask = sized_mask(w, 0.5, 20.0, 2.0)
    gradient = jax.jit(jax.grad(lambda w: sized_mask(w, 0.5, 20.0, 2.0)[2]))(w)
    np.testing.assert_allclose(mask.sum(), 2, rtol=2 * TOLERANCE)
    assert mask[1] == 0 and gradient[1] == 0 and jnp.isfinite(gradient).all()


@pytest.mark.parametrize(
    ("density", "soft", "told"),
    [
        (0.0, 5.0, "density: expected a number in"),
        (1e-6, 5.0, "rounds to none"),
        (0.5, 60.0, "soft: expected at most"),
    ],
)
def test_sizes_and_temperatures_that_cannot_be_are_refused(scores, density, soft, told):
    with pytest.raises(jaxarch.ArgumentError, match=told):
        sized_mask(scores, density, 50.0, soft)


def sized_search(density, **options):
    options = {"weights": "signed constant", "rescale": True} | options
    return jaxarch.search.two_temperature(density=density, **options)


@pytest.mark.long
def test_a_search_of_a_size_holds_it_at_every_step():
    one = problem(steps=30, runs=1).of_run(0)
    search, key = sized_search(0.2, optimizer=optax.adam(0.1)), jax.random.key(3)
    carry = jax.jit(lambda: jaxarch.run.begin(search, key, one, None))()
    advance = jax.jit(lambda carry, t: jaxarch.run.advance(search, key, one, carry, t, t + 1, 1)[0])
    size = round(0.2 * sum(w.size for w in jax.tree.leaves(carry.state.trainable)))

    @jax.jit
    def soft_size(state):
        mask, theta = search.params(search.settings, state), state.fixed.weights
        return sum(jnp.sum(mask[path] / theta[path]) for path in jaxarch.named_leaves(state.trainable))

    for t in range(30):
        np.testing.assert_allclose(soft_size(carry.state), size, rtol=1e-4)
        carry = advance(carry, t)


@pytest.mark.long
def test_rescaled_weights_are_divided_by_the_root_of_the_density():
    one = problem(steps=1, runs=1).of_run(0)
    for search in (
        sized_search,
        lambda d, **o: jaxarch.search.edge_popup(d, weights="signed constant", scope="global", **o),
    ):
        plain, rescaled = (search(0.25, rescale=on)(jax.random.key(0), one) for on in (False, True))
        for path, theta in jaxarch.named_leaves(plain[jaxarch.Start].params).items():
            factor = 2 if path in jaxarch.named_leaves(jaxarch.select(plain.params)) else 1
            np.testing.assert_allclose(
                jaxarch.named_leaves(rescaled[jaxarch.Start].params)[path], factor * theta
            )


@pytest.mark.long
def test_a_size_that_saturates_the_network_is_refused_with_a_remedy_of_its_own():
    with pytest.raises(jaxarch.ArgumentError, match=r"dead start.*weights='signed constant' and rescale"):
        jaxarch.over_seeds(jaxarch.search.two_temperature(density=0.5), keys(1), problem(steps=3, runs=1))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"scope": "erk"}, "scope: 'erk' spreads a density"),
        ({"rescale": True, "weights": "initial"}, "rescale: it divides weights"),
        ({"rescale": True, "density": 0.5}, "rescale: weights of 1 have no size"),
        ({"clip": 0.1, "density": 0.5}, "clip: clipped scores are equal"),
    ],
)
def test_options_of_a_size_that_do_not_fit_are_refused(options, told):
    with pytest.raises(jaxarch.ArgumentError, match=told):
        jaxarch.search.two_temperature(**options)


def test_the_gap_of_a_size_is_the_most_that_a_mask_of_that_size_can_gain():
    gradient, mask = jnp.array([3.0, -1.0, 0.5, 2.0]), jnp.array([0.5, 0.5, 0.0, 1.0])
    # <g, v> = 3; the two smallest entries of g sum to -.5.
    np.testing.assert_allclose(jaxarch.theory.optimality.duality_gap(mask, gradient, 2), 3.5)
    np.testing.assert_allclose(jaxarch.theory.optimality.duality_gap(mask, gradient), 4.0)
    allowed = jnp.array([True, False, True, True])
    # Without the second entry the two smallest are .5 and 2, and v there does not count.
    part = jaxarch.theory.optimality.duality_gap(jnp.where(allowed, mask, 0), gradient, 2, allowed)
    np.testing.assert_allclose(part, 0.5 * (3 - 2) + (2 - 0.5))


def test_a_leaf_of_which_nothing_is_kept_adds_only_what_its_numbers_can_lose():
    gradient = {"a": jnp.array([2.0, -1.0]), "b": jnp.array([1.0, 4.0])}
    mask = {"a": jnp.zeros(2), "b": jnp.array([0.0, 1.0])}
    found = jaxarch.theory.optimality.duality_gap(mask, gradient, jnp.array([0, 1]))
    np.testing.assert_allclose(found, 3.0)


def test_a_leaf_that_is_removed_whole_stays_removed():
    scores = {"a": jnp.full(4, -jnp.inf), "b": jnp.array([0.1, 0.3, 0.2, 0.0])}
    mask = sized_mask(scores, 0.5, 20.0, 2.0, scope="layer")
    assert not mask["a"].any()
    np.testing.assert_allclose(mask["b"].sum(), 2, rtol=2 * TOLERANCE)


@pytest.mark.long
def test_the_gap_of_a_search_is_that_of_the_masks_of_its_size():
    one = problem(steps=1, runs=1).of_run(0)
    search = sized_search(0.2)
    state = search.init(search.settings, jax.random.key(0), one, None)
    theta = jaxarch.named_leaves(state.fixed.weights)
    mask = {path: leaf / theta[path] for path, leaf in search.params(search.settings, state).items()}

    def objective(mask):
        return one.objective({path: leaf * theta[path] for path, leaf in mask.items()}, state.model)

    slopes = np.concatenate([leaf.ravel() for leaf in jax.jit(jax.grad(objective))(mask).values()])
    numbers = np.concatenate([leaf.ravel() for leaf in mask.values()])
    most = slopes @ numbers - np.sort(slopes)[: round(0.2 * slopes.size)].sum()
    np.testing.assert_allclose(search.gap(search.settings, state, one), most, rtol=1e-3)
