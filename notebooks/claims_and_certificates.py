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
# # Claims and certificates
#
# This notebook answers two questions about theory. Is a paper's statement true? You run the statement, and
# see. And what do true statements say about *my* network? You compute a certificate: bounds on how often the
# network errs on new examples.

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np
import optax

import jaxarch

cores = jaxarch.use_cpu_cores()

# %% [markdown]
# ## A theorem, run
#
# Theorem 4.3 of Colombo and Gao (*Disentangling Neural Architectures and Weights*) bounds how far a mask is
# from the best one after T steps. In jaxarch each statement is a *claim* with an id. Every claim carries its
# checks, and says where it fails. `check` runs them and returns a verdict:

# %%
for outcome in jaxarch.lab.claims.check(["D.theorem-4.3", "two-temperature.convergence"]):
    print(f"{outcome.claim.id}: {outcome.verdict}")

# %% [markdown]
# The theorem is a function too. It returns its left side, and its right side, which should not be smaller. A
# single connection with a linear loss is enough to test it.
#
# The panels of the figure have losses of two slopes. The solid line is the left side, how far the loss is
# from the best one; the dashed line is the bound. At slope 1 the bound holds at first; but the gap falls more
# slowly than the bound does, and the lines cross. At slope .1 the gap is above the bound from the first step.

# %%
theorem = jaxarch.lab.claims.disentangling.convergence.theorem_4_3
steps = np.unique(np.geomspace(1, 10_000, 25).astype(int))
figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.2), layout="constrained", sharey=True)
for panel, linear in zip(axes, (1.0, 0.1), strict=True):
    case = {"linear": linear, "curvature": 0.0, "hard": 4.0, "soft": 4.0, "c": 1.0, "score": 0.0}
    sides = [theorem(**case, steps=T) for T in steps]
    panel.loglog(steps, [float(side.left) for side in sides], label="distance from the best loss")
    panel.loglog(steps, [float(side.right) for side in sides], "--", label="what the theorem allows")
    panel.set(title=f"slope {linear}", xlabel="steps")
legend = axes[0].legend(frameon=False)

# %% [markdown]
# The true statement in its place is `two-temperature.convergence`, proved on the page *Theorems*. Coq checked
# its core: a regret bound whose constant depends on the ratio of the temperatures.
#
# ## A network, certified
#
# Edge-popup keeps a few connections of a random network, and trains no weight. How often does the result err
# on new examples? Two kinds of rows give a bound:
#
# - *Held-out rows*, which chose nothing, give a good bound.
# - *The training rows* chose the mask. They give a bound too, if it pays for the choice by the length of the
#   mask's description.
#
# The code searches at four densities, in four runs each. `Start` has the weights from before the search: the
# bound by the training rows needs them. The certificate printed is that of the first run at density .05.

# %%
digits = jaxarch.lab.data.load("digits")
order = jax.random.permutation(jax.random.key(1), 1797)  # the rows are sorted by writer


def init(key):
    first, second = jax.random.split(key)
    return {"first": jax.random.normal(first, (64, 30)), "second": jax.random.normal(second, (30, 10))}


problem = jaxarch.supervised(
    (init, lambda params, x: jax.nn.relu(x @ params["first"]) @ params["second"]),
    (digits.x / 16, digits.y),
    loss=optax.softmax_cross_entropy_with_integer_labels,
    optimizer=optax.adam(0.02),
    steps=1000,
    batch_size=100,
    train=order[:1300],
    validation=order[1300:],
)
keys = jax.random.split(jax.random.key(0), 4)
certificates = {}
for density in (0.02, 0.05, 0.1, 0.3):
    found, _ = jaxarch.over_seeds(jaxarch.search.edge_popup(density), keys, problem)
    networks = [found.of_run(run) for run in range(4)]
    certificates[density] = [
        jaxarch.certify(one, problem, weights=one[jaxarch.Start].params) for one in networks
    ]
print(certificates[0.05][0])

# %% [markdown]
# In this certificate `error on new data` is the bound by the training rows, and `description` the length that
# it pays for. `from held-out rows` is the other bound. Each bound is wrong with probability at most .05, if
# everything under `assumed` is true. `gap` is a distance from stationarity, and `single flips` tries the most
# promising single connections, and counts those whose change lowers the loss.
#
# The figure shows both bounds and both error rates by density, with medians and quartiles over the four runs.
# Compare each bound with the error rate of its rows.

# %%
sizes = np.tile(list(certificates), (4, 1))
lines = {
    "certified by the training rows": lambda one: one.training.bound,
    "certified by rows held out": lambda one: one.held_out.bound,
    "errors on rows held out": lambda one: one.held_out.rate,
    "errors on the training rows": lambda one: one.training.rate,
}
jaxarch.plots.trade_off(
    {
        name: (sizes, np.array([[value(one) for one in runs] for runs in certificates.values()]).T)
        for name, value in lines.items()
    },
    "density",
    "errors",
    "what can be said of new examples",
    logarithmic=(True, False),
)

# %% [markdown]
# The more connections, the better the mask, and the longer its description: 1,300 examples can pay for little
# of it. On 60,000 examples of MNIST, masks that are searched for with a short description in mind are
# certified at 11.4% errors, where they make 2.9%.
#
# ## Better, by single connections
#
# The certificate also tries single flips: one connection more, or one less. Where a flip lowers the loss,
# `flip` makes it. It takes up to 100 rounds, compares 50 candidates in each and makes the best flip. With
# `returning="start"`, a connection that comes back gets its initial weight.
#
# For each of the four runs the code prints the training loss and the error rate on held-out rows, before and
# after:

# %%
edge_popup = jaxarch.search.edge_popup(0.05)
strategy = jaxarch.chain(edge_popup, jaxarch.flip(100, tried=50, returning="start"))
better, _ = jaxarch.over_seeds(strategy, keys, problem)
flipped = [better.of_run(run) for run in range(4)]
after = [jaxarch.certify(one, problem, weights=one[jaxarch.Start].params) for one in flipped]
for before, now in zip(certificates[0.05], after, strict=True):
    held_out = f"held out {before.held_out.rate:.2f} to {now.held_out.rate:.2f}"
    print(f"loss {before.loss:.2f} to {now.loss:.2f}, {held_out}")

# %% [markdown]
# **What was learned.** You can run a theorem, and one that fails shows where. A certificate from the training
# rows alone is honest, but on few examples it says next to nothing. Held-out rows say more.
#
# To go on: *What a mask is worth* has masks that are made to be certified, and settings chosen by theorem.
# *Claims* lists every statement and how it is known.
