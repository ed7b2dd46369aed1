"""Flax models of all kinds: batch norm, dropout, convolutions; NNX and Linen; on real pictures."""

import collections
import inspect
import re
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from small import close, digits, same

import jaxarch
from jaxarch.run import _programs as programs

LOSS = optax.softmax_cross_entropy_with_integer_labels
KEYS = jax.random.split(jax.random.key(0), 2)


class CNN(nnx.Module):
    """Convolution, batch norm, dropout, a classifier."""

    def __init__(self, rngs, rate=0.2):
        self.conv = nnx.Conv(1, 8, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(8, momentum=0.9, rngs=rngs)
        self.dropout = nnx.Dropout(rate, rngs=rngs)
        self.head = nnx.Linear(8 * 16, 10, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.norm(self.conv(x)))
        x = nnx.max_pool(x, (2, 2), (2, 2))
        return self.head(self.dropout(x.reshape(x.shape[0], -1)))


class LinenCNN(nn.Module):
    """The same in Linen."""

    @nn.compact
    def __call__(self, x, train: bool):
        x = nn.relu(nn.BatchNorm(use_running_average=not train, momentum=0.9)(nn.Conv(8, (3, 3))(x)))
        x = nn.max_pool(x, (2, 2), (2, 2))
        x = nn.Dropout(0.2, deterministic=not train)(x.reshape(x.shape[0], -1))
        return nn.Dense(10)(x)


class MLP(nnx.Module):
    """Dense layers with dropout between."""

    def __init__(self, rngs, rate=0.0):
        self.hidden = nnx.Linear(64, 32, rngs=rngs)
        self.dropout = nnx.Dropout(rate, rngs=rngs)
        self.head = nnx.Linear(32, 10, rngs=rngs)

    def __call__(self, x):
        return self.head(self.dropout(nnx.relu(self.hidden(x))))


def pictures(model, steps, flat=False, **options):
    data = digits()
    x = 8 * (data.x if flat else data.x.reshape(-1, 8, 8, 1))
    return jaxarch.supervised(
        model,
        (x, data.y),
        loss=LOSS,
        optimizer=optax.adam(1e-2),
        steps=steps,
        batch_size=64,
        train=np.arange(1200),
        **options,
    )


def accuracy(learning, strategy, network):
    rows = np.arange(1200, 1797)
    outputs = jaxarch.evaluate(strategy, network, learning, rows)
    return (outputs.argmax(-1) == digits().y[rows]).mean(axis=1)


MODELS = {"NNX": CNN, "Linen": LinenCNN()}


@pytest.mark.long
@pytest.mark.parametrize("kind", MODELS)
def test_a_cnn_with_batch_norm_and_dropout_trains_and_its_statistics_move(kind):
    learning = pictures(MODELS[kind], steps=60)
    strategy = jaxarch.search.dense(nonnegative=False)
    network, report = jaxarch.over_seeds(strategy, KEYS, learning, chunk=30)
    _, start = learning.init(KEYS[0])
    assert not same(start, network.of_run(0).state)
    assert not same(network.of_run(0).state, network.of_run(1).state)
    assert (accuracy(learning, strategy, network) > 0.75).all()
    assert report.width == (1 if jax.default_backend() == "cpu" else 2)


@pytest.mark.long
@pytest.mark.parametrize("kind", MODELS)
def test_a_mask_is_learned_over_a_cnn_s_initial_weights(kind):
    learning = pictures(MODELS[kind], steps=80)
    strategy = jaxarch.search.two_temperature(weights="initial", mean=2.0, std=1.0)
    network, _ = jaxarch.over_seeds(strategy, KEYS, learning, chunk=40)
    masked = set(jaxarch.named_leaves(network.mask))
    assert all(path.endswith("kernel") for path in masked)
    assert len(masked) == 2
    assert (accuracy(learning, strategy, network) > 0.5).all()
    densities = jax.vmap(jaxarch.density)(network.mask)
    assert ((densities > 0.1) & (densities < 1)).all()


class SpectralCNN(nnx.Module):
    """Convolution, and a spectral network as classifier."""

    def __init__(self, rngs):
        self.conv = nnx.Conv(1, 4, (3, 3), rngs=rngs)
        self.head = jaxarch.SpectralMLP((4 * 16, 12, 10), rngs=rngs)

    def __call__(self, x):
        x = nnx.max_pool(nnx.relu(self.conv(x)), (2, 2), (2, 2))
        return self.head(x.reshape(x.shape[0], -1))


@pytest.mark.long
def test_a_spectral_head_is_trained_pruned_and_exported_inside_a_cnn():
    learning = pictures(SpectralCNN, steps=60, validation=np.arange(1200, 1300))
    strategy = jaxarch.chain(jaxarch.search.spectral(1e-3), jaxarch.recruit(0.2))
    one = jax.jit(lambda problem: strategy(KEYS[0], problem))(learning)
    outputs = learning.outputs(one.params, one.state, jnp.arange(1300, 1797))
    assert (outputs.argmax(-1) == digits().y[1300:]).mean() > 0.7
    params, state = one.params["head"], one.state["head"]
    kept = jaxarch.named_leaves(one[jaxarch.NeuronMask].kept)["head/eigenvalues/L2"]
    assert 0 < int(one.info["removed"]) == 12 - int(kept.sum())
    weights = jaxarch.spectral.direct_weights(params, state)
    assert jaxarch.spectral.direct_widths(weights) == ((64, int(kept.sum()), 10) if kept.any() else (64, 10))
    features = jnp.asarray(np.random.default_rng(0).normal(size=(5, 64)), jnp.float32)
    head = jaxarch.SpectralMLP((64, 12, 10), rngs=nnx.Rngs(0))
    nnx.update(head, params, state)
    exported = jaxarch.spectral.direct_feedforward(weights, features)
    np.testing.assert_allclose(head(features), exported, rtol=1e-5, atol=1e-5)


@pytest.mark.long
def test_dropout_is_on_in_training_differs_by_step_and_is_off_in_evaluation():
    model = jaxarch.models.as_model(lambda rngs: MLP(rngs, rate=0.5), jnp.ones((1, 64)))
    params, state = model.init(jax.random.key(0))
    x = jnp.asarray(digits().x[:8])
    first, second = (model.apply(params, state, x, jax.random.key(i))[0] for i in (1, 2))
    again = model.apply(params, state, x, jax.random.key(1))[0]
    evaluated = [model.apply(params, state, x, None)[0] for _ in range(2)]
    assert same(first, again)
    assert not close(first, second)
    assert same(*evaluated)
    assert not close(first, evaluated[0])


@pytest.mark.long
def test_batch_norm_uses_the_batch_in_training_and_running_statistics_in_evaluation():
    model = jaxarch.models.as_model(lambda rngs: CNN(rngs, rate=0.0), jnp.ones((1, 8, 8, 1)))
    params, state = model.init(jax.random.key(0))
    x = jnp.asarray(digits().x[:8]).reshape(-1, 8, 8, 1)
    trained, moved = model.apply(params, state, x, jax.random.key(1))
    evaluated, kept = model.apply(params, state, x, None)
    assert not close(trained, evaluated)
    assert same(kept, state)
    assert not same(moved, state)


@pytest.mark.long
def test_nnx_and_linen_learn_ten_seeds_at_once_with_the_same_call():
    keys = jax.random.split(jax.random.key(0), 10)

    class LinenMLP(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(10)(nn.relu(nn.Dense(32)(x)))

    for model in (MLP, LinenMLP()):
        learning = pictures(model, steps=150, flat=True)
        strategy = jaxarch.search.two_temperature(weights="initial", mean=2.0, std=1.0)
        network, report = jaxarch.over_seeds(strategy, keys, learning)
        assert report.width == 10
        assert np.median(accuracy(learning, strategy, network)) > 0.6


def test_a_module_s_own_weights_are_the_start_of_every_run():
    module = MLP(nnx.Rngs(7))
    learning = pictures(module, steps=1, flat=True)
    first, second = (learning.init(key)[0] for key in KEYS)
    assert same(first, second)
    assert same(first["hidden"]["kernel"], module.hidden.kernel)


@pytest.mark.long
def test_what_was_found_can_be_put_back_into_the_flax_model():
    learning = pictures(MLP, steps=20, flat=True)
    strategy = jaxarch.search.dense(nonnegative=False)
    network, _ = jaxarch.over_seeds(strategy, KEYS, learning)
    module = MLP(nnx.Rngs(0))
    nnx.update(module, network.of_run(1).params, network.of_run(1).state)
    module.eval()
    outputs = jaxarch.evaluate(strategy, network, learning, np.arange(5))
    np.testing.assert_allclose(module(learning.data[0][:5]), outputs[1], rtol=1e-5, atol=1e-5)


@pytest.mark.long
def test_convolutions_on_cpu_are_run_step_by_step_and_dense_models_are_not():
    key, network = KEYS, None
    stage = jaxarch.search.dense(nonnegative=False)
    for model, flat, slow in ((CNN, False, True), (MLP, True, False)):
        args = (key, None, pictures(model, steps=1, flat=flat), network)
        step = programs.traced_step.trace(lambda settings: stage, *args).jaxpr.jaxpr
        assert programs.is_slow_in_loops(step, backend="cpu") == slow
        assert not programs.is_slow_in_loops(step, backend="gpu")


@pytest.mark.long
def test_convolutions_on_cpu_are_evaluated_run_by_run_to_what_they_give_together(monkeypatch):
    learning = pictures(CNN, steps=1)
    strategy = jaxarch.search.dense(nonnegative=False)
    network, _ = jaxarch.over_seeds(strategy, KEYS, learning)
    rows = np.stack([np.arange(6) + run for run in range(len(KEYS))])
    in_turn = jaxarch.evaluate(strategy, network, learning, rows, batch_size=4)
    monkeypatch.setattr("jaxarch.run._evaluation.is_slow_in_loops", lambda jaxpr: False)
    together = jaxarch.evaluate(strategy, network, learning, rows)
    np.testing.assert_allclose(in_turn, together, rtol=1e-5, atol=1e-5)


class EquinoxLike:
    """Equinox is not installed here: its modules are known by where their classes are at home."""

    __module__ = "equinox._module"

    def __call__(self, x):
        return x


class Variable:
    """A Keras model, as far as the recipe reads it."""

    def __init__(self, path, value):
        self.path, self.value = path, value


class KerasLike:
    """Keras is not installed here: a model of two variables, of which the second counts its calls."""

    __module__ = "keras.src.models.model"

    def __init__(self):
        self.trainable_variables = [
            Variable("b/kernel", jnp.ones((64, 10))),
            Variable("a/bias", jnp.ones(10)),
        ]
        self.non_trainable_variables = [Variable("count", jnp.zeros(()))]

    def stateless_call(self, trainable, others, x, training):
        kernel, bias = trainable
        return x @ kernel + bias[None], [others[0] + training]


def haiku_like(*, state, rng):
    """Return functions as of `hk.transform`, known by their home; `rng` comes where it is taken."""
    names = ["params", *["state"] * state, *["rng"] * rng]

    def init(rng, x):
        params = {"linear": {"w": jnp.ones((x.shape[1], 10))}}
        return (params, {"mean": jnp.zeros(())}) if state else params

    def apply(*args):
        assert len(args) == len(names) + 1
        outputs = args[-1] @ args[0]["linear"]["w"]
        return (outputs, args[1]) if state else outputs

    kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD
    apply.__signature__ = inspect.Signature([inspect.Parameter(name, kinds) for name in [*names, "x"]])
    init.__module__ = apply.__module__ = "haiku._src.transform"
    return collections.namedtuple("Transformed", ["init", "apply"])(init, apply)


@pytest.mark.parametrize(
    "model",
    [
        KerasLike(),
        haiku_like(state=False, rng=True),
        haiku_like(state=False, rng=False),
        haiku_like(state=True, rng=True),
    ],
    ids=["Keras", "Haiku", "Haiku without keys", "Haiku with state"],
)
def test_the_line_that_is_named_for_a_framework_makes_a_model(model):
    with pytest.raises(jaxarch.ArgumentError) as error:
        pictures(model, steps=1, flat=True)
    recipe = re.findall("`([^`]*)`", str(error.value))[-1]
    made = eval(recipe, {"jaxarch": jaxarch, "model": model, "net": model, "x": jnp.ones((3, 64))})
    problem = pictures(made, steps=1, flat=True)
    params, state = problem.init(jax.random.key(0))
    assert problem.outputs(params, state, jnp.arange(2)).shape == (2, 10)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (3, "model: expected a Flax NNX module"),
        (lambda rngs: 3, "model: the function of rngs made"),
        (
            (lambda key: {"n": jnp.arange(3)}, lambda p, x: x),
            "params: expected at least one floating-point array",
        ),
        (LinenCNN, r"model: got the Linen class LinenCNN; pass a module made of it, LinenCNN\(\.\.\.\)"),
        (nnx.Linear, "model: expected a function of rngs that makes a module"),
        (EquinoxLike(), r"model: EquinoxLike is an Equinox module; pass \(init, apply\)"),
        (EquinoxLike, "model: EquinoxLike is an Equinox module"),
        ((LinenCNN().init, LinenCNN().apply), "model: got functions of the Linen module LinenCNN; pass the"),
        (nn.Dense(10).bind({}), "model: the Linen module Dense is bound to variables"),
        (haiku_like(state=False, rng=True)[:1] * 1 + (("several", "functions"),), "hk.multi_transform"),
        (lambda rngs: nnx.Linear(63, 10, rngs=rngs), r"model: it does not take inputs of shape \(1, 64\)"),
    ],
)
def test_things_that_are_no_models_are_refused(model, message):
    with pytest.raises(ValueError, match=message):
        pictures(model, steps=1, flat=True)


class Attention(nnx.Module):
    """Self-attention over the rows of a picture."""

    def __init__(self, rngs):
        self.attention = nnx.MultiHeadAttention(2, 8, decode=False, rngs=rngs)
        self.norm = nnx.LayerNorm(8, rngs=rngs)
        self.head = nnx.Linear(64, 10, rngs=rngs)

    def __call__(self, x):
        return self.head(self.norm(x + self.attention(x)).reshape(x.shape[0], -1))


@pytest.mark.long
def test_attention_is_masked_in_its_kernels_alone():
    data = digits()
    learning = jaxarch.supervised(
        Attention,
        (8 * data.x.reshape(-1, 8, 8), data.y),
        loss=LOSS,
        optimizer=optax.adam(1e-2),
        steps=4,
        batch_size=32,
    )
    network, _ = jaxarch.over_seeds(
        jaxarch.search.two_temperature(weights="initial", mean=2.0), KEYS, learning
    )
    masked = set(jaxarch.named_leaves(network.mask))
    assert masked == {
        "head/kernel",
        *(f"attention/{part}/kernel" for part in ("query", "key", "value", "out")),
    }


class Noisy(nnx.Module):
    """A random stream with a name of its own."""

    def __init__(self, rngs):
        self.rngs = rngs
        self.head = nnx.Linear(64, 10, rngs=rngs)

    def __call__(self, x):
        return self.head(x) + jax.random.normal(self.rngs.noise(), (x.shape[0], 10))


class LinenNoisy(nn.Module):
    """The same in Linen."""

    @nn.compact
    def __call__(self, x):
        return nn.Dense(10)(x) + jax.random.normal(self.make_rng("noise"), (x.shape[0], 10))


@pytest.mark.parametrize("model", [Noisy, Noisy(nnx.Rngs(params=0, noise=1)), LinenNoisy()])
def test_every_random_stream_draws_from_the_step_s_key(model):
    x = jnp.ones((3, 64))
    network = jaxarch.models.as_model(model, x)
    params, state = network.init(jax.random.key(0))
    first, second, again = (network.apply(params, state, x, jax.random.key(i))[0] for i in (1, 2, 1))
    assert same(first, again)
    assert not close(first, second)


class Stacked(nnx.Module):
    """Two layers with dropout, stacked, so that their random stream has two keys."""

    def __init__(self, rngs, stack):
        make = stack(lambda rngs: nnx.Dropout(0.5, rngs=rngs), in_axes=(0,), out_axes=0)
        self.layers = nnx.split_rngs(splits=2)(make)(rngs)
        self.scale = nnx.Param(jnp.ones(()))

    def __call__(self, x):
        return self.scale * nnx.vmap(lambda layer, x: layer(x), in_axes=(0, None))(self.layers, x)


@pytest.mark.parametrize("stack", [nnx.vmap, partial(nnx.scan, length=2)])
def test_stacked_layers_draw_from_the_step_s_key_each_its_own(stack):
    x = jnp.ones((3, 64))
    network = jaxarch.models.as_model(lambda rngs: Stacked(rngs, stack), x)
    params, state = network.init(jax.random.key(0))
    first, second, again = (network.apply(params, state, x, jax.random.key(i))[0] for i in (1, 2, 1))
    assert same(first, again)
    assert not close(first, second)
    assert not close(first[0], first[1])
    assert same(network.apply(params, state, x, None)[0], jnp.ones((2, 3, 64)))


@pytest.mark.long
def test_bfloat16_parameters_can_be_stopped_early():
    def make(rngs):
        return nnx.Linear(64, 10, param_dtype=jnp.bfloat16, rngs=rngs)

    learning = pictures(make, steps=8, flat=True, validation=np.arange(1200, 1300))
    network, _ = jaxarch.over_seeds(
        jaxarch.search.dense(nonnegative=False),
        KEYS,
        learning,
        chunk=2,
        early_stopping=jaxarch.EarlyStopping(patience=2),
    )
    assert network.params["kernel"].dtype == jnp.bfloat16
    assert (network.info["kept_at"] > 0).all()


@pytest.mark.parametrize(
    ("outputs", "labels", "message"),
    [
        ((64, 1), np.arange(1797) % 2, r"for 3 examples it has shape \(3, 3\)"),
        ((64, 10), np.array(["one"] * 1797), "data: y must be numbers, got dtype"),
    ],
)
def test_labels_that_do_not_fit_the_outputs_are_refused(outputs, labels, message):
    # As users have it: the tests' own configuration refuses such broadcasts earlier.
    with jax.numpy_rank_promotion("allow"), pytest.raises(ValueError, match=message):
        jaxarch.supervised(
            lambda rngs: nnx.Linear(*outputs, rngs=rngs),
            (digits().x, labels),
            loss=optax.sigmoid_binary_cross_entropy,
            optimizer=optax.sgd(0.1),
            steps=1,
        )


def five_outputs(labels, **options):
    return jaxarch.supervised(
        lambda rngs: nnx.Linear(64, 5, rngs=rngs),
        (digits().x, labels),
        loss=LOSS,
        optimizer=optax.sgd(0.1),
        steps=1,
        **options,
    )


@pytest.mark.parametrize(
    ("shift", "message"),
    [
        (0, "y has labels 0 to 9, but the model has 5 outputs, for labels 0 to 4"),
        (-5, "y has labels -5 to 4"),
    ],
)
def test_labels_out_of_the_range_of_the_outputs_are_refused(shift, message):
    with pytest.raises(ValueError, match=message):
        five_outputs(digits().y + shift)


def test_as_many_labels_as_outputs_are_the_most():
    five_outputs(digits().y % 5)
    with pytest.raises(ValueError, match="y has labels 0 to 5, but the model has 5 outputs"):
        five_outputs(digits().y % 6)


def test_labels_that_are_floats_are_refused_by_a_loss_of_classes():
    with pytest.raises(
        ValueError, match=r"loss: it does not take .*float32.*; give y as integers"
    ) as refused:
        five_outputs((digits().y % 5).astype(np.float32))
    assert "\n" not in str(refused.value)


def test_ragged_lists_are_refused():
    with pytest.raises(ValueError, match="data: x has rows of different lengths; pad them to one length"):
        jaxarch.supervised(
            lambda rngs: nnx.Linear(2, 2, rngs=rngs),
            ([[1.0], [1.0, 2.0]], [0, 1]),
            loss=LOSS,
            optimizer=optax.sgd(0.1),
            steps=1,
        )


def test_old_keys_are_refused_with_the_way_to_new_ones():
    with pytest.raises(
        ValueError,
        match=r"keys: expected random keys .* from jax.random.PRNGKey; make them with jax.random.key",
    ):
        jaxarch.over_seeds(
            jaxarch.search.dense(), jax.random.split(jax.random.PRNGKey(0), 2), five_outputs(digits().y % 5)
        )


def test_labels_of_rows_that_are_not_used_may_be_any_and_so_may_those_that_gather_turns_into_others():
    five_outputs(digits().y, train=np.flatnonzero(digits().y < 5))
    five_outputs(digits().y, gather=lambda data, per_run, rows: (data[0][rows], data[1][rows] % 5))


@pytest.mark.long
def test_a_metric_that_is_no_scalar_is_refused():
    learning = pictures(
        MLP,
        steps=2,
        flat=True,
        validation=np.arange(5),
        metrics=lambda outputs, y: {"hits": outputs.argmax(-1) == y},
    )
    with pytest.raises(ValueError, match=r"metrics: expected scalars, but 'hits' has shape \(5,\)"):
        jaxarch.over_seeds(jaxarch.search.dense(nonnegative=False), KEYS, learning)


@pytest.mark.long
def test_evaluation_refuses_rows_that_are_not_there():
    learning = pictures(MLP, steps=1, flat=True)
    search = jaxarch.search.dense(nonnegative=False)
    network, _ = jaxarch.over_seeds(search, KEYS, learning)
    with pytest.raises(ValueError, match=r"rows: rows must lie in \[0, 1797\)"):
        jaxarch.evaluate(search, network, learning, np.array([1797]))


@pytest.mark.parametrize("batch_size", [1, 4, 10, 99])
def test_evaluation_in_batches_gives_what_all_rows_at_once_give(batch_size):
    learning = pictures(MLP, steps=1, flat=True)
    search = jaxarch.search.dense(nonnegative=False)
    network, _ = jaxarch.over_seeds(search, KEYS, learning)
    for rows in (np.arange(10), np.arange(20).reshape(2, 10)):
        whole = jaxarch.evaluate(search, network, learning, rows)
        assert whole.shape == (2, 10, 10)
        assert close(jaxarch.evaluate(search, network, learning, rows, batch_size=batch_size), whole)


def test_logistic_regression_refuses_more_than_two_classes():
    with pytest.raises(ValueError, match="y: expected the labels 0 and 1, both present"):
        jaxarch.over_seeds(jaxarch.search.logistic_regression(), KEYS, pictures(MLP, steps=1, flat=True))
