"""A GPT, fully sharded over 8 devices and on one: run by test_split_runs.py.

Prints a JSON object: bytes of arguments and temporaries on a device, for one of 4 layers that is not run;
and how many connections differ between the masks that are found, in one of 2 wider layers.
"""

import json

import jax
import numpy as np
import optax

import jaxarch

LENGTH, VOCABULARY = 32, 128

jaxarch.use_cpu_cores(8)
text = np.random.default_rng(0).integers(0, VOCABULARY, (64, LENGTH))


def gpt(layers, features):
    return jaxarch.supervised(
        lambda rngs: jaxarch.models.GPT(
            layers, features, heads=4, vocabulary=VOCABULARY, length=LENGTH, rngs=rngs
        ),
        (text, np.roll(text, -1, axis=1)),
        loss=optax.softmax_cross_entropy_with_integer_labels,
        optimizer=optax.adam(1e-3),
        steps=5,
        batch_size=16,
    )


search = jaxarch.search.two_temperature(weights="initial", mean=2.0, std=1.0)
keys = jax.random.split(jax.random.key(0), 1)
deep, wide = gpt(4, 64), gpt(2, 160)
places = {
    "one": {"devices": jax.devices()[:1]},
    "eight": {"mesh": jax.make_mesh((1, 8), ("runs", "data")), "partition": jaxarch.fully_sharded()},
}
taken, masks = {}, {}
for name, place in places.items():
    # Most of what compiles for a run is how it begins, and the more so the more layers there are.
    needed = jaxarch.needed_memory(search, keys, deep, chunk=5, **place)["two_temperature"]
    taken[name] = needed.arguments + needed.temporaries
    network, _ = jaxarch.over_seeds(search, keys, wide, chunk=5, **place)
    masks[name] = np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree.leaves(network.mask)])
differ = int((masks["one"] != masks["eight"]).sum())
print(json.dumps({"bytes": taken, "connections": masks["one"].size, "differ": differ}))
