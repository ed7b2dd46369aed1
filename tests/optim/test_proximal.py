"""Proximal steps: exact zeros under any optimiser, at the minimum of loss and penalty."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from sklearn.linear_model import Lasso

import jaxarch
from jaxarch.optim import proximal

OPTIMIZERS = {
    "gradient descent": lambda: optax.sgd(0.1),
    "momentum": lambda: optax.sgd(0.05, momentum=0.9),
    "adam": lambda: optax.adam(optax.exponential_decay(1e-2, 100, 0.9)),
    "rmsprop": lambda: optax.rmsprop(optax.exponential_decay(1e-2, 100, 0.9)),
    "adagrad": lambda: optax.adagrad(0.3),
    "lion": lambda: optax.lion(optax.exponential_decay(1e-2, 100, 0.9)),
    "lbfgs": lambda: optax.lbfgs(),
}


def soft(values, threshold):
    return np.sign(values) * np.maximum(np.abs(values) - threshold, 0)


def moved(tx, theta, *gradients):
    """The parameters after some gradients."""
    state = tx.init(theta)
    for gradient in gradients:
        updates, state = tx.update(gradient, state, theta)
        theta = optax.apply_updates(theta, updates)
    return theta


def regression():
    """Features, and targets of three of them with noise."""
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 12))
    return x, x[:, :3] @ [2.0, -1.0, 0.5] + 0.3 * random.normal(size=60)


def minimum(tx, start, steps=5000):
    """Where an optimiser ends on the regression, for weights in groups of four."""
    x, y = (jnp.asarray(values, jnp.float32) for values in regression())

    def loss(theta):
        return jnp.mean(jnp.square(x @ jnp.concatenate([theta["a"], theta["b"], theta["c"]]) - y)) / 2

    def step(_, carry):
        theta, state = carry
        value, gradient = jax.value_and_grad(loss)(theta)
        updates, state = tx.update(gradient, state, theta, value=value, grad=gradient, value_fn=loss)
        return optax.apply_updates(theta, updates), state

    run = jax.jit(lambda theta: jax.lax.fori_loop(0, steps, step, (theta, tx.init(theta)))[0])
    theta = jax.device_get(run(start))
    return np.concatenate([theta[name] for name in "abc"]), jax.device_get(jax.grad(loss)(theta))


ONES = {name: jnp.ones(4) for name in "abc"}


# The step --------------------------------------------------------------------------------------------


@pytest.mark.long
def test_gradient_descent_takes_the_proximal_step():
    theta = np.asarray([0.0, 0.0, 0.5, -0.5, 0.01], np.float32)
    gradient = np.asarray([0.7, 2.0, -3.0, 0.2, 0.3], np.float32)
    tx = proximal(optax.sgd(0.1), l1=1.0, decay=0.0, where="w")
    after = moved(tx, {"w": jnp.asarray(theta)}, {"w": jnp.asarray(gradient)})["w"]
    np.testing.assert_allclose(after, soft(theta - 0.1 * gradient, 0.1), rtol=1e-5)
    assert after.tolist()[0] == after.tolist()[-1] == 0


@pytest.mark.long
def test_a_step_past_0_ends_there_and_goes_on():
    tx = proximal(optax.sgd(0.1), l1=1.0, decay=0.0, where="w")
    theta, gradient = {"w": jnp.asarray([0.1])}, {"w": jnp.asarray([9.0])}
    assert moved(tx, theta, gradient)["w"].tolist() == [0]
    np.testing.assert_allclose(moved(tx, theta, gradient, gradient)["w"], [-0.1 * (9 - 1)], rtol=1e-5)


@pytest.mark.parametrize(
    ("theta", "after"),
    [
        ([0.0, 0.0], [-1.5, -2.0]),  # (3, 4) shrunk by 2.5, of its norm 5
        ([6.0, 8.0], [6 - 3 - 1.5, 8 - 4 - 2]),  # the penalty's slope is 2.5 (.6, .8)
        ([0.3, 0.4], [0.0, 0.0]),  # the step leads past 0
        ([3.0, -1.0], [0.0, 0.0]),  # to (-2.37, -4.21), and <theta, theta'> is below 0
        ([30.0, 0.0], [27 - 2.5, -4.0]),  # an entry passes 0 if its leaf does not
    ],
)
def test_a_group_moves_and_vanishes_as_a_whole(theta, after):
    tx = proximal(optax.sgd(1.0), l2=2.5, decay=0.0, where="w")
    found = moved(tx, {"w": jnp.asarray(theta)}, {"w": jnp.asarray([3.0, 4.0])})["w"]
    np.testing.assert_allclose(found, after, rtol=1e-5)


@pytest.mark.long
def test_what_is_0_leaves_it_by_the_mean_of_gradients():
    theta, still, ahead, back = {"w": jnp.zeros(1)}, *({"w": jnp.asarray([g])} for g in (0.0, 1.0, -1.0))
    noise = [still] * 30 + [ahead, back] * 10 + [ahead]
    by_mean = proximal(optax.sgd(0.1), l1=0.2, where="w")
    by_each = proximal(optax.sgd(0.1), l1=0.2, decay=0.0, where="w")
    assert moved(by_mean, theta, *noise)["w"].tolist() == [0]
    assert moved(by_each, theta, *noise)["w"].tolist() != [0]
    # The mean is of the gradients alone, not of zeros before them: of 1, then of 0 and 1 (weights .99 and 1).
    np.testing.assert_allclose(moved(by_mean, theta, ahead)["w"], [-0.1 * (1 - 0.2)], rtol=1e-5)
    second = moved(by_mean, theta, still, ahead)["w"]
    np.testing.assert_allclose(second, [-0.1 * (1 / 1.99 - 0.2)], rtol=1e-5)


@pytest.mark.long
def test_the_mean_of_gradients_of_half_precision_is_held_in_float32():
    # Shares of a hundredth are lost in bfloat16, where a mean that nears .5 from 0 stays at .4.
    tx, still = proximal(optax.sgd(0.1), l1=0.45, where="w"), {"w": jnp.zeros(1, jnp.bfloat16)}

    def mean(state, gradient):
        return tx.update({"w": gradient}, state, still)[1], None

    gradients = jnp.concatenate([jnp.zeros((300, 1)), jnp.full((600, 1), 0.5)]).astype(jnp.bfloat16)
    state, _ = jax.lax.scan(mean, tx.init(still), gradients)
    ahead, _ = tx.update({"w": gradients[-1]}, state, still)
    assert ahead["w"].dtype == jnp.bfloat16
    assert ahead["w"] < 0


def test_other_leaves_and_strengths_of_0_are_the_optimiser_s_alone():
    theta = {"w": jnp.asarray([0.1, 0.0]), "b": jnp.asarray([0.1])}
    gradient = {"w": jnp.asarray([3.0, -1.0]), "b": jnp.asarray([3.0])}
    plain = moved(optax.adam(0.5), theta, gradient)
    for tx in (proximal(optax.adam(0.5), where="w"), proximal(optax.adam(0.5), l1=9.0, where="b")):
        assert moved(tx, theta, gradient)["w"].tolist() == plain["w"].tolist()
    assert moved(proximal(optax.adam(0.5), l1=9.0, where="w"), theta, gradient)["b"] == plain["b"]


# Where it comes to rest ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimiser_ends_at_the_lasso_of_scikit_learn_with_its_zeros(name):
    expected = Lasso(alpha=0.2, fit_intercept=False, tol=1e-4).fit(*regression()).coef_
    found, _ = minimum(proximal(OPTIMIZERS[name](), l1=0.2, where="*"), ONES)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert ((found == 0) == (expected == 0)).all()
    assert (found == 0).sum() > 4


@pytest.mark.parametrize("l1", [0.0, 0.1])
@pytest.mark.parametrize("name", ["gradient descent", "adam"])
def test_groups_end_where_karush_kuhn_and_tucker_say(name, l1):
    found, gradient = minimum(proximal(OPTIMIZERS[name](), l1=l1, l2=0.2, where="*"), ONES)
    groups = dict(zip("abc", np.split(found, 3), strict=True))
    assert not groups["b"].any()
    assert not groups["c"].any()
    for group in "bc":
        assert np.linalg.norm(soft(gradient[group], l1)) <= 0.2
    inside, slope = groups["a"], gradient["a"] + 0.2 * groups["a"] / np.linalg.norm(groups["a"])
    assert (inside == 0).any() == (l1 > 0)
    np.testing.assert_allclose(slope[inside != 0], -l1 * np.sign(inside[inside != 0]), atol=2e-4)
    assert (np.abs(slope[inside == 0]) <= l1).all()


@pytest.mark.long
def test_strengths_are_of_each_leaf_by_its_path_or_its_end_and_may_be_traced():
    theta = {"head": {"L2": jnp.zeros(1), "L3": jnp.zeros(1)}}
    gradient = jax.tree.map(lambda leaf: leaf + 3.0, theta)

    @jax.vmap
    def after(one):
        tx = proximal(optax.sgd(1.0), l1={"L2": one, "head/L3": 2 * one}, decay=0.0, where="*")
        return moved(tx, theta, gradient)

    found = after(jnp.asarray([0.0, 1.0, 2.0]))["head"]
    assert found["L2"][:, 0].tolist() == [-3, -2, -1]
    assert found["L3"][:, 0].tolist() == [-3, -1, 0]


@pytest.mark.long
def test_it_works_on_a_part_of_the_leaves_and_in_a_flax_optimiser():
    theta = {"w": jnp.full(2, 0.05), "b": jnp.ones(1)}
    parts = optax.multi_transform(
        {"some": proximal(optax.sgd(0.1), l1=1.0, where="w"), "others": optax.sgd(0.1)},
        {"w": "some", "b": "others"},
    )
    after = moved(parts, theta, jax.tree.map(jnp.ones_like, theta))
    assert [leaf.tolist() for leaf in (after["w"], after["b"])] == [[0, 0], [pytest.approx(0.9)]]
    model = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, proximal(optax.sgd(1.0), l1=9.0, where="kernel"), wrt=nnx.Param)
    optimizer.update(model, jax.tree.map(jnp.zeros_like, nnx.state(model, nnx.Param)))
    assert not model.kernel[...].any()


def test_a_line_search_sees_loss_and_penalty():
    seen = {}

    def update(gradient, state, params, *, value, grad, value_fn):
        seen.update(value=value, grad=grad, at=value_fn(jax.tree.map(lambda leaf: leaf - 1, params)))
        return gradient, state

    tx = proximal(optax.GradientTransformationExtraArgs(optax.identity().init, update), 2.0, 10.0, where="w")
    theta, gradient = {"w": jnp.asarray([3.0, -4.0])}, {"w": jnp.asarray([1.0, 1.0])}
    value_fn = lambda theta: theta["w"].sum()  # noqa: E731
    tx.update(gradient, tx.init(theta), theta, value=-1.0, grad=gradient, value_fn=value_fn)
    assert float(seen["value"]) == -1 + 2 * 7 + 10 * 5
    assert float(seen["at"]) == pytest.approx(-3 + 2 * 7 + 10 * 29**0.5)
    np.testing.assert_allclose(seen["grad"]["w"], [1 + 2 + 6, 1 - 2 - 8], rtol=1e-6)


def test_what_is_not_a_number_is_not_hidden_by_a_0():
    for theta in (0.0, 1.0):
        for strengths in ({"l1": 1.0}, {"l2": 1.0}):
            tx = proximal(optax.sgd(1.0), **strengths, where="w")
            after = moved(tx, {"w": jnp.full(2, theta)}, {"w": jnp.asarray([jnp.nan, 0.0])})["w"]
            assert jnp.isnan(after[0])


def test_tiny_leaves_have_norms():
    tx = proximal(optax.sgd(1e-30), l2=1.0, decay=0.0, where="w")
    theta = {"w": jnp.asarray([3e-30, 4e-30])}
    after = moved(tx, theta, {"w": jnp.zeros(2)})["w"]
    np.testing.assert_allclose(after, [2.4e-30, 3.2e-30], rtol=1e-5)


# Bad input -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: proximal(optax.sgd(1), -1.0), "l1: expected a finite number of at least 0"),
        (lambda: proximal(optax.sgd(1), l2=np.nan), "l2: expected a finite number of at least 0"),
        (lambda: proximal(optax.sgd(1), {"w": -1.0}), "l1 of 'w': expected a finite number"),
        (lambda: proximal(optax.sgd(1), np.ones(2)), r"l1: expected one number, got shape \(2,\)"),
        (lambda: proximal(optax.sgd(1), decay=1.0), r"decay: expected a number in \[0, 1\), got 1.0"),
        (
            lambda: proximal(optax.sgd(1), {"v": 1.0}, where="*").init({"w": jnp.ones(1)}),
            "l1: no leaf 'v'; known: w",
        ),
        (
            lambda: proximal(optax.sgd(1), {"w": 1.0}, where="*").init({"w": jnp.ones(1), "v": jnp.ones(1)}),
            "l1: expected a value for each leaf, got none for 'v'",
        ),
        (
            lambda: proximal(optax.sgd(1), {"w": 1.0}, where="*").init({"w": jnp.ones(1), "v": jnp.ones(1)}),
            "l1: expected a value for each leaf, got none for 'v'",
        ),
        (
            lambda: proximal(optax.sgd(1), {"w": 1.0, "u": 2.0}, where="*").init({"w": jnp.ones(1)}),
            "l1: no leaf 'u'; known: w",
        ),
        (
            lambda: proximal(optax.sgd(1), {"w": 1.0, "b/w": 2.0}, where="*").init(
                {"a": {"b": {"w": jnp.ones(1)}}}
            ),
            "l1: leaf 'a/b/w' is named twice, by 'w' and 'b/w'",
        ),
        (
            lambda: proximal(optax.sgd(1), where="v").init({"w": jnp.ones(1)}),
            "where: no leaf is selected by 'v'",
        ),
        (
            lambda: proximal(optax.sgd(1), where="w").update(
                {"w": jnp.ones(1)}, proximal(optax.sgd(1), where="w").init({"w": jnp.ones(1)})
            ),
            "params: proximal needs the parameters",
        ),
    ],
)
def test_bad_input_is_refused_in_one_line_that_names_the_argument(make, message):
    with pytest.raises(jaxarch.ArgumentError, match=message) as raised:
        make()
    assert "\n" not in str(raised.value)
