"""Plain functions and Equinox: a mask learned in a loop of plain JAX, and a mask held in a loop of Equinox.

python docs/examples/plain_and_equinox.py --steps 300
"""

import argparse

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import jaxarch
from jaxarch import masks, optim, saliency

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--steps", type=int, default=300)
steps = parser.parse_args().steps

digits = jaxarch.lab.data.load("digits")
x, y = jnp.asarray(digits.x / 16), jnp.asarray(digits.y)


def loss_of(outputs, y):
    return optax.softmax_cross_entropy_with_integer_labels(outputs, y).mean()


def accuracy_of(outputs):
    return (outputs[1200:].argmax(-1) == y[1200:]).mean()


# Plain functions. The weights stay as drawn, and the two-temperature gradient learns a mask over them.
def outputs_of(params, x):
    return jax.nn.relu(x @ params["hidden"]) @ params["head"]


first, second, third = jax.random.split(jax.random.key(0), 3)
params = {
    "hidden": jax.random.normal(first, (64, 256)) / 8,
    "head": jax.random.normal(second, (256, 10)) / 16,
}
scores = masks.init_scores(third, jaxarch.select(params), mean=0.1, std=0.01)
descent = optax.adam(1e-2)
state = descent.init(scores)


@jax.jit
def mask_step(scores, state):
    def masked_loss(scores):
        mask = masks.soft_mask(scores, hard=50.0, soft=5.0)
        return loss_of(outputs_of(masks.apply_mask(mask, params), x[:1200]), y[:1200])

    updates, state = descent.update(jax.grad(masked_loss)(scores), state)
    return optax.apply_updates(scores, updates), state


for _ in range(steps):
    scores, state = mask_step(scores, state)
learned = masks.hard_mask(scores)
found = accuracy_of(outputs_of(masks.apply_mask(learned, params), x))

# Equinox. `params` has the arrays of the module, for the optimizer. Equinox calls a kernel `weight`. SNIP
# chooses the mask before training.
model = eqx.nn.MLP(64, 10, 256, 1, key=first)
params, static = eqx.partition(model, eqx.is_inexact_array)


@eqx.filter_value_and_grad
def loss_and_gradient(model):
    return loss_of(jax.vmap(model)(x[:1200]), y[:1200])


_, gradient = loss_and_gradient(model)
mask = masks.keep(saliency.snip(params, gradient, where="layers/*/weight"), 0.1)
model = eqx.combine(masks.apply_mask(mask, params), static)
tx = optim.hold(mask, optax.adamw(1e-2))
state = tx.init(eqx.filter(model, eqx.is_inexact_array))


@eqx.filter_jit
def step(model, state):
    loss, gradient = loss_and_gradient(model)
    updates, state = tx.update(gradient, state, eqx.filter(model, eqx.is_inexact_array))
    return eqx.apply_updates(model, updates), state, loss


for _ in range(steps):
    model, state, loss = step(model, state)

optim.check_held(mask, model)
held = accuracy_of(jax.vmap(model)(x))
print(
    f"learned: accuracy {found:.3f} at density {masks.density(learned):.2f}; "
    f"held: accuracy {held:.3f} at density {masks.density(mask):.3f}"
)
