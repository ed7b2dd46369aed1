"""LoRA: low-rank corrections of a frozen network are trained, and half of their connections are pruned.

The network first learns the digits 0 to 4. Then the corrections learn the digits 5 to 9, and are pruned
during that training.

python docs/examples/lora.py --steps 300
"""

import argparse

import jax.numpy as jnp
import optax
from flax import nnx

import jaxarch

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--steps", type=int, default=300)
steps = parser.parse_args().steps

digits = jaxarch.lab.data.load("digits")
x, y = jnp.asarray(digits.x / 16), jnp.asarray(digits.y)
old, new = (x[y < 5], y[y < 5]), (x[y >= 5], y[y >= 5] - 5)  # old digits are learned first


class Net(nnx.Module):
    def __init__(self, rngs):
        self.hidden, self.head = nnx.Linear(64, 128, rngs=rngs), nnx.Linear(128, 5, rngs=rngs)

    def __call__(self, x):
        return self.head(nnx.relu(self.hidden(x)))


def loss_of(model, x, y):
    return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()


def trained(model, tx, wrt, data):
    optimizer = nnx.Optimizer(model, tx, wrt=wrt)

    @nnx.jit
    def step(model, optimizer):
        graph, trained, rest = nnx.split(model, wrt, ...)

        def of(trained, rest):
            return loss_of(nnx.merge(graph, trained, rest), *data)

        loss, gradient = nnx.value_and_grad(of)(trained, rest)
        optimizer.update(model, gradient)
        return loss

    for _ in range(steps):
        loss = step(model, optimizer)
    return loss, optimizer


net = Net(nnx.Rngs(0))
trained(net, optax.adam(1e-2), nnx.Param, old)
net.hidden = nnx.LoRA(64, 8, 128, base_module=net.hidden, rngs=nnx.Rngs(1))
net.head = nnx.LoRA(128, 8, 5, base_module=net.head, rngs=nnx.Rngs(2))

# Only the corrections are trained. The optimizer's mask shrinks from all of their connections to half.
half = optax.polynomial_schedule(1.0, 0.5, power=3, transition_steps=max(steps // 2, 1))
tx = jaxarch.optim.sparse(optax.adam(1e-2), half, every=max(steps // 20, 1), where="*lora*")
loss, optimizer = trained(net, tx, nnx.LoRAParam, new)
mask = jaxarch.optim.find_mask(optimizer.opt_state)
accuracy = (net(new[0]).argmax(-1) == new[1]).mean()
print(f"loss {loss:.3f}, accuracy {accuracy:.3f} at density {jaxarch.density(mask):.2f} of the corrections")
