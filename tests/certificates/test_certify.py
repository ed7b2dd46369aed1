"""What is certified is true, and what cannot be is refused."""

import dataclasses
import itertools
import re
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from compilations import compilations
from flax import nnx
from jax.tree_util import Partial

import jaxarch
from jaxarch.certificates import Errors
from jaxarch.theory.generalization import binomial_upper, masked_bound
from jaxarch.theory.optimality import flip_slopes

D = 8
LOSS = optax.softmax_cross_entropy_with_integer_labels


def logits(params, x):
    return jnp.stack([jnp.zeros(len(x)), x @ params["w"][:, 0]], axis=1)


@cache
def linear(rows=200, validation=False):
    """Logistic regression over fixed weights: convex in the mask. Three inputs of eight matter."""
    x = jax.random.normal(jax.random.key(0), (rows + 100, D))
    y = (x[:, :3].sum(axis=1) + 0.3 * x[:, 7] > 0).astype(int)
    return jaxarch.supervised(
        (lambda key: {"w": jax.random.normal(key, (D, 1))}, logits),
        (x, y),
        loss=LOSS,
        optimizer=optax.adam(0.1),
        steps=20,
        train=jnp.arange(rows),
        validation=jnp.arange(rows, rows + 100) if validation else None,
    )


def masked(bits, weights=None):
    mask = {"w": jnp.asarray(bits, bool).reshape(D, 1)}
    weights = {"w": jnp.ones((D, 1))} if weights is None else weights
    return jaxarch.Network(jaxarch.masks.apply_mask(mask, weights), mask, {})


MASK = (1, 1, 0, 0, 0, 1, 0, 0)


@cache
def all_losses():
    vectors = jnp.array(list(itertools.product((0.0, 1.0), repeat=D)))
    values = jax.vmap(lambda v: linear().objective({"w": v[:, None]}, {}))(vectors)
    return dict(zip(map(tuple, np.asarray(vectors, int).tolist()), values.tolist(), strict=True))


@cache
def certificate():
    return jaxarch.certify(masked(MASK), linear(), convex=True, flips=D)


@pytest.mark.long
def test_on_a_convex_loss_no_mask_is_better_than_it_says():
    found = certificate()
    assert found.loss == pytest.approx(all_losses()[MASK], rel=1e-6)
    assert found.best_loss <= min(all_losses().values()) < found.loss


def softened(v):
    return {"w": jnp.asarray(v, jnp.float32).reshape(D, 1)}


@pytest.mark.long
def test_numbers_near_the_best_mask_bound_it_more_closely():
    v = (0.999, 0.999, 0.999, 0.001, 0.001, 0.001, 0.001, 0.3)
    found = jaxarch.certify(masked(MASK), linear(), convex=True, relaxed=softened(v), flips=D)
    least = min(all_losses().values())
    assert certificate().best_loss < found.best_loss <= least
    assert least - found.best_loss < 0.5 * (least - certificate().best_loss)


@pytest.mark.long
def test_numbers_far_from_it_bound_it_no_less_closely():
    v = [1 - bit for bit in MASK]
    found = jaxarch.certify(masked(MASK), linear(), convex=True, relaxed=softened(v), flips=D)
    assert found.gap == certificate().gap


@pytest.mark.long
def test_rounding_takes_nothing_from_the_gap():
    x = jax.random.normal(jax.random.key(0), (100, D))
    problem = jaxarch.supervised(
        (lambda key: {"w": jnp.ones((D, 1))}, lambda params, x: x @ params["w"]),
        (x, jnp.full((100, 1), 1000.0)),
        loss=optax.l2_loss,
        optimizer=optax.sgd(0.1),
        steps=1,
    )
    slopes = jax.grad(lambda params: problem.objective(params, {}))({"w": jnp.full((D, 1), 0.5)})["w"]
    best = masked((slopes < 0).astype(int).ravel())
    near = jnp.clip(best.mask["w"].astype(float), 1e-4, 1 - 1e-4)
    found = jaxarch.certify(best, problem, convex=True, relaxed={"w": near}, flips=D)
    assert found.gap >= 0
    assert found.best_loss <= found.loss


@pytest.mark.parametrize(
    ("relaxed", "convex", "words"),
    [
        (softened([0.5] * D), False, "convex"),
        (softened([1.5] * D), True, "0, 1"),
        ({"w": jnp.full((D,), 0.5)}, True, "shape"),
        ({"v": jnp.full((D, 1), 0.5)}, True, "relaxed"),
    ],
)
def test_numbers_that_say_nothing_of_masks_are_refused(relaxed, convex, words):
    with pytest.raises(jaxarch.ArgumentError, match=words):
        jaxarch.certify(masked(MASK), linear(), convex=convex, relaxed=relaxed, flips=0)


@pytest.mark.long
def test_the_flips_are_those_that_lower_the_loss():
    flipped = [tuple(b ^ (i == j) for j, b in enumerate(MASK)) for i in range(D)]
    changes = np.array([all_losses()[bits] for bits in flipped]) - all_losses()[MASK]
    found = certificate().flips
    assert (found.tried, found.allowed, found.better) == (D, D, (changes < 0).sum())
    assert found.connection == ("w", (int(changes.argmin()), 0))
    assert found.change == pytest.approx(changes.min(), rel=1e-4)
    assert not found.locally_optimal


def test_a_mask_is_locally_optimal_only_if_all_flips_were_tried():
    best = min(all_losses(), key=all_losses().get)
    assert jaxarch.certify(masked(best), linear(), flips=D).flips.locally_optimal
    assert not jaxarch.certify(masked(best), linear(), flips=D - 1).flips.locally_optimal


@pytest.mark.long
def test_the_second_certificate_of_a_problem_compiles_nothing():
    def above(threshold, outputs, y):
        return (outputs[:, 1] - outputs[:, 0] > threshold) != (y > 0)

    other = (1, 1, 1, 0, 0, 1, 0, 0)
    found = [
        jaxarch.certify(masked(MASK), linear(validation=True), wrong=Partial(above, threshold), flips=3)
        for threshold in (-1.0, 0.0)
    ]
    with compilations() as seen:
        again = jaxarch.certify(masked(other), linear(validation=True), wrong=Partial(above, 0.5), flips=3)
    assert seen == []
    assert again.loss != found[0].loss
    default = jaxarch.certify(masked(MASK), linear(validation=True), flips=3)
    assert found[0].training.errors != found[1].training.errors == default.training.errors


@pytest.mark.long
def test_the_flip_that_promises_most_is_tried_first():
    gradient = jax.grad(lambda w: linear().objective({"w": w}, {}))(masked(MASK).params["w"])
    slopes = flip_slopes(masked(MASK).mask, {"w": gradient})["w"]
    found = jaxarch.certify(masked(MASK), linear(), flips=1).flips
    assert found.connection == ("w", (int(slopes.argmin()), 0))


def test_errors_are_counted_and_bounded_by_the_mask_s_length():
    problem, network = linear(), masked(MASK)
    x, y = (np.asarray(part)[:200] for part in problem.data)
    errors = int(((x @ np.array(MASK) > 0) != y).sum())
    found = certificate().training
    assert (found.errors, found.examples) == (errors, 200)
    assert found.bound == masked_bound(errors, 200, network.mask)


def test_a_prior_from_other_rows_makes_the_bound_smaller_and_is_assumed():
    prior = {"w": jnp.where(jnp.asarray(MASK).reshape(D, 1) > 0, 0.9, 0.1)}
    found = jaxarch.certify(masked(MASK), linear(), flips=0, prior=prior)
    assert found.length == pytest.approx(-D * np.log(0.9), rel=1e-5)
    assert found.training.bound == masked_bound(
        found.training.errors, 200, masked(MASK).mask, 0.05, prior=prior
    )
    assert found.training.bound < certificate().training.bound
    assert any("prior" in line for line in found.assumptions)


def test_rows_that_were_held_out_give_a_bound_of_their_own():
    found = jaxarch.certify(masked(MASK), linear(validation=True), flips=0)
    assert found.held_out.examples == 100
    assert found.held_out.bound == binomial_upper(found.held_out.errors, 100, 0.05)
    assert found.held_out.bound < found.training.bound


@pytest.mark.long
def test_rows_a_few_at_a_time_say_the_same():
    whole, parts = certificate(), jaxarch.certify(masked(MASK), linear(), flips=D, batch_size=60)
    assert parts.training == whole.training
    assert parts.gap == pytest.approx(whole.gap, rel=1e-4)
    assert parts.flips.connection == whole.flips.connection


def test_weights_that_were_there_before_are_certified_and_no_others():
    weights = linear().init(jax.random.key(3))[0]
    network = masked(MASK, weights)
    assert "weights=" in jaxarch.certify(network, linear(), flips=0).why_not
    given = jaxarch.certify(network, linear(), weights=weights, flips=D)
    assert given.training is not None
    assert given.flips.allowed == D
    trained = network.replace(params={"w": network.params["w"] * 1.01})
    refused = jaxarch.certify(trained, linear(), weights=weights, flips=0)
    assert refused.training is None
    assert "'w'" in refused.why_not


def test_of_trained_weights_only_removals_are_tried_and_held_out_rows_still_count():
    network = masked(MASK, {"w": jnp.arange(1.0, D + 1)[:, None]})
    found = jaxarch.certify(network, linear(validation=True), flips=100)
    assert found.training is None
    assert found.held_out is not None
    assert found.flips.allowed == found.flips.tried == sum(MASK)


class Normalised(nnx.Module):
    def __init__(self, *, rngs):
        self.first, self.norm = nnx.Linear(D, 3, rngs=rngs), nnx.BatchNorm(3, rngs=rngs)

    def __call__(self, x):
        return self.norm(self.first(x))


@cache
def normalised():
    problem = dataclasses.replace(linear())
    return jaxarch.supervised(
        lambda rngs: Normalised(rngs=rngs),
        problem.data,
        loss=LOSS,
        optimizer=optax.adam(0.1),
        steps=1,
        train=problem.train,
    )


@cache
def weight_free():
    params, state = normalised().init(jax.random.key(0))
    mask = jax.tree.map(lambda leaf: jnp.ones(leaf.shape, bool), jaxarch.select(params))
    return jaxarch.Network(jaxarch.masks.weight_free(mask, params), mask, state)


@pytest.mark.long
def test_running_statistics_and_biases_that_have_seen_the_data_are_refused():
    network = weight_free()
    assert jaxarch.certify(network, normalised(), flips=0).training is not None
    seen = network.replace(state=jax.tree.map(lambda leaf: leaf + 0.1, network.state))
    assert "state" in jaxarch.certify(seen, normalised(), flips=0).why_not
    trained = jaxarch._internal.trees.unselected(
        network.mask, jax.tree.map(lambda leaf: leaf + 0.1, network.params)
    )
    moved = network.replace(params=jaxarch._internal.trees.merge(trained, network.params))
    assert "bias" in jaxarch.certify(moved, normalised(), flips=0).why_not


def test_examples_that_are_there_twice_are_no_independent_ones():
    twice = dataclasses.replace(linear(), train=jnp.array([0, 1, 1]))
    assert "twice" in jaxarch.certify(masked(MASK), twice, flips=0).why_not


def test_rows_that_were_trained_on_are_not_held_out():
    both = dataclasses.replace(linear(validation=True), validation=jnp.arange(150, 250))
    found = jaxarch.certify(masked(MASK), both, flips=0)
    assert found.held_out is None
    assert "training rows" in found.why_not_held_out


@pytest.mark.long
def test_what_is_counted_is_the_mask_over_the_weights_that_were_given():
    weights = {"w": jnp.ones((D, 1))}
    near = {"w": weights["w"] * (1 + 2 * jnp.finfo(jnp.float32).eps)}
    x = linear().data[0][:100].at[:, 0].set(1.0).at[:, 1].set(-1.0)
    # A single rounding of the weights decides every label.
    steep = (lambda key: weights, lambda params, x: logits({"w": jnp.roll(params["w"], 0)}, x))
    problem = jaxarch.supervised(
        steep, (x, jnp.zeros(100, int)), loss=LOSS, optimizer=optax.sgd(0.1), steps=1
    )
    found = masked((1, 1, 0, 0, 0, 0, 0, 0), {"w": near["w"].at[1].set(1.0)})
    assert jaxarch.certify(found, problem, weights=weights, flips=0).training.errors == 0
    assert logits(found.params, x)[:, 1].min() > 0


def test_other_labels_need_to_be_told_what_is_wrong():
    x = linear().data[0]
    signs = jnp.where(x[:, 0] > 0, 1.0, -1.0)
    problem = jaxarch.supervised(
        (lambda key: {"w": jax.random.normal(key, (D, 1))}, lambda params, x: (x @ params["w"])[:, 0]),
        (x, signs),
        loss=optax.l2_loss,
        optimizer=optax.sgd(0.1),
        steps=1,
    )
    first = masked((1, 0, 0, 0, 0, 0, 0, 0))
    assert "wrong=" in jaxarch.certify(first, problem, flips=0).why_not
    told = jaxarch.certify(first, problem, flips=0, wrong=lambda outputs, y: outputs * y <= 0)
    assert told.training.errors == 0


def bent(output, scale=1.0, dtype=jnp.float32):
    """Not convex in the mask."""
    x, y = linear().data
    return jaxarch.supervised(
        (lambda key: {"w": jnp.ones((D, 1), dtype)}, lambda params, x: output(x @ params["w"])[:, 0]),
        (x.astype(dtype), y.astype(dtype)),
        loss=lambda outputs, y: scale * optax.l2_loss(outputs, y),
        optimizer=optax.sgd(0.1),
        steps=1,
    )


def sine(z):
    return jnp.sin(3 * z)


def kink(z):
    """z/5, whose slope at 0 is 0 for JAX."""
    return jax.nn.relu(z / 5) - jax.nn.relu(-z / 5)


@pytest.mark.parametrize(
    ("output", "changes", "mask"),
    [
        (sine, {}, MASK),
        (sine, {"scale": 1e-4}, MASK),
        (sine, {"dtype": jnp.bfloat16}, MASK),
        (kink, {}, (0,) * D),
    ],
    ids=["wave", "small wave", "bfloat16", "kink at the mask"],
)
def test_a_loss_that_is_not_convex_or_has_no_slope_is_not_taken_for_convex(output, changes, mask):
    problem = bent(output, **changes)
    network = masked(mask, {"w": jnp.ones((D, 1), problem.data[0].dtype)})
    with pytest.raises(jaxarch.ArgumentError, match="convex"):
        jaxarch.certify(network, problem, convex=True)


@pytest.mark.long
def test_without_the_weights_that_come_back_nothing_is_said_of_other_masks():
    network = masked(MASK, {"w": jnp.full((D, 1), 2.0)})
    found = jaxarch.certify(network, linear(), convex=True, flips=D)
    assert not found.growing
    assert "no subset of this mask" in str(found)
    parts = [bits for bits in all_losses() if all(b <= m for b, m in zip(bits, MASK, strict=True))]
    losses = [float(linear().objective({"w": 2.0 * jnp.array(bits)[:, None]}, {})) for bits in parts]
    assert found.best_loss <= min(losses)


def test_what_is_printed_is_rounded_to_the_side_of_the_bound():
    found = certificate()
    printed = re.search(r"error on new data +at most (\S+) ", str(found))[1]
    assert found.training.bound <= float(printed) < found.training.bound * 1.001
    below = re.search(r"no mask has a loss below (\S+)", str(found))[1]
    assert found.best_loss * 0.999 < float(below) <= found.best_loss
    assert str(Errors(0, 100_000, 2.99572e-05)).startswith("at most 2.996e-05 ")


def test_who_chose_among_several_is_told_so():
    found = jaxarch.certify(masked(MASK), linear(), flips=0, choices=10)
    assert found.training.bound > certificate().training.bound
    assert "10 networks" in str(found)


def of_two_runs():
    return jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), masked(MASK))


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: jaxarch.certify(masked(MASK).replace(mask=None), linear()), "mask"),
        (lambda: jaxarch.certify(of_two_runs(), linear()), r"of_run\(0\)"),
        (
            lambda: jaxarch.certify(
                masked(MASK), dataclasses.replace(linear(), train=jnp.arange(6).reshape(2, 3))
            ),
            r"problem.of_run\(0\)",
        ),
        (lambda: jaxarch.certify(masked(MASK).params, linear()), "network"),
        (lambda: jaxarch.certify(masked(MASK), None), "problem"),
        (lambda: jaxarch.certify(masked(MASK), linear(), delta=0.0), "delta"),
        (lambda: jaxarch.certify(masked(MASK), linear(), choices=0), "choices"),
        (lambda: jaxarch.certify(masked(MASK), linear(), flips=-1), "flips"),
        (lambda: jaxarch.certify(masked(MASK), linear(), wrong="argmax"), "wrong"),
        (lambda: jaxarch.certify(masked(MASK), linear(), weights={"v": jnp.ones((D, 1))}), "weights"),
        (lambda: jaxarch.certify(masked(MASK), linear(), wrong=lambda o, y: (o[:, 0] != y).mean()), "wrong"),
        (lambda: jaxarch.certify(masked(MASK), linear(), wrong=lambda o, y: o != y[:, None]), "wrong"),
        (lambda: jaxarch.certify(masked(MASK, {"w": jnp.full((D, 1), jnp.nan)}), linear()), "nan"),
    ],
)
def test_what_cannot_be_certified_is_refused(call, named):
    with pytest.raises(jaxarch.ArgumentError, match=named):
        call()
