"""Chains of residual blocks, each of which a search may cut to its first blocks."""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch._internal.errors import ArgumentError, shortened, shown
from jaxarch._internal.trees import PyTree, named_leaves, natural_order, placed
from jaxarch.masks._sharding import split_like
from jaxarch.structure import Groups
from jaxarch.structure._branches import Branch, find_branch

Depth = str | Sequence[str | Sequence[str]]
"""Chains of blocks: a pattern on the beginning of paths for each, or several patterns in order."""
Patterns = tuple[tuple[str, ...], ...]


class Block(NamedTuple):
    """The paths of a block's leaves, and of those that multiply all that it adds to its stream."""

    paths: tuple[str, ...]
    scales: tuple[str, ...]


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Chains:
    """Chains of blocks, each of which keeps its first ones.

    Attributes:
      chains: name and blocks of each.
    """

    chains: tuple[tuple[str, tuple[Block, ...]], ...]

    def depths(self, before: PyTree) -> dict[str, Array]:
        """Return the candidate depths of every chain: 0, 1, ..., to its last block with a connection.

        Args:
          before: an earlier mask, or `None`. Depths beyond it are the largest within it.
        """
        masks, depths = named_leaves(before), {}
        for name, blocks in self.chains:
            left = [jnp.stack([jnp.any(masks.get(path, True)) for path in of.paths]).any() for of in blocks]
            numbers = jnp.arange(len(blocks) + 1, dtype=jnp.int32)
            depths[name] = jnp.minimum(numbers, jnp.where(jnp.stack(left), numbers[1:], 0).max())
        return depths

    def spread(self, kept: Mapping[str, Array], like: PyTree, part: Literal["paths", "scales"]) -> PyTree:
        """Give the leaves of each block its number; `None` for all others, and for no chain.

        Args:
          kept: by chain, a number or boolean for each block.
          like: the parameters.
          part: all leaves of a block, or those alone that multiply what it adds.
        """
        if not self.chains:
            return None
        leaves = named_leaves(like)
        made = {
            path: split_like(leaves[path], jnp.broadcast_to(kept[name][number], leaves[path].shape))
            for name, blocks in self.chains
            for number, block in enumerate(blocks)
            for path in getattr(block, part)
        }
        return placed(made, like)

    def around(self, paths: Collection[str]) -> tuple[str, int] | None:
        """Return the chain, and the first of its blocks, in which some leaves are; `None` if not in one."""
        for name, blocks in self.chains:
            there = [number for number, block in enumerate(blocks, 1) if {*paths} & {*block.paths}]
            if there and {*paths} <= {path for block in blocks for path in block.paths}:
                return name, there[0]
        return None


def check_depth(depth: Depth | None) -> Patterns:
    """Return the patterns of each chain.

    Raises:
      ArgumentError: anything but patterns.
    """
    given = () if depth is None else (depth,) if isinstance(depth, str) else depth
    chains = [(of,) if isinstance(of, str) else of for of in given] if isinstance(given, Sequence) else [None]
    is_right = all(
        isinstance(of, Sequence) and of and all(isinstance(pattern, str) for pattern in of) for of in chains
    )
    if not is_right or (depth is not None and not chains):
        raise ArgumentError(
            "depth: expected patterns of blocks, such as 'encoder/[12]' or ('encoder/[12]', 'encoder/[45]'), "
            f"got {shown(depth)}"
        )
    return tuple(tuple(of) for of in chains if of is not None)


def leaves_of(patterns: Sequence[str], paths: Collection[str]) -> dict[str, list[str]]:
    """Return the leaves of the blocks of one chain, by the beginning of their paths."""
    found: dict[str, list[str]] = {}
    for pattern in patterns:
        length = pattern.count("/") + 1
        starts = {path: "/".join(path.split("/")[:length]) for path in paths}
        matching = {start for start in starts.values() if _matches(start, pattern)}
        for start in sorted(matching, key=natural_order):
            found.setdefault(start, []).extend(path for path, of in starts.items() if of == start)
    return found


def _matches(start: str, pattern: str) -> bool:
    parts, patterns = start.split("/"), pattern.split("/")
    return len(parts) == len(patterns) and all(map(fnmatch.fnmatchcase, parts, patterns))


def name_of(patterns: Sequence[str]) -> str:
    """Return the name of a chain."""
    return ", ".join(patterns)


def chains_of(
    depth: Patterns, groups: Groups, params: PyTree, units: Collection[str]
) -> tuple[Chains, dict[tuple[str, int], Branch]]:
    """Find the blocks of a model; shapes alone are read.

    Args:
      depth: the patterns of each chain.
      groups: the groups of the model.
      params: its parameters.
      units: the names of the groups that are searched.

    Returns:
      The chains, and the branch of each block, by chain and number from 1.

    Raises:
      ArgumentError: a pattern without a block; a leaf of two blocks, by its path or in the program; a block
        that, without its leaves, is not known to be its shortcut.
    """
    leaves = {
        path: leaf for path, leaf in named_leaves(params).items() if jnp.issubdtype(leaf.dtype, jnp.floating)
    }
    _check_apart(depth, leaves)
    chains: dict[str, tuple[Block, ...]] = {}
    branches: dict[tuple[str, int], Branch] = {}
    started: dict[int, str] = {}
    for patterns in depth:
        name, blocks = name_of(patterns), []
        if name in units:
            raise ArgumentError(f"depth: {shown(name)} is also the name of a group of units; rename a leaf")
        for number, (start, paths) in enumerate(leaves_of(patterns, leaves).items(), 1):
            branch = find_branch(groups._program, [*groups._leaves], paths)
            if branch is None:
                raise ArgumentError(
                    f"depth: {start!r} is not known to be its shortcut once all its leaves are 0; give "
                    "blocks x + f(x) whose shortcut has no leaves, and whose f divides by none and ends in "
                    "leaves that multiply it, such as a kernel and its bias, or the scale and bias of a norm"
                )
            taken = {started[step] for step in branch.steps & started.keys()}
            if taken:
                raise ArgumentError(
                    f"depth: {start!r} and {min(taken)!r} are not apart: a leaf of one is used in the other, "
                    "or one is within the other; give blocks that only the stream connects"
                )
            started |= dict.fromkeys(branch.steps, start)
            branches[name, number] = branch
            blocks.append(Block(tuple(paths), tuple(sorted(branch.scales))))
        chains[name] = tuple(blocks)
    return Chains(tuple(chains.items())), branches


def _check_apart(depth: Patterns, paths: Collection[str]) -> None:
    """Raise for a pattern without a block, and for a leaf of two blocks."""
    taken: dict[str, str] = {}
    for pattern in (pattern for patterns in depth for pattern in patterns):
        blocks = leaves_of([pattern], paths)
        if not blocks:
            known = shortened(", ".join(paths), 200)
            raise ArgumentError(f"depth: no block is selected by {shown(pattern)}; the leaves are: {known}")
        for start, of_block in blocks.items():
            for path in of_block:
                if path in taken:
                    raise ArgumentError(
                        f"depth: {path!r} is in two blocks, {taken[path]!r} and {start!r}; give it to one"
                    )
                taken[path] = start
