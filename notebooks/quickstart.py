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
# A network is an architecture *and* weights. Here the weights of a small Flax model stay as they were
# drawn, and only the architecture is learned: which connections to keep. Ten independent runs are one
# program.

# %%
import jax
import jax.numpy as jnp
import optax
from flax import nnx

import jaxarch

cores = jaxarch.use_cpu_cores()  # every core is a device; before anything else

# %% [markdown]
# A model, and real data: handwritten digits.


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
# Three strategies: learn the mask alone; then train weights on that architecture, from scratch; and, to
# compare, train the whole network.

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
# What share of the connections was kept, in the whole network and in each layer? (Medians over the runs.)

# %%
network, report = results["mask alone"]
print(f"whole network: {jnp.median(jax.vmap(jaxarch.density)(network.mask)):.3f}")
for layer, densities in jax.vmap(jaxarch.layer_density)(network.mask).items():
    print(f"{layer}: {jnp.median(densities):.3f}")

# %% [markdown]
# How alike are the architectures of two runs? The Jaccard index says; two random masks of density d have d
# / (2 - d).

# %%
first, second = network.of_run(0).mask, network.of_run(1).mask
d = jaxarch.density(first)
print(f"overlap {jaxarch.overlap(first, second):.3f}, of random masks {d / (2 - d):.3f}")

# %% [markdown]
# And how well do they do? Every dot is a run.

# %%
accuracies = {
    name: (jaxarch.evaluate(strategies[name], network, problem, test).argmax(-1) == digits.y[test]).mean(
        axis=1
    )
    for name, (network, _) in results.items()
}
jaxarch.plots.by_strategy({"digits": accuracies}, "test accuracy", "what each part contributes")

# %% [markdown]
# The loss while training, median and quartiles over the runs:

# %%
jaxarch.plots.convergence(
    {name: network.info["loss"] for name, (network, _) in results.items()}, "cross-entropy"
)

# %% [markdown]
# **What was learned.** Choosing among random weights is most of the way, training the chosen ones is the
# rest, and two runs choose different connections. To go on: the page *A mask over your model* has sweeps
# and long trainings, *Your data* what else may be in place of the digits.
