"""Leaves other than kernels, by names and shapes: biases, norms, tables of positions, special tokens.

The names are those of Flax, Haiku, Equinox, Keras and PyTorch. If the function is known, its use of a leaf
tells more: see `structure.weights_of`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


def not_matrices(leaves: Mapping[str, Any]) -> dict[str, str]:
    """Return the leaves that `matrices` leaves out, by path, each with the reason.

    The names and shapes of a leaf and its neighbors decide. The names are those of Flax, Haiku, Equinox,
    Keras and PyTorch; `/` or `.` separates the parts of a path. Of the leaves with two or more axes, these
    are left out:
    - biases, scales and offsets, by name: `bias`, `in_proj_bias`, `layer_scale`, `offset`;
    - norms: a module with a gain and a shift of one shape, such as `weight` and `bias`, or one that is called
      a norm (`norm1`, `ln_f`, `bn`) and has leaves of one shape;
    - tables of positions and special tokens, by name: `pos_embed`, `wpe/weight`, `cls_token`. A table that
      tokens look up is an embedding, and is selected;
    - leaves of three or more axes with at most one axis longer than 1, unless called a kernel;
    - vectors of stacked layers, such as a norm's `weight` of shape (layers, features) beside kernels of shape
      (layers, inputs, outputs): all leaves of that part of the tree share the first axes, and a bias among
      them has one axis more;
    - leaves called `b`, `beta`, `gamma` or `shift` whose axes are some of a larger neighbor's. In lists, also
      a leaf behind a kernel that has its last axes but the first, or its first and last.

    Args:
      leaves: arrays or their shapes, by path, as from `named_leaves`.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxarch._internal.kernels import not_matrices
      >>> shapes = {"dense/w": (4, 8, 8), "dense/b": (4, 8), "norm/weight": (4, 8)}
      >>> not_matrices({path: jnp.ones(shape) for path, shape in shapes.items()})
      {'dense/b': 'a bias', 'norm/weight': 'of a norm'}
    """
    all_leaves = [_Leaf.of(path, leaf) for path, leaf in leaves.items()]
    modules: dict[tuple[str, ...], list[_Leaf]] = {}
    for leaf in all_leaves:
        modules.setdefault(leaf.module, []).append(leaf)
    reasons = {leaf.path: _why_no_matrix(leaf, modules[leaf.module]) for leaf in all_leaves}
    parts: dict[tuple[str, ...], list[_Leaf]] = {}
    for leaf in all_leaves:
        for depth in range(len(leaf.module) + 1):
            parts.setdefault(leaf.module[:depth], []).append(leaf)
    for below in parts.values():
        stacked = _stacked_axes(below, reasons)
        for leaf in below:
            if stacked and len(leaf.shape) - stacked < 2:
                reasons[leaf.path] = reasons[leaf.path] or "a vector of each of stacked layers"
    return {path: reason for path, reason in reasons.items() if reason}


class _Leaf(NamedTuple):
    """A leaf: its path, the parts of the path that form its module, its own name, its shape."""

    path: str
    module: tuple[str, ...]
    name: str
    shape: tuple[int, ...]

    @classmethod
    def of(cls, path: str, leaf: Any) -> _Leaf:
        *module, name = re.split(r"[/.]", path)
        return cls(path, tuple(module), name.lower(), tuple(getattr(leaf, "shape", ())))

    @property
    def words(self) -> list[str]:
        return _words(self.name)

    @property
    def module_words(self) -> list[str]:
        return _words(self.module[-1]) if self.module else []


_KERNELS = {"kernel", "kernels", "matrix", "w", "weight", "weights"}
_GAINS, _SHIFTS = {"gamma", "scale", "weight"}, {"beta", "bias", "offset", "shift"}
_STATISTICS = {
    "mean",
    "moving_mean",
    "moving_variance",
    "num_batches_tracked",
    "running_mean",
    "running_var",
    "var",
}
_TABLES = {"emb", "embed", "embedding", "embeddings", "encoding", "table", "wpe"}
_POSITIONS = {"pos", "posemb", "posembed", "position", "positional", "positions", "wpe"}
_SPECIAL = {
    "class",
    "cls",
    "dist",
    "distillation",
    "latent",
    "mask",
    "pad",
    "prompt",
    "query",
    "reg",
    "register",
}
_IN_NORMS = {
    "ada",
    "adaptive",
    "conv",
    "dense",
    "fc",
    "gate",
    "linear",
    "mlp",
    "modulation",
    "proj",
    "projection",
}
"""Words in the names of modules that are named after a norm but are none, such as `adaLN_modulation`."""


def _words(name: str) -> list[str]:
    """Return the words of a name, such as `layer` and `norm` for `LayerNorm_0`."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def _why_no_matrix(leaf: _Leaf, module: Sequence[_Leaf]) -> str:
    """Tell by names and shapes in its module why a leaf is not a kernel or embedding; '' if it is one."""
    words, is_kernel = set(leaf.words), leaf.name in _KERNELS
    if len(leaf.shape) < 2:
        return "a number" if not leaf.shape else "a vector"
    is_of_bias = leaf.name == "b" and leaf.module_words == ["bias"]
    if (words & {"bias", "biases"} and not words & _KERNELS) or is_of_bias:
        return "a bias"
    if leaf.words[-1:] in (["scale"], ["scales"], ["offset"]) or leaf.name in (
        "a_log",
        "layerscale",
        *_STATISTICS - {"mean", "var"},
    ):
        return "a scale or offset"
    if _is_table_of_positions(leaf, module):
        return "a table of positions"
    if (words & {"token", "tokens"} and words & _SPECIAL) or leaf.words == ["cls"]:
        return "a special token"
    if len(leaf.shape) > 2 and sum(size > 1 for size in leaf.shape) < 2 and not is_kernel:
        return "one axis longer than 1"
    if _is_norm(leaf, module):
        return "of a norm"
    return _why_beside(leaf, module)


def _is_table_of_positions(leaf: _Leaf, module: Sequence[_Leaf]) -> bool:
    words = set(leaf.words)
    if words & _KERNELS or words & {"embedding", "embeddings"} == words:
        # A table in a module, such as `wpe/weight`; a projection of positions is a kernel.
        of_module = set(leaf.module_words)
        is_table = leaf.name in ("embedding", "embeddings", "weight") and len(module) == 1
        is_embedding = leaf.name != "weight" or bool(of_module & _TABLES)
        return is_table and ("bias" in of_module or (bool(of_module & _POSITIONS) and is_embedding))
    return bool(words & _POSITIONS) or leaf.words == ["pe"]


def _is_norm(leaf: _Leaf, module: Sequence[_Leaf]) -> bool:
    arrays = [other for other in module if other.shape]
    if any(other.shape != leaf.shape for other in arrays) or leaf.name in ("kernel", "w"):
        return False
    words, names = set(leaf.module_words), {other.name for other in arrays}
    if any("norm" in word or word in ("bn", "gn", "ln") for word in words) and not words & _IN_NORMS:
        return True
    # A kernel with one input is a row, and so is its bias: such a pair is not a norm.
    is_pair = bool(names & _GAINS) and bool(names & _SHIFTS) and names <= _GAINS | _SHIFTS | _STATISTICS
    return is_pair and leaf.shape[0] > 1


def _why_beside(leaf: _Leaf, module: Sequence[_Leaf]) -> str:
    """Tell by its neighbors why a leaf is not a kernel, if its name says little."""
    if leaf.name == "g" and sum(size > 1 for size in leaf.shape) < 2:
        return "the norm of a kernel"
    if leaf.name in ("g", "original0", "weight_g"):
        others = {"g": "v", "original0": "original1", "weight_g": "weight_v"}
        is_norm = any(o.name == others[leaf.name] and len(o.shape) == len(leaf.shape) for o in module)
        return "the norm of a kernel" if is_norm else ""
    if leaf.name.isdigit():
        before = [other for other in module if other.name == str(int(leaf.name) - 1)]
        fits = (
            before and len(before[0].shape) - len(leaf.shape) == 1 and _is_part(leaf.shape, before[0].shape)
        )
        return "a bias, behind its kernel" if fits else ""
    if re.sub(r"\d+$", "", leaf.name).rstrip("_") in ("b", "beta", "gamma", "shift"):
        return "a bias" if any(_is_part(leaf.shape, other.shape) for other in module) else ""
    return ""


def _is_part(shape: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Return whether a shape is another shape without some adjacent axes."""
    missing = len(other) - len(shape)
    return missing > 0 and any(other[:k] + other[k + missing :] == shape for k in range(len(shape) + 1))


def _stacked_axes(leaves: Sequence[_Leaf], reasons: Mapping[str, str]) -> int:
    """Count the leading axes that stacking gave to all leaves of a part of a tree; 0 if there are none."""
    vectors = [leaf for leaf in leaves if reasons[leaf.path] in ("a bias", "a scale or offset", "of a norm")]
    stacked = min((len(leaf.shape) for leaf in vectors), default=0) - 1
    if stacked < 1 or max(len(leaf.shape) for leaf in leaves) < stacked + 2:
        return 0
    return stacked if len({leaf.shape[:stacked] for leaf in leaves}) == 1 else 0
