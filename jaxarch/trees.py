"""Leaves of parameter pytrees: their path names, and the selection of some of them.

A *selection* has the structure of the tree that it was made from, with `None` in place of every leaf that
was not selected. These few functions are the only place that knows how `None` leaves are handled.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import DictKey, FlattenedIndexKey, GetAttrKey, KeyPath, SequenceKey

from jaxarch.errors import ArgumentError, check_callable, did_you_mean, one_line, shown

PyTree = Any
Where = Callable[[str, Any], bool] | str | Sequence[str]
"""Which leaves: a predicate on (path, leaf), or one or more glob patterns on the path."""


def path_name(path: KeyPath) -> str:
    """A leaf's path as text, such as `layers/0/kernel`.

    Flax NNX wraps each array in a `Variable`, whose attribute would end every path in `/value`; it is
    dropped, so that a parameter has one name whether it lives in NNX, in Linen or in a plain dict.
    """
    if path and isinstance(path[-1], GetAttrKey) and path[-1].name in ("value", "raw_value"):
        path = path[:-1]
    return "/".join(_key_name(key) for key in path)


def _key_name(key: Any) -> str:
    match key:
        case DictKey(key=name) | GetAttrKey(name=name) | FlattenedIndexKey(key=name):
            return str(name)
        case SequenceKey(idx=index):
            return str(index)
        case _:
            return str(key)


def named_leaves(tree: PyTree) -> dict[str, Any]:
    """The leaves of a tree by path name, in flattening order. `None` leaves are left out.

    Example:
      >>> import jaxarch
      >>> jaxarch.named_leaves({"layers": [{"kernel": 1.5}, {"kernel": 2.5, "bias": None}]})
      {'layers/0/kernel': 1.5, 'layers/1/kernel': 2.5}
    """
    return {path_name(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]}


def placed(named: Mapping[str, Any], like: PyTree) -> PyTree:
    """Leaves by path in the structure of a tree, and `None` where none has the path: `named_leaves` undone.

    Args:
      named: the leaves by path. One that the tree has no place for is left out: check that before.
      like: any pytree; of its leaves the paths alone count.

    Raises:
      ArgumentError: a tree with two leaves of one path.
    """
    check_distinct("like", like)
    return jax.tree.unflatten(jax.tree.structure(like), [named.get(path) for path in named_leaves(like)])


def restructured(tree: PyTree, like: PyTree) -> PyTree:
    """Arrange the leaves of a module as those of its state, or the other way round, by their paths.

    An NNX module and its `nnx.State` name the same leaves by the same paths. Leaves that `like` has no place
    for are left out. A tree stays as it is if both are mappings, or neither.

    Args:
      tree: the leaves: gradients that are a module, for instance.
      like: the tree whose structure counts; a place for `None` stays `None`.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> from jaxarch.trees import named_leaves, restructured
      >>> module = nnx.Linear(2, 1, rngs=nnx.Rngs(0))
      >>> [*named_leaves(restructured(module, {"kernel": jnp.ones((2, 1)), "bias": None}))]
      ['kernel']
    """
    if isinstance(tree, Mapping) == isinstance(like, Mapping):
        return tree
    return placed(named_leaves(tree), like)


def by_path(name: str, given: Any, tree: PyTree) -> PyTree:
    """A value for each leaf: of a mapping the one whose name is the leaf's path, or the end of it.

    Args:
      name: the argument that the user gave it as, for errors.
      given: a mapping from names, `L2` or `head/eigenvalues/L2`, to values; or one value for all leaves.
      tree: the leaves; `None` stays so.

    Raises:
      ArgumentError: a name that no leaf has, a leaf that no name is of, or two.

    Example:
      >>> from jaxarch.trees import by_path
      >>> by_path("strength", {"L2": 0.5, "L3": 1.5}, {"eigenvalues": {"L2": 7, "L3": 8, "L4": None}})
      {'eigenvalues': {'L2': 0.5, 'L3': 1.5, 'L4': None}}
    """
    if not isinstance(given, Mapping):
        return map_selected(lambda leaf: given, tree)
    names = {
        path: [path] if path in given else [end for end in given if path.endswith(f"/{end}")]
        for path in named_leaves(tree)
    }
    for wanted in given:
        if not any(wanted in found for found in names.values()):
            raise ArgumentError(f"{name}: no leaf {shown(wanted)}; {did_you_mean(str(wanted), names)}")
    for path, found in names.items():
        if not found:
            raise ArgumentError(f"{name}: expected one for each leaf, and there is none for {path!r}")
        if len(found) > 1:
            raise ArgumentError(f"{name}: {path!r} has two, {shown(found[0])} and {shown(found[1])}")
    return placed({path: given[found[0]] for path, found in names.items()}, tree)


def natural_order(path: str) -> list[tuple[bool, int, str]]:
    """A key to sort paths by, numbers as numbers: `layers/2/kernel` comes before `layers/10/kernel`."""
    parts = re.split(r"(\d+)", path)
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]


def matrices(path: str, leaf: Any) -> bool:
    """Select kernels and embedding tables: leaves of two or more axes that are no biases, norms or the like.

    As the default `where`, it looks at the leaves beside each leaf too: see `not_matrices`. Called with one
    leaf, as here, it knows the leaf's own path and shape alone. By use, from a function:
    `structure.weights_of`.

    Raises:
      ArgumentError: a path that is no text.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> [jaxarch.matrices(path, jnp.zeros((2, 3))) for path in ("query/kernel", "query/bias")]
      [True, False]
    """
    if not isinstance(path, str):
        raise ArgumentError(f"path: expected text such as 'query/kernel', got {shown(path)}")
    return path not in not_matrices({path: leaf})


def not_matrices(leaves: Mapping[str, Any]) -> dict[str, str]:
    """Name the leaves that `matrices` leaves out, by path, and why.

    Names and shapes decide, of a leaf and its neighbours. Names are those of Flax, Haiku, Equinox, Keras and
    PyTorch; the parts of a path are separated by `/` or `.`.
    Left out are, of the leaves with two or more axes:

    - biases, scales and offsets, by name: `bias`, `in_proj_bias`, `layer_scale`, `offset`;
    - norms: a module of a gain and a shift of one shape, such as `weight` and `bias`, or one that is called a
      norm (`norm1`, `ln_f`, `bn`) and whose leaves have one shape;
    - tables of positions and special tokens, by name: `pos_embed`, `wpe/weight`, `cls_token`. A table that is
      looked up by tokens is an embedding, and is selected;
    - leaves with at most one axis longer than 1, of three or more, unless called a kernel;
    - vectors of stacked layers, such as a norm's `weight` of shape (layers, features) beside kernels of shape
      (layers, inputs, outputs): all leaves of that part of the tree share the first axes, and a bias among
      them has one axis more than these;
    - leaves called `b`, `beta`, `gamma` or `shift` whose axes are some of a larger neighbour's; and in lists,
      behind a kernel, a leaf of its last axes but the first, or of its first and last.

    Args:
      leaves: by path, as of `named_leaves`: arrays, or their shapes.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxarch.trees import not_matrices
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
    """A leaf: its path, the parts of the path that are its module, its own name, its shape."""

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
"""Words of modules that are called after a norm and are none, such as `adaLN_modulation`."""


def _words(name: str) -> list[str]:
    """The words of a name, such as `layer` and `norm` of `LayerNorm_0`."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def _why_no_matrix(leaf: _Leaf, module: Sequence[_Leaf]) -> str:
    """Why a leaf is no kernel or embedding, by names and shapes in its module; '' if it is one."""
    words, is_kernel = set(leaf.words), leaf.name in _KERNELS
    if len(leaf.shape) < 2:
        return "a number" if not leaf.shape else "a vector"
    if words & {"bias", "biases"} and not words & _KERNELS:
        return "a bias"
    if leaf.words[-1:] in (["scale"], ["scales"], ["offset"]) or leaf.name in (
        "a_log",
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
        # The table of a module, as of `wpe/weight`; a projection of positions is a kernel.
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
    # A row of one input, with a bias that is a row, is a kernel.
    is_pair = bool(names & _GAINS) and bool(names & _SHIFTS) and names <= _GAINS | _SHIFTS | _STATISTICS
    return is_pair and leaf.shape[0] > 1


def _why_beside(leaf: _Leaf, module: Sequence[_Leaf]) -> str:
    """Why a leaf whose name says little is no kernel, by what is beside it."""
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
    """Whether a shape is another one without some axes in a row, the first, the last or some between."""
    missing = len(other) - len(shape)
    return missing > 0 and any(other[:k] + other[k + missing :] == shape for k in range(len(shape) + 1))


def _stacked_axes(leaves: Sequence[_Leaf], reasons: Mapping[str, str]) -> int:
    """How many first axes all leaves of a part of a tree have from being stacked; 0 if they are not."""
    vectors = [leaf for leaf in leaves if reasons[leaf.path] in ("a bias", "a scale or offset", "of a norm")]
    stacked = min((len(leaf.shape) for leaf in vectors), default=0) - 1
    if stacked < 1 or max(len(leaf.shape) for leaf in leaves) < stacked + 2:
        return 0
    return stacked if len({leaf.shape[:stacked] for leaf in leaves}) == 1 else 0


def everything(path: str, leaf: Any) -> bool:
    """Every leaf.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> params = {"kernel": jnp.ones((1, 2)), "bias": jnp.ones(2)}
      >>> list(jaxarch.named_leaves(jaxarch.select(params, jaxarch.everything)))
      ['bias', 'kernel']
    """
    return True


def select(tree: PyTree, where: Where = matrices, name: str = "where") -> PyTree:
    """The leaves that `where` names, and `None` in place of all others.

    Args:
      tree: any pytree of arrays: plain containers, Flax Linen parameters, an NNX state.
      where: a predicate on (path, leaf), or glob patterns such as `"*/kernel"` (`*` also crosses `/`).
      name: the argument that the user gave `where` as, for errors.

    Raises:
      ArgumentError: if nothing is selected, or one of the patterns selects nothing, naming the paths that
        there are.

    Example:
      >>> import jaxarch
      >>> params = {"hidden": {"kernel": 1.5, "bias": 0.5}, "head": {"kernel": 2.5, "bias": 0.5}}
      >>> jaxarch.select(params, "hidden/*")
      {'head': {'bias': None, 'kernel': None}, 'hidden': {'bias': 0.5, 'kernel': 1.5}}
      >>> jaxarch.named_leaves(jaxarch.select(params, lambda path, leaf: leaf > 1))
      {'head/kernel': 2.5, 'hidden/kernel': 1.5}
    """
    chosen: Callable[[str, Any], bool]
    if where is matrices:
        left_out = not_matrices(named_leaves(tree))

        def by_default(path: str, leaf: Any) -> bool:
            return path not in left_out

        chosen = by_default
    elif callable(where):
        check_callable(name, where, "path", "leaf")
        chosen = where
    else:
        patterns = [where] if isinstance(where, str) else where
        if not isinstance(patterns, Sequence) or not all(isinstance(pattern, str) for pattern in patterns):
            raise ArgumentError(
                f"{name}: expected a function (path, leaf) -> bool or glob patterns, got {shown(where)}"
            )
        paths = list(named_leaves(tree))
        for pattern in patterns:
            if not any(fnmatch.fnmatchcase(path, pattern) for path in paths):
                known = ", ".join(paths) or "none at all"
                raise ArgumentError(
                    f"{name}: no leaf is selected by {shown(pattern)}; the leaves are: {known}"
                )

        def matching(path: str, leaf: Any) -> bool:
            return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)

        chosen = matching

    def pick(path: KeyPath, leaf: Any) -> Any:
        return leaf if chosen(path_name(path), leaf) else None

    selection = jax.tree_util.tree_map_with_path(pick, tree)
    if not jax.tree.leaves(selection):
        known = ", ".join(named_leaves(tree)) or "none at all"
        raise ArgumentError(f"{name}: no leaf is selected by {shown(where)}; the leaves are: {known}")
    return selection


def map_selected(function: Callable[..., Any], selection: PyTree, *trees: PyTree) -> PyTree:
    """`function(leaf, *leaves)` where a leaf is selected; `None` elsewhere.

    Example:
      >>> from jaxarch.trees import map_selected
      >>> map_selected(lambda m, w: m * w, {"kernel": 0, "bias": None}, {"kernel": 1.5, "bias": 0.5})
      {'bias': None, 'kernel': 0.0}
    """
    return jax.tree.map(
        lambda leaf, *others: None if leaf is None else function(leaf, *others),
        selection,
        *trees,
        is_leaf=lambda leaf: leaf is None,
    )


def merge(selection: PyTree, tree: PyTree) -> PyTree:
    """The selected leaves of `selection`, and those of `tree` elsewhere.

    Example:
      >>> from jaxarch.trees import merge
      >>> merge({"kernel": 2.5, "bias": None}, {"kernel": 1.5, "bias": 0.5})
      {'bias': 0.5, 'kernel': 2.5}
    """
    return jax.tree.map(
        lambda leaf, other: other if leaf is None else leaf,
        selection,
        tree,
        is_leaf=lambda leaf: leaf is None,
    )


def unselected(selection: PyTree, tree: PyTree) -> PyTree:
    """The leaves of `tree` that are not selected, and `None` in place of those that are."""
    return jax.tree.map(
        lambda leaf, other: other if leaf is None else None,
        selection,
        tree,
        is_leaf=lambda leaf: leaf is None,
    )


def copied(tree: PyTree) -> PyTree:
    """A copy of a tree and of its arrays: to donate or to change the others leaves it as it is."""

    def copy(leaf: Any) -> Any:
        if not isinstance(leaf, jax.Array) or isinstance(leaf, jax.core.Tracer):
            return np.array(leaf) if isinstance(leaf, np.ndarray) else leaf
        return jax.device_put(leaf, leaf.sharding, may_alias=False)

    return jax.tree.map(copy, tree)


def is_key(leaf: Any) -> bool:
    """Whether a leaf is an array of random keys, or the shape of one."""
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def raw_numbers(leaf: Any) -> Any:
    """A leaf, or the shape of one; of random keys the numbers that they are made of.

    Example:
      >>> import jax
      >>> from jaxarch.trees import keyed_as, raw_numbers
      >>> key = jax.random.key(3)
      >>> print(raw_numbers(key), keyed_as(key, raw_numbers(key)) == key)
      [0 3] True
    """
    if not is_key(leaf):
        return leaf
    is_shape = isinstance(leaf, jax.ShapeDtypeStruct)
    return jax.eval_shape(jax.random.key_data, leaf) if is_shape else jax.random.key_data(leaf)


def keyed_as(leaf: Any, numbers: Any) -> Any:
    """`raw_numbers` undone: numbers as random keys, if the leaf that they stand for has such."""
    if not is_key(leaf):
        return numbers
    return jax.random.wrap_key_data(jnp.asarray(numbers), impl=jax.random.key_impl(leaf))


def check_structure(name: str, selection: PyTree, tree: PyTree, of: str) -> None:
    """Raise unless a selection can be merged into a tree: the same containers with the same entries.

    Raises:
      ArgumentError: naming the argument, and what it should have the structure `of`.
    """
    try:
        merge(selection, tree)
    except ValueError as error:
        raise ArgumentError(
            f"{name}: expected the structure of {of}, with None in place of leaves that are left out; "
            f"{one_line(error)}"
        ) from None


def check_distinct(name: str, tree: PyTree) -> None:
    """Raise unless every leaf has a path of its own, as `{"a/b": x, "a": {"b": y}}` has not.

    Raises:
      ArgumentError: naming the argument.
    """
    leaves = named_leaves(tree)
    if len(leaves) < len(jax.tree.leaves(tree)):
        raise ArgumentError(f"{name}: it has two leaves of one path; give them names of their own")


def inexact(tree: PyTree) -> PyTree:
    """The leaves that have a gradient, floating-point and complex ones, and `None` in place of the others.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from jaxarch.trees import inexact
      >>> inexact({"kernel": jnp.ones(2), "count": jnp.array(3), "key": jax.random.key(0)})
      {'count': None, 'kernel': Array([1., 1.], dtype=float32), 'key': None}
    """
    some = jax.tree.map(lambda leaf: leaf if _is_inexact(leaf) else None, tree)
    return some if len(jax.tree.leaves(some)) < len(jax.tree.leaves(tree)) else tree


def _is_inexact(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.inexact)


def select_floating(tree: PyTree, where: Where = matrices) -> PyTree:
    """`select` of leaves that are to be masked: floating-point ones.

    Raises:
      ArgumentError: as of `select`; a leaf of another dtype among those selected, naming its path.
    """
    selection = select(tree, where)
    for path, leaf in named_leaves(selection).items():
        dtype = getattr(leaf, "dtype", None)
        if dtype is None or not jnp.issubdtype(dtype, jnp.floating):
            found = "no dtype" if dtype is None else f"dtype {dtype}"
            raise ArgumentError(
                f"params: leaf {path!r} has {found}, and masks are of floating-point leaves; leave it out by "
                "`where`"
            )
    return selection


def check_trainable(params: PyTree) -> None:
    """Raise unless parameters are arrays, and at least one of them has a gradient.

    Raises:
      ArgumentError: a leaf without a dtype, naming its path; parameters that are all integers, keys or the
        like.
    """
    leaves = named_leaves(params)
    for path, leaf in leaves.items():
        if getattr(leaf, "dtype", None) is None:
            raise ArgumentError(f"params: leaf {path!r} has no dtype; give an array")
    if not any(map(_is_inexact, leaves.values())):
        dtypes = {path: str(leaf.dtype) for path, leaf in leaves.items()}
        raise ArgumentError(f"params: expected a floating-point array to train, got {shown(dtypes)}")


def check_floating(name: str, tree: PyTree) -> None:
    """Raise unless every leaf is a floating-point array and there is at least one.

    Raises:
      ArgumentError: naming the argument and the offending leaf's path.
    """
    leaves = named_leaves(tree)
    if not leaves:
        raise ArgumentError(f"{name}: expected a pytree with at least one array, got none")
    for path, leaf in leaves.items():
        dtype = getattr(leaf, "dtype", None)
        if dtype is None or not jnp.issubdtype(dtype, jnp.floating):
            found = "no dtype" if dtype is None else f"dtype {dtype}"
            raise ArgumentError(
                f"{name}: leaf {path!r} has {found}; trainable parameters must be floating point"
            )
