"""Centred kernel alignment of layers: its formula, what it does not depend on, and layers of any program."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxarch import ArgumentError
from jaxarch.analysis import cka, similarity


def drawn(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


def hsic(k, l):  # noqa: E741
    """The unbiased estimator as it is written by Song et al."""
    n = len(k)
    k, l = (of - np.diag(np.diag(of)) for of in (k, l))  # noqa: E741
    ones = np.ones(n)
    total = np.trace(k @ l) + (ones @ k @ ones) * (ones @ l @ ones) / ((n - 1) * (n - 2))
    return (total - 2 / (n - 2) * ones @ k @ l @ ones) / (n * (n - 3))


def by_formula(*pairs):
    joint, one, other = (
        np.mean([hsic(a @ a.T, b @ b.T) for a, b in which])
        for which in (pairs, [(x, x) for x, _ in pairs], [(y, y) for _, y in pairs])
    )
    return joint / np.sqrt(one * other)


@pytest.mark.parametrize("count", [4, 5, 12])
def test_it_is_its_formula(count):
    x, y = drawn(0, count, 6), drawn(1, count, 3)
    y = y + x[:, :3]
    assert float(cka(x, y)) == pytest.approx(by_formula((x, y)), rel=1e-4)


def test_a_rotation_a_shift_and_a_scale_change_nothing_and_another_matrix_does():
    x, y = drawn(0, 30, 4), drawn(0, 30, 4) + drawn(1, 30, 4)
    turn = np.linalg.qr(drawn(2, 4, 4))[0]
    assert float(cka(x, 3 * y @ turn + 5)) == pytest.approx(float(cka(x, y)), rel=1e-4)
    assert abs(float(cka(x, y * [1, 10, 1, 1])) - float(cka(x, y))) > 0.05


def test_features_of_noise_are_not_similar_however_many_they_are():
    values = [float(cka(drawn(seed, 10, 500), drawn(seed + 100, 10, 500))) for seed in range(20)]
    assert abs(np.mean(values)) < 0.1


def mlp(params, x):
    return jnp.tanh(x @ params["in"]) @ params["out"]


def by_count(params, x):
    return x @ params["in"] if len(x) == 8 else mlp(params, x)


A, B = ({"in": drawn(seed, 5, 6), "out": drawn(seed + 1, 6, 2)} for seed in (0, 7))
BATCHES = [drawn(3, 8, 5), drawn(4, 8, 5), drawn(5, 12, 5)]


def test_layers_of_two_models_are_compared_over_all_batches():
    found = similarity((mlp, A), (mlp, B), BATCHES)
    assert (found.first, found.second, found.examples) == (("in", "out"), ("in", "out"), 28)

    def values(params, x):
        return [x @ params["in"], np.tanh(x @ params["in"]) @ params["out"]]

    weights = np.array([len(x) for x in BATCHES])

    def averaged(one, other):
        return weights @ [hsic(a @ a.T, b @ b.T) for a, b in zip(one, other, strict=True)]

    ours, theirs = ([values(params, x) for x in BATCHES] for params in (A, B))
    for (i, j), got in np.ndenumerate(found.cka):
        first, second = [of[i] for of in ours], [of[j] for of in theirs]
        wanted = averaged(first, second) / np.sqrt(averaged(first, first) * averaged(second, second))
        assert got == pytest.approx(wanted, rel=1e-3, abs=1e-4)


def test_each_round_of_a_loop_is_a_layer_and_layers_without_examples_are_named():
    def model(params, x):
        h, _ = jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, params["stack"])
        low_rank = h @ (params["low"] @ params["rank"])
        return params["last"] @ low_rank.T, jax.lax.cond(x[0, 0] > 0, lambda: h @ params["end"], lambda: h)

    params = {"stack": drawn(0, 3, 5, 5), "last": drawn(1, 2, 5), "end": drawn(2, 5, 5)}
    params |= {"low": drawn(3, 5, 12), "rank": drawn(4, 12, 5)}
    found = similarity((model, params), (mlp, A), BATCHES)
    assert found.first == ("stack[0]", "stack[1]", "stack[2]", "low + rank", "last")
    assert found.left == {
        "low + rank of the first": "its values do not have the examples along one axis",
        "end of the first": "it is in a branch or a `while` loop",
    }
    assert "not compared, end of the first: it is in a branch" in str(found)


@pytest.mark.parametrize("count", [6, 7])
def test_examples_are_found_along_any_axis_and_flattened_with_others(count):
    def columns(params, x):
        return (params["out"].T @ jnp.tanh(params["in"].T @ x.T)).T

    def tokens(params, x):
        h = jnp.tanh(x.reshape(-1, 5) @ params["in"]) @ params["out"]
        return h.reshape(*x.shape[:2], -1)

    x = drawn(8, count, 5)  # as many examples as units, and one more
    other = similarity((columns, A), (mlp, B), [x])
    assert np.allclose(other.cka, similarity((mlp, A), (mlp, B), [x]).cka, atol=1e-4)
    x = drawn(9, count, 3, 5)
    flat, whole = (similarity((of, A), (of, B), [x]) for of in (tokens, jax.vmap(mlp, (None, 0))))
    assert np.allclose(flat.cka, whole.cka, atol=1e-4)


def test_pairs_of_examples_are_no_examples():
    def pairs(params, x):
        return jnp.tanh((x[:, None] - x[None]) @ params["in"]).mean(1) @ params["out"]

    found = similarity((pairs, A), (mlp, B), BATCHES)
    assert found.first == ("out",)
    assert found.left == {"in of the first": "its values do not have the examples along one axis"}


@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1e5, 1e10])
def test_scales_change_nothing(scale):
    x, y = (drawn(seed, 30, 4).astype(np.float32) for seed in (0, 1))
    assert float(cka(x * scale, y * scale)) == pytest.approx(float(cka(x, y)), rel=1e-3)
    small = {"in": A["in"], "out": A["out"] * scale}
    wanted = similarity((mlp, A), (mlp, B), BATCHES).cka
    assert np.allclose(similarity((mlp, small), (mlp, B), BATCHES).cka, wanted, atol=1e-4)


def test_arrays_that_are_split_over_explicit_axes_are_compared():
    mesh = jax.make_mesh((2,), ("d",), axis_types=(jax.sharding.AxisType.Explicit,))
    x, y = drawn(0, 30, 4), drawn(1, 30, 6)
    with jax.set_mesh(mesh):
        rows, columns = (jax.NamedSharding(mesh, jax.P(*of)) for of in (("d",), (None, "d")))
        found = [cka(jax.device_put(x, how), jax.device_put(y, how)) for how in (rows, columns)]
    assert np.allclose(found, float(cka(x, y)), rtol=1e-3)


def test_a_layer_used_twice_has_two_entries_and_a_constant_one_is_nan():
    def model(params, x):
        return (jnp.tanh(x @ params["w"]) @ params["w"]) @ params["zero"]

    params = {"w": drawn(0, 5, 5), "zero": np.zeros((5, 2))}
    found = similarity((model, params), (model, params), BATCHES[:1])
    assert found.first == ("w", "w#2", "zero")
    assert np.allclose(np.diag(found.cka)[:2], 1, atol=1e-4)
    assert np.isnan(found.cka[2]).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cka(A["in"][:3], A["in"][:3]), "x, y: expected features of the same n >= 4 examples"),
        (lambda: cka(A["in"], A["out"]), "x, y: expected features of the same n"),
        (
            lambda: similarity(mlp, (mlp, A), BATCHES),
            "first: expected a pair of a function and its parameters",
        ),
        (lambda: similarity((mlp, A), (mlp, A), [drawn(0, 3, 5)]), "batches: expected at least 4 examples"),
        (lambda: similarity((by_count, A), (mlp, A), BATCHES[1:]), "batches: a batch of another shape has"),
        (lambda: similarity((mlp, A), (mlp, A), []), "batches: expected at least one, got none"),
        (
            lambda: similarity((mlp, A), (mlp, A), [np.inf * BATCHES[0]]),
            "batches: a layer has values that are NaN",
        ),
        (
            lambda: similarity((lambda p, x: x * p["w"], {"w": np.ones(5)}), (mlp, A), BATCHES),
            "no layers to compare",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused(call, message):
    with jax.numpy_rank_promotion("allow"), pytest.raises(ArgumentError, match=message):
        call()
