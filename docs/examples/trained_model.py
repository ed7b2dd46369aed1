"""A trained network loses most of its connections: 200 examples without labels do it, and no training.

python docs/examples/trained_model.py --density 0.05 --file pruned.safetensors
"""

import argparse

import jax
import jax.numpy as jnp
import optax
from flax import nnx

import jaxarch

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--density", type=float, default=0.2)
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--file", help="write the pruned weights to this file, in safetensors or npz")
args = parser.parse_args()

digits = jaxarch.lab.data.load("digits")
x, y = jnp.asarray(digits.x / 16).reshape(-1, 8, 8, 1), jnp.asarray(digits.y)
training, test = jnp.split(jax.random.permutation(jax.random.key(0), len(x)), [1200])


class Net(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Conv(1, 16, (3, 3), rngs=rngs)
        self.second = nnx.Conv(16, 32, (3, 3), strides=2, rngs=rngs)
        self.hidden = nnx.Linear(4 * 4 * 32, 128, rngs=rngs)
        self.head = nnx.Linear(128, 10, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.second(nnx.relu(self.first(x))))
        return self.head(nnx.relu(self.hidden(x.reshape(len(x), -1))))


# Somebody's trained model.
net = Net(nnx.Rngs(0))
optimizer = nnx.Optimizer(net, optax.adam(1e-3), wrt=nnx.Param)


@nnx.jit
def step(net, optimizer):
    def loss(net):
        return optax.softmax_cross_entropy_with_integer_labels(net(x[training]), y[training]).mean()

    optimizer.update(net, nnx.grad(loss)(net))


for _ in range(args.steps):
    step(net, optimizer)

# A function of its weights is all that jaxarch asks for.
graph, params, rest = nnx.split(net, nnx.Param, ...)


def apply(params, x):
    return nnx.merge(graph, params, rest)(x)


def accuracy(params):
    return f"{(apply(params, x[test]).argmax(1) == y[test]).mean():.3f}"


batches = jnp.split(x[training[:200]], 2)
pruned, mask = jaxarch.alps(apply, params, batches, args.density)
weights = jaxarch.select(params, jaxarch.calibrate(apply, params, batches[:1]))
by_size = jaxarch.masks.keep(jaxarch.saliency.magnitude(weights), args.density, "layer")
print(f"accuracy on {len(test)} test images, at density {jaxarch.density(mask):.3f}:")
print(f"dense {accuracy(params)}, largest weights {accuracy(jaxarch.masks.apply_mask(by_size, params))}")
print(f"ALPS {accuracy(pruned)}")
if args.file:
    jaxarch.save_tree(args.file, pruned)
