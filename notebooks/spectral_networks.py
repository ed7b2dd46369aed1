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
# # How many neurons does a task need?
#
# This notebook finds a network's width by training. In a spectral network every hidden neuron has an
# eigenvalue, and where it is 0, the neuron is silent. Trained under a penalty on eigenvalues, the network
# keeps the neurons that the data ask for.
#
# Here the answer is known. The data come from a *teacher* with 6 hidden neurons. Does a *student* with two
# hidden layers of 24 find that number?

# %%
import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxarch

jaxarch.use_cpu_cores()

x = jax.random.uniform(jax.random.key(1), (2500, 6), minval=-1.0)
first, second = jax.random.orthogonal(jax.random.key(2), 6, (2,))
y = jax.nn.relu(x @ first) @ second


def task(model):
    return jaxarch.supervised(
        model,
        (x, y),
        loss=optax.squared_error,
        optimizer=optax.adam(3e-3),
        steps=3000,
        batch_size=100,
        train=jnp.arange(2000),
        validation=jnp.arange(2000, 2500),
    )


# %% [markdown]
# Compare two forms of the same idea. The published form takes all weights from the full eigendecomposition.
# In the *gated* form an eigenvalue scales the connections into its own neuron and nothing else.
#
# `search.spectral(1e-4)` trains under the penalty. Then `recruit` removes neurons, the smallest eigenvalues
# first, while the validation loss rises by no more than a twentieth. The code prints how many are left in
# each of four runs.

# %%
keys = jax.random.split(jax.random.key(0), 4)
strategy = jaxarch.chain(jaxarch.search.spectral(1e-4), jaxarch.recruit(tolerance=0.05))
found = {}
for form in ("eigendecomposition", "gated"):
    student = task(jaxarch.spectral_network((6, 24, 24, 6), form=form))
    found[form], _ = jaxarch.over_seeds(strategy, keys, student)
    print(f"{form}: {found[form][jaxarch.NeuronMask].count()} neurons of 48 are left in four runs")

# %%
one = {form: network.of_run(0) for form, network in found.items()}
jaxarch.plots.recruited(
    {"as published": one["eigendecomposition"], "gated": one["gated"]}, "hidden eigenvalues, one run"
)

# %% [markdown]
# Each panel of the figure above shows one hidden layer of the first run: its eigenvalues by size, the largest
# first. Blue dots are neurons that are left, and gray ones were removed.
#
# In the gated form the eigenvalues fall off a cliff behind the neurons that are needed. In the published form
# they slope. There an eigenvalue is also part of the weights into the next layer. So a neuron with a small
# eigenvalue can still get input through the eigenvalues of the layer before.
#
# The result is an ordinary network of ordinary matrices, which `direct_weights` returns. The next figure
# draws it for two runs of the gated form, from the inputs on the left to the outputs on the right.
# Connections between neighboring layers are blue, and those that skip a layer are orange. Weights of at most
# .05 are left out.

# %%
gated = [found["gated"].of_run(run) for run in range(2)]
weights = {f"run {i}": jaxarch.spectral.direct_weights(run.params, run.state) for i, run in enumerate(gated)}
jaxarch.plots.architectures({"gated": weights}, cutoff=0.05)

# %% [markdown]
# Does the result depend on the strength of the penalty? Try nine strengths, one run each. Strengths are
# traced, so the sweep is one program.
#
# The left panel shows the neurons left, beside the teacher's 6. The right one shows the share of the variance
# of the validation targets that the student does not explain.

# %%
student = task(jaxarch.spectral_network((6, 24, 24, 6), form="gated"))
strengths = np.geomspace(1e-6, 1e-2, 9)


def at(settings):
    return jaxarch.chain(jaxarch.search.spectral(settings["strength"]), jaxarch.recruit(tolerance=0.05))


swept, _ = jaxarch.over_seeds(
    at, jax.random.split(jax.random.key(3), 9), student, {"strength": jnp.asarray(strengths, jnp.float32)}
)
outputs = jaxarch.evaluate(at({"strength": 1e-4}), swept, student, jnp.arange(2000, 2500))
rest = jnp.square(outputs - y[2000:]).mean(axis=(1, 2)) / y[2000:].var(axis=0).mean()

import matplotlib.pyplot as plt

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
left.semilogx(strengths, swept[jaxarch.NeuronMask].count(), "o-")
left.axhline(6, color="gray", ls=":", label="the teacher's 6")
left.set(xlabel="strength of the penalty", ylabel="neurons left", ylim=(0, 50))
left.legend(frameon=False)
right.loglog(strengths, rest, "o-")
right.set(xlabel="strength of the penalty", ylabel="unexplained variance")
print(swept[jaxarch.NeuronMask].count(), "neurons are left")

# %% [markdown]
# **What was learned.** With two hidden layers the gated form comes near the teacher's width: 8 to 12 neurons
# for 6. The published form keeps nearly all of its own. A penalty that is too strong costs accuracy, as the
# right panel shows.
#
# To go on: the page *Spectral networks* has eigenvalues that become exactly 0, strengths by layer, and heads
# for convolutional networks. *What it finds* has rival methods, among which a group lasso on ordinary weights
# does as well.
