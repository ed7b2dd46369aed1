"""SparseGPT, beside its algorithm written out in double precision."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxarch

BLOCK, DAMPING = 8, 0.01


def reference(weights, x, counts, pattern=None):
    """Prune a matrix (inputs, outputs) by algorithm 1, each block to the next of some counts."""
    w = weights.T.astype(float)
    h = x.T.astype(float) @ x
    h += DAMPING * np.diag(h).mean() * np.eye(len(h))
    upper = np.linalg.cholesky(np.linalg.inv(h)).T
    mask, counts = np.zeros(w.shape, bool), iter(counts)
    for start in range(0, w.shape[1], BLOCK):
        end = min(start + BLOCK, w.shape[1])
        costs = (w / np.diag(upper)) ** 2
        if pattern is None:
            order = np.argsort(-costs[:, start:end], axis=None, kind="stable")
            mask[:, start:end].flat[order[: next(counts)]] = True
        for j in range(start, end):
            if pattern is not None and j % pattern[1] == 0:
                these = (w / np.diag(upper))[:, j : j + pattern[1]] ** 2
                mask[:, j : j + pattern[1]] = np.argsort(np.argsort(-these, axis=1), axis=1) < pattern[0]
            error = np.where(mask[:, j], 0, w[:, j]) / upper[j, j]
            w[:, j:] -= np.outer(error, upper[j, j:])
    return np.where(mask, w, 0).T, mask.T


def error(weights, pruned, x):
    return float(((x.astype(float) @ (np.asarray(weights, float) - pruned)) ** 2).sum())


@functools.cache
def given(inputs=20, outputs=6, rows=64):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, inputs)) @ rng.normal(size=(inputs, inputs))
    return jnp.asarray(rng.normal(size=(inputs, outputs)), jnp.float32), x.astype(np.float32)


def apply(params, x):
    return x @ params["w"]


def pruned(density=None, units=None, **shape):
    weights, x = given(**shape)
    made, mask = jaxarch.sparsegpt(apply, {"w": weights}, [x[:10], x[10:]], density, units, block=BLOCK)
    return weights, x, np.asarray(made["w"]), np.asarray(mask["w"])


@pytest.mark.long
def test_it_is_algorithm_1():
    weights, x, made, mask = pruned(0.5)
    # 60 of 120 weights, over blocks of 8, 8 and 4 inputs of 6 outputs.
    expected, expected_mask = reference(np.asarray(weights), x, [24, 24, 12])
    assert (mask == expected_mask).all()
    np.testing.assert_allclose(made, expected, rtol=1e-3, atol=1e-3)
    assert error(weights, made, x) == pytest.approx(error(weights, expected, x), rel=0.01)


@pytest.mark.long
def test_n_of_m_is_chosen_on_the_way():
    weights, x, made, mask = pruned(units="2:4")
    expected, expected_mask = reference(np.asarray(weights), x, [], (2, 4))
    assert (mask == expected_mask).all() and (mask.reshape(5, 4, 6).sum(1) == 2).all()
    np.testing.assert_allclose(made, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.long
@pytest.mark.parametrize("prune", [jaxarch.sparsegpt, jaxarch.alps])
def test_n_of_m_lie_along_the_axis_that_searches_take_or_that_is_given(prune):
    rng = np.random.default_rng(3)
    params = {"conv": jnp.asarray(rng.normal(size=(6, 8, 4)), jnp.float32)}  # outputs, channels, window
    x = jnp.asarray(rng.normal(size=(8, 8, 12)), jnp.float32)

    def model(params, x):
        return jax.lax.conv_general_dilated(x, params["conv"], (1,), "VALID")

    def kept(units):
        return prune(model, params, [x], units=units)[1]["conv"]

    assert (kept("2:4").reshape(6, 2, 4, 4).sum(2) == 2).all()
    assert (kept("2:4") == kept(jaxarch.masks.NOfM(2, 4, axis=1))).all()
    assert (kept(jaxarch.masks.NOfM(2, 4, axis=2)).sum(2) == 2).all()
    with pytest.raises(jaxarch.ArgumentError, match="lie in no groups of 4 along axis 0"):
        kept(jaxarch.masks.NOfM(2, 4, axis=0))
    with pytest.raises(jaxarch.ArgumentError, match="has no axis 3"):
        kept(jaxarch.masks.NOfM(2, 4, axis=3))


def test_n_of_m_are_groups_of_the_leaf_however_products_read_it():
    weights, x = given()

    def folded(params, x):
        return x @ params["w"].reshape(2, 10, 6).swapaxes(0, 1).reshape(20, 6)

    mask = jaxarch.sparsegpt(folded, {"w": weights}, [x], units="2:5")[1]["w"]
    assert (mask.reshape(4, 5, 6).sum(1) == 2).all()


def test_n_of_m_lie_along_the_last_of_several_axes_of_inputs():
    def heads(params, x):
        return jnp.einsum("rhd,hdo->ro", x.reshape(-1, 5, 4), params["w"])

    weights, x = given()
    mask = jaxarch.sparsegpt(heads, {"w": weights.reshape(5, 4, 6)}, [x], units="2:4")[1]["w"]
    assert (mask.sum(1) == 2).all()


@pytest.mark.parametrize("density", [0.03, 0.305, 0.99, 1.0])
def test_counts_are_exact(density):
    _, _, made, mask = pruned(density)
    assert mask.sum() == round(density * 120)
    assert (made[~mask] == 0).all()


def test_the_others_make_up_for_removed_weights():
    weights, x, made, _ = pruned(0.5)
    scores = jnp.abs(weights)
    by_size = np.where(jaxarch.masks.keep({"w": scores}, 0.5)["w"], weights, 0)
    assert error(weights, made, x) < 0.6 * error(weights, by_size, x)


def test_with_fewer_rows_than_inputs_it_stays_finite():
    _, _, made, mask = pruned(0.5, rows=15)
    assert np.isfinite(made).all() and mask.sum() == 60


@pytest.mark.long
def test_inputs_that_are_always_0_lose_their_weights_first():
    weights, x = given()
    x = jnp.asarray(x).at[:, :4].set(0)
    _, mask = jaxarch.sparsegpt(apply, {"w": weights}, [x], 0.8, block=20)
    assert not mask["w"][:4].any() and mask["w"].sum() == 96
    _, mask = jaxarch.sparsegpt(apply, {"w": weights}, [x.at[:, 6:8].set(0)], units="2:4")
    assert not mask["w"][6:8].any() and mask["w"][4:6].all()
    whole, _ = jaxarch.sparsegpt(apply, {"w": weights}, [x], 1.0)
    assert (whole["w"] == weights).all()


def test_counts_are_exact_where_the_last_block_is_short_and_its_inputs_are_always_0():
    weights, x = given()
    dead = jnp.asarray(x).at[:, 16:].set(0)
    _, mask = jaxarch.sparsegpt(apply, {"w": weights}, [dead], 0.75, block=BLOCK)
    assert mask["w"].sum() == 90


@pytest.mark.long
def test_weights_in_half_precision_are_solved_for_in_single_precision():
    weights, x = given()
    half = weights.astype(jnp.bfloat16)

    def in_half(params, x):
        return x.astype(jnp.bfloat16) @ params["w"]

    rounded = jnp.asarray(x).astype(jnp.bfloat16).astype(jnp.float32)
    expected, _ = jaxarch.sparsegpt(apply, {"w": half.astype(jnp.float32)}, [rounded], 0.5)
    made, mask = jaxarch.sparsegpt(in_half, {"w": half}, [x], 0.5)
    assert made["w"].dtype == jnp.bfloat16 and (made["w"] == expected["w"].astype(jnp.bfloat16)).all()
    solved = jaxarch.reconstruct(in_half, {"w": half}, [x], mask)["w"]
    assert solved.dtype == jnp.bfloat16 and not solved[~mask["w"]].any()


def test_too_little_damping_is_refused():
    weights, x = given()
    with pytest.raises(jaxarch.ArgumentError, match="damping: 1e-12 is too little for the inputs of 'w'"):
        jaxarch.sparsegpt(apply, {"w": weights}, [100 * x[:2]], 0.5, damping=1e-12)


@functools.cache
def stacked():
    rng = np.random.default_rng(1)
    layers = jnp.asarray(rng.normal(size=(3, 12, 12)) / 4, jnp.float32)
    return layers, jnp.asarray(rng.normal(size=(40, 12)), jnp.float32)


@pytest.mark.long
def test_layers_of_a_scan_are_pruned_like_single_layers():
    layers, x = stacked()

    def scanned(params, x):
        return jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, params["w"])[0]

    def single(params, x):
        for w in params.values():
            x = jnp.tanh(x @ w)
        return x

    together, _ = jaxarch.sparsegpt(scanned, {"w": layers}, [x], 0.5, block=BLOCK)
    alone, _ = jaxarch.sparsegpt(single, dict(zip("abc", layers, strict=True)), [x], 0.5, block=BLOCK)
    np.testing.assert_allclose(together["w"], jnp.stack(list(alone.values())), rtol=1e-4, atol=1e-5)


def test_a_weight_that_two_products_use_is_pruned_for_the_inputs_of_both():
    def twice(params, x):
        return x @ params["w"], (x[::-1] ** 2) @ params["w"].T.T  # another way to the same matrix

    weights, x = given()
    once, mask = jaxarch.sparsegpt(apply, {"w": weights}, [x, x[::-1] ** 2], 0.5)
    both, mask_of_both = jaxarch.sparsegpt(twice, {"w": weights}, [x], 0.5)
    assert (mask["w"] == mask_of_both["w"]).all()
    np.testing.assert_allclose(both["w"], once["w"], rtol=1e-3, atol=1e-3)


def test_a_weight_that_is_read_in_part_is_refused():
    def model(params, x):
        return x @ params["w"][:, :2]

    weights, x = given()
    with pytest.raises(jaxarch.ArgumentError, match="no product reads 80 of its 120 entries; leave it out"):
        jaxarch.sparsegpt(model, {"w": weights}, [x], 0.5, where="w")


@pytest.mark.long
def test_little_memory_changes_nothing():
    layers, x = stacked()

    def model(params, x):
        return jnp.tanh(x @ params["a"]) @ params["b"]

    params = {"a": layers[0], "b": layers[1]}
    first, _ = jaxarch.sparsegpt(model, params, [x], 0.5)
    second, _ = jaxarch.sparsegpt(model, params, [x], 0.5, memory=1)
    assert jax.tree.all(jax.tree.map(lambda one, other: (one == other).all(), first, second))


@pytest.mark.long
def test_an_embedding_that_is_the_head_too_stays_and_is_named():
    rng = np.random.default_rng(2)
    params = {"table": jnp.asarray(rng.normal(size=(8, 4)), jnp.float32), "w": given()[0][:4, :4]}

    def model(params, tokens):
        return (params["table"][tokens] @ params["w"]) @ params["table"].T

    with pytest.warns(jaxarch.ResultWarning, match="'table' is no matrix: inputs look it up; it stays"):
        made, mask = jaxarch.sparsegpt(model, params, [jnp.arange(8)], 0.5)
    assert mask["table"] is None and (made["table"] == params["table"]).all()


def test_a_model_without_weights_is_refused_with_the_reasons():
    def model(params, x):
        return x * params["scale"][None]

    with pytest.raises(jaxarch.ArgumentError, match="no product reads a weight as a matrix; 'scale'"):
        jaxarch.sparsegpt(model, {"scale": jnp.ones(20)}, [given()[1]], 0.5)


@pytest.mark.parametrize(
    ("given_as", "message"),
    [
        ({"density": 1.5}, "density: expected a number in \\(0, 1\\]"),
        ({}, "density: expected a fraction in \\(0, 1\\], or units"),
        ({"units": "3:8"}, "lie in no groups of 8 along axis 0"),
        ({"units": (4, 4)}, "units: expected single connections or N:M"),
        ({"density": 0.5, "damping": 0.0}, "damping"),
        ({"density": 0.5, "where": "v"}, "where: no leaf is selected by 'v'"),
    ],
)
def test_bad_arguments_are_refused(given_as, message):
    weights, x = given()
    with pytest.raises(jaxarch.ArgumentError, match=message):
        jaxarch.sparsegpt(apply, {"w": weights}, [x], **given_as)
