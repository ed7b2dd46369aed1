"""The gated form of spectral networks, A' = Lambda Phi^-1: an eigenvalue is a neuron at every depth."""

import itertools
import warnings
from fractions import Fraction
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from small import keys, same
from test_spectral_algebra import exact_network, identity
from test_spectral_network import (
    close,
    curved,
    dense_feedforward,
    dense_recursion,
    inputs,
    random_params,
    started,
)

import jaxarch
from jaxarch import float64, spectral
from jaxarch.spectral import algebra, error_bounds

WIDTHS = ((3, 2), (3, 5, 1), (2, 4, 4, 3), (1, 3, 1, 2, 4))
DEEP = (3, 5, 4, 2)
KEPT = {"L2": jnp.asarray([True, False, True, True, False]), "L3": jnp.asarray([False, True, True, True])}

gated = partial(spectral.feedforward, form="gated")
METHODS = [partial(gated, method=method) for method in ("auto", "substitution", "materialised")]


def params_of(widths, seed=0, **options):
    """Random parameters of a gated network."""
    params = random_params(widths, seed, **options)
    return {"factors": params["eigenvectors"], "eigenvalues": params["eigenvalues"]}


def exact_inverse(matrix):
    """By elimination, of fractions."""
    size = len(matrix)
    rows = np.concatenate([matrix, identity(matrix)], axis=1) * Fraction(1)
    for pivot in range(size):
        rows[pivot] = rows[pivot] / rows[pivot, pivot]
        for other in range(size):
            if other != pivot:
                rows[other] = rows[other] - rows[other, pivot] * rows[pivot]
    return rows[:, size:]


def dense_adjacency(vectors, values):
    """A' = Lambda Phi^-1 by a triangular solver, which knows nothing of blocks."""
    phi = algebra.dense(algebra.eigenvector_blocks(vectors))
    eye = jnp.eye(len(phi), dtype=phi.dtype)
    inverse = jax.scipy.linalg.solve_triangular(phi, eye, lower=True, unit_diagonal=True)
    return jnp.concatenate(values)[:, None] * inverse


gated_feedforward = partial(dense_feedforward, adjacency=dense_adjacency)
gated_recursion = partial(dense_recursion, adjacency=dense_adjacency)


# What it computes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", range(1, 6))
def test_its_adjacency_is_lambda_times_the_inverse_of_phi_exactly(depth):
    vectors, values = exact_network(depth)
    inverse = exact_inverse(algebra.dense(algebra.eigenvector_blocks(vectors)))
    expected = np.concatenate(values)[:, None] * inverse
    assert (algebra.dense(algebra.adjacency(vectors, values, "gated")) == expected).all()
    columns = np.split(identity(expected), np.cumsum([len(v) for v in values])[:-1])
    assert (np.concatenate(algebra.apply_adjacency(vectors, values, columns, "gated")) == expected).all()


@pytest.mark.long
@pytest.mark.parametrize("widths", WIDTHS)
def test_every_method_is_the_dense_network_in_value_and_gradient(widths):
    with float64():
        params, x = params_of(widths, dtype=np.float64), inputs(widths, 3, np.float64)

        def loss(params, x, compute):
            y = compute(*spectral.unpack(params, "gated"), x, activation=jnp.tanh)
            return jnp.sum(jnp.sin(y)), y

        @jax.jit
        def all_of_them(params, x):
            gradient = jax.grad(loss, argnums=(0, 1), has_aux=True)
            return [gradient(params, x, compute) for compute in [gated_feedforward, *METHODS]]

        expected, *found = all_of_them(params, x)
        assert all(close(one, expected) for one in found)


@pytest.mark.long
def test_the_recursive_rule_is_that_of_the_dense_network():
    with float64():
        params = params_of(DEEP, 1, trained=True, dtype=np.float64)
        blocks, x = spectral.unpack(params, "gated"), inputs(DEEP, 3, np.float64)
        found = spectral.recursive(*blocks, x, jnp.tanh, form="gated")
        assert close(found, gated_recursion(*blocks, x, jnp.tanh))


def test_it_is_an_ordinary_network_whose_neurons_have_activations_of_their_own():
    vectors, values = spectral.unpack(params_of(DEEP), "gated")
    x = s = inputs(DEEP)
    for phi, own in zip(vectors[:-1], values[1:-1], strict=True):
        u = s @ phi.T
        s = jnp.tanh(-own[None, :] * u) - u
    assert close(gated(vectors, values, x, jnp.tanh), -values[-1][None, :] * (s @ vectors[-1].T), 1e-6)


@pytest.mark.long
def test_without_skips_neighbouring_layers_are_joined_by_minus_l_phi():
    net = jaxarch.spectral_network(DEEP, form="gated", skips=False)
    params, state = started(net)
    vectors, values = spectral.unpack(params, "gated")
    a = x = inputs(DEEP)
    for phi, own in zip(vectors[:-1], values[1:-1], strict=True):
        a = jax.nn.relu(a @ (-own[:, None] * phi).T)
    y = net.apply(params, state, x, None)[0]
    assert close(y, a @ (-values[-1][:, None] * vectors[-1]).T, 1e-6)
    weights = spectral.direct_weights(params, state, skips=False)
    assert close(spectral.direct_feedforward(weights, x), y, 1e-6)


@pytest.mark.parametrize("layer", ["L2", "L3", "L4"])
def test_an_eigenvalue_of_0_removes_its_neuron_at_every_depth(layer):
    widths = (3, 4, 4, 4, 2)
    params, x = params_of(widths), inputs(widths)
    zeroed = {**params["eigenvalues"], layer: params["eigenvalues"][layer].at[jnp.asarray([0, 2])].set(0)}
    removed = {"neurons": {layer: jnp.asarray([False, True, False, True])}}
    net = jaxarch.spectral_network(widths, form="gated")
    by_eigenvalue = net.apply({**params, "eigenvalues": zeroed}, {}, x, None)[0]
    assert close(by_eigenvalue, net.apply(params, removed, x, None)[0], 1e-6)
    assert not close(by_eigenvalue, net.apply(params, {}, x, None)[0], 1e-2)


def test_many_networks_are_one_vmap():
    runs = [params_of(DEEP, seed) for seed in range(3)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *runs)
    net, x = jaxarch.spectral_network(DEEP, form="gated"), inputs(DEEP)
    found = jax.vmap(lambda params: net.apply(params, {}, x, None)[0])(stacked)
    assert all(
        close(one, net.apply(params, {}, x, None)[0], 1e-6) for one, params in zip(found, runs, strict=True)
    )


# What it costs ---------------------------------------------------------------------------------------


def multiply_adds(compute, *arguments):
    products = [e for e in jax.make_jaxpr(compute)(*arguments).eqns if e.primitive.name == "dot_general"]
    return sum(e.outvars[0].aval.size * e.invars[0].aval.shape[-1] for e in products)


def test_it_takes_the_products_of_an_ordinary_network():
    widths, examples = (64,) * 9, 100
    params = jax.eval_shape(lambda: params_of(widths))
    x = jax.ShapeDtypeStruct((examples, widths[0]), jnp.float32)
    taken = multiply_adds(lambda params, x: gated(*spectral.unpack(params, "gated"), x), params, x)
    assert taken == examples * sum(n * m for n, m in itertools.pairwise(widths))


def test_the_output_of_narrow_ends_is_computed_without_the_last_s():
    def taken(method):
        params = jax.eval_shape(lambda: params_of((3, 300, 1)))
        x = jax.ShapeDtypeStruct((100, 3), jnp.float32)
        return multiply_adds(
            lambda params, x: gated(*spectral.unpack(params, "gated"), x, method=method), params, x
        )

    assert taken("auto") == taken("materialised") != taken("substitution")


def test_parameters_are_counted_as_arrays_have_them():
    params = jax.eval_shape(lambda: started(jaxarch.spectral_network((3, 300, 20, 1), form="gated"))[0])
    counted = spectral.parameter_counts((3, 300, 20, 1))["gated"]
    assert counted == sum(leaf.size for leaf in jax.tree.leaves(params))


# Where it starts -------------------------------------------------------------------------------------


@pytest.mark.long
def test_hidden_eigenvalues_start_at_random_and_those_of_the_output_at_1():
    values = started(jaxarch.spectral_network((2, 3000, 3000, 4), form="gated"))[0]["eigenvalues"]
    assert set(values) == {"L2", "L3", "L4"}
    assert values["L4"].tolist() == [1] * 4
    for name in ("L2", "L3"):
        assert float(values[name].mean()) == pytest.approx(0, abs=0.05)
        assert float(values[name].std()) == pytest.approx(0.5, rel=0.05)


def test_it_starts_from_the_weights_of_the_other_form():
    gated_start, first = (
        started(jaxarch.spectral_network(DEEP, form=form, eigenvalues="random"))[0]
        for form in ("gated", "eigendecomposition")
    )
    assert same(gated_start["factors"], first["eigenvectors"])
    assert same(gated_start["eigenvalues"], first["eigenvalues"])


def gradient_at_the_perceptron(activation):
    """In the hidden eigenvalues of a network that starts as a perceptron, of data that are not linear."""
    net = jaxarch.spectral_network(
        (3, 6, 5, 4, 1), form="gated", activation=activation, eigenvalues="perceptron"
    )
    params, x = started(net)[0], inputs((3,), 50)

    def loss(params):
        y = net.apply(params, {}, x, None)[0]
        return jnp.mean((y - jnp.sum(x**2 + x, 1, keepdims=True)) ** 2)

    return spectral.hidden_eigenvalues(jax.grad(loss)(params))["eigenvalues"], params, x


@pytest.mark.long
def test_from_a_perceptron_the_half_slope_recruits_all_hidden_layers_at_once():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gradient, params, x = gradient_at_the_perceptron(spectral.half_slope_relu)
    assert all(bool((gradient[name] != 0).all()) for name in ("L2", "L3", "L4"))
    vectors, values = spectral.unpack(params, "gated")
    linear = x @ vectors[0].T @ vectors[1].T @ vectors[2].T @ vectors[3].T
    assert close(gated(vectors, values, x), linear, 1e-6)


@pytest.mark.long
def test_from_a_perceptron_relu_recruits_nothing_and_says_so():
    with pytest.warns(jaxarch.DeadStartWarning, match="half_slope_relu"):
        gradient, *_ = gradient_at_the_perceptron(jax.nn.relu)
    assert not any(leaf.any() for leaf in jax.tree.leaves(gradient))


@pytest.mark.long
def test_with_relu_an_eigenvalue_of_0_stays_0_in_training():
    starts = (0, [0.0, 0.5, -0.5, 0.0], 0.5, 1)
    net = jaxarch.spectral_network((3, 4, 4, 1), form="gated", eigenvalues=starts)
    network, _ = jaxarch.over_seeds(jaxarch.search.spectral(0.0), keys(), curved(net, 50))
    values = np.asarray(network.params["eigenvalues"]["L2"])
    assert (values[:, [0, 3]] == 0).all()
    assert (values[:, [1, 2]] != np.asarray([0.5, -0.5])).all()


def test_a_smooth_activation_without_a_kink_is_a_dead_start_too():
    with pytest.warns(jaxarch.DeadStartWarning, match="without a kink"):
        jaxarch.spectral_network(DEEP, form="gated", activation=jnp.tanh, eigenvalues="perceptron")


def test_the_half_slope_relu_is_relu_with_the_mean_slope_at_0():
    z = jnp.asarray([-3.0, 0.0, -0.0, 2.0])
    assert spectral.half_slope_relu(z).tolist() == [0, 0, 0, 2]
    slopes = jax.jit(jax.vmap(jax.grad(spectral.half_slope_relu)))(z)
    assert slopes.tolist() == [0, 0.5, 0.5, 1]
    assert spectral.half_slope_relu(z.astype(jnp.bfloat16)).dtype == jnp.bfloat16


# What is done with it --------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [False, True])
def test_direct_weights_over_the_neurons_that_are_left_compute_the_same(bias):
    net = jaxarch.spectral_network((3 - bias, *DEEP[1:]), form="gated", bias=bias)
    params, state, x = params_of(DEEP), {"neurons": KEPT}, inputs((3 - bias,))
    weights = spectral.direct_weights(params, state, bias=bias)
    assert spectral.direct_widths(weights) == (3 - bias, 3, 3, 2)
    expected = net.apply(params, state, x, None)[0]
    assert close(spectral.direct_feedforward(weights, x), expected, 1e-6)


def test_path_norms_are_those_of_its_own_bundles():
    params = params_of(DEEP)
    blocks = algebra.connections(*spectral.unpack(params, "gated"), "gated")
    w = {key: np.square(block) for key, block in blocks.items()}
    through_2 = (w[4, 2] + w[4, 3] @ w[3, 2]).sum(0) * w[2, 1].sum(1)
    through_3 = w[4, 3].sum(0) * (w[3, 1] + w[3, 2] @ w[2, 1]).sum(1)
    norms = spectral.path_norms(params)
    np.testing.assert_allclose(norms["L2"], np.sqrt(through_2), rtol=1e-5)
    np.testing.assert_allclose(norms["L3"], np.sqrt(through_3), rtol=1e-5)


def test_the_norm_of_gamma_is_that_of_its_own_tensor():
    params = params_of((3, 5, 2))
    w = algebra.connections(*spectral.unpack(params, "gated"), "gated")
    tensor = jnp.einsum("ij,jk->ijk", w[3, 2], w[2, 1])
    assert float(spectral.gamma_norm(params)) == pytest.approx(float(jnp.linalg.norm(tensor)), rel=1e-5)


def test_neurons_are_ordered_by_their_eigenvalues():
    params = params_of(DEEP)
    places = spectral.neuron_order(params)["eigenvalues"]
    joint = np.concatenate([places["L2"], places["L3"]])
    magnitudes = np.abs(np.concatenate([params["eigenvalues"]["L2"], params["eigenvalues"]["L3"]]))
    assert joint.tolist() == np.argsort(np.argsort(magnitudes)).tolist()


def test_the_form_of_a_network_is_read_from_its_parameters():
    assert spectral.form_of(params_of(DEEP)) == "gated"
    assert spectral.form_of(random_params(DEEP)) == "eigendecomposition"


@pytest.mark.long
def test_the_nnx_module_computes_what_the_network_does():
    module = jaxarch.SpectralMLP(DEEP, form="gated", rngs=nnx.Rngs(0))
    params = jax.tree.map(jnp.asarray, nnx.to_pure_dict(nnx.state(module, nnx.Param)))
    assert set(params) == {"factors", "eigenvalues"}
    net = jaxarch.spectral_network(DEEP, form="gated")
    assert same(module(inputs(DEEP)), net.apply(params, {}, inputs(DEEP), None)[0])


@pytest.mark.long
def test_a_head_that_is_gated_is_trained_pruned_and_exported():
    class Model(nnx.Module):
        def __init__(self, rngs):
            self.body = nnx.Linear(3, 4, rngs=rngs)
            self.head = jaxarch.SpectralMLP((4, 6, 5, 1), form="gated", rngs=rngs)

        def __call__(self, x):
            return self.head(self.body(x))

    data = curved(jaxarch.spectral_network((3, 1)), 20).data
    problem = jaxarch.supervised(
        lambda rngs: Model(rngs),
        data,
        loss=optax.squared_error,
        optimizer=optax.adam(1e-2),
        steps=20,
        validation=np.arange(40),
    )
    strategy = jaxarch.chain(jaxarch.search.spectral(1e-3), jaxarch.recruit(0.2))
    network, _ = jaxarch.over_seeds(strategy, keys()[:1], problem)
    run = network.of_run(0)
    head, state = run.params["head"], run.state["head"]
    assert spectral.form_of(head) == "gated"
    assert 0 < int(run[jaxarch.NeuronMask].count()) < 11
    weights = spectral.direct_weights(head, state)
    x = data[0][:7]
    features = x @ run.params["body"]["kernel"] + run.params["body"]["bias"][None, :]
    expected = jaxarch.evaluate(strategy, network, problem, np.arange(7))[0]
    assert close(spectral.direct_feedforward(weights, features), expected, 1e-5)


@pytest.mark.long
def test_with_two_hidden_layers_it_finds_about_as_many_neurons_as_the_teacher_has():
    random = np.random.default_rng(0)
    first, second = (np.linalg.qr(random.normal(size=(8, 8)))[0] for _ in range(2))
    x = random.uniform(-1, 1, (4000, 8)).astype(np.float32)
    y = (np.maximum(x @ first.T, 0) @ second.T).astype(np.float32)

    def left(form):
        problem = jaxarch.supervised(
            jaxarch.spectral_network((8, 30, 30, 8), form=form),
            (x, y),
            loss=optax.squared_error,
            optimizer=optax.adam(3e-3),
            steps=4000,
            batch_size=100,
            train=np.arange(3000),
            validation=np.arange(3000, 4000),
        )
        strategy = jaxarch.chain(jaxarch.search.spectral(3e-4), jaxarch.recruit())
        network, _ = jaxarch.over_seeds(strategy, keys(), problem)
        return float(jnp.median(network[jaxarch.NeuronMask].count()))

    assert left("gated") <= 12
    assert left("eigendecomposition") >= 30


# Rounding --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["gated", "eigendecomposition"])
def test_bundles_in_float32_keep_to_their_error_bound(form):
    random = np.random.default_rng(0)
    sharpest = 0.0
    for depth in range(1, 6):
        widths = random.integers(1, 4, depth + 1)
        vectors = [random.normal(size=(n, m)).astype(np.float32) for m, n in itertools.pairwise(widths)]
        values = [random.normal(size=n).astype(np.float32) for n in widths]
        bounds = error_bounds.connections_error(vectors, values, form)
        exact = [
            [np.vectorize(Fraction, otypes=[object])(block.astype(float)) for block in blocks]
            for blocks in (vectors, values)
        ]
        expected = algebra.connections(*exact, form)
        found = algebra.connections(vectors, values, form)
        for key, bound in bounds.items():
            error = np.abs(found[key].astype(float).astype(object) * Fraction(1) - expected[key]).astype(
                float
            )
            assert found[key].dtype == np.float32
            assert (error <= bound).all()
            sharpest = max(sharpest, (error / bound).max())
    assert sharpest > 0.4


# Bad input -------------------------------------------------------------------------------------------

BOTH = {**params_of(DEEP), **random_params(DEEP)}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: jaxarch.spectral_network((3, 1), form="gate"),
            "form: expected 'eigendecomposition' or 'gated', got 'gate'",
        ),
        (
            lambda: spectral.init(jax.random.key(0), (3, 1), (0, 1), form="x"),
            "form: expected 'eig",
        ),
        (
            lambda: gated(*spectral.unpack(params_of(DEEP), "gated"), inputs(DEEP), form=None),
            "form: expected 'eig",
        ),
        (lambda: algebra.connections(*exact_network(2), "x"), "form: expected 'eig"),
        (
            lambda: jaxarch.spectral_network((3, 1), form="gated", train_input_eigenvalues=True),
            "train_input_eigenvalues: it has no effect in the gated form",
        ),
        (
            lambda: jaxarch.spectral_network(DEEP, form="gated").apply(
                random_params(DEEP), {}, inputs(DEEP), None
            ),
            "params: expected parameters of the form 'gated', got the form 'eigendecomposition'",
        ),
        (
            lambda: jaxarch.spectral_network(DEEP).apply(params_of(DEEP), {}, inputs(DEEP), None),
            "params: expected parameters of the form 'eigendecomposition', got the form 'gated'",
        ),
        (lambda: spectral.unpack(BOTH), "params: expected parameters of a spectral network"),
        (
            lambda: spectral.feedforward(*spectral.unpack(params_of(DEEP)), inputs(DEEP)),
            "params: expected parameters of the form 'eigendecomposition', got the form 'gated'",
        ),
        (lambda: spectral.form_of(3), "params: expected parameters of a spectral network"),
        (lambda: spectral.gamma_norm(params_of(DEEP)), "this network has 2; use path_norms"),
        (
            lambda: spectral.direct_weights(jaxarch.SpectralMLP(DEEP, form="gated", rngs=nnx.Rngs(0))),
            "params: expected parameters, got the module SpectralMLP",
        ),
        (
            lambda: spectral.direct_weights(jax.tree.map(lambda leaf: leaf[None], params_of(DEEP))),
            "params: they have a leading axis of runs",
        ),
    ],
)
def test_bad_input_is_refused_in_one_line_that_names_the_argument(make, message):
    with pytest.raises(jaxarch.ArgumentError, match=message) as raised:
        make()
    assert "\n" not in str(raised.value)


@pytest.mark.long
def test_the_recursive_rule_reads_input_eigenvalues_and_may_train_them():
    net = jaxarch.spectral_network(DEEP, form="gated", update="recursive", train_input_eigenvalues=True)
    params, state = started(net)
    raised = {**params, "eigenvalues": {**params["eigenvalues"], "L1": jnp.ones(3)}}
    before, after = (net.apply(p, state, inputs(DEEP), None)[0] for p in (params, raised))
    assert not close(before, after, 1e-2)
