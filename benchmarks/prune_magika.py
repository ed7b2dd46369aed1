"""How much of a file type detector's accuracy is left when 256 files prune its weights, without training?

    pip download --no-deps magika        # the wheel alone, without its dependencies
    python benchmarks/prune_magika.py magika-*.whl                              # twelve minutes, on one core
    python benchmarks/prune_magika.py magika-*.whl --draws 1 --densities 0.2    # a first look

The model is Google's magika, which tells 214 types of files by their first and last 1,024 bytes (Y.
Fratantonio et al., Magika: AI-powered content-type detection, 2024; Apache 2.0). Its network is written out
below, and its weights are read from the ONNX file in the wheel. The convolution and the last layer are
pruned, 764,928 of 784,214 weights. The table of bytes stays. `Calibration.left` names the biases and the
scales of the norms.

The network was compared with onnxruntime on 1,600 files. The likeliest label is the same for all, and
probabilities differ by at most .001. On 380 files it is within .000002 of NumPy in float64, and onnxruntime
within .0008. Tokens equal those of magika's own class on 2,962 files.

Files come from Python's library, the installed packages, /usr/share and /usr/lib. Another machine has others.
An extension tells the label if magika's list gives it to one type only; `.so` is ELF. Some were left out, as
their content is of another type than their extension says:

- `.crt`, which are PEM here; `.pth`, which configure Python; and `.jinja`, templates of other formats.
- folders of tests, with files that are broken on purpose, and of HTML templates and themes.

A label needs 25 different files, and has at most 100. Of each label 20 files judge, the same for all draws. A
draw takes 256 of the others to calibrate, without their labels. Here 600 files judge, and 1,992 are left to
draw from, of 30 labels. The dense model and the pruned one are compared:

- accuracy: the share of files whose likeliest label is right, averaged over labels.
- agreement: the share of files that keep the dense model's label.

Nothing was tuned. The dense model's accuracy is .965. Entries are medians of accuracy and agreement over
three draws. Least squares solves for the weights under SparseGPT's mask:

| method | .7 | .5 | 2:4 | .3 | .2 | .1 |
|---|---|---|---|---|---|---|
| magnitude, by layer | .963 / .997 | .957 / .978 | .960 / .977 | .943 / .955 | .868 / .873 | .428 / .433 |
| Wanda | .963 / .997 | .960 / .983 | .958 / .980 | .955 / .967 | .942 / .943 | .738 / .743 |
| SparseGPT | .965 / .997 | .958 / .983 | .958 / .973 | .950 / .963 | .927 / .933 | .792 / .802 |
| least squares | .965 / .997 | .962 / .977 | .960 / .973 | .948 / .965 | .930 / .940 | .800 / .805 |
| ALPS | .965 / .998 | .963 / .990 | .962 / .982 | .958 / .972 | .937 / .955 | .862 / .875 |

Accuracy differs between draws by at most .013 in the first three columns, .031 in the next two and .057 in
the last. One file is .002. Down to half of the weights no method is better than another, magnitude included.

At .2 Wanda is ahead of SparseGPT and of least squares. The last layer has 512 inputs, and 256 files give it
256 rows; the convolution has 1,280, and gets 130,048. With 1,024 files, in one draw, Wanda has .942 at .2,
SparseGPT .945 and least squares .955. With 16 files, in three draws, they have .928, .830 and .898.
"""

from __future__ import annotations

import argparse
import json
import os
import sysconfig
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pruners import METHODS, Model, add_options, compare

import jaxarch

BEGIN, END, BLOCK, PADDING, SHORTEST = 1024, 1024, 4096, 256, 8
"""The bytes that magika reads: of blocks at a file's beginning and its end, without outer white space."""

CALIBRATION, BATCH = 256, 32
HELD_OUT, LEAST, MOST = 20, 25, 100
"""Files of a label: those that judge, the least to take part, and the most that are read."""

FOLDERS = ["/usr/share", "/usr/lib"]
OTHERS = {"so": "elf"}
AMBIGUOUS = {"crt", "pth", "jinja", "jinja2", "j2"}
UNTYPICAL = {"test", "tests", "templates", "_templates", "theme", "themes"}


# The model ---------------------------------------------------------------------------------------------

AXES = ("NWC", "WIO", "NWC")


def apply(params: Any, tokens: jax.Array) -> jax.Array:
    """Return the logits of files, given the bytes of their beginnings and ends, and padding."""
    x = jax.nn.gelu(params["embedding"][tokens] + params["embedding_bias"])
    x = x.reshape(len(x), 512, 256)  # four bytes side by side
    x = norm(params, "norm_0", x)
    x = jax.lax.conv_general_dilated(x, params["conv"], (1,), "VALID", dimension_numbers=AXES)
    x = jax.nn.gelu(x + params["conv_bias"]).max(1)
    return norm(params, "norm_1", x) @ params["head"] + params["head_bias"]


def norm(params: Any, name: str, x: jax.Array) -> jax.Array:
    """Normalize over axis 1: of a file's positions before the convolution, of its features behind it."""
    centred = x - x.mean(1, keepdims=True)
    scale = jax.lax.rsqrt((centred**2).mean(1, keepdims=True) + 1e-6)
    return centred * scale * params[f"{name}_scale"] + params[f"{name}_bias"]


NAMES = {
    "jax2tf_get_logits_/Const:0": "embedding",
    "Dense_0/Reshape:0": "embedding_bias",
    "LayerNorm_0/Reshape_2:0": "norm_0_scale",
    "LayerNorm_0/Reshape_3:0": "norm_0_bias",
    "Conv_0/transpose_3:0": "conv",
    "const_fold_opt__209": "conv_bias",
    "LayerNorm_1/Reshape_2:0": "norm_1_scale",
    "LayerNorm_1/Reshape_3:0": "norm_1_bias",
    "jax2tf_get_logits_/Const_24:0": "head",
    "Dense_1/Reshape:0": "head_bias",
}
"""Names of arrays in the file, without `jax2tf_get_logits_/pjit_get_logits_/MagikaV2/`, and names here."""


def read(wheel: Path) -> tuple[dict[str, jax.Array], list[str], dict[str, Any]]:
    """Return the weights in a wheel, the labels of the outputs, and what is known of each type of file."""
    with zipfile.ZipFile(wheel) as inside:
        model = inside.read("magika/models/standard_v3_3/model.onnx")
        labels = json.loads(inside.read("magika/models/standard_v3_3/config.min.json"))["target_labels_space"]
        known = json.loads(inside.read("magika/config/content_types_kb.min.json"))
    found = {}
    for name, array in arrays(model):
        name = name.removeprefix("jax2tf_get_logits_/pjit_get_logits_/MagikaV2/")
        if name in NAMES:
            found[NAMES[name]] = array
    # The file has (outputs, channels, window, 1). Here channels lie side by side in the order of inputs, so
    # that N:M groups them in `masks.keep` and in `sparsegpt` alike.
    found["conv"] = found["conv"][..., 0].transpose(2, 1, 0)
    found["conv_bias"] = found["conv_bias"][..., 0]
    return {name: jnp.asarray(array) for name, array in found.items()}, labels, known


def arrays(model: bytes) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the floating arrays of an ONNX file, with their names."""
    (graph,) = (value for number, value in fields(model) if number == 7)
    for number, tensor in fields(graph):
        if number == 5:
            content = dict(fields(tensor))
            if content[2] == 1:  # float32
                shape = [value for number, value in fields(tensor) if number == 1]
                yield content[8].decode(), np.frombuffer(content[9], "<f4").reshape(shape)


def fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the numbers and values of a protobuf message's fields: integers, or bytes."""
    at = 0
    while at < len(message):
        key, at = varint(message, at)
        kind = key & 7
        value: Any = None
        if kind in (0, 2):
            value, at = varint(message, at)  # an integer, or how many bytes follow
        if kind != 0:
            size = value if kind == 2 else {1: 8, 5: 4}[kind]
            value, at = message[at : at + size], at + size
        yield key >> 3, value


def varint(message: bytes, at: int) -> tuple[int, int]:
    """Return an integer of seven bits a byte, the lowest first, and where it ends."""
    value = shift = 0
    while True:
        value |= (message[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if message[at - 1] < 128:
            return value, at


# Files ---------------------------------------------------------------------------------------------------


def tokens(path: Path) -> np.ndarray | None:
    """Return a file's beginning and end as the model reads them, or `None` if it is too short for that."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(0)
        begin = file.read(BLOCK).lstrip()[:BEGIN]
        file.seek(max(size - BLOCK, 0))
        end = file.read(BLOCK).rstrip()[-END:]
    if len(begin) < SHORTEST:
        return None
    row = np.full(BEGIN + END, PADDING, np.int32)
    row[: len(begin)] = [*begin]
    row[len(row) - len(end) :] = [*end]
    return row


def by_label(labels: list[str], known: dict[str, Any]) -> dict[str, str]:
    """Return the labels of file name extensions that only one type of file has."""
    types = defaultdict(set)
    for label, of in known.items():
        for extension in of["extensions"]:
            types[extension].add(label)
    found = {extension: next(iter(of)) for extension, of in types.items() if len(of) == 1}
    found = {extension: label for extension, label in found.items() if label in labels}
    return {extension: label for extension, label in (found | OTHERS).items() if extension not in AMBIGUOUS}


def typical(folder: Path) -> Iterator[Path]:
    """Yield what is in a folder, without tests and templates."""
    for path in folder.rglob("*"):
        if not UNTYPICAL & {*path.relative_to(folder).parts}:
            yield path


def files(folders: list[Path], labelled: dict[str, str]) -> dict[str, list[np.ndarray]]:
    """Return up to `MOST` files of each label, each once, as the model reads them."""
    paths = defaultdict(list)
    for path in sorted({path for folder in folders for path in typical(folder)}):
        label = labelled.get(path.suffix[1:])
        if label and os.access(path, os.R_OK) and path.is_file() and not path.is_symlink():
            paths[label].append(path)
    found = {}
    for label in sorted(paths):
        rows: dict[bytes, np.ndarray] = {}
        for index in np.random.default_rng(0).permutation(len(paths[label])):
            row = tokens(paths[label][index])
            if row is not None:
                rows[row.tobytes()] = row
            if len(rows) == MOST:
                break
        if len(rows) >= LEAST:
            found[label] = [*rows.values()]
    return found


def batches_of(rows: np.ndarray) -> list[jax.Array]:
    return [jnp.asarray(rows[start : start + BATCH]) for start in range(0, len(rows), BATCH)]


# What is left ----------------------------------------------------------------------------------------------


class Judge:
    """Held-out files, their labels, and the dense model's answers."""

    def __init__(self, params: dict[str, Any], rows: np.ndarray, truth: np.ndarray) -> None:
        self._batches, self._truth = batches_of(rows), truth
        self._dense = self.answers(params)

    def __call__(self, params: dict[str, Any]) -> dict[str, float]:
        """Return the mean over labels of the share that is right, and the share answered as before."""
        answers = self.answers(params)
        right = [(answers == label)[self._truth == label].mean() for label in np.unique(self._truth)]
        return {"accuracy": float(np.mean(right)), "agreement": float((answers == self._dense).mean())}

    def answers(self, params: dict[str, Any]) -> np.ndarray:
        """Return the number of the likeliest label of each file."""
        return np.concatenate([np.asarray(run(params, batch)).argmax(1) for batch in self._batches])


run = jax.jit(apply)


def is_pruned(path: str, leaf: Any) -> bool:
    return path in ("conv", "head")


def tell(params: dict[str, Any], batches: list[Any]) -> None:
    """Print the weights that are pruned, and the leaves whose inputs are not known."""
    calibration = jaxarch.calibrate(apply, params, batches[:1])
    pruned = {path: leaf.size for path, leaf in params.items() if is_pruned(path, leaf)}
    every = sum(leaf.size for leaf in params.values())
    print(f"pruned: {', '.join(pruned)}; {sum(pruned.values()):,} of {every:,} weights")
    for path, why in calibration.left.items():
        print(f"left: {path}, {why}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("wheel", type=Path, help="the wheel of magika")
    add_options(parser, CALIBRATION, [*METHODS], ["0.7", "0.5", "2:4", "0.3", "0.2", "0.1"])
    args = parser.parse_args()
    params, labels, known = read(args.wheel)
    library = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib")]
    found = files([*library, *map(Path, FOLDERS)], by_label(labels, known))
    held = np.concatenate([rows[:HELD_OUT] for rows in found.values()])
    judge = Judge(params, held, np.repeat([labels.index(label) for label in found], HELD_OUT))
    others = np.concatenate([rows[HELD_OUT:] for rows in found.values()])
    print(f"{len(held)} files to judge, {len(others)} others, of {len(found)} labels: {', '.join(found)}")
    print(f"the dense model: accuracy {judge(params)['accuracy']:.3f}")
    tell(params, batches_of(others))

    def draw(number: int, size: int) -> list[jax.Array]:
        return batches_of(others[np.random.default_rng(1 + number).permutation(len(others))[:size]])

    compare(Model(apply, params, is_pruned), draw, judge, args)


if __name__ == "__main__":
    main()
