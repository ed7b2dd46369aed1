"""ResNet-20 with batch norm, trained in epochs: SNIP keeps a tenth of the connections, for several seeds.

python docs/examples/resnet.py --steps 500 --width 1
"""

import argparse

import jax
import numpy as np
import optax

import jaxarch

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--steps", type=int, default=500)
parser.add_argument("--width", type=float, default=1.0)
parser.add_argument("--seeds", type=int, default=3)
asked = parser.parse_args()

digits = jaxarch.lab.data.load("digits")
pictures = np.asarray(digits.x / 16, np.float32).reshape(-1, 8, 8, 1)
problem = jaxarch.supervised(
    lambda rngs: jaxarch.models.ResNet20(width=asked.width, inputs=1, outputs=10, rngs=rngs),
    (pictures, digits.y),
    loss=optax.softmax_cross_entropy_with_integer_labels,
    optimizer=optax.sgd(0.1, momentum=0.9),
    steps=asked.steps,
    batch_size=100,
    sampling="epochs",  # each epoch has every example once
    train=np.arange(1200),
)
strategy = jaxarch.chain(jaxarch.search.snip(0.1), jaxarch.retrain("warm", nonnegative=False))
network, report = jaxarch.over_seeds(strategy, jax.random.split(jax.random.key(0), asked.seeds), problem)

test = np.arange(1200, len(digits.y))
outputs = jaxarch.evaluate(strategy, network, problem, test)
accuracy = (np.asarray(outputs).argmax(-1) == digits.y[test]).mean(axis=1)
print(f"accuracy {np.median(accuracy):.3f}, the median of {asked.seeds} seeds")
