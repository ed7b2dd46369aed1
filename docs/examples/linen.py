"""Flax Linen with batch norm and dropout: GraSP keeps a tenth of the connections, before training.

During training `hold` wraps the optimizer, so that pruned weights stay 0.

python docs/examples/linen.py --steps 300
"""

import argparse
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.training import train_state

import jaxarch

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--steps", type=int, default=300)
steps = parser.parse_args().steps

digits = jaxarch.lab.data.load("digits")
x, y = jnp.asarray(digits.x / 16).reshape(-1, 8, 8, 1), jnp.asarray(digits.y)


class Net(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        for channels, stride in ((16, 1), (32, 2)):
            x = nn.Conv(channels, (3, 3), strides=stride, use_bias=False)(x)
            x = nn.relu(nn.BatchNorm(use_running_average=not train)(x))
        x = nn.Dropout(0.2, deterministic=not train)(x.reshape(x.shape[0], -1))
        return nn.Dense(10)(x)


class TrainState(train_state.TrainState):
    batch_stats: Any


def loss_of(params, batch_stats, rows, key):
    outputs, changed = net.apply(
        {"params": params, "batch_stats": batch_stats},
        x[rows],
        train=True,
        rngs={"dropout": key},
        mutable=["batch_stats"],
    )
    loss = optax.softmax_cross_entropy_with_integer_labels(outputs, y[rows]).mean()
    return loss, changed["batch_stats"]


net = Net()
first, second, third = jax.random.split(jax.random.key(0), 3)
start = net.init(first, x[:1], train=False)
params, batch_stats = start["params"], start["batch_stats"]

# GraSP takes the loss as a function of the parameters alone, so all else is fixed in the lambda. It scores
# kernels, but neither scales nor biases.
scores = jaxarch.saliency.grasp(
    lambda params: loss_of(params, batch_stats, jnp.arange(500), second)[0], params
)
mask = jaxarch.masks.keep(scores, 0.1)
state = TrainState.create(
    apply_fn=net.apply,
    params=jaxarch.masks.apply_mask(mask, params),
    tx=jaxarch.optim.hold(mask, optax.adamw(1e-2)),
    batch_stats=batch_stats,
)


@jax.jit
def step(state, key):
    draw, dropout = jax.random.split(key)
    rows = jax.random.randint(draw, (100,), 0, 1200)
    both = jax.value_and_grad(loss_of, has_aux=True)
    (loss, batch_stats), gradient = both(state.params, state.batch_stats, rows, dropout)
    return state.apply_gradients(grads=gradient, batch_stats=batch_stats), loss


for key in jax.random.split(third, steps):
    state, loss = step(state, key)

jaxarch.optim.check_held(mask, state.params)
outputs = net.apply({"params": state.params, "batch_stats": state.batch_stats}, x[1200:], train=False)
accuracy = (outputs.argmax(-1) == y[1200:]).mean()
print(f"loss {loss:.3f}, accuracy {accuracy:.3f} at density {jaxarch.density(mask):.3f}")
