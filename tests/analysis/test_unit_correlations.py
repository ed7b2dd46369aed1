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


def test_layers_of_a_scan_share_their_units_and_heads_with_dimensions_are_left_out():
    def net(params, x):
        def layer(h, w):
            inner = jnp.tanh(h @ w["up"]).reshape(*h.shape[:-1], 2, 3)
            return h + jnp.einsum("nhd,hdo->no", inner, w["down"]), None

        return jax.lax.scan(layer, x @ params["in"], params["layers"])[0] @ params["out"]

    def of(seed):
        layers = {"up": drawn(seed, 4, 5, 6), "down": drawn(seed + 1, 4, 2, 3, 5)}
        return {"in": drawn(seed + 2, 3, 5), "layers": layers, "out": drawn(seed + 3, 5, 2)}

    a, b = of(0), of(20)
    (found,) = unit_correlations(net, a, b, [drawn(7, 25, 3)]).values()

    def stream(params):
        rows = [drawn(7, 25, 3) @ params["in"]]
        for up, down in zip(*params["layers"].values(), strict=True):
            rows.append(rows[-1] + np.tanh(rows[-1] @ up) @ down.reshape(6, 5))
        return np.concatenate(rows[:-1]).T, rows[-1].T

    wanted = [pearson(one, other) for one, other in zip(stream(a), stream(b), strict=True)]
    assert np.allclose(found, np.mean(wanted, axis=0), atol=1e-4)


def test_a_unit_that_varies_only_between_batches_is_no_constant():
    a, b = pair(("in", (5, 4)), ("out", (4, 2)))
    rows = np.array([[2.0], [1.0], [3.0]]) * drawn(3, 1, 5)
    batches = [np.repeat(row[None], 6, 0).astype(np.float32) for row in rows]
    found = unit_correlations(mlp, a, b, batches)["in[1]"]
    wanted = pearson(*(np.tanh(np.concatenate(batches) @ of["in"]).T for of in (a, b)))
    assert np.allclose(found, wanted, atol=1e-4)


@pytest.mark.parametrize("scales", [(1e-20, 1e20), (1e25, 1e25)])
def test_scales_change_nothing(scales):
    a, b = pair(("in", (5, 4)), ("out", (4, 2)))

    def linear(params, x):
        return (x @ params["in"]) @ params["out"]

    batches = [drawn(3, 9, 5), drawn(4, 9, 5)]
    wanted = unit_correlations(linear, a, b, batches)["in[1]"]
    scaled = ({**of, "in": of["in"] * np.float32(by)} for of, by in zip((a, b), scales, strict=True))
    assert np.allclose(unit_correlations(linear, *scaled, batches)["in[1]"], wanted, atol=1e-5)


def test_complex_units_are_correlated_by_both_parts():
    def waves(params, x):
        return jnp.abs(jnp.exp(1j * (x @ params["in"])) @ params["out"].astype(jnp.complex64))

    a, b = pair(("in", (5, 4)), ("out", (4, 2)))
    x = drawn(3, 30, 5)
    parts = [np.concatenate([np.cos(x @ of["in"]), np.sin(x @ of["in"])]).T for of in (a, b)]
    assert np.allclose(unit_correlations(waves, a, b, [x])["in[1]"], pearson(*parts), atol=1e-5)


@pytest.mark.parametrize("constant", [0.0, 0.1, 0.3, 33.3])
def test_a_unit_that_is_constant_has_correlation_0(constant):
    a, b = pair(("in", (5, 4)), ("out", (4, 2)))
    a["in"][:, 2] = 0

    def biased(params, x):
        return (x @ params["in"] + np.float32(constant)) @ params["out"]

    found = unit_correlations(biased, a, b, [drawn(3, 1000, 5), drawn(4, 100, 5)])["in[1]"]
    assert (found[2] == 0).all() and (found[[0, 1, 3]] != 0).all()


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
