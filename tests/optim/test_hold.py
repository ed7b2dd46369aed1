"""Pruned weights stay exactly 0 under any optimiser, in any loop."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from small import same

import jaxarch
from jaxarch.masks import apply_mask
from jaxarch.optim import check_held, find_mask, hold, sparse

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
    return jaxarch.masks.keep(drawn, 0.5, scope="layer")


def held(optimizer):
    return hold(half(), optimizer)


def free(optimizer):
    return optimizer


def decayed(optimizer):
    return optax.chain(optax.clip_by_global_norm(1.0), optax.add_decayed_weights(1e-2), optimizer)


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
MIXING = {
    # Their update of an entry depends on the gradients of others, those of pruned weights among them.
    "clipped": lambda: optax.chain(optax.clip_by_global_norm(0.1), optax.sgd(0.1)),
    "muon": lambda: optax.contrib.muon(1e-2),
    "lamb": lambda: optax.lamb(1e-2),
    "adafactor": lambda: optax.adafactor(1e-2, min_dim_size_to_factor=4),
    "normalized": lambda: optax.chain(optax.contrib.normalize(), optax.sgd(0.1)),
    "sharpness": lambda: optax.contrib.sam(
        optax.sgd(0.05), optax.chain(optax.contrib.normalize(), optax.sgd(0.05)), reset_state=False
    ),
}
WRAPPED = {
    "noise": lambda around: around(optax.chain(optax.sgd(0.05), optax.add_noise(0.1, 0.5, 0))),
    "muon": lambda around: around(optax.contrib.muon(1e-3)),
    "MultiSteps": lambda around: optax.MultiSteps(
        around(decayed(optax.adamw(1e-2))), 3
    ).gradient_transformation(),
    "apply_if_finite": lambda around: optax.apply_if_finite(around(decayed(optax.adamw(1e-2))), 3),
    "inject_hyperparams": lambda around: around(
        decayed(optax.inject_hyperparams(optax.adamw)(optax.cosine_decay_schedule(1e-2, 500)))
    ),
    "schedule_free": lambda around: optax.contrib.schedule_free(
        around(decayed(optax.adamw(1e-2))), 1e-2, b1=0.9
    ),
    "schedule_free inside": lambda around: around(
        optax.contrib.schedule_free(optax.contrib.muon(1e-2), 1e-2, b1=0.9)
    ),
    "sam": lambda around: around(
        optax.contrib.sam(
            decayed(optax.sgd(0.05)),
            optax.chain(optax.contrib.normalize(), optax.sgd(0.05)),
            sync_period=2,
        )
    ),
    "a part of the tree": lambda around: optax.multi_transform(
        {
            "kernels": around(decayed(optax.adamw(1e-2))),
            "biases": optax.sgd(0.1),
        },
        lambda params: jax.tree_util.tree_map_with_path(
            lambda path, leaf: "kernels" if "kernel" in str(path[-1]) else "biases", params
        ),
    ),
}
OPTIMIZERS = {
    name: lambda around, make=make: around(decayed(make())) for name, make in PLAIN.items()
} | WRAPPED
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
    if name == "schedule_free inside":
        return optax.contrib.schedule_free_eval_params(state.inner, params)
    return params


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_no_pruned_weight_differs_from_0_after_a_thousand_steps(name):
    start = apply_mask(half(), init())
    params, state = trained(OPTIMIZERS[name](held), start)
    check_held(half(), params)
    check_held(half(), evaluated(name, params, state))
    assert float(loss(evaluated(name, params, state))) < 0.9 * float(loss(start))


@pytest.mark.parametrize("name", NAMES)
def test_without_it_pruned_weights_come_back(name):
    params, _ = trained(OPTIMIZERS[name](free), apply_mask(half(), init()), steps=30)
    with pytest.raises(jaxarch.ArgumentError, match="pruned weights of 'head/kernel' are not 0"):
        check_held(half(), params)


@pytest.mark.parametrize(
    "place",
    [
        lambda tx: optax.lookahead(held(tx), 5, 0.5),
        lambda tx: held(optax.lookahead(tx, 5, 0.5, reset_state=True)),
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


@pytest.mark.parametrize(
    "name", ["clipped", *(pytest.param(name, marks=pytest.mark.long) for name in list(MIXING)[1:])]
)
def test_an_optimizer_steps_as_under_a_mask_in_the_forward_pass(name):
    start, optimizer = apply_mask(half(), init()), MIXING[name]()
    gradients = jax.grad(lambda params: loss(apply_mask(half(), params)))(start)
    expected, _ = jax.jit(optimizer.update)(gradients, optimizer.init(start), start)
    around = held(optimizer)
    updates, _ = jax.jit(around.update)(jax.grad(loss)(start), around.init(start), start)
    changing = sparse(optimizer, mask=half())
    under, _ = jax.jit(changing.update)(jax.grad(loss)(start), changing.init(start), start)
    for leaf, twin, other in zip(
        *map(jax.tree.leaves, (updates, under, apply_mask(half(), expected))), strict=True
    ):
        np.testing.assert_array_equal(leaf, other)
        np.testing.assert_array_equal(leaf, twin)


def test_functions_that_an_optimizer_calls_are_of_masked_weights():
    """A line search would take another step by the loss of an update that is dense, as Muon's is."""
    seen = {}

    def update(gradients, state, params, *, value, grad, value_fn, grad_fn, batch):
        beyond = jax.tree.map(lambda leaf: leaf + 1, params)
        seen.update(value=value, grad=grad, at=value_fn(beyond, batch), slope=grad_fn(beyond, 0))
        return gradients, state

    start, dense = apply_mask(half(), init()), jax.tree.map(jnp.ones_like, init())
    tx = held(optax.GradientTransformationExtraArgs(optax.identity().init, update))
    tx.update(
        dense,
        tx.init(start),
        start,
        value=2.0,
        grad=dense,
        value_fn=lambda params, batch: params,
        grad_fn=lambda params, step: dense,
        batch=X,
    )
    assert seen["value"] == 2.0
    for name in ("grad", "at", "slope"):
        check_held(half(), seen[name])
        assert jaxarch.density(seen[name]["hidden"]["kernel"] != 0) == 0.5


def donating(tx):
    def step(params, state):
        updates, state = tx.update(jax.grad(loss)(params), state, params)
        return optax.apply_updates(params, updates), state

    return jax.jit(step, donate_argnums=(0, 1))


@pytest.mark.parametrize(
    "make",
    [
        held,
        lambda tx: held(held(tx)),
        lambda tx: held(optax.contrib.sam(tx, optax.sgd(0.1))),  # keeps the parameters that it is given
        pytest.param(lambda tx: sparse(held(tx), mask=half(), every=1), marks=pytest.mark.long),
    ],
    ids=["held", "held twice", "sam", "sparse"],
)
def test_a_step_that_donates_the_state_leaves_the_users_mask(make):
    mask, start = half(), apply_mask(half(), init())
    tx = hold(mask, make(optax.sgd(0.1)))
    params, _ = donating(tx)(jax.tree.map(jnp.copy, start), tx.init(start))
    check_held(mask, params)
    check_held(mask, start)
    assert same(tx.init(start).mask, jaxarch.named_leaves(mask))


def test_a_mask_that_was_found_outlives_the_state():
    start = apply_mask(half(), init())
    tx = held(optax.sgd(0.1))
    state = tx.init(start)
    found = find_mask(state, start)
    donating(tx)(jax.tree.map(jnp.copy, start), state)
    assert same(found, half())


def test_rounds_of_a_ticket_are_one_program():
    model, traces = nnx.Linear(6, 8, rngs=nnx.Rngs(0)), []

    @nnx.jit
    def step(model, optimizer):
        traces.append(None)
        optimizer.update(model, nnx.grad(lambda model: jnp.square(model(X)).mean())(model))

    for density in (0.8, 0.5, 0.2):
        mask = jaxarch.masks.keep(jaxarch.saliency.magnitude(nnx.state(model, nnx.Param)), density)
        nnx.update(model, apply_mask(mask, nnx.state(model, nnx.Param)))
        tx = hold(mask, optax.chain(optax.clip(1.0), optax.adamw(optax.cosine_decay_schedule(1e-2, 9))))
        step(model, nnx.Optimizer(model, tx, wrt=nnx.Param))
        check_held(mask, nnx.state(model, nnx.Param))
    assert len(traces) == 1


def other_half():
    return jax.tree.map(lambda leaf: ~leaf, half())


def test_a_program_in_which_an_optimizer_begins_is_of_its_mask_alone():
    @partial(jax.jit, static_argnums=0)
    def begun(tx, params):
        return tx.init(params)

    zeros = jax.tree.map(jnp.zeros_like, init())
    for mask in (half(), other_half()):
        assert same(begun(hold(mask, optax.sgd(0.1)), zeros).mask, jaxarch.named_leaves(mask))
        assert same(jax.jit(hold(mask, optax.sgd(0.1)).init)(zeros).mask, jaxarch.named_leaves(mask))


ADAM = optax.adam(1e-3)
NOW = {"rate": 1e-3}


def by_hand(step):
    return NOW["rate"]


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (lambda: ADAM, lambda: ADAM, True),
        (lambda: optax.adam(1e-3), lambda: optax.adam(1e-3), True),
        (lambda: optax.adam(1e-3), lambda: optax.adam(1e-2), False),
        (lambda: optax.adam(1e-3), lambda: optax.adamw(1e-3), False),
        (lambda: optax.adam(1.0), lambda: optax.adam(1), False),
        (lambda: optax.sgd(0.0), lambda: optax.sgd(-0.0), False),
        # A user's function may read what changes, so that optimizers made of it are one only if they are.
        (lambda: optax.adam(by_hand), lambda: optax.adam(by_hand), False),
        (lambda: optax.adam(jnp.asarray(1e-3)), lambda: optax.adam(jnp.asarray(1e-2)), False),
        (lambda: optax.add_noise(0.1, 0.5, 0), lambda: optax.add_noise(0.1, 0.5, 1), False),
        (lambda: held(ADAM), lambda: hold(other_half(), ADAM), False),
    ],
)
def test_transformations_are_equal_where_their_optimizers_compute_the_same(one, other, equal):
    first, second = hold(half(), one()), hold(other_half(), other())
    assert (first == second) is equal
    assert (first != second) is not equal
    assert not equal or hash(first) == hash(second)
    assert first == first and first != one()


def test_what_is_not_masked_moves_as_without_it():
    start = apply_mask(half(), init())
    plain, _ = trained(optax.sgd(0.05), start, steps=1)
    params, _ = trained(held(optax.sgd(0.05)), start, steps=1)
    kept = apply_mask(half(), plain)
    for leaf, expected in zip(jax.tree.leaves(params), jax.tree.leaves(kept), strict=True):
        np.testing.assert_array_equal(leaf, expected)


@pytest.mark.long
def test_a_start_that_could_not_be_seen_is_masked_by_the_first_step():
    tx = held(optax.adamw(1e-2))
    state = jax.jit(tx.init)(init())
    updates, _ = jax.jit(tx.update)(jax.grad(loss)(init()), state, init())
    check_held(half(), optax.apply_updates(init(), updates))


def test_a_pruned_weight_that_could_not_be_seen_ends_at_0_by_an_update_of_the_optimizer_s_dtype():
    tx = hold({"w": jnp.array([True, False])}, optax.sgd(0.5))

    @jax.jit
    def first_update(params, gradients):
        return tx.update(gradients, tx.init(params), params)[0]["w"]

    update = first_update({"w": jnp.array([1.0, 2.0])}, {"w": jnp.ones(2, jnp.bfloat16)})
    assert update.dtype == jnp.bfloat16 and update.tolist() == [-0.5, -2.0]


class TwoLayers(nnx.Module):
    def __init__(self, rngs):
        self.hidden, self.head = nnx.Linear(6, 8, rngs=rngs), nnx.Linear(8, 1, rngs=rngs)

    def __call__(self, x):
        return self.head(nnx.tanh(self.hidden(x)))


def test_it_holds_inside_an_nnx_optimiser():
    model = TwoLayers(nnx.Rngs(0))
    mask = half()
    nnx.update(model, apply_mask(mask_of(model, mask), nnx.state(model, nnx.Param)))
    optimizer = nnx.Optimizer(model, hold(mask, optax.adamw(1e-2)), wrt=nnx.Param)

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
        lambda path, leaf: leaves.get(jaxarch._internal.trees.path_name(path)), nnx.state(model, nnx.Param)
    )


def test_the_mask_is_split_over_devices_as_the_parameters_are():
    mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    params, mask = {"w": jax.device_put(jnp.ones((4, 3)), split)}, {"w": jnp.arange(12).reshape(4, 3) < 6}
    params = apply_mask(jax.device_put(mask, split), params)
    tx = hold(mask, optax.adamw(0.1))
    state = tx.init(params)
    assert state.mask["w"].sharding.is_equivalent_to(split, 2)
    updates, _ = jax.jit(tx.update)(params, state, params)
    assert updates["w"].sharding.is_equivalent_to(split, 2)
    check_held(mask, optax.apply_updates(params, updates))


def test_its_state_has_a_shape_without_being_made():
    params = apply_mask(half(), init())
    tx = held(optax.sgd(0.1))
    state = jax.eval_shape(lambda: tx.init(params))
    assert state.mask["hidden/kernel"] == jax.ShapeDtypeStruct((6, 8), bool)


def test_the_mask_is_in_the_state_by_path():
    state = held(optax.sgd(0.1)).init(apply_mask(half(), init()))
    assert state.mask.keys() == {"hidden/kernel", "head/kernel"}


def test_a_mask_by_path_is_one():
    named = jaxarch.named_leaves(half())
    assert hold(named, optax.sgd(0.1)).init(apply_mask(half(), init())).mask.keys() == named.keys()


@cache
def masked_params():
    return apply_mask(half(), init())


BAD = {
    "mask: expected booleans, got float32 as leaf 'head/bias'": lambda: hold(init(), optax.sgd(0.1)),
    "optimizer: hold wraps an optimizer": lambda: optax.chain(optax.adamw(1e-2), hold(half())),
    "optimizer: expected an optax optimizer": lambda: hold(half(), 0.1),
    "gradients: the masked leaf 'hidden/kernel' is missing": lambda: held(optax.sgd(0.1)).update(
        {"head": masked_params()["head"]}, held(optax.sgd(0.1)).init(masked_params()), masked_params()
    ),
    "state: the mask of 'head/kernel' has become int32": lambda: twice(
        optax.contrib.sam(held(optax.sgd(0.1)), optax.sgd(0.1))
    ),
    "mask: no leaf is masked": lambda: hold({}, optax.sgd(0.1)),
    "mask: the parameters have no 'other'": lambda: hold({"other": jnp.ones(2, bool)}, optax.sgd(0.1)).init(
        masked_params()
    ),
    "mask: leaf 'head/kernel' has shape (2,), but the parameter has (8, 1)": lambda: hold(
        {"head/kernel": jnp.ones(2, bool)}, optax.sgd(0.1)
    ).init(masked_params()),
    "params: 4 pruned weights of 'head/kernel' are not 0; start from masks.apply_mask": lambda: held(
        optax.sgd(0.1)
    ).init(init()),
    "params: hold needs the parameters": lambda: held(optax.sgd(0.1)).update(
        masked_params(), held(optax.sgd(0.1)).init(masked_params())
    ),
    "params: 4 pruned weights of 'head/kernel' are not 0; a transformation around `hold`": lambda: twice(
        optax.chain(held(optax.sgd(0.1)), optax.add_noise(0.1, 0.5, 0))
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
    assert held(optax.sgd(0.1)).init(shown).mask.keys() == {"hidden/kernel"}
    with pytest.raises(jaxarch.ArgumentError, match="mask: the parameters have no 'head/kernel'"):
        check_held(half(), shown)


def test_a_part_of_the_parameters_that_nobody_holds_is_seen_by_the_check():
    labels = {"hidden": "held", "head": "free"}
    tx = optax.multi_transform({"held": held(optax.sgd(0.1)), "free": optax.sgd(0.1)}, labels)
    params, _ = trained(tx, masked_params(), steps=2)
    with pytest.raises(jaxarch.ArgumentError, match="pruned weights of 'head/kernel' are not 0"):
        check_held(half(), params)
    check_held({"hidden/kernel": half()["hidden"]["kernel"]}, params)


def test_a_mask_that_is_written_to_later_is_held_as_it_was():
    mask = {"kernel": np.zeros(3, bool)}
    tx = hold(mask, optax.sgd(0.1))
    mask["kernel"][...] = True
    assert not tx.init({"kernel": jnp.zeros(3)}).mask["kernel"].any()
