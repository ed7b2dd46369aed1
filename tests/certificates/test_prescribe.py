"""Settings by theorem: each is what its theorem says, and what no theorem says is not set."""

import dataclasses
import re
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import problem as of_four_runs
from small import same

import jaxarch
from jaxarch.certificates._curvature import look
from jaxarch.lab.claims import CLAIMS
from jaxarch.masks import clip_scores
from jaxarch.run import _training as training
from jaxarch.search import two_temperature
from jaxarch.theory import mirror
from jaxarch.theory.optimality import duality_gap

KEY = jax.random.key(3)
D = 6


def model(activation=None):
    """Linear in the mask, or with a hidden layer."""

    def init(key):
        first, second = jax.random.split(key)
        hidden = {"first": jax.random.normal(first, (D, 20)), "second": jax.random.normal(second, (20, 1))}
        return hidden if activation else {"w": jax.random.normal(first, (D, 1))}

    def apply(params, x):
        return activation(x @ params["first"]) @ params["second"] if activation else x @ params["w"]

    return init, apply


@cache
def learning(activation=None, loss=optax.l2_loss, steps=300, rows=40):
    x = jax.random.normal(jax.random.key(0), (rows, D))
    y = (x[:, :1] * x[:, 1:2] > 0).astype(jnp.float32)
    return jaxarch.supervised(
        model(activation),
        (x, y),
        loss=lambda outputs, y: loss(outputs, y)[:, 0],
        optimizer=optax.adam(0.1),
        steps=steps,
        batch_size=10,
    )


def curvature(problem):
    """The largest eigenvalue of the Hessian of F in the mask over weights of 1."""
    x = np.asarray(problem.data[0], np.float64)
    return np.linalg.eigvalsh(x.T @ x / len(x)).max()


def lines(prescription):
    return {line.name: line for line in prescription.lines}


@pytest.mark.long
def test_the_curvature_of_a_quadratic_is_found_and_the_rate_is_that_of_the_descent_theorem():
    found = jaxarch.prescribe(two_temperature(40.0, 2.0), KEY, learning())
    expected = 16 / (curvature(learning()) * 40.0 * 2.0)
    assert found.rate == pytest.approx(expected, rel=1e-3)
    assert found.rate >= expected * (1 - 1e-5)
    assert (found.hard, found.soft, found.estimated) == (40.0, 2.0, ("L",))
    assert "L may be larger at other masks" in str(found)


@pytest.mark.long
def test_the_curvature_is_the_largest_of_either_sign_at_any_of_the_masks():
    # F = sum_i cos(c_i v_i): the Hessian is diagonal, -c_i^2 cos(c_i v_i).
    c = jnp.array([1.0, -2.0, 3.0])
    start = jnp.zeros(3)
    found = look(lambda v: jnp.sum(jnp.cos(c * v)), start, KEY, 1, 50)
    assert found.smoothness == pytest.approx(9.0, rel=1e-5)
    more = look(lambda v: jnp.sum(jnp.exp(c * v)), start, KEY, 8, 50)
    assert 9 * 1.5 < more.smoothness <= 9 * np.exp(3) * (1 + 1e-5)
    assert more.largest_sum > 6
    assert max(found.jumps, more.jumps) < 1e-3


@pytest.mark.long
def test_the_ratio_of_the_temperatures_is_lowered_to_its_limit_and_never_raised():
    for soft, expected in ((50.0, 3.125), (5.0, 3.125), (1.0, 1.0)):
        found = jaxarch.prescribe(two_temperature(50.0, soft), KEY, learning(), smoothness=3.0)
        assert (found.soft, found.search.settings.soft) == (expected, expected)
        assert found.rate == pytest.approx(16 / (3.0 * 50.0 * expected))


@pytest.mark.long
def test_with_the_smoothness_given_and_no_clip_nothing_is_a_heuristic():
    found = jaxarch.prescribe(two_temperature(), KEY, learning(), smoothness=10.0)
    assert (found.estimated, found.search.settings.clip) == ((), None)
    assert "heuristic" not in str(found)
    assert lines(found)["L"].why == "given"


@pytest.mark.long
def test_no_step_of_the_prescribed_search_raises_the_loss_of_a_smooth_network():
    search = two_temperature(weights="initial", mean=0.0, std=1.0)
    problem = learning(jnp.tanh)
    found = jaxarch.prescribe(search, KEY, problem)
    losses = found.search(KEY, problem).info["loss"]
    assert losses.shape == (300,)
    assert (np.diff(losses) <= 1e-6).all()
    assert losses[-1] < 0.9 * losses[0]
    # At a rate 30 times as large it does not go down all the way.
    faster = two_temperature(
        50.0,
        found.soft,
        weights="initial",
        mean=0.0,
        std=1.0,
        optimizer=optax.sgd(30 * found.rate),
        batch_size=None,
    )
    assert (np.diff(faster(KEY, problem).info["loss"]) > 1e-6).any()


@pytest.mark.long
def test_all_else_of_the_search_stays_as_it_was():
    search = two_temperature(20.0, 10.0, weights="initial", where="w", mean=0.5, std=2.0, steps=7)
    found = jaxarch.prescribe(search, KEY, learning())
    expected = dataclasses.replace(search.settings, soft=20.0 / 16)
    assert found.search.settings == expected
    descent = found.search.on(learning()).descent
    assert (descent.steps, descent.batch_size) == (7, None)


@pytest.mark.long
def test_without_its_factor_the_search_takes_the_same_steps():
    runs = []
    for factor in (True, False):
        search = two_temperature(factor=factor, mean=0.0, std=1.0)
        runs.append(jaxarch.prescribe(search, KEY, learning(), smoothness=5.0).search(KEY, learning()))
    np.testing.assert_allclose(runs[0].info["loss"], runs[1].info["loss"], rtol=1e-4)


@pytest.mark.long
def test_the_clip_is_the_prescribed_one_and_the_gap_is_bounded_as_it_says():
    problem = learning(steps=20_000)
    search = two_temperature(mean=0.0, std=1.0)
    L = 1.01 * curvature(problem)
    unclipped = jaxarch.prescribe(search, KEY, problem, smoothness=L)
    assert (unclipped.search.settings.clip, unclipped.bound, unclipped.estimated) == (None, None, ())
    found = jaxarch.prescribe(search, KEY, problem, smoothness=L, clip=True)
    assert (found.clip, found.estimated) == (unclipped.clip, ("G_1",))
    assert found.search.settings.clip == found.clip
    x, y = problem.data

    def objective(v):
        return jnp.mean((x @ v - y[:, 0]) ** 2) / 2

    start = training.begin(found.search, KEY, problem, None).state.trainable["w"]
    assert same(start, clip_scores(start, found.clip, 50.0))

    def step(w, _):
        v, pull = jax.vjp(lambda w: jaxarch.masks.two_temperature(w, 50.0, found.soft), w[:, 0])
        g = jax.grad(objective)(v)
        return clip_scores(w - found.rate * pull(g)[0][:, None], found.clip, 50.0), (duality_gap(v, g), g)

    end, (gaps, gradients) = jax.lax.scan(step, start, None, length=20_000)
    assert gaps.min() <= found.bound < gaps[0]
    largest = float(lines(found)["G_1"].value)
    assert jnp.abs(gradients).sum(axis=1).max() <= 1.01 * largest
    drop = objective(jax.nn.sigmoid(50.0 * start[:, 0]))
    given = {"connections": D, "largest_sum": largest, "steps": 20_000}
    expected = mirror.clipped_descent_bound(
        drop, found.clip, found.rate * 0.999, 50.0, found.soft, smoothness=L, **given
    )
    assert found.bound == pytest.approx(float(expected), rel=0.01)
    # The search itself takes these steps.
    network = found.search(KEY, problem)
    np.testing.assert_allclose(network.info["scores"]["w"], end, rtol=1e-3, atol=1e-5)


@pytest.mark.long
def test_too_few_steps_prescribe_no_clip_and_say_how_many_would():
    few = jaxarch.prescribe(two_temperature(mean=0.0, std=1.0, steps=10), KEY, learning(), smoothness=10.0)
    assert few.clip is None
    number = int(re.search(r"about ([\d,]+) would", lines(few)["clip"].why)[1].replace(",", ""))
    enough = two_temperature(mean=0.0, std=1.0, steps=number)
    assert jaxarch.prescribe(enough, KEY, learning(), smoothness=10.0).clip is not None
    half = two_temperature(mean=0.0, std=1.0, steps=number // 2)
    assert jaxarch.prescribe(half, KEY, learning(), smoothness=10.0).clip is None


@pytest.mark.long
def test_a_search_for_a_density_is_not_clipped():
    search = two_temperature(density=0.5, steps=10**6)
    found = jaxarch.prescribe(search, KEY, learning(), smoothness=3.0, clip=True)
    assert (found.clip, found.search.settings.density) == (None, 0.5)


@pytest.mark.long
@pytest.mark.parametrize(
    "activation", [jax.nn.relu, jnp.abs, lambda x: jnp.round(x) + x], ids=["relu", "abs", "round"]
)
def test_where_the_gradient_jumps_no_rate_is_set(activation):
    search = two_temperature(weights="initial", mean=0.0, std=1.0)
    found = jaxarch.prescribe(search, KEY, learning(activation))
    assert (found.rate, found.clip, found.bound) == (None, None, None)
    assert "there is no L" in lines(found)["rate"].why
    assert found.search.settings == dataclasses.replace(search.settings, soft=50.0 / 16)
    assert found.search.on(learning(activation)).descent.batch_size == 10


@pytest.mark.long
@pytest.mark.parametrize(
    "activation", [jnp.tanh, jax.nn.gelu, jnp.sin, lambda x: x], ids=["tanh", "gelu", "sin", "linear"]
)
def test_where_it_does_not_jump_one_is(activation):
    search = two_temperature(weights="initial", mean=0.0, std=1.0)
    assert jaxarch.prescribe(search, KEY, learning(activation)).rate is not None


LOGISTIC = partial(learning, None, optax.sigmoid_binary_cross_entropy)


@pytest.mark.long
def test_on_a_convex_loss_the_rate_is_the_prescribed_one_of_the_certified_gradient():
    search = two_temperature(mean=0.0, std=1.0)
    found = jaxarch.prescribe(search, KEY, LOGISTIC(), convex=True)
    scores = training.begin(search, KEY, LOGISTIC(), None).state.trainable["w"]
    distance = mirror.vertex_distance(-jnp.abs(scores), 50.0, found.soft).sum()
    G = float(lines(found)["G"].value)
    true = float(jnp.linalg.norm(LOGISTIC().data[0], axis=1).max())
    assert 0.5 * true <= G <= 1.001 * true
    expected = mirror.prescribed_rate(distance, 50.0, found.soft, gradient_bound=G, steps=300)
    assert found.rate == pytest.approx(float(expected), rel=1e-3)
    assert found.estimated == ()
    descent = found.search.on(LOGISTIC()).descent
    assert (descent.batch_size, descent.sampling) == (10, "independent")
    known = jaxarch.prescribe(search, KEY, LOGISTIC(), convex=True, gradient_bound=2 * G)
    assert known.rate == pytest.approx(found.rate / 2, rel=1e-3)
    bound = mirror.last_iterate_bound(distance, known.rate, 50.0, found.soft, gradient_bound=2 * G, steps=300)
    assert known.bound == pytest.approx(float(bound), rel=1e-4)


@pytest.mark.long
def test_a_loss_that_is_not_convex_is_refused_as_convex():
    search = two_temperature(weights="initial", mean=0.0, std=1.0)
    with pytest.raises(jaxarch.ArgumentError, match="convex: the loss is not convex in the mask"):
        jaxarch.prescribe(search, KEY, learning(jnp.tanh), convex=True)


@pytest.mark.long
@pytest.mark.parametrize(
    ("activation", "message"),
    [(jnp.tanh, "the curvature that was found, .*, got 0.001"), (jax.nn.relu, "jumps")],
)
def test_a_smoothness_that_is_seen_to_be_wrong_is_refused(activation, message):
    search = two_temperature(weights="initial", mean=0.0, std=1.0)
    with pytest.raises(jaxarch.ArgumentError, match=f"smoothness: .*{message}"):
        jaxarch.prescribe(search, KEY, learning(activation), smoothness=0.001)


@pytest.mark.long
def test_every_theorem_that_is_named_is_a_claim():
    said = [
        str(jaxarch.prescribe(two_temperature(), KEY, LOGISTIC(), convex=convex)) for convex in (False, True)
    ]
    named = set(re.findall(r"\((two-temperature\.[\w-]+)\)", "\n".join(said)))
    assert len(named) == 6
    assert named <= set(CLAIMS)
    for text in said:
        column = text.index("at most hard/16")
        assert all(re.fullmatch(r".*  \S", line[: column + 1]) for line in text.splitlines())


@pytest.mark.parametrize(
    ("search", "changes", "message"),
    [
        (jaxarch.search.dense(), {}, "search: expected jaxarch.search.two_temperature"),
        (two_temperature(units="2:4"), {}, "search: the theorems do not cover N:M units"),
        (two_temperature(clip=0.1), {}, "search: the theorems do not cover its own clip"),
        (two_temperature(penalty=jnp.sum), {}, "search: the theorems do not cover its own penalty"),
        (two_temperature(optax.constant_schedule(50.0)), {}, "search: its hard is a function of the step"),
        (two_temperature(), {"lowest": 1e6}, "lowest: expected a lower bound of the loss, which starts at "),
        (two_temperature(), {"smoothness": 0.0}, "smoothness: expected a positive finite number"),
        (two_temperature(), {"masks": 0}, "masks: expected an integer of at least 1"),
        (two_temperature(), {"convex": 1}, "convex: expected True or False"),
        (
            two_temperature(units=(2, 1)),
            {"convex": True},
            "gradient_bound: it is computed only for masks of single",
        ),
    ],
    ids=[
        "another search",
        "N:M",
        "clip",
        "penalty",
        "schedule",
        "lowest",
        "smoothness",
        "masks",
        "convex",
        "units",
    ],
)
def test_what_no_theorem_speaks_of_is_refused(search, changes, message):
    with pytest.raises(jaxarch.ArgumentError, match=message):
        jaxarch.prescribe(search, KEY, learning(), **changes)


def test_problems_of_many_runs_and_traced_temperatures_are_refused():
    with pytest.raises(
        jaxarch.ArgumentError, match=r"problem: each run has its own rows; pass the problem of one run"
    ):
        jaxarch.prescribe(two_temperature(), KEY, of_four_runs())
    with pytest.raises(jaxarch.ArgumentError, match="search: its hard is traced"):
        jax.jit(lambda hard: jaxarch.prescribe(two_temperature(hard), KEY, learning()).rate)(50.0)
