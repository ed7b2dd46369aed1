"""Weights that are to be 0 are exactly 0, in whatever dtypes weights and gradients come."""

import jax
import jax.numpy as jnp
import optax
import pytest
from flax import nnx

from jaxarch import optim
from jaxarch.masks import apply_mask

DTYPES = (jnp.float32, jnp.bfloat16, jnp.float16)
# Wrappers see how two dtypes are related: updates as wide as weights, narrower, wider, or neither.
RELATED = (
    (jnp.float32, jnp.float32),
    (jnp.float32, jnp.bfloat16),
    (jnp.float16, jnp.float32),
    (jnp.bfloat16, jnp.float16),
)
STEPS = 4
MASK = {"w": jnp.arange(12).reshape(3, 4) % 3 > 0}


def started(dtype):
    """Weights of which hardly any is a number of a narrower dtype."""
    return {"w": (jax.random.normal(jax.random.key(0), (3, 4)) / 3).astype(dtype)}


def are_held(params, state, before):
    return jnp.all(jnp.where(MASK["w"], True, params["w"] == 0)) & jnp.any(params["w"] != before["w"])


def are_dropped(params, state, before):
    mask = optim.find_mask(state)["w"]
    return jnp.all(mask | (params["w"] == 0)) & (mask.sum() == 6) & jnp.any(params["w"] != 0)


def are_all_0(params, state, before):
    return jnp.all(params["w"] == 0)


def have_stopped(params, state, before):
    return jnp.all(params["w"] == before["w"])


# How each goes around SGD, whose updates have the gradients' dtype; and what is to be right in the end.
TRANSFORMATIONS = {
    "hold": (lambda tx: optim.hold(MASK, tx), are_held),
    "sparse": (lambda tx: optim.sparse(tx, density=0.5, every=1), are_dropped),
    "sparse that grows": (
        lambda tx: optim.sparse(tx, mask=MASK, density=0.5, replaced=0.3, regrow="gradients", every=1),
        are_dropped,
    ),
    "proximal": (lambda tx: optim.proximal(tx, l1=100.0), are_all_0),
    "stop_at": (lambda tx: optax.chain(tx, optim.stop_at(1.0)), have_stopped),
}
begins_masked = ("hold", "sparse that grows")


def outcome(name, wrap, weights, gradients):
    """Return whether the last of some steps leaves what it should."""
    make, right = TRANSFORMATIONS[name]
    tx = wrap(make)
    params = apply_mask(MASK, started(weights)) if name in begins_masked else started(weights)
    slopes = {"w": jax.random.normal(jax.random.key(1), (3, 4)).astype(gradients)}

    def step(index, carry):
        _, params, state = carry
        updates, state = tx.update(slopes, state, params)
        return params, optax.apply_updates(params, updates), state

    before, params, state = jax.lax.fori_loop(0, STEPS, step, (params, params, tx.init(params)))
    return right(params, state, before)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.long) if name == "sparse that grows" else name
        for name in TRANSFORMATIONS
    ],
)
def test_in_any_pair_of_dtypes_zeros_are_exact(name):
    pairs = [(weights, gradients) for weights in DTYPES for gradients in DTYPES]
    right = jax.jit(lambda: [outcome(name, lambda make: make(optax.sgd(0.1)), *pair) for pair in pairs])()
    assert all(right), [pair for pair, fine in zip(pairs, right, strict=True) if not fine]


@pytest.mark.long
@pytest.mark.parametrize("weights, gradients", [(jnp.bfloat16, jnp.float32), (jnp.float16, jnp.bfloat16)])
def test_where_connections_grow_moments_may_be_wider_than_weights(weights, gradients):
    tx = optim.sparse(optax.adam(0.1), mask=MASK, replaced=0.3, regrow="gradients", every=1)
    params = apply_mask(MASK, started(weights))
    state = tx.init(params)
    for step in range(2):
        slopes = {"w": jnp.full((3, 4), step + 1, gradients)}
        updates, state = tx.update(slopes, state, params)
        params = optax.apply_updates(params, updates)
    assert not params["w"][~state.mask["w"]].any()


def injected(make):
    return optax.inject_hyperparams(lambda rate: make(optax.sgd(rate)))(rate=0.1)


def accumulated(make):
    return optax.MultiSteps(make(optax.sgd(0.1)), 2).gradient_transformation()


WRAPPED = {
    "MultiSteps": accumulated,
    "MultiSteps inside": lambda make: make(optax.MultiSteps(optax.sgd(0.1), 1).gradient_transformation()),
    "inject_hyperparams": injected,
    # Both branches of apply_if_finite have the gradients' dtype, so that what widens updates is outside.
    "apply_if_finite": lambda make: make(optax.apply_if_finite(optax.sgd(0.1), 3)),
}


@pytest.mark.long
@pytest.mark.parametrize("wrapper", WRAPPED)
@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_zeros_are_exact_inside_of_other_transformations_and_around_them(name, wrapper):
    right = jax.jit(lambda: [outcome(name, WRAPPED[wrapper], *pair) for pair in RELATED])()
    assert all(right), [pair for pair, fine in zip(RELATED, right, strict=True) if not fine]


@pytest.mark.long
@pytest.mark.parametrize(("weights", "gradients"), RELATED)
def test_a_held_mask_inside_of_apply_if_finite_keeps_the_gradients_dtype(weights, gradients):
    assert jax.jit(
        lambda: outcome(
            "hold", lambda make: optax.apply_if_finite(make(optax.sgd(0.1)), 3), weights, gradients
        )
    )()


@pytest.mark.long
@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_zeros_are_exact_in_an_nnx_model_whose_optimizer_is_donated(name):
    make, right = TRANSFORMATIONS[name]
    start = apply_mask(MASK, started(jnp.float32)) if name in begins_masked else started(jnp.float32)
    model = nnx.Dict(w=nnx.Param(start["w"]))
    optimizer = nnx.Optimizer(model, make(optax.sgd(0.1)), wrt=nnx.Param)
    slopes = {"w": jax.random.normal(jax.random.key(1), (3, 4), jnp.bfloat16)}

    @nnx.jit(donate_argnums=(0, 1))
    def step(model, optimizer):
        optimizer.update(model, nnx.State({"w": nnx.Param(slopes["w"])}))

    for _ in range(STEPS):
        before = {"w": jnp.copy(model["w"][...])}
        step(model, optimizer)
    assert right({"w": model["w"][...]}, nnx.as_pure(optimizer.opt_state), before)
