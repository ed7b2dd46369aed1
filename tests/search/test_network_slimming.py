"""Network slimming: L1 on the scales of batch norm, and the channels that the validation loss can spare."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from small import close, same, temporaries

import jaxarch
from jaxarch import ArgumentError
from jaxarch._internal.normalisation import scales_and_shifts


class Small(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(4, 12, use_bias=False, rngs=rngs)
        self.norm = nnx.BatchNorm(12, momentum=0.9, rngs=rngs)
        self.last = nnx.Linear(12, 1, rngs=rngs)

    def __call__(self, x):
        return self.last(nnx.relu(self.norm(self.first(x))))


X = jax.random.normal(jax.random.key(0), (300, 4))
Y = jnp.abs(X[:, :1])


def problem(model=Small, steps=400, **options):
    options = {"validation": np.arange(200, 300)} | options
    return jaxarch.supervised(
        model, (X, Y), loss=optax.squared_error, optimizer=optax.adam(1e-2), steps=steps, batch_size=50,
        train=np.arange(200), **options,
    )  # fmt: skip


def leaves(tree):
    """By path, as arrays."""
    return {path: jnp.asarray(leaf) for path, leaf in jaxarch.named_leaves(tree).items()}


@cache
def trainer(steps):
    """One program for all strengths."""
    learned = problem(steps=steps)
    return jax.jit(lambda strength: jaxarch.search.network_slimming(strength)(jax.random.key(0), learned))


@cache
def trained(strength, steps=400):
    return trainer(steps)(strength)


@pytest.mark.long
def test_one_step_of_descent_is_that_of_the_loss_plus_the_l1_norm_of_all_scales():
    plain = problem(steps=1)
    one = {"optimizer": optax.sgd(0.1), "steps": 1}
    free = jaxarch.search.network_slimming(0.0, **one)(jax.random.key(0), plain)
    held = jaxarch.search.network_slimming(0.5, **one)(jax.random.key(0), plain)
    moved = leaves(jax.tree.map(jnp.subtract, held.params, free.params))
    assert close(moved.pop("norm/scale"), jnp.full(12, -0.1 * 0.5), 1e-6)  # scales start at 1
    assert all(close(leaf, 0 * leaf, 1e-6) for leaf in moved.values())


@pytest.mark.long
def test_a_larger_strength_makes_scales_smaller():
    weak, strong = (leaves(trained(strength).params)["norm/scale"] for strength in (0.0, 1e-1))
    assert jnp.abs(strong).sum() < 0.5 * jnp.abs(weak).sum()


@pytest.mark.long
def test_channels_go_in_the_order_of_their_scales_and_the_curve_tells_the_loss_without_each():
    learned = problem()
    found = trained(1e-2)
    slim = jaxarch.slim(0.5)(jax.random.key(0), learned, found)
    removed = int(slim.info["removed"])
    assert 0 < removed < 12
    scale = jnp.abs(leaves(found.params)["norm/scale"])
    kept = leaves(slim.mask)["norm/scale"]
    assert scale[~kept].max() <= scale[kept].min()
    assert int(kept.sum()) == 12 - removed
    assert same(leaves(slim.mask)["norm/bias"], kept)
    loss = learned.objective(slim.params, slim.state, learned.validation)
    assert close(loss, slim.info["losses"][removed], 1e-6)
    assert loss <= 1.5 * slim.info["losses"][0]


@pytest.mark.long
def test_a_removed_channel_is_gone_whatever_its_weights_are():
    learned = problem()
    slim = jaxarch.slim(0.5)(jax.random.key(0), learned, trained(1e-2))
    gone = ~leaves(slim.mask)["norm/scale"]
    other = jax.tree.map(lambda leaf: leaf, slim.params)
    other["first"]["kernel"][...] = jnp.where(gone[None], 7.0, leaves(slim.params)["first/kernel"])
    losses = [learned.objective(params, slim.state, learned.validation) for params in (other, slim.params)]
    assert close(*losses, 1e-6)


@pytest.mark.long
def test_a_refit_leaves_removed_channels_at_0_and_lowers_the_loss():
    learned = problem()
    refit = jaxarch.retrain("warm", nonnegative=False, optimizer=optax.adam(1e-3))
    strategy = jaxarch.chain(jaxarch.search.network_slimming(1e-2), jaxarch.slim(0.5), refit)
    found, _ = jaxarch.over_seeds(strategy, jax.random.split(jax.random.key(0), 2), learned)
    kept = leaves(found.mask)["norm/scale"]
    assert (leaves(found.params)["norm/scale"][~kept] == 0).all()
    assert (leaves(found.params)["norm/bias"][~kept] == 0).all()
    for run in range(2):
        one = found.of_run(run)
        after = learned.objective(one.params, one.state, learned.validation)
        assert after < one.info["losses"][one.info["removed"]]


@pytest.mark.long
def test_bisection_looks_at_few_removals():
    slim = jaxarch.slim(0.5, removals="bisection")(jax.random.key(0), problem(), trained(1e-2))
    assert int(jnp.isfinite(slim.info["losses"]).sum()) <= 5


@pytest.mark.long
def test_losses_and_channels_are_the_same_by_batches_of_rows():
    found = trained(1e-2)
    whole = jaxarch.slim(0.5)(jax.random.key(0), problem(), found)
    for batch_size in (1, 30, 1000):  # of 100 rows
        parts = jaxarch.slim(0.5, batch_size=batch_size)(jax.random.key(0), problem(), found)
        assert close(parts.info["losses"], whole.info["losses"], 1e-5)
        assert same(leaves(parts.mask), leaves(whole.mask))


@pytest.mark.long
def test_many_runs_need_the_memory_of_a_batch_of_rows_and_not_of_all():
    learned = problem(validation=np.tile(np.arange(200, 300), 60))
    networks = jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), trained(1e-2, steps=1))
    whole, parts = (
        temporaries(jaxarch.slim(batch_size=batch_size), learned, networks) for batch_size in (None, 250)
    )
    assert parts < whole / 8


def test_what_is_slimmed_again_begins_with_what_is_gone():
    learned = problem()
    once = jaxarch.slim(0.1)(jax.random.key(0), learned, trained(1e-2))
    twice = jaxarch.slim(1.0)(jax.random.key(0), learned, once)
    assert (leaves(once.mask)["norm/scale"] | ~leaves(twice.mask)["norm/scale"]).all()
    assert close(twice.info["losses"][once.info["removed"]], twice.info["losses"][0], 1e-6)


def test_scales_stand_with_the_shifts_beside_them():
    params = {"norm": {"scale": jnp.ones(3), "bias": jnp.ones(3)}, "last": {"bias": jnp.ones(2)}}
    assert list(jaxarch.named_leaves(scales_and_shifts(params))) == ["norm/bias", "norm/scale"]
    without = {"norm": {"scale": jnp.ones(3)}}
    assert list(jaxarch.named_leaves(scales_and_shifts(without))) == ["norm/scale"]


WRONG = {
    "strength": (lambda: jaxarch.search.network_slimming(-1.0), "strength: expected a finite number"),
    "tolerance": (lambda: jaxarch.slim(-1.0), "tolerance: expected a finite number"),
    "removals": (lambda: jaxarch.slim(removals="some"), "removals: expected 'all' or 'bisection'"),
    "no rows": (lambda: jaxarch.slim(batch_size=0), "batch_size: expected an integer of at least 1"),
    "half a row": (lambda: jaxarch.slim(batch_size=0.5), "batch_size: expected an integer of at least 1"),
    "no scales": (
        lambda: jaxarch.search.network_slimming()(
            jax.random.key(0), problem(lambda rngs: nnx.Linear(4, 1, rngs=rngs))
        ),
        "where: no leaf is selected",
    ),
    "matrices": (
        lambda: jaxarch.search.network_slimming(where="*kernel")(jax.random.key(0), problem()),
        "where: expected scales, one number per channel, but 'first/kernel' has shape",
    ),
    "no validation rows": (
        lambda: jaxarch.chain(jaxarch.search.network_slimming(), jaxarch.slim())(
            jax.random.key(0), problem(validation=None)
        ),
        "validation: slim needs",
    ),
}


@pytest.mark.parametrize(("call", "message"), WRONG.values(), ids=WRONG)
def test_what_it_does_not_take_is_named(call, message):
    with pytest.raises(ArgumentError, match=message):
        call()
