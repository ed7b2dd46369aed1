"""Correlations of units are Pearson's, over all batches, at the places where products read the units."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxarch import ArgumentError
from jaxarch.analysis import unit_correlations


def drawn(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def pearson(one, other):
    """Correlations of the rows of two arrays."""
    return np.corrcoef(one, other)[: len(one), len(one) :]


def mlp(params, x):
    return jnp.tanh(x @ params["in"]) @ params["out"]


def pair(*sizes):
    return [{name: drawn(seed + i, *of) for i, (name, of) in enumerate(sizes)} for seed in (0, 10)]


def test_they_are_those_of_all_batches_together():
    a, b = pair(("in", (5, 4)), ("out", (4, 2)))
    # The second batch has another mean and another size.
    batches = [drawn(3, 7, 5), 3 + 2 * drawn(4, 30, 5)]
    x = np.concatenate(batches)
    wanted = pearson(np.tanh(x @ a["in"]).T, np.tanh(x @ b["in"]).T)
    assert np.allclose(unit_correlations(mlp, a, b, batches)["in[1]"], wanted, atol=1e-5)


def test_channels_are_correlated_over_all_places_of_all_pictures():
    def net(params, x):
        return jax.nn.relu(jax.lax.conv(x, params["in"], (1, 1), "SAME")).reshape(len(x), -1) @ params["out"]

    a, b = pair(("in", (3, 2, 3, 3)), ("out", (3 * 16, 2)))
    x = drawn(5, 6, 2, 4, 4)

    def channels(params):
        return np.moveaxis(jax.nn.relu(jax.lax.conv(x, params["in"], (1, 1), "SAME")), 1, 0).reshape(3, -1)

    (found,) = unit_correlations(net, a, b, [x]).values()
    assert np.allclose(found, pearson(channels(a), channels(b)), atol=1e-5)


def test_units_that_several_products_read_have_the_mean_of_their_correlations():
    def net(params, x):
        h = x @ params["in"]
        return jnp.tanh(h) @ params["one"] + jnp.abs(h) @ params["other"]

    a, b = pair(("in", (5, 4)), ("one", (4, 2)), ("other", (4, 2)))
    x = drawn(6, 20, 5)
    values = [[of((x @ params["in"]).T) for params in (a, b)] for of in (np.tanh, np.abs)]
    wanted = np.mean([pearson(*each) for each in values], axis=0)
    assert np.allclose(unit_correlations(net, a, b, [x])["in[1]"], wanted, atol=1e-5)


def test_layers_of_a_scan_share_their_units_and_heads_are_units_too():
    def net(params, x):
        def layer(h, w):
            inner = jnp.tanh(h @ w["up"]).reshape(*h.shape[:-1], 2, 3)
            return h + jnp.einsum("nhd,hdo->no", inner, w["down"]), None

        return jax.lax.scan(layer, x @ params["in"], params["layers"])[0] @ params["out"]

    def of(seed):
        layers = {"up": drawn(seed, 4, 5, 6), "down": drawn(seed + 1, 4, 2, 3, 5)}
        return {"in": drawn(seed + 2, 3, 5), "layers": layers, "out": drawn(seed + 3, 5, 2)}

    a, b = of(0), of(20)
    found = unit_correlations(net, a, b, [drawn(7, 25, 3)])

    def inner(params):
        h, rows = drawn(7, 25, 3) @ params["in"], []
        for up, down in zip(*params["layers"].values(), strict=True):
            rows.append(np.tanh(h @ up))
            h = h + rows[-1] @ down.reshape(6, 5)
        return np.stack(rows).reshape(-1, 2, 3)

    one, other = inner(a), inner(b)
    heads = pearson(one.transpose(1, 0, 2).reshape(2, -1), other.transpose(1, 0, 2).reshape(2, -1))
    assert any(np.shape(of) == (2, 2) and np.allclose(of, heads, atol=1e-4) for of in found.values())


def test_a_unit_that_is_constant_has_correlation_0_and_none_exceeds_1():
    a, b = pair(("in", (5, 4)), ("out", (4, 2)))
    a["in"][:, 2] = 0
    large = 1e4 + drawn(8, 50, 1) * np.ones((1, 5), np.float32)

    def biased(params, x):
        return (x @ params["in"] + 7.3) @ params["out"]

    found = unit_correlations(biased, a, b, [drawn(3, 9, 5), drawn(4, 9, 5)])["in[1]"]
    assert (found[2] == 0).all() and (found[[0, 1, 3]] != 0).all()
    assert np.abs(unit_correlations(biased, a, b, [large])["in[1]"]).max() <= 1


@pytest.mark.parametrize(
    ("second", "batches", "message"),
    [
        ({"in": np.ones((5, 3)), "out": np.ones((3, 2))}, [np.ones((4, 5))], "second: expected 'in'"),
        (None, [], "batches: expected at least one, got none"),
        (None, np.ones((4, 5)), "batches: expected a list of batches"),
        (None, [np.full((4, 5), np.nan)], "have values that are NaN or infinite"),
    ],
)
def test_what_cannot_be_correlated_is_refused(second, batches, message):
    a, _ = pair(("in", (5, 4)), ("out", (4, 2)))
    with pytest.raises(ArgumentError, match=message):
        unit_correlations(mlp, a, second or a, batches)
