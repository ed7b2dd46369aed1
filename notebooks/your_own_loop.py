# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Pruning in your own training loop
#
# This notebook prunes in a training loop of plain JAX. The loop, the optimizer and the batches are yours.
# Three lines prune: score the connections, keep those with the largest scores, hold the mask. Which scores
# should you take, and below which size does the choice matter?

# %%
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import jaxarch


class MLP(nnx.Module):
    def __init__(self, rngs):
        self.hidden, self.head = nnx.Linear(64, 100, rngs=rngs), nnx.Linear(100, 10, rngs=rngs)

    def __call__(self, x):
        return self.head(nnx.relu(self.hidden(x)))


digits = jaxarch.lab.data.load("digits")
x, y = jnp.asarray(digits.x / 16), jnp.asarray(digits.y)
train, test = jnp.arange(1200), jnp.arange(1200, 1797)
graph = nnx.graphdef(MLP(nnx.Rngs(0)))


def loss_of(params, rows):
    logits = nnx.merge(graph, params)(x[rows])
    return optax.softmax_cross_entropy_with_integer_labels(logits, y[rows]).mean()


def accuracy(params):
    return (nnx.merge(graph, params)(x[test]).argmax(-1) == y[test]).mean()


# %% [markdown]
# This is a training loop as you would write it in JAX. Inside it only `held` knows the mask. `hold` wraps the
# optimizer, so that weight decay and momentum cannot bring a pruned weight back.


# %%
@partial(jax.jit, static_argnames="steps")
def trained(params, mask, key, steps=300):
    held = jaxarch.optim.hold(mask, optax.adamw(1e-2))

    def step(carry, key):
        params, state = carry
        gradients = jax.grad(loss_of)(params, jax.random.choice(key, train, (100,)))
        updates, state = held.update(gradients, state, params)
        return (optax.apply_updates(params, updates), state), None

    params = jaxarch.masks.apply_mask(mask, params)
    (params, _), _ = jax.lax.scan(step, (params, held.init(params)), jax.random.split(key, steps))
    return params


# %% [markdown]
# Choose connections in three ways, from the same initial weights:
#
# - `at random`;
# - `SNIP`: by how much the initial loss would change without the connection, to first order;
# - `magnitude`: by the size of the weight after a first training.
#
# Five seeds at five densities are 75 networks and one compiled program, since the mask is an argument. The
# code prints the median test accuracy over the seeds, from the largest density to the smallest. The figure
# after it adds the quartiles.

# %%
densities = (0.3, 0.1, 0.05, 0.02, 0.01)
found = {"at random": [], "SNIP": [], "magnitude": []}
masks = {}
for seed in range(5):
    key = jax.random.key(seed)
    start = nnx.state(MLP(nnx.Rngs(seed)), nnx.Param)
    dense = trained(start, jaxarch.masks.keep(jaxarch.saliency.magnitude(start), 1.0), key)
    scores = {
        "at random": jaxarch.masks.init_scores(key, jaxarch.select(start), mean=0.0, std=1.0),
        "SNIP": jaxarch.saliency.snip(start, jax.grad(loss_of)(start, train)),
        "magnitude": jaxarch.saliency.magnitude(dense),
    }
    for name, of_connections in scores.items():
        masks[name] = [jaxarch.masks.keep(of_connections, density) for density in densities]
        found[name].append([float(accuracy(trained(start, mask, key))) for mask in masks[name]])
print(f"the whole network, last seed: {accuracy(dense):.3f}")
print({name: np.median(runs, axis=0).round(3).tolist() for name, runs in found.items()})

# %%
sizes = np.tile(densities, (5, 1))
jaxarch.plots.trade_off(
    {name: (sizes, np.array(runs)) for name, runs in found.items()},
    "density",
    "test accuracy",
    "what is kept matters when little is kept",
    logarithmic=(True, False),
)

# %% [markdown]
# At three tenths a random mask is nearly as good as a chosen one. At a hundredth it is at chance.
#
# Which pixels do the masks keep? The first panel shows the mean digit, and the others one mask each. A
# pixel's shade is how many of its connections to the hidden layer are kept, at a density of .05 for the last
# seed. The digits fill the middle of their 8 x 8 pixels, and the corner pixels are nearly always empty.

# %%
import matplotlib.pyplot as plt

figure, axes = plt.subplots(1, 4, figsize=(9, 2.6), layout="constrained")
axes[0].imshow(np.asarray(x.mean(axis=0)).reshape(8, 8), cmap="gray_r")
axes[0].set_title("the mean digit")
for panel, (name, of_sizes) in zip(axes[1:], masks.items(), strict=True):
    kept = jaxarch.named_leaves(of_sizes[2])["hidden/kernel"].sum(axis=1)
    panel.imshow(np.asarray(kept).reshape(8, 8), cmap="viridis")
    panel.set_title(name)
for panel in axes:
    panel.set_axis_off()

# %% [markdown]
# The mask may also change while the weights train. `sparse` wraps an optimizer, and prunes along a schedule:
# here from all connections to a hundredth, every 10 steps.
#
# The figure shows density and test accuracy after every step, for five seeds. The first cuts hardly show.
# Later ones lower the accuracy at once, and training wins part of it back before the next.

# %%
schedule = optax.polynomial_schedule(1.0, 0.01, power=3, transition_steps=200, transition_begin=20)
gradual = jaxarch.optim.sparse(optax.adamw(1e-2), schedule, every=10)


@jax.jit
def trained_gradually(params, key, steps=300):
    def step(carry, key):
        params, state = carry
        gradients = jax.grad(loss_of)(params, jax.random.choice(key, train, (100,)))
        updates, state = gradual.update(gradients, state, params)
        params = optax.apply_updates(params, updates)
        kept = sum((leaf != 0).sum() for leaf in jax.tree.leaves(jaxarch.select(params)))
        return (params, state), (kept / 7400, accuracy(params))  # 64 * 100 + 100 * 10 connections

    return jax.lax.scan(step, (params, gradual.init(params)), jax.random.split(key, 300))[1]


runs = [trained_gradually(nnx.state(MLP(nnx.Rngs(i)), nnx.Param), jax.random.key(i)) for i in range(5)]
kept, accuracies = (np.stack([np.asarray(run[i]) for run in runs]) for i in range(2))
print(f"density {kept[:, -1].max():.3f}, accuracy {np.median(accuracies[:, -1]):.3f}")
jaxarch.plots.convergence(
    {"density": kept, "test accuracy": accuracies}, "", "pruned while it trains, to a hundredth", smooth=1
)

# %% [markdown]
# **What was learned.** Where much is kept, any mask will do. Below a tenth the choice matters. At a
# hundredth, pruning while the weights train served best.
#
# To go on: the page *In your own training loop* has masks that are learned, SET and RigL, and every optax
# wrapper. *Which method?* compares two dozen methods at equal budgets.
