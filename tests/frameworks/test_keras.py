"""Keras models become functions and smaller models. These tests need the extra `keras`."""

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from keras import layers

import jaxarch
from jaxarch import ArgumentError, ResultWarning


@pytest.fixture(autouse=True)
def ranks_are_promoted():
    with jax.numpy_rank_promotion("allow"):
        yield


def convolutions():
    """A functional model with a residual block, batch norm and a depthwise convolution."""
    inputs = keras.Input((8, 8, 3))
    x = first = layers.Conv2D(8, 3, padding="same")(inputs)
    x = layers.Conv2D(12, 1, use_bias=False)(layers.ReLU()(layers.BatchNormalization()(x)))
    x = layers.DepthwiseConv2D(3, padding="same")(x)
    x = layers.add([first, layers.Conv2D(8, 1)(layers.ReLU()(x))])
    x = layers.GlobalAveragePooling2D()(layers.Conv2DTranspose(6, 2, strides=2)(x))
    return drawn(keras.Model(inputs, layers.Dense(5)(layers.Dense(16, activation="gelu")(x))))


def transformer():
    inputs = keras.Input((6,), dtype="int32")
    x = layers.Embedding(11, 12)(inputs)
    x = layers.add([x, layers.MultiHeadAttention(3, 4)(x, x)])
    hidden = layers.EinsumDense("btd,dh->bth", output_shape=(None, 24), bias_axes="h", activation="relu")(x)
    return drawn(keras.Model(inputs, layers.add([x, layers.Dense(12)(hidden)])))


def recurrent():
    """A model inside a model."""
    inner = keras.Sequential([keras.Input((5, 3)), layers.Conv1D(6, 1), layers.LSTM(8)])
    return drawn(keras.Sequential([keras.Input((5, 3)), inner, layers.Dense(2)]))


def wrapped():
    """Recurrent layers in both directions, stacked cells, and layers in layers."""
    inputs = keras.Input((5, 3))
    x = layers.TimeDistributed(layers.Dense(8, "relu"))(inputs)
    x = layers.Bidirectional(layers.LSTM(6, return_sequences=True), merge_mode="sum")(x)
    x = layers.TimeDistributed(layers.Conv1D(6, 2, groups=2))(layers.Reshape((5, 3, 2))(x))
    x = layers.TimeDistributed(layers.Flatten())(x)
    x = layers.RNN([layers.GRUCell(7), layers.SimpleRNNCell(5)])(x)
    return drawn(keras.Model(inputs, layers.SpectralNormalization(layers.Dense(2))(x)))


def groups():
    """Grouped convolutions, one of them with a group a channel, and group norms."""
    inputs = keras.Input((8, 8, 4))
    x = layers.GroupNormalization(4)(layers.Conv2D(16, 3, groups=2, padding="same")(inputs))
    x = layers.Conv2D(16, 3, groups=16, padding="same")(layers.ReLU()(x))
    x = layers.Conv2D(12, 1, groups=4)(layers.ReLU()(layers.GroupNormalization(4)(x)))
    gate = layers.Reshape((1, 1, 12))(layers.GlobalAveragePooling2D()(x))
    x = layers.multiply([x, layers.Dense(12, "sigmoid")(gate)])
    return drawn(keras.Model(inputs, layers.Dense(3)(layers.Flatten()(x))))


def drawn(model):
    """The model with all variables drawn."""
    random = np.random.default_rng(0)
    for variable in model.variables:
        positive = "variance" in variable.path
        values = random.normal(size=variable.shape).astype(np.float32) * 0.5
        variable.assign(np.abs(values) + 0.5 if positive else values)
    return model


MODELS = {
    "convolutions": (convolutions, lambda rows: jax.random.normal(jax.random.key(0), (rows, 8, 8, 3))),
    "transformer": (transformer, lambda rows: jax.random.randint(jax.random.key(0), (rows, 6), 0, 11)),
    "recurrent": (recurrent, lambda rows: jax.random.normal(jax.random.key(0), (rows, 5, 3))),
    "wrapped": (wrapped, lambda rows: jax.random.normal(jax.random.key(0), (rows, 5, 3))),
    "groups": (groups, lambda rows: jax.random.normal(jax.random.key(0), (rows, 8, 8, 4))),
}


@pytest.fixture(scope="module", params=MODELS)
def case(request):
    make, inputs = MODELS[request.param]
    with jax.numpy_rank_promotion("allow"):
        return make(), inputs


def computed(model, x):
    """Outputs of a model, computed by one program: one for every operation takes seconds."""
    return jax.jit(lambda x: model(x))(x)


def test_the_function_computes_what_the_model_does(case):
    model, inputs = case
    function, tree = jaxarch.keras.as_function(model)
    assert np.allclose(jax.jit(function)(tree, inputs(2)), model(inputs(2)), atol=1e-5)


def test_a_plan_returns_a_model_that_computes_what_the_masked_one_does(case, tmp_path):
    model, inputs = case
    plan = jaxarch.keras.plan(model, inputs(2), budget="60% multiply_adds")
    small = plan.apply()
    assert small.model is not None, small.why
    assert small.model.count_params() < model.count_params()
    kept = plan.groups.mask(plan.kept)
    for variable in model.variables:
        if variable.path in kept:
            variable.assign(variable.value * kept[variable.path])
    outputs = computed(small.model, inputs(3))
    assert np.allclose(outputs, computed(model, inputs(3)), atol=1e-4)
    small.model.save(tmp_path / "small.keras")
    assert np.allclose(computed(keras.saving.load_model(tmp_path / "small.keras"), inputs(3)), outputs)


def test_a_smaller_model_is_compiled_and_trained_anew():
    model = convolutions()
    model.layers[1].trainable = False
    x = MODELS["convolutions"][1](8)
    small = jaxarch.keras.plan(model, x, budget="50% parameters").apply().model
    assert not small.layers[1].trainable
    small.compile("adam", "mse")
    before = np.array(model.layers[-1].kernel.value)
    small.fit(x, jnp.zeros((8, 5)), verbose=0)
    assert np.array_equal(before, model.layers[-1].kernel.value)


def test_what_does_nothing_goes_exactly():
    model = convolutions()
    hidden, head = model.layers[-2:]
    head.kernel.assign(head.kernel.value.at[5:].set(0.0))
    small = jaxarch.keras.shrink(model, MODELS["convolutions"][1](2))
    assert small.model.layers[-2].units == 5
    assert hidden.units == 16


def test_a_norm_over_fewer_features_is_reported():
    model = drawn(
        keras.Sequential([keras.Input((3,)), layers.Dense(8), layers.LayerNormalization(), layers.Dense(2)])
    )
    with pytest.warns(ResultWarning, match="of `model` differ"):
        plan = jaxarch.keras.plan(model, jnp.ones((2, 3)), budget="50% multiply_adds", units="features")
        assert plan.apply().model.layers[0].units == 4


def test_widths_that_keras_takes_to_be_equal_leave_a_function():
    inputs = keras.Input((5, 3))
    both = layers.Bidirectional(layers.LSTM(8))(inputs)  # Keras doubles the width of the first
    model = drawn(keras.Model(inputs, layers.Dense(2)(both)))
    groups = jaxarch.structure.axis_groups(*jaxarch.keras.as_function(model), jnp.ones((2, 5, 3))).groups
    name = next(name for name in groups if "forward" in name)
    small = jaxarch.keras.plan(model, jnp.ones((2, 5, 3)), kept={name: np.arange(8) < 3}).apply()
    assert small.model is None and "does not take" in small.why
    assert small.function(small.tree, jnp.ones((4, 5, 3))).shape == (4, 2)


def test_models_that_cannot_be_read_are_refused():
    with pytest.raises(ArgumentError, match="expected a Keras model"):
        jaxarch.keras.as_function(layers.Dense(3))
    with pytest.raises(ArgumentError, match="call it once"):
        jaxarch.keras.as_function(keras.Sequential([layers.Dense(3)]))


def test_a_subclass_leaves_a_function():
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.hidden, self.head = layers.Dense(8, activation="relu"), layers.Dense(2)

        def call(self, x):
            return self.head(self.hidden(x))

    model = Own()
    model(jnp.ones((1, 3)))
    small = jaxarch.keras.plan(model, jnp.ones((1, 3)), budget="50% multiply_adds").apply()
    assert small.model is None and "`clone_function`" in small.why
