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
# # An architecture without trained weights
#
# In this notebook you learn which connections of a small Flax model to keep, and leave its weights exactly as
# they were drawn. You then compare that mask with trained weights.
#
# A network is an architecture *and* weights. Here the architecture is a *mask*: for every connection, whether
# it is kept. Ten independent runs are one compiled program.

# %%
import jax
import jax.numpy as jnp
import optax
from flax import nnx

import jaxarch

cores = jaxarch.use_cpu_cores()  # every CPU core is a JAX device; call this first

# %% [markdown]
# The model has one hidden layer of 256 units. The data are real: 1,797 handwritten digits of 8 x 8 pixels.
# You train on the first 1,200 and test on the rest. `supervised` joins model, data, loss, optimizer and
# training settings into a *problem*.


# %%
class MLP(nnx.Module):
    def __init__(self, rngs):
        self.hidden = nnx.Linear(64, 256, rngs=rngs)
        self.head = nnx.Linear(256, 10, rngs=rngs)

    def __call__(self, x):
        return self.head(nnx.relu(self.hidden(x)))


digits = jaxarch.lab.data.load("digits")
train, test = jnp.arange(1200), jnp.arange(1200, 1797)
problem = jaxarch.supervised(
    MLP,
    (digits.x / 16, digits.y),
    loss=optax.softmax_cross_entropy_with_integer_labels,
    optimizer=optax.adam(1e-2),
    steps=300,
    batch_size=100,
    train=train,
)

# %% [markdown]
# Compare three strategies:
#
# - `mask alone` learns the mask, and leaves the initial weights as they are. Every connection has a score,
#   and it is kept if its score is positive at the end. With initial scores of mean 2 and standard deviation
#   1, nearly all connections are kept at first.
# - `mask, then weights` learns the same mask, then trains weights on that architecture from scratch. With
#   `nonnegative=False` weights may have either sign.
# - `all weights` trains the whole network, for comparison.
#
# `compare` runs each strategy with the same ten keys.

# %%
mask_only = jaxarch.search.two_temperature(weights="initial", mean=2.0, std=1.0)
strategies = {
    "mask alone": mask_only,
    "mask, then weights": jaxarch.chain(mask_only, jaxarch.retrain("cold", nonnegative=False)),
    "all weights": jaxarch.search.dense(nonnegative=False),
}
keys = jax.random.split(jax.random.key(0), 10)
results = jaxarch.compare(strategies, keys, problem)

# %% [markdown]
# What share of the connections does the learned mask keep? `density` is that share in the whole network, and
# `layer_density` is the share in each layer. Arrays of the network found have a leading axis of runs, so
# `vmap` gives one density per run. The code prints medians over the runs.

# %%
network, report = results["mask alone"]
print(f"whole network: {jnp.median(jax.vmap(jaxarch.density)(network.mask)):.3f}")
for layer, densities in jax.vmap(jaxarch.layer_density)(network.mask).items():
    print(f"{layer}: {jnp.median(densities):.3f}")

# %% [markdown]
# How alike are the architectures of two runs? `overlap` is their Jaccard index: connections in both masks
# over connections in either. Two random masks of density d have `d / (2 - d)`.

# %%
first, second = network.of_run(0).mask, network.of_run(1).mask
d = jaxarch.density(first)
print(f"overlap {jaxarch.overlap(first, second):.3f}, of random masks {d / (2 - d):.3f}")

# %% [markdown]
# How accurate is each strategy on the test rows? In the figure every dot is a run, beside the median and its
# quartiles. The right panel enlarges the shaded part of the left one.

# %%
accuracies = {
    name: (jaxarch.evaluate(strategies[name], network, problem, test).argmax(-1) == digits.y[test]).mean(
        axis=1
    )
    for name, (network, _) in results.items()
}
jaxarch.plots.by_strategy({"digits": accuracies}, "test accuracy", "what each part contributes")

# %% [markdown]
# The next figure shows the training loss: lines are medians over the runs, and bands lie between the
# quartiles. For `mask, then weights` it is the loss of the second part, the training of the weights.

# %%
jaxarch.plots.convergence(
    {name: network.info["loss"] for name, (network, _) in results.items()}, "cross-entropy"
)

# %% [markdown]
# **What was learned.** Choosing among random weights gets most of the way to the accuracy of trained weights.
# Training the chosen ones does nearly all the rest. The median test accuracies are about .87, .93 and .93.
# Two runs choose different connections: their masks overlap hardly more than random ones.
#
# To go on: the page *A mask over your model* has sweeps and long trainings. *Your data* says how to replace
# the digits.
