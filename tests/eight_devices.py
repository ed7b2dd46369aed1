"""The parts of one's own loop on a mesh of 8 devices, and on one: run by test_eight_devices.py.

Each case trains a perceptron on random data, and prints a line of JSON: by how much the two differ, and
whether what jaxarch made is split as the parameters are.
"""

import contextlib
import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
from contexts import share_contexts
from flax import nnx
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxarch
from jaxarch import masks, optim, saliency

share_contexts()

X = jax.random.normal(jax.random.key(0), (64, 32))
Y = jnp.tanh(X @ jax.random.normal(jax.random.key(1), (32, 8)))
STEPS = 20

FSDP = {"hidden": P("data", "model"), "head": P("data", "model")}
TENSOR = {"hidden": P(None, "model"), "head": P("model", None)}
COLUMNS = {"hidden": P(None, "model"), "head": P(None, None)}
LAYOUTS = {
    "data parallel": (AxisType.Auto, {"hidden": P(), "head": P()}),
    "FSDP": (AxisType.Auto, FSDP),
    "tensor parallel": (AxisType.Auto, TENSOR),
    "explicit axes": (AxisType.Explicit, COLUMNS),
}


def start():
    first, second = jax.random.split(jax.random.key(2))
    return {
        "hidden": jax.random.normal(first, (32, 64)) / 6,
        "head": jax.random.normal(second, (64, 8)) / 8,
    }


def outputs(params, x):
    hidden = jnp.tanh(x @ params["hidden"])
    if getattr(jax.typeof(hidden).sharding.mesh, "axis_types", ()) == (AxisType.Explicit,) * 2:
        hidden = jax.sharding.reshard(hidden, P("data", None))
    return hidden @ params["head"]


def loss(params, x, y):
    return jnp.mean((outputs(params, x) - y) ** 2)


def descended(tx, params, x, y):
    """Parameters and state after some steps."""

    @jax.jit
    def step(params, state):
        updates, state = tx.update(jax.grad(loss)(params, x, y), state, params)
        return optax.apply_updates(params, updates), state

    state = tx.init(params)
    for _ in range(STEPS):
        # Steps that wait in line for one another's data may end in XLA's time-out on virtual devices.
        params, state = jax.block_until_ready(step(params, state))
    return params, state


def held(params, x, y):
    mask = jax.jit(lambda p, g: masks.keep(saliency.snip(p, g), 0.2))(params, jax.grad(loss)(params, x, y))
    tx = optim.hold(mask, optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-2)))
    params, state = descended(tx, masks.apply_mask(mask, params), x, y)
    optim.check_held(mask, params)
    return params, optim.find_mask(state, like=params)


def changing(params, x, y):
    cubic = optax.polynomial_schedule(1.0, 0.2, power=3, transition_steps=10)
    tx = optim.sparse(optax.adamw(1e-2), cubic, replaced=0.1, regrow="gradients", every=4)
    params, state = descended(tx, params, x, y)
    return params, optim.find_mask(state, like=params)


def learned(params, x, y):
    scores = masks.init_scores(jax.random.key(3), params, 5.0, 1.0, 50.0)
    tx = optax.chain(optax.sgd(1.0, momentum=0.9), optim.stop_at(0.6))

    @jax.jit
    def step(scores, state):
        def of(scores):
            return loss(masks.apply_mask(masks.soft_mask(scores, 50.0, 5.0), params), x, y)

        updates, state = tx.update(jax.grad(of)(scores), state, scores)
        return optax.apply_updates(scores, updates), state

    state = tx.init(scores)
    for _ in range(STEPS):
        scores, state = jax.block_until_ready(step(scores, state))
    return scores, jax.jit(lambda scores: masks.keep(scores, 0.5))(scores)


class Perceptron(nnx.Module):
    """The same network in NNX."""

    def __init__(self, params):
        self.hidden, self.head = nnx.Param(params["hidden"]), nnx.Param(params["head"])

    def __call__(self, x):
        return x, {"hidden": self.hidden[...], "head": self.head[...]}


def in_nnx(params, x, y):
    model = jaxarch.nnx.Masked(Perceptron(params))
    optimizer = nnx.Optimizer(model, optax.sgd(1.0, momentum=0.9), wrt=jaxarch.nnx.Score)

    @nnx.jit
    def step(model, optimizer):
        def of(model):
            x_, weights = model(x)
            return loss(weights, x_, y)

        optimizer.update(model, nnx.grad(of, argnums=nnx.DiffState(0, jaxarch.nnx.Score))(model))

    for _ in range(STEPS):
        step(model, optimizer)
        jax.block_until_ready(nnx.state(model))
    return {path: score[...] for path, score in model.scores.items()}, nnx.to_pure_dict(model.mask(0.5))


def calibrated(params, x, y):
    return jaxarch.sparsegpt(outputs, params, [x], 0.5)


PARTS = {"held": held, "changing": changing, "learned": learned, "in NNX": in_nnx, "calibrated": calibrated}


def main():
    for layout, (axis_type, specs) in LAYOUTS.items():
        mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(axis_type,) * 2)
        shardings = {name: NamedSharding(mesh, spec) for name, spec in specs.items()}
        batch = NamedSharding(mesh, P("data"))
        explicit = axis_type is AxisType.Explicit
        for part, run in PARTS.items():
            alone, mask = run(start(), X, Y)
            with jax.set_mesh(mesh) if explicit else contextlib.nullcontext():
                split = {name: jax.device_put(leaf, shardings[name]) for name, leaf in start().items()}
                values, found = run(split, *jax.device_put((X, Y), batch))
            pairs = zip(jax.tree.leaves(alone), jax.tree.leaves(values), strict=True)
            differences = [np.abs(np.asarray(one) - np.asarray(other)).max() for one, other in pairs]
            as_parameters = [
                leaf.sharding.is_equivalent_to(shardings[path.split("/")[-1]], leaf.ndim)
                for path, leaf in jaxarch.named_leaves((values, found)).items()
            ]
            on_host = jax.tree.map(np.asarray, found)
            outcome = {
                "case": f"{part}, {layout}",
                "difference": float(max(differences)),
                "overlap": float(masks.overlap(jax.tree.map(np.asarray, mask), on_host)),
                "density": float(masks.density(on_host)),
                "as_parameters": all(as_parameters),
            }
            print(json.dumps(outcome), flush=True)


if __name__ == "__main__":
    assert jax.device_count() == 8
    main()
