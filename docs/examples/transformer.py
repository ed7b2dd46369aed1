"""A small GPT with dropout: mask and weights are learned together, until 30% of the connections are left.

`Masked` adds a score to every connection, and the penalty pushes scores down. `stop_at` freezes the scores
once at most 30% of them are positive. Two optimizers train the scores and the weights.

python docs/examples/transformer.py --steps 300
"""

import argparse

import jax
import jax.numpy as jnp
import optax
from flax import nnx

import jaxarch

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--steps", type=int, default=300)
steps = parser.parse_args().steps

text = "".join(f"{a} and {b} is {a + b}. " for a in range(30) for b in range(30))
letters = sorted(set(text))
tokens = jnp.array([letters.index(letter) for letter in text])

gpt = jaxarch.models.GPT(2, 64, length=32, dropout=0.1, vocabulary=len(letters), rngs=nnx.Rngs(0))
model = jaxarch.nnx.Masked(gpt, hard=100.0, soft=10.0)
to_a_third = optax.chain(optax.adam(1e-2), jaxarch.optim.stop_at(0.3))
scores = nnx.Optimizer(model, to_a_third, wrt=jaxarch.nnx.Score)
weights = nnx.Optimizer(model, optax.adam(3e-3), wrt=nnx.Param)


def batch_of(key):
    start = jax.random.randint(key, (32,), 0, len(tokens) - 33)
    rows = tokens[start[:, None] + jnp.arange(33)]
    return rows[:, :-1], rows[:, 1:]


def loss_of(model, x, y):
    return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()


@nnx.jit
def step(model, scores, weights, key):
    x, y = batch_of(key)

    graph, trained, rest = nnx.split(model, nnx.Any(jaxarch.nnx.Score, nnx.Param), ...)

    def penalised(trained, rest):
        model = nnx.merge(graph, trained, rest)
        loss = loss_of(model, x, y)
        return loss + model.penalty(1e-6), loss

    (_, loss), gradient = nnx.value_and_grad(penalised, has_aux=True)(trained, rest)
    of_scores, of_weights = nnx.split_state(gradient, jaxarch.nnx.Score, nnx.Param)
    scores.update(model, of_scores)
    weights.update(model, of_weights)
    return loss


keys = jax.random.split(jax.random.key(1), steps)
losses = [step(model, scores, weights, key) for key in keys]
# The plain model has its weights under the mask, and computes without scores.
plain = model.strip(0.3)
plain.eval()
found = loss_of(plain, *batch_of(jax.random.key(2)))
density = jaxarch.density(model.mask(0.3))
print(f"loss {losses[0]:.2f} to {losses[-1]:.2f}; without dropout, {found:.2f} at density {density:.2f}")
