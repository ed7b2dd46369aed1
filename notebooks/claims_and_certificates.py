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
# Two questions to theory. Is what a paper states true? And what do true statements say of *my* network? The
# first is answered by running the statement, the second by a certificate.

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
# from the best one after T steps. Every claim carries its checks, and says where it fails:

# %%
for outcome in jaxarch.lab.claims.check(["D.theorem-4.3", "two-temperature.convergence"]):
    print(f"{outcome.claim.id}: {outcome.verdict}")

# %% [markdown]
# The statement is a function: its left side, and the right side that should not be smaller. A single
# connection with a linear loss is enough. At first the bound holds; but the gap falls more slowly than the
# bound does, and the lines cross.

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
# What is true in its place, `two-temperature.convergence`, is proved on the page *Theorems*, and its core
# was checked by Coq: a regret bound whose constant is the ratio of the temperatures.
#
# ## A network, certified
#
# Edge-popup keeps a few connections of a random network, and trains nothing. How often does it err on new
# examples? Rows that chose nothing bound it well. The training rows bound it too, if the choice is paid
# for: by the length of the mask's description.

# %%
digits = jaxarch.lab.data.load("digits")
order = jax.random.permutation(jax.random.key(1), 1797)  # who wrote them comes in order


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
# The more connections, the better the mask, and the longer its description: 1,300 examples can pay for
# little of it. On 60,000 examples of MNIST, masks that are searched for with a short description in mind
# are certified at 11.4% errors, where they make 2.9%.
#
# ## Better, by single connections
#
# The certificate also tries single connections. Where one more or one less lowers the loss, `flip` makes
# the change:

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
# **What was learned.** A theorem can be run, and one that fails shows where. A certificate from the
# training rows alone is honest, and on few examples empty; rows held out say more. To go on: *What a mask
# is worth* has masks that are made to be certified and settings by theorem, *Claims* lists every statement
# and how it is known.
