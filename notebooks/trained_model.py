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
# # How much of a trained model is left after pruning?
#
# In this notebook you train a perceptron on pictures of digits. Then you prune it by 100 pictures without
# labels, and without training: single connections at first, then whole neurons.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

import jaxarch

jaxarch.use_cpu_cores()
digits = jaxarch.lab.data.load("digits")
x, y = jnp.asarray(digits.x / 16), jnp.asarray(digits.y)
train, test = jnp.split(jax.random.permutation(jax.random.key(0), len(x)), [1200])
batches = [x[train[:50]], x[train[50:100]]]
STEPS = 100


def apply(params, x):
    hidden = jax.nn.relu(x @ params["in"])
    return jax.nn.relu(hidden @ params["hidden"]) @ params["out"]


def accuracy(params, function=apply):
    return float((function(params, x[test]).argmax(1) == y[test]).mean())


def loss(params):
    return optax.softmax_cross_entropy_with_integer_labels(apply(params, x[train]), y[train]).mean()


@jax.jit
def step(params, state):
    updates, state = optimizer.update(jax.grad(loss)(params), state)
    return optax.apply_updates(params, updates), state


shapes = {"in": (64, 128), "hidden": (128, 128), "out": (128, 10)}
keys = jax.random.split(jax.random.key(1), 3)
he = jax.nn.initializers.he_normal()
params = {name: he(key, shape) for key, (name, shape) in zip(keys, shapes.items(), strict=True)}
optimizer = optax.adam(1e-2)
state = optimizer.init(params)
for _ in range(STEPS):
    params, state = step(params, state)
print(f"{accuracy(params):.2f} of the test pictures are recognized")

# %% [markdown]
# `calibrate` runs the model on the pictures, and sums up the squared inputs of each weight. In the first
# layer an input is a pixel. Pixels at the edge are nearly always 0: their weights do nothing. Magnitude does
# not know that. Wanda multiplies each weight with the norm of its input.

# %%
calibration = jaxarch.calibrate(apply, params, batches)
squares = calibration.squares(params)["in"][:, 0]
by_size = jaxarch.masks.keep(jaxarch.saliency.magnitude(params), 0.2, "layer")
per_output = jaxarch.masks.PerOutput(calibration.inputs)
by_inputs = jaxarch.masks.keep(jaxarch.saliency.wanda(params, calibration), 0.2, per_output)
pictures = {
    "squared inputs": squares,
    "weights kept by magnitude": by_size["in"].sum(1),
    "weights kept by Wanda": by_inputs["in"].sum(1),
}
figure, axes = plt.subplots(1, 3, figsize=(9, 2.6), layout="constrained")
for ax, (title, values) in zip(axes, pictures.items(), strict=True):
    shown = ax.imshow(np.asarray(values).reshape(8, 8), cmap="Blues", vmin=0)
    ax.set(title=title, xticks=[], yticks=[])
    figure.colorbar(shown, ax=ax)
plt.show()

# %% [markdown]
# Four methods at several densities. Magnitude and Wanda leave the weights as they are. `sparsegpt` moves the
# weights that are left. `alps` finds each layer's mask together with its weights.

# %%
densities = [0.5, 0.3, 0.2, 0.1, 0.05]


def kept(scores, density, scope):
    return jaxarch.masks.apply_mask(jaxarch.masks.keep(scores, density, scope), params)


wanda = jaxarch.saliency.wanda(params, calibration)
methods = {
    "magnitude": lambda density: kept(jaxarch.saliency.magnitude(params), density, "layer"),
    "Wanda": lambda density: kept(wanda, density, per_output),
    "SparseGPT": lambda density: jaxarch.sparsegpt(apply, params, batches, density)[0],
    "ALPS": lambda density: jaxarch.alps(apply, params, batches, density)[0],
}
figure, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
for name, method in methods.items():
    ax.plot(densities, [accuracy(method(density)) for density in densities], "o-", label=name)
ax.axhline(accuracy(params), color="gray", ls=":", label="dense")
ax.set(xscale="log", xlabel="connections left", ylabel="accuracy of one network")
ax.set_xticks(densities, [f"{density:.0%}" for density in densities])
ax.minorticks_off()
ax.legend(frameon=False)
plt.show()

# %% [markdown]
# Zeros alone make nothing faster. Whole neurons do: `plan` chooses them by what they add to the squared
# outputs of the next layer, within a budget. `reconstruct` lets the other weights make up for them, and
# `plan.cut` makes them smaller.

# %%
read = jaxarch.saliency.wanda(params, calibration, where=lambda path, leaf: path != "in")
scores = jax.tree.map(jnp.square, read)
shares, zeroed, solved = [50, 25, 15, 10], [], []
for share in shares:
    plan = jaxarch.structure.plan(
        apply, params, x[:1], budget=f"{share}% multiply_adds", scores=scores, scope="global"
    )
    small = plan.apply()
    zeroed.append(accuracy(small.tree, small.function))
    others = jaxarch.reconstruct(apply, params, batches, jaxarch.select(plan.mask, calibration))
    solved.append(accuracy(plan.cut(others), small.function))
figure, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
ax.plot(shares, zeroed, "o-", label="neurons gone")
ax.plot(shares, solved, "o-", label="and the others solved for")
ax.axhline(accuracy(params), color="gray", ls=":", label="dense")
ax.set(xlabel="multiply-adds left, %", ylabel="accuracy of one network", ylim=(0, 1))
ax.legend(frameon=False)
plt.show()

# %% [markdown]
# This is one network on an easy task. The page 'Prune a trained model' has a sentence encoder, a file
# detector and a language model, with draws of calibration data.
