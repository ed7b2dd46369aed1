"""Path names of the leaves of parameter pytrees, and selections of leaves.

A *selection* has the structure of the tree that it was made from, with `None` in place of every leaf that was
not selected. Only these few functions know how to handle `None` leaves.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import DictKey, FlattenedIndexKey, GetAttrKey, KeyPath, SequenceKey

from jaxarch._internal.errors import ArgumentError, check_callable, did_you_mean, one_line, shortened, shown
from jaxarch._internal.kernels import not_matrices

PyTree = Any
"""Arrays in nested containers, as in `jax.tree`."""
Where = Callable[[str, Any], bool] | str | Sequence[str]
"""Choice of leaves: a predicate on (path, leaf), or one or more glob patterns on the path."""


def path_name(path: KeyPath) -> str:
    """Return a leaf's path as text, such as `layers/0/kernel`.

    Flax NNX wraps each array in a `Variable`, whose attribute would end every path in `/value`. It is
    dropped, so that a parameter has the same name in NNX, in Linen and in a plain dict.
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
    """Return the leaves of a tree by path name, in flattening order. `None` leaves are left out.

    Example:
      >>> import jaxarch
      >>> jaxarch.named_leaves({"layers": [{"kernel": 1.5}, {"kernel": 2.5, "bias": None}]})
      {'layers/0/kernel': 1.5, 'layers/1/kernel': 2.5}
    """
    return {path_name(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]}


def placed(named: Mapping[str, Any], like: PyTree) -> PyTree:
    """Arrange leaves by path in the structure of a tree, `None` where a path is missing: undo `named_leaves`.

    Args:
      named: the leaves by path. A leaf without a place in the tree is dropped silently: check for that
        before.
      like: any pytree; only the paths of its leaves count.

    Raises:
      ArgumentError: a tree with two leaves with one path.
    """
    check_distinct("like", like)
    return jax.tree.unflatten(jax.tree.structure(like), [named.get(path) for path in named_leaves(like)])


def restructured(tree: PyTree, like: PyTree) -> PyTree:
    """Arrange the leaves of a module like those of its state, or the other way round, by their paths.

    An NNX module and its `nnx.State` use the same paths for the same leaves. Leaves without a place in `like`
    are left out. A tree stays as it is if both are mappings, or neither.

    Args:
      tree: the leaves, for instance gradients that are a module.
      like: the tree with the wanted structure; a place for `None` stays `None`.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> from jaxarch._internal.trees import named_leaves, restructured
      >>> module = nnx.Linear(2, 1, rngs=nnx.Rngs(0))
      >>> [*named_leaves(restructured(module, {"kernel": jnp.ones((2, 1)), "bias": None}))]
      ['kernel']
    """
    if isinstance(tree, Mapping) == isinstance(like, Mapping):
        return tree
    return placed(named_leaves(tree), like)


def by_path(name: str, given: Any, tree: PyTree) -> PyTree:
    """Return a value for each leaf; in a mapping, the name is the leaf's path, or the end of it.

    Args:
      name: the user's argument, for errors.
      given: a mapping from names, `L2` or `head/eigenvalues/L2`, to values; or one value for all leaves.
      tree: the leaves; `None` stays `None`.

    Raises:
      ArgumentError: a name without a leaf, a leaf without a name, or a leaf with two names.

    Example:
      >>> from jaxarch._internal.trees import by_path
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
            raise ArgumentError(f"{name}: expected a value for each leaf, got none for {path!r}")
        if len(found) > 1:
            raise ArgumentError(
                f"{name}: leaf {path!r} is named twice, by {shown(found[0])} and {shown(found[1])}; keep one"
            )
    return placed({path: given[found[0]] for path, found in names.items()}, tree)


def natural_order(path: str) -> list[tuple[bool, int, str]]:
    """Return a key that sorts paths with numbers in numeric order.

    Raises:
      ArgumentError: a path that is not text.

    Example:
      >>> import jaxarch
      >>> sorted(["layers/10/kernel", "layers/2/kernel"], key=jaxarch.natural_order)
      ['layers/2/kernel', 'layers/10/kernel']
    """
    if not isinstance(path, str):
        raise ArgumentError(f"path: expected text such as 'query/kernel', got {shown(path)}")
    parts = re.split(r"(\d+)", path)
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]


def matrices(path: str, leaf: Any) -> bool:
    """Select kernels and embedding tables: leaves of two or more axes other than biases, norms and the like.

    As the default `where`, it also considers the neighbors of each leaf: see `not_matrices`. Called with one
    leaf, as here, it knows only the path and shape of that leaf. To select by use in a function, see
    `structure.weights_of`.

    Raises:
      ArgumentError: a path that is not text.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> [jaxarch.matrices(path, jnp.zeros((2, 3))) for path in ("query/kernel", "query/bias")]
      [True, False]
    """
    if not isinstance(path, str):
        raise ArgumentError(f"path: expected text such as 'query/kernel', got {shown(path)}")
    return path not in not_matrices({path: leaf})


def everything(path: str, leaf: Any) -> bool:
    """Select every leaf.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> params = {"kernel": jnp.ones((1, 2)), "bias": jnp.ones(2)}
      >>> list(jaxarch.named_leaves(jaxarch.select(params, jaxarch.everything)))
      ['bias', 'kernel']
    """
    return True


def select(tree: PyTree, where: Where = matrices, name: str = "where") -> PyTree:
    """Return the leaves that `where` selects, with `None` in place of all others.

    Args:
      tree: any pytree of arrays: plain containers, Flax Linen parameters, an NNX state.
      where: a predicate on (path, leaf), or glob patterns such as `"*/kernel"` (`*` also crosses `/`).
      name: the argument that the user gave `where` as, for errors.

    Raises:
      ArgumentError: an empty selection, or a pattern that selects nothing; the message names the existing
        paths.

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
                known = shortened(", ".join(paths), 200) or "none at all"
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
        known = shortened(", ".join(named_leaves(tree)), 200) or "none at all"
        raise ArgumentError(f"{name}: no leaf is selected by {shown(where)}; the leaves are: {known}")
    return selection


def map_selected(function: Callable[..., Any], selection: PyTree, *trees: PyTree) -> PyTree:
    """Apply `function(leaf, *leaves)` where a leaf is selected; return `None` elsewhere.

    Example:
      >>> from jaxarch._internal.trees import map_selected
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
    """Return the selected leaves of `selection`, and the leaves of `tree` elsewhere.

    Example:
      >>> from jaxarch._internal.trees import merge
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
    """Return the leaves of `tree` that are not selected, with `None` in place of the selected ones."""
    return jax.tree.map(
        lambda leaf, other: other if leaf is None else None,
        selection,
        tree,
        is_leaf=lambda leaf: leaf is None,
    )


def copied(tree: PyTree) -> PyTree:
    """Copy a tree and its arrays, so that donating or changing the original leaves the copy as it is."""

    def copy(leaf: Any) -> Any:
        if not isinstance(leaf, jax.Array) or isinstance(leaf, jax.core.Tracer):
            return np.array(leaf) if isinstance(leaf, np.ndarray) else leaf
        return jax.device_put(leaf, leaf.sharding, may_alias=False)

    return jax.tree.map(copy, tree)


def is_key(leaf: Any) -> bool:
    """Return whether a leaf is an array of random keys, or the shape of one."""
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def raw_numbers(leaf: Any) -> Any:
    """Return a leaf or its shape; for random keys, their raw numbers.

    Example:
      >>> import jax
      >>> from jaxarch._internal.trees import keyed_as, raw_numbers
      >>> key = jax.random.key(3)
      >>> print(raw_numbers(key), keyed_as(key, raw_numbers(key)) == key)
      [0 3] True
    """
    if not is_key(leaf):
        return leaf
    is_shape = isinstance(leaf, jax.ShapeDtypeStruct)
    return jax.eval_shape(jax.random.key_data, leaf) if is_shape else jax.random.key_data(leaf)


def keyed_as(leaf: Any, numbers: Any) -> Any:
    """Undo `raw_numbers`: turn numbers into random keys if the original leaf holds keys."""
    if not is_key(leaf):
        return numbers
    return jax.random.wrap_key_data(jnp.asarray(numbers), impl=jax.random.key_impl(leaf))


def check_structure(name: str, selection: PyTree, tree: PyTree, of: str) -> None:
    """Raise unless a selection can be merged into a tree: the same containers with the same entries.

    Raises:
      ArgumentError: another structure; the message names the argument, and `of`, the tree that it must match.
    """
    try:
        merge(selection, tree)
    except ValueError as error:
        raise ArgumentError(
            f"{name}: expected the structure of {of}, with None in place of leaves that are left out; "
            f"{one_line(error)}"
        ) from None


def check_distinct(name: str, tree: PyTree) -> None:
    """Raise unless every leaf has a unique path, unlike in `{"a/b": x, "a": {"b": y}}`.

    Raises:
      ArgumentError: two leaves with one path; the message names the argument.
    """
    leaves = named_leaves(tree)
    if len(leaves) < len(jax.tree.leaves(tree)):
        raise ArgumentError(f"{name}: two leaves have the same path; give each its own name")


def inexact(tree: PyTree) -> PyTree:
    """Return the leaves that have a gradient, floating-point and complex, with `None` in place of all others.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from jaxarch._internal.trees import inexact
      >>> inexact({"kernel": jnp.ones(2), "count": jnp.array(3), "key": jax.random.key(0)})
      {'count': None, 'kernel': Array([1., 1.], dtype=float32), 'key': None}
    """
    some = jax.tree.map(lambda leaf: leaf if _is_inexact(leaf) else None, tree)
    return some if len(jax.tree.leaves(some)) < len(jax.tree.leaves(tree)) else tree


def _is_inexact(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.inexact)


def select_floating(tree: PyTree, where: Where = matrices) -> PyTree:
    """Select leaves to mask, which must be floating point, by `select`.

    Raises:
      ArgumentError: see `select`; a selected leaf of another dtype (the message names its path).
    """
    selection = select(tree, where)
    for path, leaf in named_leaves(selection).items():
        dtype = getattr(leaf, "dtype", None)
        if dtype is None or not jnp.issubdtype(dtype, jnp.floating):
            found = "no dtype" if dtype is None else f"dtype {dtype}"
            raise ArgumentError(
                f"params: leaf {path!r} has {found}, but only floating-point leaves can be masked; leave it "
                "out by `where`"
            )
    return selection


def check_trainable(params: PyTree) -> None:
    """Raise unless parameters are arrays, and at least one of them has a gradient.

    Raises:
      ArgumentError: a leaf without a dtype (the message names its path); parameters that are all integers,
        keys or the like.
    """
    leaves = named_leaves(params)
    for path, leaf in leaves.items():
        if getattr(leaf, "dtype", None) is None:
            raise ArgumentError(f"params: leaf {path!r} has no dtype; give an array")
    if not any(map(_is_inexact, leaves.values())):
        dtypes = {path: str(leaf.dtype) for path, leaf in leaves.items()}
        raise ArgumentError(
            f"params: expected at least one floating-point array to train, got {shown(dtypes)}"
        )


def check_floating(name: str, tree: PyTree) -> None:
    """Raise unless every leaf is a floating-point array and there is at least one.

    Raises:
      ArgumentError: no leaf, or a leaf of another kind; the message names the argument and the leaf's path.
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
