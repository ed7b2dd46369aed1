"""N of every M at each step, and sparse-refined gradients, beside NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import descent_of, straight

import jaxarch

KEY = jax.random.key(0)


def two_largest(w):
    """The two largest sizes of every four rows of a column."""
    groups = np.abs(w).reshape(-1, 4, w.shape[1])
    ranks = (-groups).argsort(axis=1, kind="stable").argsort(axis=1, kind="stable")
    return (ranks < 2).reshape(w.shape)


def curved(width=8, steps=3, rate=0.5, optimizer=None):
    """A regression on tanh(x w), with a bias."""
    x = np.random.default_rng(1).normal(size=(12, width)).astype(np.float32)

    def init(key):
        return {"kernel": jax.random.normal(key, (width, 3)), "bias": jnp.zeros(3)}

    def apply(params, x):
        return jnp.tanh(x @ params["kernel"] + params["bias"][None])

    return jaxarch.supervised(
        (init, apply),
        (x, np.abs(x[:, :3])),
        loss=optax.l2_loss,
        optimizer=optimizer or optax.sgd(rate),
        steps=steps,
    )


def test_a_few_steps_by_hand():
    w = np.array([[4.0], [-3.0], [2.5], [1.0]], np.float32)
    slope = np.array([[1.0], [1.0], [-0.5], [2.0]], np.float32)
    found, _ = descent_of(
        jaxarch.search.sr_ste("2:4", strength=0.1), straight({"w": w}, {"w": slope}, rate=0.5, steps=4)
    )
    expected, masks = [], []
    for _ in range(5):
        mask = two_largest(w)
        expected.append(w)
        masks.append(mask.ravel().astype(int).tolist())
        w = w - 0.5 * (slope + 0.1 * (1 - mask) * w)
    np.testing.assert_allclose(found.trainable["w"], expected, rtol=1e-6)
    assert masks == [[1, 1, 0, 0]] * 3 + [[0, 1, 1, 0]] * 2  # 2.5 grows while it is removed


@pytest.mark.parametrize("n, m", [(2, 4), (1, 4), (3, 8)])
def test_every_group_has_exactly_n_at_each_step_and_masks_change(n, m):
    training = jaxarch.search.sr_ste(f"{n}:{m}", strength=0.01)
    found, _ = descent_of(training, curved(16, steps=30))
    last = training.network(training.settings, jax.tree.map(lambda leaf: leaf[-1], found))
    masks = jax.vmap(lambda state: training.network(training.settings, state).mask["kernel"])(found)
    assert (masks.reshape(31, -1, m, 3).sum(2) == n).all()
    assert (masks[0] != masks[-1]).any()
    assert ((last.params["kernel"] != 0) == last.mask["kernel"]).all() and last.mask["bias"] is None


@pytest.mark.parametrize("strength", [0.0, 0.3])
def test_removed_weights_take_the_straight_through_gradient_and_shrink(strength):
    problem = curved(steps=1, rate=1.0)
    found, _ = descent_of(jaxarch.search.sr_ste(strength=strength), problem)
    before, after = (jax.tree.map(lambda leaf, at=at: leaf[at], found.trainable) for at in (0, 1))
    mask = two_largest(np.asarray(before["kernel"]))
    masked = before | {"kernel": before["kernel"] * mask}
    gradient = jax.grad(problem.objective)(masked, {})
    moved = before["kernel"] - after["kernel"]
    np.testing.assert_allclose(moved[mask], gradient["kernel"][mask], atol=1e-6)
    refined = gradient["kernel"] + strength * before["kernel"]
    np.testing.assert_allclose(moved[~mask], refined[~mask], atol=1e-6)
    np.testing.assert_allclose(before["bias"] - after["bias"], gradient["bias"], atol=1e-6)


@pytest.mark.long
def test_the_loss_is_that_of_the_masked_network_without_the_second_term():
    problem = curved(steps=1)
    network = jaxarch.search.sr_ste(strength=100.0)(KEY, problem)
    start = descent_of(jaxarch.search.sr_ste(), problem)[0].trainable
    first = jax.tree.map(lambda leaf: leaf[0], start)
    first["kernel"] = first["kernel"] * two_largest(np.asarray(first["kernel"]))
    np.testing.assert_allclose(network.info["loss"][0], problem.objective(first, {}), rtol=1e-6)


@pytest.mark.long
def test_connections_that_an_earlier_stage_removed_do_not_come_back():
    first = jaxarch.search.random_mask(0.4)(KEY, curved())
    network = jax.jit(jaxarch.search.sr_ste())(KEY, curved(steps=20), first)
    left = first.mask["kernel"].reshape(2, 4, 3).sum(1)
    assert (network.mask["kernel"].reshape(2, 4, 3).sum(1) == jnp.minimum(left, 2)).all()
    assert not (network.mask["kernel"] & ~first.mask["kernel"]).any()
    assert (network.params["kernel"][~network.mask["kernel"]] == 0).all()


@pytest.mark.long
def test_it_takes_any_optimizer_and_a_sweep_of_strengths_is_one_program():
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-2, weight_decay=0.1))
    problem = curved(optimizer=optimizer, steps=5)
    settings = {"strength": jnp.array([0.0, 1.0])}
    keys = jnp.stack([KEY, KEY])
    found, _ = jaxarch.over_seeds(
        lambda settings: jaxarch.search.sr_ste(strength=settings["strength"]), keys, problem, settings
    )
    alone = jaxarch.search.sr_ste(strength=1.0)
    one, _ = jaxarch.over_seeds(alone, keys[:1], problem)
    np.testing.assert_allclose(found.params["kernel"][1], one.params["kernel"][0], atol=1e-6)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"units": "neurons"}, "units: expected N:M such as '2:4', or masks.NOfM, got 'neurons'"),
        ({"units": None}, "units: expected N:M"),
        ({"units": "4:4"}, "units: expected 'N:M' with 1 <= N < M"),
        ({"units": "2:3"}, "units: 2:3 does not fit 'kernel' of shape .8, 3."),
        ({"strength": -1.0}, "strength: "),
    ],
)
def test_settings_that_cannot_be_used_are_refused(settings, message):
    with pytest.raises(jaxarch.ArgumentError, match=message):
        jaxarch.search.sr_ste(**settings)(KEY, curved())
