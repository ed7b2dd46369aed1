"""Do methods of the tournament compute what their authors' code computes?

    pip install torch
    mkdir clones; cd clones
    git clone https://github.com/allenai/hidden-networks
    git clone https://github.com/chrundle/biprop
    git clone https://github.com/RAIVNLab/STR
    git clone https://github.com/lolemacs/continuous-sparsification
    git clone https://github.com/AMLab-Amsterdam/L0_regularization
    git clone https://github.com/huggingface/nn_pruning
    git clone https://github.com/x-zho14/ProbMask-official
    git clone https://github.com/VITA-Group/GraNet
    git clone https://github.com/ganguli-lab/Synaptic-Flow
    git clone https://github.com/Gollini/Scalable_Second_Order_PaI
    git clone https://github.com/mil-ad/prospr
    git clone https://github.com/iurada/px-ntk-pruning
    git clone https://github.com/YiteWang/NTK-SAP
    cd ..; python benchmarks/beside_the_authors.py clones      # seconds, on one core
    python benchmarks/beside_the_authors.py clones --resnet18 --seeds 1  # ten minutes

Of methods that learn a mask by gradient descent: the weights w' that a kernel of 64 x 100 becomes at random
weights and scores, and the derivatives of <g, w'>, for a random g, by scores and weights. Only the class or
function of the authors' file that is named is run. Hard concrete gates have the same random numbers on both
sides. The authors' factor of the mask of continuous sparsification, 1 / sigmoid(start), is taken out, as
jaxarch's docstring says.

Of ProbMask also the projection. Of GraNet, one change of the masks of two kernels: which connections differ.

Of methods that score connections before training, by H. Tanaka's implementation of each: an MLP 64-100-10 on
500 handwritten digits, a tenth of its connections, SynFlow in 100 rounds; in how many connections the two
masks differ. Fisher and Hutchinson scores, on the same data, are compared themselves: the sums of both terms,
as in the authors' code, and in jaxarch by gradients of the other sign. Theirs have the diagonal that jaxarch
estimated, since their random signs are others. Of ProsPr, three steps of their gradient descent are
differentiated. Of path exclusion, by its authors' code, the same in 100 rounds as of SynFlow. Of NTK-SAP, by
its authors' code, one draw of the score: both sides have the same weights, noise and inputs.

With --resnet18, their magnitude at the start and SynFlow alone, on their ResNet-18 for pictures of 32 x 32:
which of its layers are left without a connection at densities .1, .056, .01 and .001. jaxarch's are in
docs/results/tournament_resnet18.

Printed: the largest difference over the largest number, in the worst of the seeds; and of masks the
connections that one has and the other has not, a number a seed. Both sides are in float64, but some of
jaxarch's scores and constants are float32 by design.

Measured with PyTorch 2.13 on a CPU, 5 seeds, the repositories as of dddf2d0, f709fc5, cc74d38, 5bd4039,
39a5fe6, 0cef2b2, 9dfa57a, bfb50ad and a921779, in this order: at most 3e-16 (edge-popup, biprop), 2e-15
(STR), 3e-10 (continuous sparsification), 4e-8 (hard concrete), 0 (movement), 2e-15 (Fisher and Hutchinson
scores, PyTorch 2.10) and 1e-15 (ProsPr, PyTorch 2.10). The masks of magnitude at the start, SNIP and GraSP
are the same in every seed; those of SynFlow differ in 1 to 5 of 740 connections, and in none once the
authors' code rounds what is left after a round to the nearest, as jaxarch does, and not what goes down.
ProbMask (dff770a) differs by at most 2e-5, and by 3e-8 if its 1e-6 is the authors' 1e-20; its projection by
4e-7, since theirs halves the bracket 20 times. Of GraNet (f338a24) 1 or 2 of 1573 connections differ in each
direction: the authors' code rounds what is left down, less one, and what is replaced up.
Masks of path exclusion (ed6c40e) differ in 5 to 9 of 740, and in none once rounded likewise; the scores of
NTK-SAP (e23682b) by at most 2e-14.
Of their ResNet-18 (PyTorch 2.14; seed 0 at .1, .01 and .001) SynFlow empties two of the three projections of
shortcuts at .1, and all three at .01 and .001: no other layer. Magnitude at the start (three seeds) empties
none at .1, and at .056 and .01 the last one alone, whose weights PyTorch draws from a uniform distribution
that ends below the threshold.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import math
import sys
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
import torch  # noqa: E402
from authors import definition  # noqa: E402
from torch import autograd, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

import jaxarch  # noqa: E402
from jaxarch import masks, saliency, search  # noqa: E402
from jaxarch.search._probmask import _projected  # noqa: E402
from jaxarch.search._scored import logistic_noise  # noqa: E402

torch.set_default_dtype(torch.float64)

SHAPE, DENSITY, ROUNDS, TEMPERATURE = (64, 100), 0.1, 100, 200.0
PRUNERS = {"Mag": 1, "SynFlow": ROUNDS}
"""Of the authors, those that need no data, with their rounds."""
Numbers = Mapping[str, np.ndarray]


def linear() -> jaxarch.Problem:
    """One kernel, of which only the shape matters."""
    x, y = np.zeros((4, SHAPE[0])), np.zeros((4, SHAPE[1]))
    model = jaxarch.Model(
        lambda key: ({"kernel": jax.random.normal(key, SHAPE, jnp.float64)}, {}),
        lambda params, state, x, key: (x @ params["kernel"], state),
    )
    return jaxarch.supervised(model, (x, y), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)


class Drawn:
    """Random weights, scores and cotangents, the same for both sides."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.weights, self.scores, self.along = (rng.normal(size=SHAPE) for _ in range(3))

    def ours(
        self, method: Any, scores: np.ndarray, trains_weights: bool = True, step: int = 0
    ) -> tuple[Numbers, Any]:
        """What a search of jaxarch computes with, and the derivatives; and its state."""
        problem = method.on(linear())
        state = method.init(method.settings, jax.random.key(0), problem, None)._replace(step=step)
        mine = {"kernel": jnp.asarray(scores)}
        weights = {"kernel": jnp.asarray(self.weights)}
        if trains_weights:
            trainable: Any = {"scores": mine, "weights": weights}
        else:
            trainable = mine
            state = state._replace(fixed=state.fixed._replace(weights=weights))

        def kernel(trainable: Any) -> Any:
            return method.params(method.settings, state._replace(trainable=trainable))["kernel"]

        value, pull = jax.vjp(kernel, trainable)
        (back,) = pull(jnp.asarray(self.along).astype(value.dtype))
        found = {"w'": value, "by scores": (back["scores"] if trains_weights else back)["kernel"]}
        if trains_weights:
            found["by weights"] = back["weights"]["kernel"]
        state = state._replace(trainable=trainable)
        return {name: np.asarray(array, float) for name, array in found.items()}, state

    def theirs(
        self, compute: Callable[[Any, Any], Any], scores: np.ndarray, trains_weights: bool = True
    ) -> Numbers:
        """What the authors' code computes with, `(scores, weights) -> w'`, and the derivatives."""
        s = torch.tensor(scores, requires_grad=True)
        w = torch.tensor(self.weights, requires_grad=trains_weights)
        value = compute(s, w)
        (value * torch.tensor(self.along)).sum().backward()
        found = {"w'": value.detach(), "by scores": s.grad}
        if trains_weights:
            found["by weights"] = w.grad
        return {name: array.numpy() for name, array in found.items()}


def edge_popup(clones: Path, drawn: Drawn) -> tuple[Numbers, Numbers]:
    code = definition(clones / "hidden-networks" / "simple_mnist_example.py", "GetSubnet")
    ours, _ = drawn.ours(search.edge_popup(DENSITY), drawn.scores, trains_weights=False)
    return ours, drawn.theirs(
        lambda s, w: w * code.GetSubnet.apply(s.abs(), DENSITY),
        drawn.scores,
        trains_weights=False,
    )


def biprop(clones: Path, drawn: Drawn) -> tuple[Numbers, Numbers]:
    code = definition(clones / "biprop" / "utils" / "conv_type.py", "GetQuantnet_binary")
    ours, _ = drawn.ours(search.biprop(DENSITY), drawn.scores, trains_weights=False)
    return ours, drawn.theirs(
        lambda s, w: torch.sign(w) * code.GetQuantnet_binary.apply(s.abs(), w, DENSITY),
        drawn.scores,
        trains_weights=False,
    )


def soft_threshold(clones: Path, drawn: Drawn) -> tuple[Numbers, Numbers]:
    code = definition(clones / "STR" / "utils" / "conv_type.py", "sparseFunction")
    score = np.asarray(-0.3)
    ours, _ = drawn.ours(search.soft_threshold(DENSITY), score)
    return ours, drawn.theirs(lambda s, w: code.sparseFunction(w, s), score)


def continuous_sparsification(clones: Path, drawn: Drawn) -> tuple[Numbers, Numbers]:
    path = clones / "continuous-sparsification" / "models" / "layers.py"
    code = definition(path, "sigmoid", "SoftMaskedConv2d")
    layer = SimpleNamespace(mask_initial_value=0.3)

    def compute(s: Any, w: Any) -> Any:
        layer.mask_weight = s
        mask = code.SoftMaskedConv2d.compute_mask(layer, math.sqrt(TEMPERATURE), False)
        return w * mask * code.sigmoid(layer.mask_initial_value)

    # Half way, the temperature is the square root of the last one.
    ours, _ = drawn.ours(search.continuous_sparsification(DENSITY, beta=TEMPERATURE), drawn.scores, step=1)
    return ours, drawn.theirs(compute, drawn.scores)


def hard_concrete(clones: Path, drawn: Drawn) -> tuple[Numbers, Numbers]:
    path = clones / "L0_regularization" / "l0_layers.py"
    code = definition(path, "limit_a", "limit_b", "epsilon", "L0Dense")
    method = search.hard_concrete(DENSITY, strength=1.0)
    ours, state = drawn.ours(method, drawn.scores)
    (key,) = jax.random.split(jax.random.fold_in(state.fixed.key, 0), 1)
    uniform = torch.tensor(np.asarray(jax.random.uniform(key, SHAPE, jnp.float64, 1e-6, 1 - 1e-6)))
    layer = SimpleNamespace(temperature=2 / 3)

    def compute(s: Any, w: Any) -> Any:
        layer.qz_loga = s
        return w * functional.hardtanh(code.L0Dense.quantile_concrete(layer, uniform), 0, 1)

    theirs = drawn.theirs(compute, drawn.scores)
    layer.qz_loga = torch.tensor(drawn.scores)
    open_gates = (1 - code.L0Dense.cdf_qz(layer, 0)).sum().numpy()
    penalty = np.asarray(method.penalty(method.settings, state))
    return {**ours, "penalty": penalty}, {**theirs, "penalty": open_gates}


def movement(clones: Path, drawn: Drawn) -> tuple[Numbers, Numbers]:
    code = definition(clones / "nn_pruning" / "nn_pruning" / "modules" / "binarizer.py", "TopKBinarizer")
    ours, _ = drawn.ours(search.movement(DENSITY, warmup=0.0, cooldown=1.0), drawn.scores, step=2)
    return ours, drawn.theirs(lambda s, w: w * code.TopKBinarizer.apply(s, DENSITY), drawn.scores)


def probmask(clones: Path, drawn: Drawn) -> tuple[Numbers, Numbers]:
    code = definition(clones / "ProbMask-official" / "utils" / "conv_type.py", "ProbMaskConv")
    method = search.probmask(DENSITY)
    probabilities = 1 / (1 + np.exp(-drawn.scores))
    ours, state = drawn.ours(method, probabilities, step=1)
    noise = logistic_noise(jax.random.fold_in(state.fixed.key, 1), state.trainable["scores"])["kernel"]
    # Their noise is -log(log u_0 / log u_1), so the logs need this ratio; both are far above 1e-20.
    halves = [0.01 * np.exp(sign * np.asarray(noise) / 2) for sign in (-1, 1)]
    uniform = iter([torch.tensor(np.exp(-half)) for half in halves])
    code.ProbMaskConv.forward.__globals__.update(
        parser_args=SimpleNamespace(discrete=False, T=1 / (0.97 / 2 + 0.03)),
        torch=SimpleNamespace(log=torch.log, sigmoid=torch.sigmoid, rand_like=lambda _: next(uniform)),
        F=SimpleNamespace(conv2d=lambda x, w, *_: w),
    )
    rest = dict.fromkeys(("bias", "stride", "padding", "dilation", "groups"))

    def compute(s: Any, w: Any) -> Any:
        layer = SimpleNamespace(train_weights=False, scores=s, clamped_scores=s, weight=w, **rest)
        return code.ProbMaskConv.forward(layer, None)

    theirs = drawn.theirs(compute, probabilities)
    bounds = definition(
        clones / "ProbMask-official" / "utils" / "net_utils.py", "solve_v_total", "constrainScoreByWhole"
    )
    bounds.solve_v_total.__globals__["parser_args"] = SimpleNamespace(prune_rate=DENSITY)
    module = SimpleNamespace(scores=torch.tensor(probabilities))
    bounds.constrainScoreByWhole(SimpleNamespace(named_modules=lambda: [("0", module)]))
    projected = _projected(state.trainable["scores"], jnp.float64(DENSITY))["kernel"]
    ours |= {"projection": np.asarray(projected)}
    return ours, {**theirs, "projection": module.scores.numpy()}


LEARNED = {
    "edge-popup": edge_popup,
    "biprop": biprop,
    "STR": soft_threshold,
    "continuous sparsification": continuous_sparsification,
    "hard concrete": hard_concrete,
    "movement": movement,
    "ProbMask": probmask,
}


class Digits:
    """An MLP on handwritten digits, for both sides."""

    def __init__(self, seed: int) -> None:
        digits, rng = jaxarch.lab.data.load("digits"), np.random.default_rng(seed)
        rows = rng.permutation(len(digits.y))[:500]
        self.x, self.y = digits.x[rows].reshape(500, -1).astype(float) / 16, digits.y[rows].astype(np.int64)
        sizes = ((64, 100), (100, 10))
        self.kernels = [rng.normal(size=size) * math.sqrt(2 / size[0]) for size in sizes]

    def outputs(self, params: Any, x: Any) -> Any:
        """Of the classes."""
        return jax.nn.relu(x @ params["0"]) @ params["1"]

    def loss(self, params: Any, temperature: float = 1.0) -> Any:
        """The mean cross-entropy; GraSP's authors divide the outputs by a temperature."""
        outputs = self.outputs(params, jnp.asarray(self.x)) / temperature
        return optax.softmax_cross_entropy_with_integer_labels(outputs, jnp.asarray(self.y)).mean()

    def problem(self) -> jaxarch.Problem:
        """The problem of all examples."""
        params = {str(i): jnp.asarray(kernel) for i, kernel in enumerate(self.kernels)}
        model = jaxarch.Model(
            lambda key: (params, {}), lambda params, state, x, key: (self.outputs(params, x), state)
        )
        return jaxarch.supervised(
            model,
            (self.x, self.y),
            loss=optax.softmax_cross_entropy_with_integer_labels,
            optimizer=optax.sgd(0.1),
            steps=1,
        )

    def ours(self) -> dict[str, list[np.ndarray]]:
        """The masks of both kernels, by method."""
        params, _ = self.problem().init(jax.random.key(0))
        found = {
            "magnitude at start": masks.keep(saliency.magnitude(params), DENSITY),
            "SNIP": masks.keep(saliency.snip(params, jax.grad(self.loss)(params)), DENSITY),
            "GraSP": masks.keep(saliency.grasp(lambda of: self.loss(of, TEMPERATURE), params), DENSITY),
            "SynFlow": search.synflow(DENSITY, rounds=ROUNDS)(jax.random.key(0), self.problem()).mask,
        }
        return {name: [np.asarray(mask[key]) for key in ("0", "1")] for name, mask in found.items()}

    def theirs(self, clones: Path) -> dict[str, list[np.ndarray]]:
        """The masks of both kernels, by method."""
        folder = clones / "Synaptic-Flow"
        names = {"magnitude at start": "Mag", "SNIP": "SNIP", "GraSP": "GraSP", "SynFlow": "SynFlow"}
        code = definition(folder / "Pruners" / "pruners.py", "Pruner", *names.values())
        layers = definition(folder / "Layers" / "layers.py", "Linear")
        batch = [(torch.tensor(self.x), torch.tensor(self.y))]
        found = {}
        for name, of in names.items():
            network = nn.Sequential(layers.Linear(64, 100), nn.ReLU(), layers.Linear(100, 10))
            dense = [network[0], network[2]]
            with torch.no_grad():
                for layer, kernel in zip(dense, self.kernels, strict=True):
                    layer.weight.copy_(torch.tensor(kernel.T))
                    layer.bias.zero_()
            pruner = getattr(code, of)([(layer.weight_mask, layer.weight) for layer in dense])
            rounds = ROUNDS if name == "SynFlow" else 1
            for done in range(1, rounds + 1):
                pruner.score(network, nn.CrossEntropyLoss(), batch, "cpu")
                pruner.mask(DENSITY ** (done / rounds), "global")
            found[name] = [layer.weight_mask.detach().numpy().T.astype(bool) for layer in dense]
        return found


def granet_change(clones: Path, seed: int) -> list[int]:
    """Count the connections of one mask alone after a change of GraNet, and those of ours."""
    rng, sizes = np.random.default_rng(seed), {"a": (64, 100), "b": (100, 10)}
    weights, slopes = (
        {name: rng.normal(size=size) * (1 + (name == "b")) for name, size in sizes.items()} for _ in range(2)
    )
    # Half of the way, a density of 1 has fallen to d + (1 - d) / 8, and .3 is replaced in each leaf.
    ends = SimpleNamespace(init_density=1.0, final_density=DENSITY, multiplier=1, init_prune_epoch=0)
    ends.final_prune_epoch = 10
    code = definition(clones / "GraNet" / "CIFAR" / "sparselearning" / "core.py", "Masking").Masking
    theirs = code.__new__(code)
    tensors = {name: nn.Parameter(torch.tensor(leaf)) for name, leaf in weights.items()}
    for name, tensor in tensors.items():
        tensor.grad = torch.tensor(slopes[name])
    theirs.args, theirs.loader, theirs.prune_every_k_steps, theirs.prune_rate = ends, [None], 1, 0.3
    theirs.modules = [SimpleNamespace(named_parameters=lambda: tensors.items())]
    theirs.masks = {name: torch.ones_like(tensor) for name, tensor in tensors.items()}
    theirs.optimizer, theirs.pruning_rate = SimpleNamespace(state={key: {} for key in tensors.values()}), {}
    with contextlib.redirect_stdout(None):
        theirs.pruning(5)
        theirs.truncate_weights()
    tx = jaxarch.optim.sparse(
        optax.sgd(0.0),
        DENSITY + (1 - DENSITY) / 8,
        replaced=0.3,
        regrow="gradients",
        regrow_scope="layer",
        every=1,
    )
    params, gradients = (jax.tree.map(jnp.asarray, tree) for tree in (weights, slopes))
    state = tx.init(params)
    for _ in range(2):
        _, state = tx.update(gradients, state, params)
    pairs = [(np.asarray(state.mask[name]), theirs.masks[name].numpy() > 0) for name in sizes]
    return [
        sum(int((mine ^ other).sum()) for mine, other in pairs),
        sum(int(mine.sum()) for mine, _ in pairs),
    ]


def second_order(clones: Path, seed: int) -> tuple[Numbers, Numbers]:
    """Scores by the Fisher diagonal, alone and with the gradient, and by one estimate of the Hessian's."""
    digits = Digits(seed)
    params = {str(i): jnp.asarray(kernel) for i, kernel in enumerate(digits.kernels)}
    labels = jnp.asarray(digits.y)

    def loss(params: Any, batch: Any) -> Any:
        outputs = digits.outputs(params, batch[0])
        return optax.softmax_cross_entropy_with_integer_labels(outputs, batch[1]).mean()

    gradients, squares = saliency.fisher_diagonal(loss, params, (jnp.asarray(digits.x), labels))
    softened, curvature = saliency.hessian_diagonal(
        lambda of: digits.loss(of, TEMPERATURE), params, jax.random.key(seed)
    )
    zeros, minus, minus_softened = (
        jax.tree.map(lambda leaf, f=factor: f * leaf, tree)
        for factor, tree in ((0, gradients), (-1, gradients), (-1, softened))
    )
    ours = {
        "Fisher": saliency.taylor(params, zeros, squares),
        "Fisher-Taylor": saliency.taylor(params, minus, squares),
        "Hutchinson-Taylor": saliency.taylor(params, minus_softened, curvature),
    }

    path = clones / "Scalable_Second_Order_PaI" / "batch_exp" / "experiments" / "utils" / "compressors.py"
    code = definition(path, "fisher_diag", "saliency_score", "fd_taylor", "hutchinson_taylor")
    network = nn.Sequential(nn.Linear(64, 100, bias=False), nn.ReLU(), nn.Linear(100, 10, bias=False))
    with torch.no_grad():
        for layer, kernel in zip((network[0], network[2]), digits.kernels, strict=True):
            layer.weight.copy_(torch.tensor(kernel.T))
    x, y = torch.tensor(digits.x), torch.tensor(digits.y)
    singles = [(x[i : i + 1], y[i : i + 1]) for i in range(len(y))]
    rest = ("cpu", singles, nn.CrossEntropyLoss(), torch.optim.SGD(network.parameters(), 0.1))
    of_ours = {
        name: torch.tensor(np.asarray(curvature[key]).T)
        for name, key in (("0.weight", "0"), ("2.weight", "1"))
    }
    theirs = {
        "Fisher": code.saliency_score(network, code.fisher_diag(network, *rest)),
        "Fisher-Taylor": code.fd_taylor(network, *rest),
        "Hutchinson-Taylor": code.hutchinson_taylor(network, *rest, of_ours, T=TEMPERATURE),
    }
    return (
        {name: np.concatenate([np.ravel(score[key]) for key in "01"]) for name, score in ours.items()},
        {
            name: np.concatenate([score[f"{key}.weight"].detach().numpy().T.ravel() for key in "02"])
            for name, score in theirs.items()
        },
    )


def prospects(clones: Path, seed: int) -> tuple[Numbers, Numbers]:
    """Scores of ProsPr after three steps; of the authors, the step of gradient descent."""
    digits = Digits(seed)
    params = {str(i): jnp.asarray(kernel) for i, kernel in enumerate(digits.kernels)}
    x, y = digits.x.reshape(4, 125, -1), digits.y.reshape(4, 125)

    def loss(params: Any, batch: Any) -> Any:
        outputs = digits.outputs(params, batch[0])
        return optax.softmax_cross_entropy_with_integer_labels(outputs, batch[1]).mean()

    scores = saliency.prospr(loss, params, (jnp.asarray(x), jnp.asarray(y)), optax.sgd(0.5))
    code = definition(clones / "prospr" / "prospr" / "prospr.py", "functional_sgd")
    ones = [torch.ones(kernel.shape, requires_grad=True) for kernel in digits.kernels]
    moved = [mask * torch.tensor(kernel) for mask, kernel in zip(ones, digits.kernels, strict=True)]

    def theirs(moved: Any, step: int) -> Any:
        outputs = functional.relu(torch.tensor(x[step]) @ moved[0]) @ moved[1]
        return functional.cross_entropy(outputs, torch.tensor(y[step]))

    for step in range(3):
        gradients = autograd.grad(theirs(moved, step), moved, create_graph=True)
        moved, _ = code.functional_sgd(moved, gradients, [None, None], lr=0.5)
    by_mask = autograd.grad(theirs(moved, 3), ones)
    return (
        {"ProsPr": np.concatenate([np.ravel(score) for score in scores.values()])},
        {"ProsPr": np.concatenate([score.abs().numpy().ravel() for score in by_mask])},
    )


def _network(clones: Path, kernels: list[np.ndarray]) -> Any:
    """The MLP of `Digits` in the authors' layers, without biases, and their masked parameters."""
    folder = clones / "NTK-SAP"
    layers = definition(folder / "Layers" / "layers.py", "Linear")
    sizes = [kernel.shape for kernel in kernels]
    network = nn.Sequential(
        layers.Linear(*sizes[0], bias=False), nn.ReLU(), layers.Linear(*sizes[1], bias=False)
    )
    network._initialize_weights = lambda: None
    with torch.no_grad():
        for layer, kernel in zip(_dense(network), kernels, strict=True):
            layer.weight.copy_(torch.tensor(kernel.T))
    return network


def _dense(network: Any) -> list[Any]:
    return [network[0], network[2]]


def _masked(network: Any, *_: Any) -> list[tuple[Any, Any]]:
    return [(layer.weight_mask, layer.weight) for layer in _dense(network)]


def path_exclusion(clones: Path, seed: int) -> int:
    """In how many connections the masks of path exclusion differ."""
    digits = Digits(seed)
    code = definition(
        clones / "px-ntk-pruning" / "lib" / "pruners.py",
        "Pruner",
        "PX",
        copy=copy,
        tqdm=list,
        masked_parameters=_masked,
        CONFIG=SimpleNamespace(dataset="ImageNet"),
    )
    network = _network(clones, digits.kernels)
    pruner = code.PX(_masked(network))
    for done in range(1, ROUNDS + 1):
        pruner.score(network, None, [(torch.tensor(digits.x), torch.tensor(digits.y))], "cpu")
        pruner.mask(DENSITY ** (done / ROUNDS), "global")
    theirs = [mask.numpy().T.astype(bool) for mask, _ in _masked(network)]
    ours = search.path_exclusion(DENSITY, rounds=ROUNDS)(jax.random.key(0), digits.problem()).mask
    pairs = zip((ours["0"], ours["1"]), theirs, strict=True)
    return sum(int((np.asarray(a) & ~b).sum()) for a, b in pairs)


def ntk_sap(clones: Path, seed: int) -> float:
    """The largest difference of a score of NTK-SAP over the largest score, with the same random numbers."""
    digits, rng = Digits(seed), np.random.default_rng(seed)
    drawn = [rng.normal(size=of.shape) for of in (digits.x, *(kernel.T for kernel in digits.kernels))]
    numbers = iter([torch.tensor(array) for array in drawn])
    code = definition(
        clones / "NTK-SAP" / "Pruners" / "pruners.py",
        "Pruner",
        "NTKSAP",
        "reset_BN",
        copy=copy,
        generator=SimpleNamespace(masked_parameters=_masked),
        torch=SimpleNamespace(**{**vars(torch), "randn_like": lambda _: next(numbers)}),
    )
    network = _network(clones, digits.kernels)
    pruner = code.NTKSAP(_masked(network), ntksap_epsilon=0.01, ntksap_R=1)
    pruner.score(network, None, [(torch.tensor(digits.x), None)], "cpu")
    theirs = [pruner.scores[id(weight)].numpy().T for _, weight in _masked(network)]
    x, *noise = map(jnp.asarray, drawn)
    params, noises = (
        {str(i): jnp.asarray(array) for i, array in enumerate(arrays)}
        for arrays in (digits.kernels, [0.01 * array.T for array in noise])
    )
    ours = saliency.ntk_sap(lambda params: digits.outputs(params, x), params, noises)
    largest = max(np.abs(score).max() for score in theirs)
    pairs = zip((ours["0"], ours["1"]), theirs, strict=True)
    return max(float(np.abs(np.abs(np.asarray(a)) - b).max()) for a, b in pairs) / largest


def emptied_by_theirs(clones: Path, method: str, density: float, seed: int) -> list[str]:
    """The layers of the authors' ResNet-18 that a pruner of theirs leaves without a connection."""
    if str(clones / "Synaptic-Flow") not in sys.path:
        sys.path.insert(0, str(clones / "Synaptic-Flow"))
    from Models.tinyimagenet_resnet import resnet18
    from Pruners import pruners
    from Utils.generator import masked_parameters

    torch.manual_seed(seed)
    network = resnet18((3, 32, 32), 10).eval()
    pruner, rounds = getattr(pruners, method)(masked_parameters(network)), PRUNERS[method]
    batch = [(torch.zeros(1, 3, 32, 32), torch.zeros(1))]
    for done in range(1, rounds + 1):
        pruner.score(network, None, batch, "cpu")
        pruner.mask(density ** (done / rounds), "global")
    masks_left = {name: mask for name, mask in network.named_buffers() if name.endswith("weight_mask")}
    return [name.removesuffix(".weight_mask") for name, mask in masks_left.items() if not mask.any()]


def show(name: str, of_seeds: list[tuple[Numbers, Numbers]]) -> None:
    """Print the largest difference in any seed, over the largest number."""
    worst: dict[str, float] = {}
    for ours, theirs in of_seeds:
        for what, numbers in theirs.items():
            difference = np.abs(ours[what] - numbers).max() / np.abs(numbers).max()
            worst[what] = max(worst.get(what, 0.0), float(difference))
    print(f"{name:26}", ", ".join(f"{what} {difference:.1e}" for what, difference in worst.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clones", type=Path, help="a folder of the authors' repositories")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--resnet18", action="store_true", help="which layers are emptied, alone")
    arguments = parser.parse_args()
    if arguments.resnet18:
        for method, seed, density in product(PRUNERS, range(arguments.seeds), (0.1, 0.056, 0.01, 0.001)):
            emptied = emptied_by_theirs(arguments.clones, method, density, seed)
            print(f"{method}, seed {seed}, at {density:g}: {', '.join(emptied) or 'none'}", flush=True)
        return
    seeds = range(arguments.seeds)
    for name, both in LEARNED.items():
        show(name, [both(arguments.clones, Drawn(seed)) for seed in seeds])
    show("second-order scores", [second_order(arguments.clones, seed) for seed in seeds])
    show("scores some steps ahead", [prospects(arguments.clones, seed) for seed in seeds])
    changes = [granet_change(arguments.clones, seed) for seed in seeds]
    print(f"{'GraNet':26} connections of one mask alone, of a change, and of ours: {changes}")
    print(f"{'NTK-SAP':26} score {max(ntk_sap(arguments.clones, seed) for seed in seeds):.1e}")
    counts = [path_exclusion(arguments.clones, seed) for seed in seeds]
    print(f"{'path exclusion':26} masks that differ by as many connections: {counts}")
    differing: dict[str, list[int]] = {}
    kept = 0
    for seed in range(arguments.seeds):
        digits = Digits(seed)
        ours, theirs = digits.ours(), digits.theirs(arguments.clones)
        kept = sum(int(mask.sum()) for mask in ours["SNIP"])
        for name, mask in theirs.items():
            pairs = zip(ours[name], mask, strict=True)
            differing.setdefault(name, []).append(sum(int((a & ~b).sum()) for a, b in pairs))
    for name, counts in differing.items():
        print(f"{name:26} masks of {kept} connections, those that differ: {counts}")


if __name__ == "__main__":
    main()
