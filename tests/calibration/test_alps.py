"""ALPS, beside its algorithm written out in double precision, and beside all masks there are."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxarch

DAMPING = 0.01


@functools.cache
def given(inputs=12, outputs=6, rows=64):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, inputs)) @ rng.normal(size=(inputs, inputs))
    return jnp.asarray(rng.normal(size=(inputs, outputs)), jnp.float32), x.astype(np.float32)


def apply(params, x):
    return x @ params["w"]


def moments(x):
    h = x.T.astype(float) @ x
    return h + DAMPING * np.diag(h).mean() * np.eye(len(h))


def reference(weights, x, mark):
    """Search for a mask as the paper does, given a function that marks the largest entries."""
    h = moments(x)
    scale = np.diag(h / np.diag(h).mean())[:, None] ** 0.25
    dense, h = np.asarray(weights, float) * scale, h / np.diag(h).mean() / scale / scale.T
    first = before = mark(dense)
    rho, sparse, dual = 0.01, np.where(first, dense, 0), np.zeros_like(dense)
    for number in range(100):
        for _ in range(3):
            near = np.linalg.solve(h + rho * np.eye(len(h)), h @ dense - dual + rho * sparse)
            mask = mark(near + dual / rho)
            sparse = np.where(mask, near + dual / rho, 0)
            dual = dual + rho * (near - sparse)
        change, before = (mask != before).sum() / mask.sum(), mask
        if change == 0 or (number >= 10 and change < 0.0003):
            break
        rho *= 1.3 if change > 0.1 else 1.2 if change > 0.005 else 1.1
    return mask


def largest(count):
    def mark(values):
        mask = np.zeros(values.size, bool)
        mask[np.argsort(-np.abs(values), axis=None, kind="stable")[:count]] = True
        return mask.reshape(values.shape)

    return mark


def two_of_four(values):
    rows = np.abs(values).T.reshape(-1, 4)
    mask = np.argsort(np.argsort(-rows, axis=1), axis=1) < 2
    return mask.reshape(values.T.shape).T


def error(weights, made, h):
    change = np.asarray(weights, float) - np.asarray(made, float)
    return np.einsum("io,ij,jo->", change, h, change)


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "mark"), [({"density": 0.5}, largest(36)), ({"units": "2:4"}, two_of_four)]
)
def test_its_mask_is_that_of_the_algorithm(arguments, mark):
    weights, x = given()
    made, mask = jaxarch.alps(apply, {"w": weights}, [x[:10], x[10:]], **arguments, damping=DAMPING)
    assert (mask["w"] == reference(weights, x, mark)).all()
    solved = jaxarch.reconstruct(apply, {"w": weights}, [x], mask, damping=DAMPING)
    np.testing.assert_allclose(made["w"], solved["w"], rtol=1e-2, atol=1e-3)


@pytest.mark.long
def test_it_is_near_the_best_of_all_masks():
    """One output with 5 of 12 inputs has 792 masks: at most 2% of them have a smaller error."""
    x = given()[1]
    h = moments(x)
    for weights in np.asarray(given()[0]).T[:, :, None]:
        _, mask = jaxarch.alps(apply, {"w": jnp.asarray(weights)}, [x], 5 / 12, damping=DAMPING)
        errors = {}
        for kept in itertools.combinations(range(12), 5):
            left = [index for index in range(12) if index not in kept]
            # The error of the best weights of a mask: of what is left out, less what others make up for.
            rest = h[np.ix_(left, left)] - h[np.ix_(left, kept)] @ np.linalg.solve(
                h[np.ix_(kept, kept)], h[np.ix_(kept, left)]
            )
            errors[kept] = float(weights[left, 0] @ rest @ weights[left, 0])
        own = errors[tuple(np.flatnonzero(mask["w"]))]
        assert sum(other < own for other in errors.values()) <= 0.02 * len(errors)


@pytest.mark.parametrize("density", [0.2, 0.5, 0.8])
def test_its_error_is_two_thirds_of_sparsegpts_with_least_squares_or_less(density):
    weights, x = given()
    h = moments(x)
    _, mask = jaxarch.sparsegpt(apply, {"w": weights}, [x], density, damping=DAMPING)
    other = jaxarch.reconstruct(apply, {"w": weights}, [x], mask, damping=DAMPING)["w"]
    own, mask = jaxarch.alps(apply, {"w": weights}, [x], density, damping=DAMPING)
    assert mask["w"].sum() == round(72 * density) and not own["w"][~mask["w"]].any()
    assert error(weights, own["w"], h) < 0.67 * error(weights, other, h)


@pytest.mark.parametrize("density", [0.2, 0.5, 0.8])
def test_it_is_never_worse_than_least_squares_under_the_mask_of_the_largest_weights(density):
    """One input is large and mixed into all others: the paper's scaling has up to 1.9 times the error."""
    rng = np.random.default_rng(0)
    x = (
        rng.normal(size=(64, 16))
        * np.where(np.arange(16) == 0, 100, 1)
        @ (np.eye(16) + 0.3 * rng.normal(size=(16, 16)))
    )
    weights, x = jnp.asarray(rng.normal(size=(16, 8)), jnp.float32), x.astype(np.float32)
    mask = jaxarch.masks.keep({"w": jnp.abs(weights)}, density)
    other = jaxarch.reconstruct(apply, {"w": weights}, [x], mask, damping=DAMPING)["w"]
    own = jaxarch.alps(apply, {"w": weights}, [x], density, damping=DAMPING)[0]["w"]
    assert error(weights, own, moments(x)) <= 1.0001 * error(weights, other, moments(x))


def test_a_density_of_1_changes_nothing():
    weights, x = given()
    made, mask = jaxarch.alps(apply, {"w": weights}, [x], 1.0)
    assert (made["w"] == weights).all() and mask["w"].all()


def test_inputs_that_are_always_0_and_too_few_rows_do_no_harm():
    weights, x = given()
    dead = jnp.asarray(x[:5]).at[:, :4].set(0)
    made, mask = jaxarch.alps(apply, {"w": weights}, [dead], 0.5)
    assert jnp.isfinite(made["w"]).all() and mask["w"].sum() == 36
    assert not mask["w"][:4].any()


@pytest.mark.long
def test_an_expert_without_inputs_keeps_its_largest_weights():
    rng = np.random.default_rng(1)
    weights = jnp.asarray(rng.normal(size=(3, 12, 6)), jnp.float32)
    sizes = jnp.array([30, 0, 34])

    def experts(params, x):
        return jax.lax.ragged_dot(x, params["w"], sizes)

    _, mask = jaxarch.alps(experts, {"w": weights}, [given()[1]], 0.25)
    assert (mask["w"][1] == jaxarch.masks.keep({"w": jnp.abs(weights[1])}, 0.25)["w"]).all()


@pytest.mark.long
def test_n_of_m_of_experts_lie_along_their_inputs():
    weights, x = given()

    def experts(params, x):
        return jax.lax.ragged_dot(x, params["w"], jnp.array([30, 34]))

    _, mask = jaxarch.alps(experts, {"w": jnp.stack([weights, 2 * weights])}, [x], units="2:4")
    assert (mask["w"].reshape(2, 3, 4, 6).sum(2) == 2).all()


def test_weights_are_solved_for_from_where_the_search_ends():
    weights, x = given()
    few, many = (
        error(weights, jaxarch.alps(apply, {"w": weights}, [x], 0.5, steps=steps)[0]["w"], moments(x))
        for steps in (1, 30)
    )
    assert few < 1.05 * many


@pytest.mark.parametrize("prune", [jaxarch.alps, jaxarch.sparsegpt])
def test_weights_that_are_not_finite_are_refused(prune):
    weights, x = given()
    with pytest.raises(jaxarch.ArgumentError, match="params: 'w' has weights that are NaN or infinite"):
        prune(apply, {"w": weights.at[0, 0].set(jnp.nan)}, [x], 0.5)

    def deeper(params, x):
        return apply(params, x) @ params["after"]  # whose inputs are NaN, too

    with pytest.raises(jaxarch.ArgumentError, match="params: 'w' has weights that are NaN or infinite"):
        prune(deeper, {"after": weights.T, "w": weights.at[0, 0].set(jnp.nan)}, [x], 0.5)


@pytest.mark.long
def test_experts_share_the_count_of_their_leaf():
    weights, x = given()

    def experts(params, x):
        return jnp.einsum("eri,eio->ero", jnp.stack([x, x[::-1]]), params["w"])

    stacked = jnp.stack([weights, 2 * weights])
    made, mask = jaxarch.alps(experts, {"w": stacked}, [x], 0.51)
    first, _ = jaxarch.alps(apply, {"w": weights}, [x], 37 / 72)
    assert mask["w"].sum((1, 2)).tolist() == [37, 36]  # 73 of 144
    np.testing.assert_allclose(made["w"][0], first["w"], rtol=1e-5, atol=1e-5)
