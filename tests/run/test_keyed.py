"""A second, equal call compiles nothing; one that differs in anything that counts compiles anew."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from compilations import compilations
from methods import keys
from small import digits

import jaxarch
from jaxarch.models import signed_output_loss, tanh_network
from jaxarch.run._keyed import Keyed, key_of


def learning(*, rate=0.1, steps=3, width=6, loss=signed_output_loss, optimizer=None):
    """A problem made anew: no object of it is that of an earlier call, but for a loss that is given."""
    return jaxarch.supervised(
        tanh_network((8, width, 6)),
        (digits().x[:60, 18:26], (digits().y[:60] >= 5).astype(np.int32)),
        loss=loss,
        optimizer=optimizer or optax.adam(rate),
        steps=steps,
        batch_size=10,
    )


def trained(problem=None, **arguments):
    search = jaxarch.search.dense(nonnegative=False, **arguments)
    return jaxarch.over_seeds(search, keys(), problem or learning())


def compiles_anew(first, second):
    """Whether a call compiles something after another one was made twice."""
    first()
    with compilations() as again:
        first()
    assert again == []
    with compilations() as other:
        second()
    return bool(other)


@pytest.mark.long
def test_a_problem_made_by_an_equal_call_compiles_nothing():
    def chained():
        strategy = jaxarch.chain(jaxarch.search.dense(nonnegative=False), jaxarch.threshold())
        jaxarch.over_seeds(strategy, keys(), learning())

    assert not compiles_anew(chained, chained)


@pytest.mark.long
def test_data_of_equal_shapes_compile_nothing():
    other = dataclasses.replace(learning(), data=jax.tree.map(lambda leaf: leaf[::-1], learning().data))
    assert not compiles_anew(trained, lambda: trained(other))


@pytest.mark.long
def test_evaluating_what_an_equal_call_found_compiles_nothing():
    network, _ = trained()
    rows = np.arange(7)
    assert not compiles_anew(
        lambda: jaxarch.evaluate(jaxarch.search.dense(), network, learning(), rows),
        lambda: jaxarch.evaluate(jaxarch.search.dense(), network, learning(), rows[::-1].copy()),
    )


SCHEDULES = {
    "cosine": lambda: optax.cosine_decay_schedule(0.1, 10),
    "piecewise": lambda: optax.piecewise_constant_schedule(0.1, {1: 0.5, 2: 0.5}),
}
OPTIMIZERS = {
    "adamw": lambda: optax.adamw(1e-2),
    "cosine": lambda: optax.sgd(SCHEDULES["cosine"]()),
    "piecewise": lambda: optax.sgd(SCHEDULES["piecewise"]()),
    "chain": lambda: optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-2)),
    "masked": lambda: optax.masked(optax.sgd(0.1), {"w1": True, "w2": False}),
    "multi_transform": lambda: optax.multi_transform(
        {"a": optax.sgd(0.1), "b": optax.adam(0.1)}, {"w1": "a", "w2": "b"}
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optax_transformations_made_by_equal_calls_are_one(name):
    make = OPTIMIZERS[name]
    assert not compiles_anew(
        lambda: trained(learning(optimizer=make())), lambda: trained(learning(optimizer=make()))
    )


DIFFERENT = {
    "another rate": lambda: trained(learning(rate=0.2)),
    "another rate of a stage": lambda: trained(optimizer=optax.sgd(0.3)),
    "other steps": lambda: trained(learning(steps=4)),
    "another width": lambda: trained(learning(width=5)),
    "another loss": lambda: trained(learning(loss=lambda outputs, y: jnp.square(outputs - y))),
    "another setting": lambda: trained(std=0.1, where="w1"),
}


@pytest.mark.long
@pytest.mark.parametrize("what", DIFFERENT)
def test_what_differs_compiles_anew(what):
    assert compiles_anew(trained, DIFFERENT[what])


@pytest.mark.long
def test_a_list_that_an_optimiser_has_captured_counts_with_what_is_in_it_now():
    boundaries = {1: 0.5}
    optimizer = optax.sgd(optax.piecewise_constant_schedule(0.1, boundaries))
    problem = learning(optimizer=optimizer)
    network, _ = trained(problem)

    def changed():
        boundaries[1] = 0.0
        return trained(problem)

    assert compiles_anew(lambda: trained(problem), changed)
    after, _ = trained(problem)
    assert not np.array_equal(network.info["loss"], after.info["loss"])


def test_what_is_captured_counts_as_it_was_when_the_key_was_taken():
    captured = [1.0]
    before = Keyed(functools.partial(optax.sgd, captured))
    captured[0] = 2.0
    assert before != Keyed(before.__wrapped__)


@pytest.mark.long
def test_a_user_s_function_counts_by_identity_so_a_captured_value_that_changed_is_seen():
    def loss_with(factor):
        return lambda outputs, y: factor * signed_output_loss(outputs, y)

    once = loss_with(1.0)
    assert not compiles_anew(lambda: trained(learning(loss=once)), lambda: trained(learning(loss=once)))
    first, _ = trained(learning(loss=once))
    other, _ = trained(learning(loss=loss_with(2.0)))
    np.testing.assert_allclose(other.info["loss"][:, 0], 2 * first.info["loss"][:, 0], rtol=1e-5)


SCALE = 1.0


@pytest.mark.long
def test_a_global_that_changed_is_seen_by_a_function_that_is_defined_anew(monkeypatch):
    def loss_of_now():
        def loss(outputs, y):
            return SCALE * signed_output_loss(outputs, y)

        return loss

    first, _ = trained(learning(loss=loss_of_now()))
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    other, _ = trained(learning(loss=loss_of_now()))
    np.testing.assert_allclose(other.info["loss"][:, 0], 3 * first.info["loss"][:, 0], rtol=1e-5)


@pytest.mark.long
def test_a_flax_module_whose_weights_changed_is_another_start():
    from flax import nnx

    module = nnx.Linear(8, 2, rngs=nnx.Rngs(0))

    def start():
        problem = jaxarch.supervised(
            module,
            (digits().x[:60, 18:26], (digits().y[:60] >= 5).astype(np.int32)),
            loss=optax.softmax_cross_entropy_with_integer_labels,
            optimizer=optax.sgd(0.0),
            steps=2,
        )
        network, _ = jaxarch.over_seeds(jaxarch.search.dense(nonnegative=False), keys(), problem)
        return np.asarray(network.params["kernel"][0])

    before = start()
    np.testing.assert_array_equal(before, module.kernel[...])
    module.kernel[...] = module.kernel[...] + 1.0
    np.testing.assert_array_equal(start(), before + 1.0)


ALIKE = [
    (lambda: 1.0, lambda: 1.0),
    (lambda: float("nan"), lambda: float("nan")),
    (lambda: [1, {"a": (2, None)}], lambda: [1, {"a": (2, None)}]),
    (lambda: np.arange(3), lambda: np.arange(3)),
    (lambda: jnp.arange(3), lambda: jnp.arange(3)),
    (lambda: optax.adam(0.1), lambda: optax.adam(0.1)),
    (lambda: functools.partial(optax.adam, 0.1), lambda: functools.partial(optax.adam, 0.1)),
]
UNLIKE = [
    (lambda: 1, lambda: 1.0),
    (lambda: 1, lambda: True),
    (lambda: 0.0, lambda: -0.0),
    (lambda: [1], lambda: (1,)),
    (lambda: np.arange(3), lambda: np.arange(3.0)),
    (lambda: jnp.arange(100), lambda: jnp.arange(100)),
    (lambda: optax.adam(0.1), lambda: optax.adam(0.2)),
    (lambda: optax.adam(0.1), lambda: optax.sgd(0.1)),
    (lambda: lambda x: x, lambda: lambda x: x),
    (object, object),
    (lambda: np.zeros(2), lambda: np.zeros(2, np.int64)),
    (lambda: np.zeros((2, 3)), lambda: np.zeros((3, 2))),
    (lambda: jnp.asarray(1.0), lambda: jnp.asarray(1.0, jnp.float32)),
    (lambda: functools.partial(optax.adam, b1=0.1), lambda: functools.partial(optax.adam, b1=0.2)),
]


@pytest.mark.parametrize("pair", ALIKE)
def test_values_that_do_the_same_have_one_key(pair):
    first, second = (key_of(make()) for make in pair)
    assert first == second
    assert hash(first) == hash(second)


@pytest.mark.parametrize("pair", UNLIKE)
def test_values_that_may_do_something_else_have_other_keys(pair):
    # Both are alive: two objects must not share a place in memory.
    values = [make() for make in pair]
    assert key_of(values[0]) != key_of(values[1])


@dataclasses.dataclass(frozen=True)
class Frozen:
    name: str = "mine"


class Derived(Frozen):
    """Of a frozen dataclass, and with a part that is none of its fields."""

    def __init__(self, factor):
        super().__init__()
        object.__setattr__(self, "factor", factor)


def test_a_class_derived_from_a_frozen_dataclass_may_hold_anything():
    first, second = Derived(1.0), Derived(2.0)
    assert key_of(first) != key_of(second)


def test_a_user_s_function_that_wears_a_library_s_name_is_the_user_s():
    def wrapped(factor):
        @functools.wraps(optax.softmax_cross_entropy)
        def loss(outputs, y):
            return factor * SCALE * outputs

        return loss

    assert key_of(wrapped(1.0)) != key_of(wrapped(1.0))


def test_what_a_masked_array_hides_is_not_overlooked():
    hidden = [np.ma.masked_array(values, [True, False]) for values in ([1, 2], [3, 2])]
    assert key_of(hidden[0]) != key_of(hidden[1])


STEPS, STD = 3, 0.2


@pytest.mark.long
def test_what_a_sweep_reads_from_elsewhere_is_seen_when_it_changes(monkeypatch):
    def at(settings):
        optimizer = optax.sgd(settings["rate"])
        return jaxarch.search.dense(nonnegative=False, optimizer=optimizer, std=STD, steps=STEPS)

    settings = {"rate": jnp.full(3, 0.1)}
    jaxarch.over_seeds(at, keys(), learning(), settings)
    with compilations() as again:
        jaxarch.over_seeds(at, keys(), learning(), {"rate": jnp.full(3, 0.2)})
    assert again == []
    monkeypatch.setitem(globals(), "STEPS", 5)
    network, _ = jaxarch.over_seeds(at, keys(), learning(), settings)
    assert network.info["loss"].shape == (3, 5)
    monkeypatch.setitem(globals(), "STD", 0.4)
    with compilations() as anew:
        jaxarch.over_seeds(at, keys(), learning(), settings)
    assert anew


@pytest.mark.long
def test_an_object_with_an_optimiser_s_two_methods_is_one():
    network, _ = trained(learning(optimizer=optax.MultiSteps(optax.sgd(0.1), 2)))
    assert np.isfinite(network.info["loss"]).all()


@pytest.mark.long
def test_a_flax_module_that_cannot_be_hashed_is_known_by_identity():
    import flax.linen as nn

    module = nn.Sequential([nn.Dense(4), nn.relu, nn.Dense(2)])
    problem = jaxarch.supervised(
        module,
        (digits().x[:60, 18:26], (digits().y[:60] >= 5).astype(np.int32)),
        loss=optax.softmax_cross_entropy_with_integer_labels,
        optimizer=optax.sgd(0.1),
        steps=2,
    )
    network, _ = jaxarch.over_seeds(jaxarch.search.snip(0.5), keys(), problem)
    assert jax.vmap(jaxarch.density)(network.mask).tolist() == [0.5] * 3
