"""Pruned weights stay exactly 0 under any optimiser, in any loop."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from small import same

import jaxarch
from jaxarch.masks import apply_mask
from jaxarch.optim import check_held, find_mask, hold

X = jax.random.normal(jax.random.key(0), (40, 6))
Y = jnp.sin(X @ jnp.arange(1.0, 7.0))


def init():
    first, second, third = jax.random.split(jax.random.key(1), 3)
    return {
        "hidden": {"kernel": jax.random.normal(first, (6, 8)), "bias": jnp.zeros(8)},
        "head": {"kernel": jax.random.normal(second, (8, 1)), "bias": jax.random.normal(third, (1,))},
    }


def loss(params, x=X, y=Y):
    hidden = jnp.tanh(x @ params["hidden"]["kernel"] + params["hidden"]["bias"][None])
    return jnp.mean(((hidden @ params["head"]["kernel"] + params["head"]["bias"][None])[:, 0] - y) ** 2)


def half():
    """A mask of half of the connections."""
    drawn = jaxarch.masks.init_scores(jax.random.key(2), jaxarch.select(init()), 0.0, 1.0)
    return jaxarch.masks.keep(drawn, 0.5, per="leaf")


def decayed(optimizer, last):
    return optax.chain(optax.clip_by_global_norm(1.0), optax.add_decayed_weights(1e-2), optimizer, last)


def slow(params, state):
    return params


PLAIN = {
    "sgd with momentum": lambda: optax.sgd(0.05, momentum=0.9),
    "adam": lambda: optax.adam(1e-2),
    "adamw": lambda: optax.adamw(1e-2, weight_decay=1e-2),
    "lion": lambda: optax.lion(1e-3),
    "lamb": lambda: optax.lamb(1e-2),
    "adafactor": lambda: optax.adafactor(1e-2, min_dim_size_to_factor=4),
    "rmsprop": lambda: optax.rmsprop(1e-2, momentum=0.9),
    "nadamw": lambda: optax.nadamw(1e-2),
    "radam": lambda: optax.radam(1e-2),
}
WRAPPED = {
    "noise": lambda last: optax.chain(optax.sgd(0.05), optax.add_noise(0.1, 0.5, jax.random.key(0)), last),
    "MultiSteps": lambda last: optax.MultiSteps(
        decayed(optax.adamw(1e-2), last), 3
    ).gradient_transformation(),
    "apply_if_finite": lambda last: optax.apply_if_finite(decayed(optax.adamw(1e-2), last), 3),
    "inject_hyperparams": lambda last: decayed(
        optax.inject_hyperparams(optax.adamw)(optax.cosine_decay_schedule(1e-2, 500)), last
    ),
    "schedule_free": lambda last: optax.contrib.schedule_free(decayed(optax.adamw(1e-2), last), 1e-2, b1=0.9),
    "sam": lambda last: optax.chain(
        optax.contrib.sam(
            decayed(optax.sgd(0.05), optax.identity()),
            optax.chain(optax.contrib.normalize(), optax.sgd(0.05)),
            sync_period=2,
        ),
        last,
    ),
    "a part of the tree": lambda last: optax.multi_transform(
        {
            "kernels": decayed(optax.adamw(1e-2), last),
            "biases": optax.sgd(0.1),
        },
        lambda params: jax.tree_util.tree_map_with_path(
            lambda path, leaf: "kernels" if "kernel" in str(path[-1]) else "biases", params
        ),
    ),
}
OPTIMIZERS = {name: lambda last, make=make: decayed(make(), last) for name, make in PLAIN.items()} | WRAPPED
QUICK = ("adamw", "MultiSteps", "schedule_free")
LONG = [name for name in OPTIMIZERS if name not in QUICK]
NAMES = [*QUICK, *(pytest.param(name, marks=pytest.mark.long) for name in LONG)]


def trained(optimizer, params, steps=1000):
    """Parameters after many steps, with the optimiser's state."""

    def step(index, carry):
        params, state = carry
        updates, state = optimizer.update(jax.grad(loss)(params), state, params)
        return optax.apply_updates(params, updates), state

    return jax.jit(lambda carry: jax.lax.fori_loop(0, steps, step, carry))((params, optimizer.init(params)))


def evaluated(name, params, state):
    """The parameters that an optimiser evaluates with, where they are others."""
    if name == "schedule_free":
        return optax.contrib.schedule_free_eval_params(state, params)
    return params


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_no_pruned_weight_differs_from_0_after_a_thousand_steps(name):
    start = apply_mask(half(), init())
    params, state = trained(OPTIMIZERS[name](hold(half())), start)
    check_held(half(), params)
    check_held(half(), evaluated(name, params, state))
    assert float(loss(evaluated(name, params, state))) < 0.9 * float(loss(start))


@pytest.mark.parametrize("name", NAMES)
def test_without_it_pruned_weights_come_back(name):
    params, _ = trained(OPTIMIZERS[name](optax.identity()), apply_mask(half(), init()), steps=30)
    with pytest.raises(jaxarch.ArgumentError, match="pruned weights of 'head/kernel' are not 0"):
        check_held(half(), params)


@pytest.mark.parametrize(
    "place",
    [
        lambda tx: optax.lookahead(optax.chain(tx, hold(half())), 5, 0.5),
        lambda tx: optax.chain(optax.lookahead(tx, 5, 0.5), hold(half())),
    ],
    ids=["inside", "outside"],
)
def test_the_slow_parameters_of_lookahead_are_held_too(place):
    optimizer = place(optax.adamw(1e-2))
    params = optax.LookaheadParams.init_synced(apply_mask(half(), init()))
    state = optimizer.init(params)

    @jax.jit
    def step(params, state):
        updates, state = optimizer.update(jax.grad(loss)(params.fast), state, params)
        return optax.apply_updates(params, updates), state

    for _ in range(18):
        params, state = step(params, state)
    check_held(half(), params)
    check_held(half(), params.slow)
    found = find_mask(state, like=params)
    assert same(found.fast, half()) and same(found.slow, half())
    assert not np.array_equal(params.fast["head"]["kernel"], params.slow["head"]["kernel"])


def test_what_is_not_masked_moves_as_without_it():
    start = apply_mask(half(), init())
    plain, _ = trained(optax.sgd(0.05), start, steps=1)
    held, _ = trained(optax.chain(optax.sgd(0.05), hold(half())), start, steps=1)
    kept = apply_mask(half(), plain)
    for leaf, expected in zip(jax.tree.leaves(held), jax.tree.leaves(kept), strict=True):
        np.testing.assert_array_equal(leaf, expected)


@pytest.mark.long
def test_a_start_that_could_not_be_seen_is_masked_by_the_first_step():
    tx = optax.chain(optax.adamw(1e-2), hold(half()))
    state = jax.jit(tx.init)(init())
    updates, _ = jax.jit(tx.update)(jax.grad(loss)(init()), state, init())
    check_held(half(), optax.apply_updates(init(), updates))


class TwoLayers(nnx.Module):
    def __init__(self, rngs):
        self.hidden, self.head = nnx.Linear(6, 8, rngs=rngs), nnx.Linear(8, 1, rngs=rngs)

    def __call__(self, x):
        return self.head(nnx.tanh(self.hidden(x)))


def test_it_holds_inside_an_nnx_optimiser():
    model = TwoLayers(nnx.Rngs(0))
    mask = half()
    nnx.update(model, apply_mask(mask_of(model, mask), nnx.state(model, nnx.Param)))
    optimizer = nnx.Optimizer(model, optax.chain(optax.adamw(1e-2), hold(mask)), wrt=nnx.Param)

    @nnx.jit
    def step(model, optimizer):
        gradient = nnx.grad(lambda model: jnp.mean((model(X)[:, 0] - Y) ** 2))(model)
        optimizer.update(model, gradient)

    for _ in range(5):
        step(model, optimizer)
    check_held(mask, nnx.state(model, nnx.Param))
    check_held(mask, nnx.to_pure_dict(nnx.state(model, nnx.Param)))


def mask_of(model, mask):
    """A mask in the structure of a model's state."""
    leaves = jaxarch.named_leaves(mask)
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: leaves.get(jaxarch.trees.path_name(path)), nnx.state(model, nnx.Param)
    )


def test_the_mask_is_split_over_devices_as_the_parameters_are():
    mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    params, mask = {"w": jax.device_put(jnp.ones((4, 3)), split)}, {"w": jnp.arange(12).reshape(4, 3) < 6}
    params = apply_mask(jax.device_put(mask, split), params)
    tx = optax.chain(optax.adamw(0.1), hold(mask))
    state = tx.init(params)
    assert state[1].mask["w"].sharding.is_equivalent_to(split, 2)
    updates, _ = jax.jit(tx.update)(params, state, params)
    assert updates["w"].sharding.is_equivalent_to(split, 2)
    check_held(mask, optax.apply_updates(params, updates))


def test_its_state_has_a_shape_without_being_made():
    params = apply_mask(half(), init())
    tx = optax.chain(optax.sgd(0.1), hold(half()))
    state = jax.eval_shape(lambda: tx.init(params))
    assert state[-1].mask["hidden/kernel"] == jax.ShapeDtypeStruct((6, 8), bool)


def test_the_mask_is_in_the_state_by_path():
    state = hold(half()).init(apply_mask(half(), init()))
    assert state.mask.keys() == {"hidden/kernel", "head/kernel"}


def test_a_mask_by_path_is_one():
    named = jaxarch.named_leaves(half())
    assert hold(named).init(apply_mask(half(), init())).mask.keys() == named.keys()


@cache
def masked_params():
    return apply_mask(half(), init())


BAD = {
    "mask: expected booleans, got float32 as leaf 'head/bias'": lambda: hold(init()),
    "mask: no leaf is masked": lambda: hold({}),
    "mask: the parameters have no 'other'": lambda: hold({"other": jnp.ones(2, bool)}).init(masked_params()),
    "mask: leaf 'head/kernel' has shape (2,), the parameter (8, 1)": lambda: hold(
        {"head/kernel": jnp.ones(2, bool)}
    ).init(masked_params()),
    "params: 4 pruned weights of 'head/kernel' are not 0; begin from masks.apply_mask": lambda: hold(
        half()
    ).init(init()),
    "params: hold needs the parameters": lambda: hold(half()).update(
        masked_params(), hold(half()).init(masked_params())
    ),
    "params: 4 pruned weights of 'head/kernel' are not 0; what comes after `hold`": lambda: twice(
        optax.chain(hold(half()), optax.add_noise(0.1, 0.5, jax.random.key(0)))
    ),
    "params: they are traced; call check_held outside": lambda: jax.jit(lambda p: check_held(half(), p))(
        masked_params()
    ),
    "mask: the parameters have no 'head/kernel'; they have kernel": lambda: check_held(
        half(), {"kernel": jnp.ones(2)}
    ),
}


def twice(optimizer):
    params, state = masked_params(), optimizer.init(masked_params())
    for _ in range(2):
        updates, state = optimizer.update(jax.grad(loss)(params), state, params)
        params = optax.apply_updates(params, updates)


@pytest.mark.parametrize("message", BAD)
def test_what_cannot_be_held_is_refused_in_one_line(message):
    with pytest.raises(jaxarch.ArgumentError) as error:
        BAD[message]()
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_a_mask_that_is_of_more_than_the_parameters_is_seen_by_the_check():
    shown = {"hidden": masked_params()["hidden"], "head": optax.MaskedNode()}
    assert hold(half()).init(shown).mask.keys() == {"hidden/kernel"}
    with pytest.raises(jaxarch.ArgumentError, match="mask: the parameters have no 'head/kernel'"):
        check_held(half(), shown)


def test_a_part_of_the_parameters_that_nobody_holds_is_seen_by_the_check():
    labels = {"hidden": "held", "head": "free"}
    tx = optax.multi_transform(
        {"held": optax.chain(optax.sgd(0.1), hold(half())), "free": optax.sgd(0.1)}, labels
    )
    params, _ = trained(tx, masked_params(), steps=2)
    with pytest.raises(jaxarch.ArgumentError, match="pruned weights of 'head/kernel' are not 0"):
        check_held(half(), params)
    check_held({"hidden/kernel": half()["hidden"]["kernel"]}, params)
