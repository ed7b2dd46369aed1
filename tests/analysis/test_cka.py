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


def test_each_round_of_a_loop_is_a_layer_and_layers_without_examples_first_are_named():
    def model(params, x):
        h, _ = jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, params["stack"])
        return params["last"] @ (h.T), jax.lax.cond(x[0, 0] > 0, lambda: h @ params["end"], lambda: h)

    params = {"stack": drawn(0, 3, 5, 5), "last": drawn(1, 2, 5), "end": drawn(2, 5, 5)}
    found = similarity((model, params), (mlp, A), BATCHES)
    assert found.first == ("stack[0]", "stack[1]", "stack[2]")
    assert found.left["last"] == "the first axis of its values, of shape (2, 12), is not the examples"
    assert found.left["end"] == "it is in a branch or a `while` loop"
    # The first round reads what the other model's first layer reads, and both are wide enough to keep it all.
    assert found.cka.shape == (3, 2)


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
