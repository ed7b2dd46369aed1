"""`nnx.shrink` of modules that write in their call, of stacks, and what results share with the model."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jaxarch
from jaxarch import ArgumentError, named_leaves

X = jnp.ones((1, 3))


class Perceptron(nnx.Module):
    """Two of its eight hidden neurons are not read; subclasses do more in their call."""

    def __init__(self):
        self.into, self.out = nnx.Linear(3, 8, rngs=nnx.Rngs(0)), nnx.Linear(8, 2, rngs=nnx.Rngs(1))
        self.out.kernel[2:4] = 0.0
        self.begin()

    def begin(self):
        pass

    def __call__(self, x):
        return self.out(nnx.relu(self.into(x)))


class Leaky(Perceptron):
    """Beside the input it reads five numbers that its calls write, of which the first three matter."""

    def begin(self):
        self.memory = nnx.Variable(jnp.zeros((1, 5)))
        self.past, self.write = nnx.Linear(5, 8, rngs=nnx.Rngs(2)), nnx.Linear(3, 5, rngs=nnx.Rngs(3))
        self.past.kernel[3:] = 0.0

    def __call__(self, x):
        y = self.out(nnx.relu(self.into(x) + self.past(self.memory[...])))
        self.memory[...] = 0.5 * self.memory[...] + self.write(x)
        return y


class Drawing(Perceptron):
    def begin(self):
        self.dropout = nnx.Dropout(0.5, rngs=nnx.Rngs(0))

    def __call__(self, x):
        return self.out(self.dropout(nnx.relu(self.into(x))))


class Lazy(Perceptron):
    def __call__(self, x):
        hidden = nnx.relu(self.into(x))
        if hasattr(self, "cache"):
            hidden += self.cache[...]
        self.cache = nnx.Cache(hidden)
        return self.out(hidden)


class Growing(Perceptron):
    def begin(self):
        self.cache = nnx.Cache(jnp.zeros((1, 8)))

    def __call__(self, x):
        self.cache.set_value(jnp.concatenate([self.cache.get_value(), nnx.relu(self.into(x))]))
        return self.out(self.cache.get_value().sum(0))


class Counting(Perceptron):
    def begin(self):
        self.calls = 0

    def __call__(self, x):
        self.calls += 1
        return super().__call__(x) * self.calls


class Capturing(Perceptron):
    def __call__(self, x):
        hidden = nnx.relu(self.into(x))
        self.sow(nnx.Intermediate, "hidden", hidden)
        return self.out(hidden)


class Returning(Perceptron):
    """A module whose call hands every variable back as it was."""

    def __call__(self, x):
        return nnx.jit(Perceptron.__call__)(self, x)


@pytest.mark.long
def test_what_a_call_writes_is_no_constant():
    net = Leaky()
    small = jaxarch.nnx.shrink(net, X)
    assert small.model.memory.shape == (1, 3) and small.model.into.out_features == 6
    for step in range(3):
        x = jnp.full((1, 3), step + 1.0)
        np.testing.assert_allclose(small.model(x), net(x), rtol=1e-5)


REFUSED = {
    "draws random numbers, counted in 'dropout/rngs/count'": Drawing,
    "adds 'cache', which its next call reads": Lazy,
    "changes 'cache' from float32 of shape .* to float32 of shape \\(2, 8\\)": Growing,
    "changes 'calls', which is not an array": Counting,
}


@pytest.mark.parametrize("message", REFUSED)
def test_a_call_after_which_the_next_one_is_another_program_is_refused(message):
    with pytest.raises(ArgumentError, match=message) as error:
        jaxarch.nnx.shrink(REFUSED[message](), X)
    assert "\n" not in str(error.value)


class Rewriting(nnx.Module):
    """A module whose call changes its attributes, of no array, as it is told."""

    def __init__(self, change):
        self.into, self.mode, self.cold, self.act = nnx.Linear(3, 6, rngs=nnx.Rngs(0)), None, True, nnx.relu
        self.change = change

    def __call__(self, x):
        y = self.act(self.into(x))
        self.change(self)
        return y


@pytest.mark.parametrize(
    "change",
    [
        lambda net: setattr(net, "act", nnx.tanh),
        lambda net: setattr(net, "mode", "on"),
        lambda net: setattr(net, "warm", True),
        lambda net: delattr(net, "cold"),
    ],
    ids=["a function", "None", "a new one", "one that goes"],
)
def test_an_attribute_that_a_call_changes_is_refused(change):
    with pytest.raises(
        ArgumentError, match=r"model: its call changes '(act|mode|warm|cold)', which is not an arr"
    ):
        jaxarch.nnx.shrink(Rewriting(change), X)


@pytest.mark.filterwarnings("ignore:.*sow.*:DeprecationWarning")
@pytest.mark.parametrize("module", [Capturing, Returning])
def test_what_no_later_call_reads_or_is_handed_back_as_it_was_is_not_written(module):
    net = module()
    small = jaxarch.nnx.shrink(net, X)
    assert small.model.into.out_features == 6
    np.testing.assert_allclose(small.model(X), net(X), rtol=1e-6)


class Stack(nnx.Module):
    def __init__(self, axis):
        self.axis = axis

        @nnx.split_rngs(splits=2)
        @nnx.vmap(in_axes=(0,), out_axes=axis)
        def make(rngs):
            return nnx.Sequential(nnx.Linear(3, 8, rngs=rngs), nnx.relu, nnx.Linear(8, 3, rngs=rngs))

        self.layers = make(nnx.Rngs(0))

    def __call__(self, x):
        scan = nnx.scan(lambda x, layer: x + layer(x), in_axes=(nnx.Carry, self.axis), out_axes=nnx.Carry)
        return scan(x, self.layers)


@pytest.mark.long
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_layers_in_a_stack_lose_the_neurons_that_none_of_them_reads(axis):
    net = Stack(axis)
    out = net.layers.layers[2].kernel
    by_layer = jnp.moveaxis(out[...], axis, 0).at[0, 1:4].set(0.0).at[1, 2:6].set(0.0)
    out[...] = jnp.moveaxis(by_layer, 0, axis)
    small = jaxarch.nnx.shrink(net, X)
    into = small.model.layers.layers[0]
    assert jnp.moveaxis(into.kernel[...], axis, 0).shape == (2, 3, 6)
    assert (into.in_features, into.out_features) == (3, 6)
    np.testing.assert_allclose(small.model(2 * X), net(2 * X), rtol=1e-5)


# What results share with the model -------------------------------------------------------------------


def test_the_smaller_function_is_of_the_model_as_it_was():
    net = Perceptron()
    small = jaxarch.nnx.shrink(net, X)
    net.out.kernel[...] = jnp.ones((8, 2))
    assert small.function(small.tree, jnp.ones((5, 3))).shape == (5, 2)


def test_the_smaller_function_is_of_the_arrays_as_they_were():
    params = {"in": np.ones((3, 4), np.float32), "out": np.eye(4, 2, dtype=np.float32)}
    small = jaxarch.shrink(lambda p, x: jnp.tanh(x @ p["in"]) @ p["out"], params, X)
    params["out"][:] = 1.0
    assert small.function(small.tree, jnp.ones((5, 3)).at[3:].set(0.0)).shape == (5, 2)
    assert (small.tree["out"] == np.eye(2)).all()


def test_no_array_of_the_model_is_one_of_the_results():
    net = Perceptron()
    small = jaxarch.nnx.shrink(net, X)
    for leaf in jax.tree.leaves(nnx.state(net)):
        leaf.delete()
    small.model(X)
    for leaf in jax.tree.leaves(nnx.state(small.model)):
        leaf.delete()
    assert small.function(small.tree, X).shape == (1, 2)


def test_what_is_stripped_shares_no_array():
    model = jaxarch.nnx.Masked(nnx.Linear(8, 4, rngs=nnx.Rngs(0)))
    plain = model.strip()
    shared = [id(leaf) for leaf in jax.tree.leaves(nnx.state(model))]
    assert not any(id(leaf) in shared for leaf in jax.tree.leaves(nnx.state(plain)))
    assert named_leaves(nnx.state(plain)).keys() == {"kernel", "bias"}
