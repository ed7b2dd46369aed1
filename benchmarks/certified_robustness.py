"""Are masked networks provably more robust than dense ones, and how close are bounds to what attacks find?

    export JAXARCH_DATA=...                                # where MNIST lies; digits are taken without
    python benchmarks/certified_robustness.py              # some ten minutes, on one core
    python benchmarks/certified_robustness.py --images 20  # a first look

A LeNet-300-100 on pixels between 0 and 1 is trained dense, and with one mask for each density: SNIP, then
training. For each of 100 test images and each eps, every pixel may change by eps. An image is certified if
the margin of its class over every other class has a lower bound above 0, by intervals or by linear bounds. An
attack (40 steps of projected gradients of the margin) gives an upper limit. L bounds how fast the logits
change, both norms being the largest entry; beside it stands its share of the product of the layers' norms.
One seed; L is the median of ten images:

| density | right | eps | intervals | linear | attacked | L | of the product |
|---|---|---|---|---|---|---|---|
| 1 | .969 | .01 | .00 | .93 | .94 | 187 | .018 |
| 1 | .969 | .02 | .00 | .77 | .89 | 310 | .029 |
| 1 | .969 | .04 | .00 | .16 | .71 | 650 | .062 |
| .1 | .935 | .01 | .44 | .88 | .88 | 71 | .023 |
| .1 | .935 | .02 | .07 | .85 | .86 | 73 | .023 |
| .1 | .935 | .04 | .00 | .60 | .66 | 84 | .027 |
| .02 | .864 | .01 | .69 | .78 | .79 | 53 | .024 |
| .02 | .864 | .02 | .42 | .73 | .74 | 53 | .024 |
| .02 | .864 | .04 | .07 | .65 | .66 | 53 | .025 |

Bounds are close to the attack for sparse networks, and where eps is small. Intervals alone would say that the
dense network is never robust.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxarch
from jaxarch.theory.intervals import interval_bounds
from jaxarch.theory.lipschitz import lipschitz_bound
from jaxarch.theory.relaxation import linear_bounds

DENSITIES = (1.0, 0.1, 0.02)


def init(key: Any, inputs: int) -> list[dict[str, Any]]:
    """Return the weights of a LeNet-300-100, of He's size."""
    sizes = [(inputs, 300), (300, 100), (100, 10)]
    return [
        {"kernel": jnp.sqrt(2 / size[0]) * jax.random.normal(k, size), "bias": jnp.zeros(size[1])}
        for k, size in zip(jax.random.split(key, 3), sizes, strict=True)
    ]


def apply(params: list[dict[str, Any]], x: Any) -> Any:
    """Compute the network."""
    for layer in params[:-1]:
        x = jax.nn.relu(jnp.dot(x, layer["kernel"]) + layer["bias"].reshape((1,) * (x.ndim - 1) + (-1,)))
    return jnp.dot(x, params[-1]["kernel"]) + params[-1]["bias"].reshape((1,) * (x.ndim - 1) + (-1,))


def margins(params: Any, label: Any, x: Any) -> Any:
    """Return by how much the logit of a class is above each of the others."""
    logits = apply(params, x)
    others = (label + jnp.arange(1, len(logits))) % len(logits)
    return logits[label] - logits[others]


def attacked(params: Any, label: Any, low: Any, high: Any, steps: int = 40) -> Any:
    """Return the least margin that projected gradients find in a box."""
    step = (high - low) / 8

    def least(x: Any) -> Any:
        return margins(params, label, x).min()

    def descend(x: Any, _: None) -> tuple[Any, Any]:
        return jnp.clip(x - step * jnp.sign(jax.grad(least)(x)), low, high), least(x)

    end, seen = jax.lax.scan(descend, (low + high) / 2, None, length=steps)
    return jnp.minimum(seen.min(), least(end))


def main() -> None:
    """Train, certify, attack and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--eps", type=float, nargs="*", default=[0.01, 0.02, 0.04])
    options = parser.parse_args()
    data = jaxarch.lab.data.load("mnist" if os.environ.get("JAXARCH_DATA") else "digits")
    x = np.asarray(data.x, np.float32)
    x = (x - x.min()) / (x.max() - x.min())
    count = len(x) * 4 // 5
    problem = jaxarch.supervised(
        (lambda key: init(key, x.shape[1]), apply),
        (x, data.y),
        loss=optax.softmax_cross_entropy_with_integer_labels,
        optimizer=optax.adam(1e-3),
        steps=3000,
        batch_size=100,
        train=jnp.arange(count),
        validation=jnp.arange(count, len(x)),
    )
    held = np.arange(count, count + options.images)
    print("density  right     eps  intervals  linear  attacked     L  of the product of norms")
    for density in DENSITIES:
        steps = [jaxarch.search.snip(density), jaxarch.retrain("warm", nonnegative=False)]
        search = jaxarch.search.dense(nonnegative=False) if density == 1 else jaxarch.chain(*steps)
        network, _ = jaxarch.over_seeds(search, jax.random.split(jax.random.key(0), 1), problem)
        one = network.of_run(0)
        params = jaxarch.masks.apply_mask(one.mask, one.params)
        right = np.asarray(apply(params, x[count:]).argmax(-1) == data.y[count:]).mean()
        norms = np.prod([np.abs(np.asarray(layer["kernel"])).sum(0).max() for layer in params])

        def proofs(image: Any, label: Any, eps: Any, params: Any = params) -> Any:
            box = jnp.clip(image - eps, 0, 1), jnp.clip(image + eps, 0, 1)
            lower = [
                bounds(lambda x: margins(params, label, x))(*box)[0].min()
                for bounds in (interval_bounds, linear_bounds)
            ]
            return [least > 0 for least in (*lower, attacked(params, label, *box))]

        def slope(image: Any, eps: Any, params: Any = params) -> Any:
            box = jnp.clip(image - eps, 0, 1), jnp.clip(image + eps, 0, 1)
            return lipschitz_bound(lambda x: apply(params, x))(*box)

        proven, steep = jax.jit(proofs), jax.jit(slope)
        for eps in options.eps:
            found = np.array([proven(x[row], jnp.asarray(data.y)[row], eps) for row in held]).mean(0)
            slopes = np.median([steep(x[row], eps) for row in held[:10]])
            line = "  ".join(f"{share:9.2f}" for share in found)
            print(
                f"{density:7g}  {right:5.3f}  {eps:6g}  {line}  {slopes:6.1f}  {slopes / norms:.4f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
