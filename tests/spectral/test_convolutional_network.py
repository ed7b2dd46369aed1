"""Gated spectral networks of pictures: skips of 1x1, an eigenvalue a channel, what is exported."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from small import close, same

import jaxarch
from jaxarch import ArgumentError, spectral
from jaxarch.models import as_model
from jaxarch.spectral._convolution import centre, unpack_convolutions

X = jax.random.normal(jax.random.key(9), (3, 9, 8, 2))
STRIDES = (1, 2, 2)


def network(channels=(4, 5, 6), key=0, **options):
    options = {"strides": STRIDES, "inputs": 2, "outputs": 3} | options
    return jaxarch.SpectralCNN(channels, rngs=nnx.Rngs(key), **options)


@functools.cache
def parts(key=0, **options):
    """Parameters, state, and the function of both."""
    model = as_model(network(key=key, **options), X)
    params, state = model.init(jax.random.key(0))
    return params, state, jax.jit(lambda params, state: model.apply(params, state, X, None)[0])


def removed(state, **kept):
    return state | {"neurons": dict(state["neurons"]) | {name: jnp.asarray(of) for name, of in kept.items()}}


@pytest.mark.long
def test_with_1x1_kernels_it_is_the_gated_form_at_every_pixel():
    params, state, outputs = parts(kernel=1, strides=(1, 1, 1))
    factors, values = unpack_convolutions(params)
    phi = [centre(factor).T for factor in factors]
    pixels = spectral.feedforward(phi, [np.zeros(2, np.float32), *values], X, form="gated")
    assert close(outputs(params, state), pixels.mean((1, 2)), 1e-5)


KEPT = {
    "all": {},
    "some channels": {"L2": [True, False, True, True], "L4": [False] * 5 + [True]},
    "no first layer": {"L2": [False] * 4},
    "no layer between": {"L3": [False] * 5},
    "no last layer": {"L4": [False] * 6},
    "the last alone": {"L2": [False] * 4, "L3": [False] * 5},
    "none": {"L2": [False] * 4, "L3": [False] * 5, "L4": [False] * 6},
}


@pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)
def test_what_is_exported_computes_the_same_from_the_channels_that_are_left(kept):
    params, state, outputs = parts()
    state = removed(state, **kept)
    weights = spectral.convolutional_weights(params, STRIDES, state)
    assert close(spectral.direct_convolution(weights, X), outputs(params, state), 1e-5)
    channels = [np.sum(kept.get(f"L{i}", np.ones(n))) for i, n in ((2, 4), (3, 5), (4, 6))]
    left = [2, *(n for n in channels if n), 3]
    last = [weights.kernels[f"W{len(left)}_{j}"].shape[2] for j in range(1, len(left))]
    assert [*last, 3] == left


@pytest.mark.long
def test_an_eigenvalue_of_0_removes_its_channel_at_every_depth():
    params, state, outputs = parts()
    for layer, size in (("L2", 4), ("L3", 5), ("L4", 6)):
        silent = jnp.arange(size) != 1
        values = params["eigenvalues"] | {layer: params["eigenvalues"][layer] * silent}
        without = outputs(params, removed(state, **{layer: silent}))
        assert close(outputs(params | {"eigenvalues": values}, state), without, 1e-6)
        assert not close(without, outputs(params, state), 1e-3)
        kernels, _ = spectral.convolutional_weights(params | {"eigenvalues": values}, STRIDES)
        into = [kernel for name, kernel in kernels.items() if name.startswith(f"W{layer[1]}_")]
        assert all((kernel == 0).all(axis=(0, 1, 2)).sum() == 1 for kernel in into)


def test_skip_connections_are_1x1_kernels_and_products_of_the_centres_between():
    params, _, _ = parts()
    kernels, strides = spectral.convolutional_weights(params, STRIDES)
    (phi1, phi2, phi3, _), (_, l3, l4, _) = unpack_convolutions(params)
    assert strides == (*STRIDES, 1)
    assert close(kernels["W3_2"], -l3[None, None, None] * phi2, 1e-6)
    assert close(kernels["W3_1"][0, 0], l3[None] * (centre(phi1) @ centre(phi2)), 1e-6)
    assert close(kernels["W4_1"][0, 0], -l4[None] * (centre(phi1) @ centre(phi2) @ centre(phi3)), 1e-6)
    assert {name for name, kernel in kernels.items() if kernel.shape[0] == 3} == {"W2_1", "W3_2", "W4_3"}


def test_with_relu_scaling_the_kernels_of_a_channel_leaves_its_eigenvalue_and_the_outputs():
    params, state, outputs = parts()
    scale = jnp.array([1.0, 7.0, 1.0, 0.1])
    factors = params["factors"]
    scaled = factors | {
        "phi1": factors["phi1"] * scale[None, None, None],
        "phi2": factors["phi2"] / scale[None, None, :, None],
    }
    assert close(outputs(params | {"factors": scaled}, state), outputs(params, state), 1e-5)


def test_an_emptied_network_is_linear_and_sees_the_pixels_that_strides_leave():
    params, state, outputs = parts()
    nothing = removed(state, **KEPT["none"])
    linear = spectral.convolutional_weights(params, STRIDES, nothing)
    assert linear.strides == (4,)
    seen = X[:, ::4, ::4].mean((1, 2)) @ linear.kernels["W2_1"][0, 0]
    assert close(outputs(params, nothing), seen, 1e-5)


def task(model, steps=60):
    """A picture's class is whether its rows or its columns alternate, which no linear map of means tells."""
    keys = jax.random.split(jax.random.key(1), 2)
    y = jax.random.bernoulli(keys[0], 0.5, (200,)).astype(jnp.int32)
    stripes = jnp.where(jnp.arange(6) % 2, 1.0, -1.0)
    rows = jnp.broadcast_to(stripes[:, None], (6, 6))
    x = jnp.where(y[:, None, None], rows, rows.T)[..., None] + 0.3 * jax.random.normal(
        keys[1], (200, 6, 6, 1)
    )
    loss = optax.softmax_cross_entropy_with_integer_labels
    return jaxarch.supervised(
        model, (x, y), loss=loss, optimizer=optax.adam(1e-2), steps=steps, batch_size=50,
        train=np.arange(150), validation=np.arange(150, 200),
    )  # fmt: skip


def student(rngs):
    return jaxarch.SpectralCNN((6, 6), inputs=1, outputs=2, rngs=rngs)


@pytest.mark.long
def test_channels_that_a_task_does_not_need_are_removed_and_the_exported_network_is_as_good():
    problem = task(student, steps=300)
    strategy = jaxarch.chain(jaxarch.search.spectral(1e-3), jaxarch.recruit(0.5))
    found, _ = jaxarch.over_seeds(strategy, jax.random.split(jax.random.key(2), 2), problem)
    assert (found[jaxarch.NeuronMask].count() < 12).all()
    outputs = jaxarch.evaluate(strategy, found, problem, np.arange(150, 200))
    x, y = problem.data[0][150:], problem.data[1][150:]
    assert ((outputs.argmax(-1) == np.asarray(y)[None]).mean(axis=-1) > 0.9).all()
    for run in range(2):
        one = found.of_run(run)
        weights = spectral.convolutional_weights(one.params, (1, 1), one.state)
        assert close(spectral.direct_convolution(weights, x), outputs[run], 1e-4)


@pytest.mark.long
def test_proximal_steps_find_that_eigenvalues_of_0_are_silent_channels():
    problem = task(student, steps=100)
    found = jaxarch.search.spectral(3e-2, proximal=True)(jax.random.key(0), problem)
    values = jnp.concatenate([found.params["eigenvalues"][name] for name in ("L2", "L3")])
    assert 0 < int(found[jaxarch.NeuronMask].count()) == int((values != 0).sum()) < 12


@pytest.mark.long
def test_gradients_agree_with_those_of_the_exported_bundles():
    params, state, _ = parts()
    direction = jax.random.normal(jax.random.key(3), params["factors"]["phi2"].shape)
    step = 1e-2

    def exported(t):
        moved = params["factors"] | {"phi2": params["factors"]["phi2"] + t * direction}
        weights = spectral.convolutional_weights(params | {"factors": moved}, STRIDES)
        return spectral.direct_convolution(weights, X, jnp.tanh).sum()

    smooth = as_model(network(activation=jnp.tanh), X)

    def whole(phi2):
        return smooth.apply(params | {"factors": params["factors"] | {"phi2": phi2}}, state, X, None)[0].sum()

    slope = jnp.vdot(jax.grad(whole)(params["factors"]["phi2"]), direction)
    assert close(slope, (exported(step) - exported(-step)) / (2 * step), 1e-2)


@pytest.mark.long
def test_many_networks_at_once_are_each_alone():
    model = as_model(student, task(student).data[0])
    params, state = jax.vmap(model.init)(jax.random.split(jax.random.key(0), 3))
    x = task(student).data[0][:4]
    together = jax.vmap(lambda params, state: model.apply(params, state, x, None)[0])(params, state)
    alone = model.apply(*jax.tree.map(lambda leaf: leaf[1], (params, state)), x, None)[0]
    assert close(together[1], alone, 1e-5)


@pytest.mark.long
def test_its_layers_are_in_order_beyond_nine():
    model = jaxarch.SpectralCNN((2,) * 10, inputs=1, outputs=2, rngs=nnx.Rngs(0))
    wide = jaxarch.SpectralCNN((2,) * 8 + (3, 4), strides=(1,) * 10, inputs=1, outputs=2, rngs=nnx.Rngs(0))
    assert model(jnp.ones((1, 4, 4, 1))).shape == wide(jnp.ones((1, 4, 4, 1))).shape == (1, 2)


WRONG = {
    "no channels": (lambda: network(()), "channels: expected positive integers"),
    "even kernel": (lambda: network(kernel=2), "kernel: expected an odd number"),
    "strides": (lambda: network(strides=(1, 2)), "strides: expected 3, one for each hidden layer"),
    "stride": (lambda: network(strides=(1, 2, 0)), "strides: expected an integer of at least 1"),
    "softmax": (lambda: network(activation=jax.nn.softmax), "activation: expected an elementwise"),
    "pictures": (lambda: network()(jnp.ones((1, 8, 8, 3))), "x: expected images of shape"),
    "no pictures": (lambda: network()(jnp.ones((8, 2))), "x: expected images of shape"),
    "perceptron": (
        lambda: spectral.convolutional_weights({"W2_1": jnp.ones((2, 2))}, (1,)),
        "params: expected parameters of a convolutional spectral network",
    ),
    "many networks": (
        lambda: spectral.convolutional_weights(jax.tree.map(lambda leaf: leaf[None], parts()[0]), STRIDES),
        r"factors: phi_1 must have shape \(k, k, N_1, N_2\), k odd",
    ),
    "traced": (
        lambda: jax.jit(lambda params: spectral.convolutional_weights(params, STRIDES))(parts()[0]),
        "params: .* call this outside of jit and vmap",
    ),
    "missing kernels": (
        lambda: spectral.direct_convolution(
            spectral.Convolutions({"W2_1": jnp.ones((1, 1, 2, 2))}, (1, 1)), X
        ),
        "weights: expected a kernel for each pair of layers; W3_1 is missing",
    ),
    "other pictures": (
        lambda: spectral.direct_convolution(
            spectral.convolutional_weights(parts()[0], STRIDES), jnp.ones((1, 8, 8, 5))
        ),
        "x: expected images of shape",
    ),
    "export of matrices": (
        lambda: spectral.direct_weights(parts()[0]),
        "params: .*convolutional_weights",
    ),
}


@pytest.mark.parametrize(("call", "message"), WRONG.values(), ids=WRONG)
def test_what_it_does_not_take_is_named(call, message):
    with pytest.raises(ArgumentError, match=message):
        call()


def test_kernels_are_those_of_an_ordinary_network_and_one_number_a_channel_more():
    params, _, _ = parts()
    ordinary = 9 * (2 * 4 + 4 * 5 + 5 * 6) + 6 * 3
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == ordinary + 4 + 5 + 6 + 3
    assert same(params["eigenvalues"]["L5"], jnp.ones(3))
