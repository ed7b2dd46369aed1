"""Fully sharded data parallelism over 8 devices, with a mask that is split like the parameters.

SNIP keeps a tenth of the connections. The mask is made, held by the optimizer and found in its state, and
every part of it stays on the device of its parameters.

On a machine with fewer devices, this command makes 8 virtual ones of its CPU:

XLA_FLAGS=--xla_force_host_platform_device_count=8 python docs/examples/fsdp.py --steps 100
"""

import argparse

import jax
import jax.numpy as jnp
import optax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import jaxarch
from jaxarch import masks, optim, saliency

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--steps", type=int, default=100)
steps = parser.parse_args().steps

mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
split = NamedSharding(mesh, PartitionSpec("data"))

digits = jaxarch.lab.data.load("digits")
x, y = jax.device_put((jnp.asarray(digits.x / 16)[:1792], jnp.asarray(digits.y)[:1792]), split)
first, second = jax.random.split(jax.random.key(0))
params = {
    "hidden": jax.random.normal(first, (64, 512)) / 8,
    "head": jax.random.normal(second, (512, 10)) / 22,
}
params = jax.device_put(params, split)  # every device has an eighth of each kernel


def loss(params):
    outputs = jax.nn.relu(x @ params["hidden"]) @ params["head"]
    return optax.softmax_cross_entropy_with_integer_labels(outputs, y).mean()


mask = jax.jit(lambda params: masks.keep(saliency.snip(params, jax.grad(loss)(params)), 0.1))(params)
params = masks.apply_mask(mask, params)
tx = optim.hold(mask, optax.adamw(1e-2))
state = tx.init(params)


@jax.jit
def step(params, state):
    value, gradient = jax.value_and_grad(loss)(params)
    updates, state = tx.update(gradient, state, params)
    return optax.apply_updates(params, updates), state, value


for _ in range(steps):
    params, state, value = step(params, state)
    # Wait for each step: on virtual devices, queued steps wait for one another's data, and XLA may time out.
    value.block_until_ready()

optim.check_held(mask, params)
found = optim.find_mask(state, like=params)
shards = {leaf.sharding.shard_shape(leaf.shape) for leaf in jax.tree.leaves((params, found))}
print(f"loss {value:.3f} at density {masks.density(found):.3f}; a device holds arrays of {sorted(shards)}")
