"""How close and how fast are linear and interval bounds of networks, beside auto_LiRPA and immrax?

    export JAXARCH_DATA=...                                             # MNIST; without it, enlarged digits
    python benchmarks/bounds_beside_auto_lirpa.py                       # jaxarch alone: some ten minutes
    python benchmarks/bounds_beside_auto_lirpa.py --authors FOLDER      # beside a clone of auto_LiRPA
    python benchmarks/bounds_beside_auto_lirpa.py --immrax --networks "MLP, ReLU"     # beside immrax
    python benchmarks/bounds_beside_auto_lirpa.py --authors FOLDER --radii 1e-6       # margins of rounding

All bound the ten logits of the same networks, with the same weights, over the same boxes around test images.
The perceptrons have widths 784-300-100-10. The CNN has two strided convolutions. `attention` is a transformer
block of 7 tokens and 16 features, with layer norms and GELU. Each is trained for 1,500 steps of 100 images.

Attacks look for outputs outside the bounds, in float64. For each image they try 10,000 points at random, half
of them corners, and 20 gradient steps for each output and direction. Widths are medians over ten images and
ten outputs. The number in brackets is the median ratio of `linear_bounds` to the method:

| network, radius | attacks | interval_bounds | linear_bounds | ascent=20 | IBP | CROWN | alpha-CROWN |
|---|---|---|---|---|---|---|---|
| MLP, ReLU, .01 | 1.59 | 29.9 (.080) | 2.28 | 2.23 (1.019) | 29.5 (.081) | 2.25 (1.012) | 2.20 (1.032) |
| MLP, ReLU, .03 | 4.59 | 88.9 (.130) | 11.3 | 10.9 (1.049) | 88.5 (.131) | 11.3 (1.005) | 10.8 (1.054) |
| MLP, tanh, .01 | 1.18 | 21.3 (.123) | 2.57 | 2.45 (1.050) | 21.1 (.124) | 2.52 (1.019) | 2.42 (1.052) |
| MLP, tanh, .03 | 3.51 | 36.2 (.421) | 15.3 | 14.3 (1.058) | 36.2 (.421) | 15.1 (1.009) | 14.4 (1.052) |
| MLP, sigmoid, .01 | .82 | 8.06 (.145) | 1.13 | 1.09 (1.038) | 7.98 (.147) | 1.11 (1.014) | 1.07 (1.057) |
| MLP, sigmoid, .03 | 2.34 | 20.0 (.274) | 5.39 | 4.94 (1.092) | 20.0 (.275) | 5.34 (1.009) | 4.84 (1.112) |
| MLP, GELU, .01 | 1.60 | 102 (.027) | 2.69 | 2.67 (1.008) | 107 (.025) | 3.32 (.814) | 3.30 (.817) |
| MLP, GELU, .03 | 4.66 | 371 (.045) | 16.2 | 15.6 (1.028) | 153 (.101) | 21.6 (.743) | 16.5 (.977) |
| CNN, ReLU, .01 | 1.67 | 24.8 (.099) | 2.45 | not run | 24.7 (.100) | 2.42 (1.011) | 2.36 (1.044) |
| CNN, ReLU, .03 | 4.80 | 70.9 (.145) | 10.4 | not run | 70.8 (.146) | 10.4 (1.003) | 9.29 (1.115) |
| attention, .001 | .241 | 311,000 (.000) | .386 | not run | 153,000 (.000) | .356 (1.095) | fails |
| attention, .003 | .723 | 1,140,000 (.000) | 2.37 | not run | 560,000 (.000) | 1.64 (1.407) | fails |

Bounds of immrax were measured earlier. At .01 and .03 its crown is 3.33 and 20.5 wide for the MLP with ReLU,
1.43 and 8.17 with sigmoid. It has none for tanh and GELU.

Seconds an image, and of the first call, on shared cores (medians of ten; other work made them noisy):

| network, .01 | linear_bounds | ascent=20 | CROWN | alpha-CROWN |
|---|---|---|---|---|
| MLP, ReLU | .032, first 8 | 1.6, first 23 | .023, first .1 | 1.0, first 3 |
| MLP, tanh | .041, first 8 | 1.6, first 22 | .049, first .5 | 3.3, first 4 |
| MLP, sigmoid | .031, first 8 | 1.5, first 24 | .040, first .4 | 3.3, first 4 |
| MLP, GELU | .070, first 13 | 1.8, first 27 | .061, first 3.3 | 3.7, first 7 |
| CNN, ReLU | .87, first 11 | more than a minute | .048, first .1 | 3.6, first 7 |
| attention, .001 | .078, first 78 | not run | .35, first 2.3 | fails |

None of these attacks leaves any bounds. At a radius of 1e-6, CROWN misses 96 of 100 outputs of the MLP with
ReLU and 91 of the CNN, by up to 2e-6: it does not count its rounding errors. jaxarch misses none there. Its
margins make bounds .025 and .042 wide where the outputs vary by .0002. `linear_bounds` is never looser than
`interval_bounds` in this table.

In float64 the margins vanish. `linear_bounds` is then as wide as CROWN for ReLU: medians agree to three
digits, and single outputs differ by 1%, either way. So margins alone are what float32 loses: 1.2% of the
width at .01, and .5% at .03. For tanh and sigmoid, both choose the tangent in the middle. jaxarch finds it by
24 pieces, which leaves up to .6% besides the margins. The CNN is slow, since the first convolution is passed
back for 4,608 rows, although its intervals are as close. Intervals of immrax are those of IBP; it has none
for sigmoid and GELU.

With `ascent=20`, bounds are as close as those of alpha-CROWN, to 2.2%, and closer for GELU. Here each bound
of each hidden value takes its own steps; alpha-CROWN takes steps for all bounds of hidden values together.

In attention, margins are 6.5% and 2.5% of the width at .001 and .003. Without them, jaxarch is some 2% and
40% looser. auto_LiRPA has planes for a softmax as a whole; jaxarch takes exponentials, a sum and a quotient,
each with lines of its own. Whether this is the cause was not measured. Compiling takes minutes. alpha-CROWN
stops with a failed assertion of its square root.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import os
import sys
import time
import types
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxarch
from jaxarch.lab import data
from jaxarch.theory.intervals import interval_bounds
from jaxarch.theory.relaxation import linear_bounds

Params = dict[str, Any]
Bounds = Callable[[Any, Any], tuple[Any, Any]]
SIDE, CLASSES, TOKENS, WIDTH, HEADS = 28, 10, 7, 16, 2
SIZES = (SIDE * SIDE, 300, 100, CLASSES)
ACTIVATIONS = {"ReLU": jax.nn.relu, "tanh": jnp.tanh, "sigmoid": jax.nn.sigmoid}
ACTIVATIONS["GELU"] = partial(jax.nn.gelu, approximate=False)


@dataclasses.dataclass(frozen=True)
class Network:
    """A network in JAX and its copy in PyTorch.

    Attributes:
      init: draw parameters.
      apply: return the logits of a batch of images.
      copied: return the PyTorch module with the same weights.
      radii: the distances to an image, in pixels, that define the boxes.
    """

    init: Callable[[jax.Array], Params]
    apply: Callable[[Params, jax.Array], jax.Array]
    copied: Callable[[Params], Any]
    radii: tuple[float, ...] = (0.01, 0.03)


def drawn(key: jax.Array, shapes: dict[str, tuple[int, ...]]) -> Params:
    """Draw kernels from a normal distribution of variance 2 / inputs; vectors are 0, and scales 1."""
    keys = jax.random.split(key, len(shapes))
    params = {}
    for (name, shape), key in zip(shapes.items(), keys, strict=True):
        inputs = np.prod(shape[1:]) if len(shape) == 4 else shape[0]
        kernel = jax.random.normal(key, shape) * np.sqrt(2 / inputs)
        params[name] = kernel if len(shape) > 1 else jnp.full(shape, float(name.startswith("scale")))
    return params


def torch_module(params: Params, forward: Callable[[Any, Any], Any]) -> Any:
    """Return a PyTorch module with some weights, by name."""
    import torch

    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, value in params.items():
                self.register_buffer(name, torch.tensor(np.array(value)))

        def forward(self, x: Any) -> Any:
            return forward(self, x)

    return Module().eval()


def torch_gelu(x: Any) -> Any:
    """Return GELU under the name by which auto_LiRPA knows it; it has no error function."""
    import torch

    class Gelu(torch.autograd.Function):
        @staticmethod
        def symbolic(graph: Any, x: Any) -> Any:
            return graph.op("custom::Gelu", x)

        @staticmethod
        def forward(context: Any, x: Any) -> Any:
            return torch.nn.functional.gelu(x)

    return Gelu.apply(x)


# Networks ------------------------------------------------------------------------------------------------


def perceptron(activation: str) -> Network:
    """Return a perceptron with two hidden layers."""
    act = ACTIVATIONS[activation]
    layers = len(SIZES) - 1

    def apply(params: Params, x: jax.Array) -> jax.Array:
        x = x.reshape(len(x), -1)
        for layer in range(layers):
            x = x @ params[f"w{layer}"] + params[f"b{layer}"]
            x = act(x) if layer < layers - 1 else x
        return x

    def forward(of: Any, x: Any) -> Any:
        import torch

        x = x.flatten(1)
        acts = {"ReLU": torch.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid}
        acts["GELU"] = torch_gelu
        for layer in range(layers):
            x = torch.nn.functional.linear(x, getattr(of, f"w{layer}").T, getattr(of, f"b{layer}"))
            x = acts[activation](x) if layer < layers - 1 else x
        return x

    shapes: dict[str, tuple[int, ...]] = {}
    for layer, pair in enumerate(itertools.pairwise(SIZES)):
        shapes |= {f"w{layer}": pair, f"b{layer}": pair[1:]}
    return Network(partial(drawn, shapes=shapes), apply, partial(torch_module, forward=forward))


def convolutional() -> Network:
    """Return two strided convolutions with ReLU, and a dense layer."""
    shapes = {"w0": (16, 1, 5, 5), "b0": (16,), "w1": (32, 16, 3, 3), "b1": (32,)}
    shapes |= {"w2": (32 * 5 * 5, CLASSES), "b2": (CLASSES,)}

    def apply(params: Params, x: jax.Array) -> jax.Array:
        x = x[:, None]
        for layer in range(2):
            x = jax.lax.conv_general_dilated(x, params[f"w{layer}"], (2, 2), "VALID")
            x = jax.nn.relu(x + params[f"b{layer}"][:, None, None])
        return x.reshape(len(x), -1) @ params["w2"] + params["b2"]

    def forward(of: Any, x: Any) -> Any:
        import torch

        for layer in range(2):
            w, b = getattr(of, f"w{layer}"), getattr(of, f"b{layer}")
            x = torch.relu(torch.nn.functional.conv2d(x, w, b, stride=2))
        return torch.nn.functional.linear(x.flatten(1), of.w2.T, of.b2)

    return Network(partial(drawn, shapes=shapes), apply, partial(torch_module, forward=forward))


def attention() -> Network:
    """Return a transformer block over rows of pixels: attention and a GELU layer, after layer norms."""
    features, size = SIDE * SIDE // TOKENS, WIDTH // HEADS
    shapes: dict[str, tuple[int, ...]] = {"embed": (features, WIDTH), "place": (TOKENS, WIDTH)}
    shapes |= dict.fromkeys(("query", "key", "value", "out"), (WIDTH, WIDTH))
    shapes |= {"wide": (WIDTH, 2 * WIDTH), "narrow": (2 * WIDTH, WIDTH), "head": (WIDTH, CLASSES)}
    for norm in range(2):
        shapes |= {f"scale{norm}": (WIDTH,), f"shift{norm}": (WIDTH,)}

    def block(of: Any, x: Any, softmax: Any, gelu: Any, swapped: Any, root: Any) -> Any:
        def norm(x: Any, number: int) -> Any:
            centred = x - x.mean(-1, keepdims=True)
            spread = root((centred * centred).mean(-1, keepdims=True) + 1e-3)
            return centred / spread * getattr(of, f"scale{number}") + getattr(of, f"shift{number}")

        def heads(x: Any) -> Any:
            return swapped(x.reshape(-1, TOKENS, HEADS, size), 1, 2)

        x = x.reshape(-1, TOKENS, features) @ of.embed + of.place
        y = norm(x, 0)
        query, key, value = heads(y @ of.query), heads(y @ of.key), heads(y @ of.value)
        shares = softmax((query * size**-0.5) @ swapped(key, 2, 3), -1)
        x = x + swapped(shares @ value, 1, 2).reshape(-1, TOKENS, WIDTH) @ of.out
        x = x + gelu(norm(x, 1) @ of.wide) @ of.narrow
        return x.mean(1) @ of.head

    def apply(params: Params, x: jax.Array) -> jax.Array:
        of = types.SimpleNamespace(**params)
        return block(of, x, jax.nn.softmax, ACTIVATIONS["GELU"], jnp.swapaxes, jnp.sqrt)

    def forward(of: Any, x: Any) -> Any:
        import torch

        return block(of, x, torch.softmax, torch_gelu, torch.transpose, torch.sqrt)

    return Network(
        partial(drawn, shapes=shapes), apply, partial(torch_module, forward=forward), (0.001, 0.003)
    )


NETWORKS = {
    **{f"MLP, {name}": partial(perceptron, name) for name in ACTIVATIONS},
    "CNN, ReLU": convolutional,
    "attention": attention,
}


def images() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return training images in [0, 1], their labels, and images of the test. Digits are enlarged."""
    name = "mnist" if os.environ.get("JAXARCH_DATA") else "digits"
    found = data.load_images(name)
    x = found.x[..., 0].astype(np.float32) / found.x.max()
    if name == "digits":
        x = x.repeat(4, 1).repeat(4, 2)[:, 2:-2, 2:-2]
    count = found.train if name == "mnist" else len(x) * 4 // 5
    return x[:count], found.y[:count], x[count:]


def trained(network: Network, x: Any, y: Any, steps: int) -> Params:
    """Train a network by Adam."""
    problem = jaxarch.supervised(
        (network.init, network.apply),
        (x, y),
        loss=optax.softmax_cross_entropy_with_integer_labels,
        optimizer=optax.adam(2e-3),
        steps=steps,
        batch_size=100,
    )
    found: Params = jaxarch.search.dense(nonnegative=False)(jax.random.key(0), problem).params
    return found


# Bounds --------------------------------------------------------------------------------------------------


def ours(network: Network, params: Params, ascent: int) -> dict[str, Bounds]:
    """Return the bounds of jaxarch, by name."""

    def logits(x: jax.Array) -> jax.Array:
        return network.apply(params, x[None])[0]

    doubled = jax.jit(linear_bounds(lambda x: network.apply(wide, x[None])[0]))
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf, np.float64)), params)

    def in_float64(low: Any, high: Any) -> tuple[Any, Any]:
        with jax.enable_x64(True):
            return doubled(low.astype(np.float64), high.astype(np.float64))

    found = {
        "interval_bounds": jax.jit(interval_bounds(logits)),
        "linear_bounds": jax.jit(linear_bounds(logits)),
        "linear_bounds, float64": in_float64,
    }
    if ascent:
        found[f"linear_bounds, ascent={ascent}"] = jax.jit(linear_bounds(logits, ascent=ascent))
    return found


def of_immrax(activation: str, params: Params) -> dict[str, Bounds]:
    """Return the bounds of immrax for a perceptron; it propagates linear bounds forwards."""
    # It draws polygons by a package that needs a compiler, and that bounds do not need.
    sys.modules.setdefault("pypoman", mock.MagicMock())
    import immrax

    def logits(x: jax.Array) -> jax.Array:
        for layer in range(len(SIZES) - 1):
            if layer:
                # It has no rule for `jax.nn.relu`.
                x = jnp.maximum(x, 0) if activation == "ReLU" else ACTIVATIONS[activation](x)
            x = params[f"w{layer}"].T @ x + params[f"b{layer}"]
        return x

    def intervals(low: jax.Array, high: jax.Array) -> tuple[jax.Array, jax.Array]:
        found = immrax.natif(logits)(immrax.interval(low.ravel(), high.ravel()))
        return found.lower, found.upper

    def lines(low: jax.Array, high: jax.Array) -> tuple[jax.Array, jax.Array]:
        box = immrax.interval(low.ravel(), high.ravel())
        found = immrax.crown(logits)(box)(box)
        return found.lower, found.upper

    return {"immrax natif": jax.jit(intervals), "immrax crown": jax.jit(lines)}


def of_auto_lirpa(network: Network, params: Params, methods: list[str]) -> dict[str, Bounds]:
    """Return the bounds of auto_LiRPA, by method."""
    import torch
    from auto_LiRPA import BoundedModule, BoundedTensor, PerturbationLpNorm

    module = network.copied(params)
    torch.set_num_threads(1)

    def prepared(method: str) -> Bounds:
        wrapped = None

        def bounds(low: Any, high: Any) -> tuple[Any, Any]:
            nonlocal wrapped
            # Their graph belongs to the first call, like compilation here.
            if wrapped is None:
                example = torch.zeros(1, 1, SIDE, SIDE)
                wrapped = BoundedModule(module, example, bound_opts={"conv_mode": "patches"}, verbose=False)
            ends = [torch.tensor(np.array(end))[None, None] for end in (low, high)]
            box = PerturbationLpNorm(norm=np.inf, x_L=ends[0], x_U=ends[1])
            x = BoundedTensor((ends[0] + ends[1]) / 2, box)
            with torch.set_grad_enabled(method == "CROWN-Optimized"):
                found = wrapped.compute_bounds(x=(x,), method=method)
            return tuple(end.detach().numpy()[0] for end in found)

        return bounds

    return {f"auto_LiRPA {method}": prepared(method) for method in methods}


def box_around(image: np.ndarray, radius: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the images within a distance, without values outside [0, 1]."""
    return np.clip(image - np.float32(radius), 0, 1), np.clip(image + np.float32(radius), 0, 1)


# Attacks -------------------------------------------------------------------------------------------------


def attack(network: Network, count: int) -> Callable[..., tuple[Any, Any]]:
    """Return a function that finds the least and the largest outputs over a box, in float64.

    It takes points at random, corners at random, and 20 steps along the signs of the gradient for each output
    and direction.
    """
    chunk = 500

    @jax.jit
    def run(params: Params, key: jax.Array, low: jax.Array, high: jax.Array) -> tuple[Any, Any]:
        def seen(x: jax.Array) -> tuple[jax.Array, jax.Array]:
            y = network.apply(params, x)
            return y.min(0), y.max(0)

        def at_random(key: jax.Array) -> tuple[jax.Array, jax.Array]:
            shares = jax.random.uniform(key, (chunk, *low.shape), low.dtype)
            corners = jnp.arange(chunk).reshape(-1, *[1] * low.ndim) % 2 == 0
            shares = jnp.where(corners, jnp.round(shares), shares)
            return seen(jnp.clip(low + shares * (high - low), low, high))

        def target(x: jax.Array) -> jax.Array:
            y = network.apply(params, x).reshape(2, CLASSES, CLASSES)
            return jnp.trace(y[0]) - jnp.trace(y[1])

        def step(x: jax.Array, size: jax.Array) -> tuple[jax.Array, Any]:
            x = jnp.clip(x + size * (high - low) * jnp.sign(jax.grad(target)(x)), low, high)
            return x, seen(x)

        random = jax.lax.map(at_random, jax.random.split(key, -(-count // chunk)))
        start = jnp.broadcast_to((low + high) / 2, (2 * CLASSES, *low.shape))
        _, steps = jax.lax.scan(step, start, 0.5 * 0.85 ** jnp.arange(20, dtype=low.dtype))
        both = [jnp.concatenate(pair) for pair in zip(random, steps, strict=True)]
        return both[0].min(0), both[1].max(0)

    def doubled(params: Params, seed: int, low: Any, high: Any) -> tuple[Any, Any]:
        with jax.enable_x64(True):
            params, low, high = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), (params, low, high))
            least, largest = run(params, jax.random.key(seed), low, high)
            return np.asarray(least), np.asarray(largest)

    return doubled


# Measurements --------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Measured:
    """Bounds of some boxes, by one method."""

    first: float
    seconds: list[float] = dataclasses.field(default_factory=list)
    lower: list[Any] = dataclasses.field(default_factory=list)
    upper: list[Any] = dataclasses.field(default_factory=list)

    @property
    def widths(self) -> Any:
        """Return the widths of bounds, by box and output."""
        return np.stack(self.upper).astype(np.float64) - np.stack(self.lower)


def first_calls(methods: dict[str, Bounds], box: Any) -> dict[str, float]:
    """Return the seconds of first calls, which trace and compile; print why methods fail."""
    seconds = {}
    for name, bounds in methods.items():
        begun = time.perf_counter()
        try:
            jax.block_until_ready(bounds(*box))
        except Exception as error:
            why = f"{type(error).__name__} {error}".splitlines()[0]
            print(f"  {name} fails: {why[:150]}", flush=True)
            continue
        seconds[name] = time.perf_counter() - begun
    return seconds


def measured(methods: dict[str, Bounds], boxes: list[Any], first: dict[str, float]) -> dict[str, Measured]:
    """Bound outputs over some boxes by all methods that work, in turns."""
    found = {name: Measured(seconds) for name, seconds in first.items()}
    for box in boxes:
        for name, of in found.items():
            begun = time.perf_counter()
            low, high = jax.block_until_ready(methods[name](*box))
            of.seconds.append(time.perf_counter() - begun)
            of.lower.append(np.asarray(low))
            of.upper.append(np.asarray(high))
    return found


def report(found: dict[str, Measured], attacked: list[tuple[Any, Any]]) -> None:
    """Print a row for each method: widths, violations and seconds."""
    least, largest = map(np.stack, zip(*attacked, strict=True))
    ours = found["linear_bounds"].widths
    print("| method | median width | linear_bounds / it | violations | s an image | s the first |")
    print("|---|---|---|---|---|---|")
    print(f"| attacks | {np.median(largest - least):.4g} | {np.median(ours / (largest - least)):.4f} | | | |")
    for name, of in found.items():
        ratios = ours / of.widths
        out = (np.stack(of.lower) > least) | (np.stack(of.upper) < largest)
        by = np.maximum(np.stack(of.lower) - least, largest - np.stack(of.upper))[out]
        violations = f"{out.sum()} of {out.size}" + (f", by up to {by.max():.2g}" if out.any() else "")
        print(
            f"| {name} | {np.median(of.widths):.4g} | {np.median(ratios):.4f} "
            f"[{ratios.min():.4f}, {ratios.max():.4f}] | {violations} | {np.median(of.seconds):.4f} "
            f"| {of.first:.1f} |",
            flush=True,
        )
    intervals, lines = found["interval_bounds"], found["linear_bounds"]
    looser = (np.stack(lines.lower) < np.stack(intervals.lower)) | (
        np.stack(lines.upper) > np.stack(intervals.upper)
    )
    print(f"looser than intervals: {looser.sum()} of {looser.size} outputs", flush=True)


def main() -> None:
    """Train networks, bound their logits by every method, and attack the bounds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--authors", type=Path, help="a clone of Verified-Intelligence/auto_LiRPA")
    parser.add_argument("--immrax", action="store_true", help="compare with immrax, which is installed")
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--radii", type=float, nargs="+", help="distances to images, instead of the table's")
    parser.add_argument("--images", type=int, default=10)
    parser.add_argument("--attacks", type=int, default=10_000, help="points at random for each image")
    parser.add_argument("--steps", type=int, default=1500, help="of training")
    parser.add_argument("--ascent", type=int, default=20, help="steps by which bounds choose lines; 0: none")
    parser.add_argument("--methods", nargs="+", default=["IBP", "CROWN", "CROWN-Optimized"])
    options = parser.parse_args()
    if options.authors:
        sys.path.insert(0, str(options.authors))
    x, y, test = images()
    for name in options.networks:
        network = NETWORKS[name]()
        params = trained(network, x, y, options.steps)
        methods = ours(network, params, options.ascent)
        if options.authors:
            methods |= of_auto_lirpa(network, params, options.methods)
        if options.immrax and name.startswith("MLP"):
            methods |= of_immrax(name.removeprefix("MLP, "), params)
        attacks = attack(network, options.attacks)
        radii = options.radii or network.radii
        print(f"\n{name}", flush=True)
        first = first_calls(methods, box_around(test[0], radii[0]))
        for radius in radii:
            boxes = [box_around(image, radius) for image in test[: options.images]]
            print(f"\n{name}, radius {radius}", flush=True)
            found = measured(methods, boxes, first)
            report(found, [attacks(params, seed, *box) for seed, box in enumerate(boxes)])


if __name__ == "__main__":
    main()
