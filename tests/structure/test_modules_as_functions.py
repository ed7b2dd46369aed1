"""A module in place of a function of its parameters is refused: its input would be taken for these."""

import jax
import jax.numpy as jnp
import pytest
from flax import linen, nnx

import jaxarch
from jaxarch import ArgumentError
from jaxarch.structure import axis_groups, unit_graph

X = jnp.ones((4, 6))
NET = nnx.Linear(6, 2, rngs=nnx.Rngs(0))
equinox = pytest.importorskip("equinox")
MLP = equinox.nn.MLP(6, 2, 8, 1, key=jax.random.key(0))
ARRAYS, STATIC = equinox.partition(MLP, equinox.is_array)
DENSE = linen.Dense(3)
VARIABLES = jax.eval_shape(DENSE.init, jax.random.key(0), X)


class TwoInputs(equinox.Module):
    weights: jax.Array

    def __call__(self, x, y):
        return x @ self.weights + y


MODULES = {
    "NNX": (NET, "jaxarch.nnx.as_function"),
    "NNX, compiled": (jax.jit(NET), "jaxarch.nnx.as_function"),
    "NNX, its call": (NET.__call__, "jaxarch.nnx.as_function"),
    "Equinox": (MLP, "equinox.partition"),
    "Equinox, mapped": (jax.vmap(MLP), "equinox.partition"),
    "Equinox, compiled": (equinox.filter_jit(MLP), "equinox.partition"),
    "Linen": (DENSE, "model.apply"),
}


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize(
    "of", [jaxarch.cost, jaxarch.shrink, axis_groups, unit_graph, jaxarch.saliency.synflow]
)
def test_a_module_is_refused_with_the_call_that_is_right(of, name):
    module, right = MODULES[name]
    with pytest.raises(ArgumentError, match=right) as error:
        of(module, X)
    assert "\n" not in str(error.value)


def test_a_module_of_two_inputs_is_no_function_of_parameters():
    with pytest.raises(ArgumentError, match="Two"):
        jaxarch.cost(TwoInputs(jnp.ones((6, 2))), X, X[:, :2])


def test_methods_and_functions_that_take_their_parameters_are_functions():
    def combined(arrays, x):
        return jax.vmap(equinox.combine(arrays, STATIC))(x)

    functions = [(DENSE.apply, VARIABLES), (combined, ARRAYS), (equinox.filter_jit(combined), ARRAYS)]
    found = [jaxarch.cost(function, tree, X).total.dense.parameters for function, tree in functions]
    assert found == [21, 74, 74]
