"""An LSTM over sequences of different lengths: inputs are a dict, and three seeds run as one program.

Magnitude pruning keeps 30% of the connections after one training, and the weights left are trained further.

python docs/examples/lstm.py --steps 300
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import jaxarch

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--steps", type=int, default=300)
steps = parser.parse_args().steps

# The task: does the first letter of a word occur again? Words have 1 to 12 letters, and are padded with 0.
draw = np.random.default_rng(0)
lengths = draw.integers(1, 13, 2000)
words = draw.integers(1, 7, (2000, 12)) * (np.arange(12) < lengths[:, None])
seen_again = (words[:, 1:] == words[:, :1]).any(axis=1).astype(int)


class Reader(nnx.Module):
    def __init__(self, rngs):
        self.embedding = nnx.Embed(7, 32, rngs=rngs)
        self.rnn = nnx.RNN(nnx.LSTMCell(32, 32, rngs=rngs), return_carry=True)
        self.head = nnx.Linear(32, 2, rngs=rngs)

    def __call__(self, x):
        (_, hidden), _ = self.rnn(self.embedding(x["words"]), seq_lengths=x["lengths"])
        return self.head(hidden)


problem = jaxarch.supervised(
    Reader,
    ({"words": words, "lengths": lengths}, seen_again),
    loss=optax.softmax_cross_entropy_with_integer_labels,
    optimizer=optax.adam(1e-2),
    steps=steps,
    batch_size=100,
    train=np.arange(1500),
)
strategy = jaxarch.chain(
    jaxarch.search.magnitude_pruning(0.3, fraction=None), jaxarch.retrain("warm", nonnegative=False)
)
network, report = jaxarch.over_seeds(strategy, jax.random.split(jax.random.key(0), 3), problem)

test = np.arange(1500, 2000)
outputs = jaxarch.evaluate(strategy, network, problem, test)
accuracy = (np.asarray(outputs).argmax(-1) == seen_again[test]).mean(axis=1)
density = jax.vmap(jaxarch.density)(network.mask)
print(f"accuracy {jnp.median(accuracy):.3f} at density {jnp.median(density):.2f}, the median of 3 seeds")
