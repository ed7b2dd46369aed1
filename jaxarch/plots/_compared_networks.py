"""Figures of networks compared: barriers, layers, matched units, kernels, masks as graphs, subspaces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from jaxarch._internal.errors import ArgumentError, check_instance
from jaxarch.analysis import (
    Alignment,
    Barrier,
    Connectivity,
    IntrinsicDimension,
    Similarity,
    TangentKernel,
)
from jaxarch.plots._arguments import array, panels
from jaxarch.plots._style import COLOURS, LINES, STYLE, NotebookFigure, log_scale, look, medians

_ROW, _CELL = 0.24, 0.36
"""Inches of a row of text, and of a cell of a map."""


def barriers(found: Mapping[str, Barrier], label: str = "loss", title: str = "") -> Figure:
    """Draw the loss along the line between two networks, for several pairs or ways to align one.

    Args:
      found: by name, what `analysis.barrier` returns: of one pair, or of many as `jax.vmap` returns them.
        Lines are medians over pairs, bands are quartiles. The legend has the barrier's height.
      label: label of the vertical axis.
      title: title of the figure.

    Raises:
      ArgumentError: nothing to draw, or values that are not barriers.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> def loss(params):
      ...     return (params["w"] ** 2 - 1) ** 2
      >>> found = jaxarch.analysis.barrier(loss, {"w": jnp.float32(-1)}, {"w": jnp.float32(1)})
      >>> figure = jaxarch.plots.barriers({"two minima": found})
      >>> figure.axes[0].get_legend().get_texts()[0].get_text()
      'two minima: 1'
    """
    lines = panels("found", found, "name", _losses)
    with matplotlib.rc_context(STYLE):
        figure = NotebookFigure(figsize=(5.6, 3.4), layout="constrained")
        axes = figure.subplots()
        for index, (name, (at, losses, heights)) in enumerate(lines.items()):
            look: dict[str, Any] = {
                "color": COLOURS[index % len(COLOURS)],
                "ls": LINES[index % len(LINES)],
                "lw": 1.6,
            }
            medians(axes, at, losses, **look, label=f"{name}: {np.median(heights):.3g}")
        axes.set_xlabel("place between the first network (0) and the second (1)")
        axes.set_ylabel(label)
        axes.set_title(title, loc="left")
        axes.legend(title="barrier's height, median over pairs" if len(losses) > 1 else "barrier's height")
    return figure


def _losses(name: str, value: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Read a barrier: its places, its losses of shape (pairs, points), and its heights of shape (pairs,)."""
    check_instance(name, value, Barrier, "what analysis.barrier returns")
    at, losses, heights = (array()(name, of) for of in value)
    if losses.ndim > 2 or not losses.size or losses.shape[-1:] != at.shape[-1:]:
        raise ArgumentError(
            f"{name}: expected losses of shape (points,) or (pairs, points), got shape {losses.shape}"
        )
    return at.reshape(-1, at.shape[-1])[0], np.atleast_2d(losses), np.atleast_1d(heights)


def kernel_spectra(found: Mapping[str, TangentKernel], title: str = "") -> Figure:
    """Draw the eigenvalues of several tangent kernels against their rank, both on logarithmic axes.

    Eigenvalues that are 0 up to rounding are left out, and ranks at which half of the runs have no other.

    Args:
      found: by name, what `analysis.ntk` returns: of one network, or of many runs as `jax.vmap` returns them.
        Lines are medians over runs, bands are quartiles. The legend has the effective rank.
      title: title of the figure.

    Raises:
      ArgumentError: nothing to draw, values that are not kernels, or a kernel of zeros or NaN.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch
      >>> def apply(params, x):
      ...     return x @ params["w"]
      >>> params, x = {"w": jnp.ones(3)}, jnp.diag(jnp.array([1.0, 2.0, 3.0]))
      >>> figure = jaxarch.plots.kernel_spectra({"linear": jaxarch.analysis.ntk(apply, params, x)})
      >>> figure.axes[0].lines[0].get_ydata().round(2).tolist()
      [9.0, 4.0, 1.0]
    """
    lines = panels("found", found, "name", _eigenvalues)
    with matplotlib.rc_context(STYLE):
        figure = NotebookFigure(figsize=(5.6, 3.4), layout="constrained")
        axes = figure.subplots()
        for index, (name, (values, rank)) in enumerate(lines.items()):
            drawn = {"color": COLOURS[index % len(COLOURS)], "ls": LINES[index % len(LINES)], "lw": 1.6}
            at = np.arange(1, values.shape[1] + 1)
            medians(axes, at, values, **drawn, label=f"{name}: {np.median(rank):.3g}")
        for which in "xy":
            log_scale(axes, which)
        axes.set_xlabel("rank of the eigenvalue")
        axes.set_ylabel("eigenvalue of the tangent kernel")
        axes.set_title(title, loc="left")
        several = any(len(values) > 1 for values, _ in lines.values())
        axes.legend(title="effective rank, median over runs" if several else "effective rank")
    return figure


def _eigenvalues(name: str, value: Any) -> tuple[np.ndarray, np.ndarray]:
    """Read a kernel: its eigenvalues of shape (runs, n), NaN where they are 0, and its effective ranks."""
    check_instance(name, value, TangentKernel, "what analysis.ntk returns")
    values = array()(name, value.eigenvalues)
    if not 1 <= values.ndim <= 2 or not values.size:
        raise ArgumentError(f"{name}: expected eigenvalues of shape (n,) or (runs, n), got {values.shape}")
    rank = np.asarray(value._replace(eigenvalues=values).effective_rank)
    values = np.atleast_2d(values)
    rounding = values.shape[1] * np.finfo(np.float32).eps * values[:, :1]
    is_seen = values > rounding
    if not (is_seen.mean(0) > 0.5).any():
        raise ArgumentError(f"{name}: expected a positive eigenvalue, got none: the kernel is 0 or NaN")
    return np.where(is_seen & (is_seen.mean(0) > 0.5), values, np.nan), np.atleast_1d(rank)


def similarity(found: Similarity, title: str = "") -> Figure:
    """Draw the similarities of the layers of two models, as a map with its numbers.

    Args:
      found: what `analysis.similarity` returns.
      title: title of the figure.

    Raises:
      ArgumentError: an object that is not a `Similarity`.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch
      >>> def apply(params, x):
      ...     return jnp.tanh(x @ params["in"]) @ params["out"]
      >>> params = {"in": jnp.eye(2), "out": jnp.ones((2, 1))}
      >>> batch = jax.random.normal(jax.random.key(0), (20, 2))
      >>> found = jaxarch.analysis.similarity((apply, params), (apply, params), [batch])
      >>> figure = jaxarch.plots.similarity(found)
      >>> [text.get_text() for text in figure.axes[0].texts][::3]  # each layer with itself
      ['1.00', '1.00']
    """
    check_instance("found", found, Similarity, "what analysis.similarity returns")
    rows, columns = found.cka.shape
    longest = max(map(len, (*found.first, *found.second)))
    size = (1.6 + 0.07 * longest + _CELL * columns, 0.9 + 0.07 * longest + 0.8 * _CELL * rows)
    with matplotlib.rc_context({**STYLE, "axes.grid": False}):
        figure = NotebookFigure(figsize=size, layout="constrained")
        axes = figure.subplots()
        axes.set_facecolor("0.85")  # seen where there is no number
        image = axes.imshow(found.cka, cmap="viridis", vmin=0, vmax=1, aspect="auto")
        if max(rows, columns) <= 24:
            for (row, column), value in np.ndenumerate(found.cka):
                text = "-" if np.isnan(value) else f"{value:.2f}"
                shade = "black" if value > 0.6 or np.isnan(value) else "white"
                axes.text(column, row, text, ha="center", va="center", color=shade, fontsize=6)
        axes.set_yticks(range(rows), found.first)
        axes.set_xticks(range(columns), found.second, rotation=90)
        axes.set_ylabel("first model")
        axes.set_xlabel("second model")
        figure.colorbar(image, label="CKA")
        figure.suptitle(title, x=0.01, ha="left")
    return figure


def alignment(found: Alignment, title: str = "") -> Figure:
    """Draw the cosine of each group's parameters in two networks, before and after alignment.

    Args:
      found: what `analysis.align` returns.
      title: title of the figure.

    Raises:
      ArgumentError: an object that is not an `Alignment`.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> def apply(params, x):
      ...     return jnp.tanh(x @ params["in"]) @ params["out"]
      >>> a = {"in": jnp.array([[1.0, 2.0]]), "out": jnp.array([[0.0], [1.0]])}
      >>> b = {"in": jnp.array([[2.0, 1.0]]), "out": jnp.array([[1.0], [0.0]])}
      >>> found = jaxarch.analysis.align(apply, a, b, jnp.ones((1, 1)))
      >>> figure = jaxarch.plots.alignment(found)
      >>> [line.get_xdata().round(1).tolist() for line in figure.axes[0].lines]  # before, after
      [[0.7], [1.0]]
    """
    check_instance("found", found, Alignment, "what analysis.align returns")
    names = [*found.cosines]
    before, after = np.array([found.cosines[name] for name in names]).T
    with matplotlib.rc_context(STYLE):
        figure = NotebookFigure(figsize=(6.4, 1.1 + _ROW * len(names)), layout="constrained")
        axes = figure.subplots()
        axes.hlines(range(len(names)), before, after, color="0.6", lw=1.2)
        for values, index, label in ((before, 0, "as they are"), (after, 1, "aligned")):
            axes.plot(values, range(len(names)), "o", color=COLOURS[index], label=label)
        labels = [f"{name}, as it is" if name in found.left else name for name in names]
        axes.set_yticks(range(len(names)), labels)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_xlabel("cosine of the two networks' parameters with these units")
        figure.legend(loc="outside lower center", ncols=2)
        figure.suptitle(title, x=0.01, ha="left")
    return figure


def connectivity(found: Mapping[str, Mapping[str, Connectivity]], title: str = "") -> Figure:
    """Draw the gap of each layer's graph to the Ramanujan bound, for several masks.

    Args:
      found: by name, what `analysis.connectivity` returns: of one mask, or of many as `jax.vmap` returns
        them. Lines are medians over masks, bands are quartiles. All have the same layers. An empty layer has
        no point.
      title: title of the figure.

    Raises:
      ArgumentError: nothing to draw, values that are not of connectivity, or masks of different layers.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> mask = {"first": jnp.ones((4, 2), bool), "last": jnp.eye(2, dtype=bool)}
      >>> found = jaxarch.analysis.connectivity(mask)
      >>> figure = jaxarch.plots.connectivity({"mine": found})
      >>> figure.axes[0].lines[-1].get_ydata().round(1).tolist()  # whole, and a matching
      [2.7, -1.0]
    """
    lines = panels("found", found, "name, layer", _gaps)
    layers = [*next(iter(lines.values()))]
    for name, of in lines.items():
        if [*of] != layers:
            raise ArgumentError(f"found: {name!r} has the layers {', '.join(of)}, not {', '.join(layers)}")
        if len({gaps.shape for gaps in of.values()}) > 1:
            raise ArgumentError(f"found: the layers of {name!r} have different numbers of masks")
    longest = max(map(len, layers))
    size = (max(4.4, 2.2 + 0.5 * len(layers)), 2.9 + 0.07 * longest)
    with matplotlib.rc_context(STYLE):
        figure = NotebookFigure(figsize=size, layout="constrained")
        axes = figure.subplots()
        axes.axhline(0, color="0.5", lw=1)
        for index, (name, of) in enumerate(lines.items()):
            medians(axes, np.arange(len(layers)), np.stack([*of.values()], 1), **look(index), label=name)
        axes.set_xticks(range(len(layers)), layers, rotation=90)
        axes.set_ylabel("Ramanujan bound minus 2nd singular value")
        axes.set_title(title, loc="left")
        axes.legend()
    return figure


def _gaps(name: str, value: Any) -> np.ndarray:
    """Read the gaps of a layer, of shape (masks,)."""
    check_instance(name, value, Connectivity, "what analysis.connectivity returns")
    gaps = array()(name, value.gap)
    if gaps.ndim > 1 or not gaps.size:
        raise ArgumentError(f"{name}: expected gaps of shape () or (masks,), got shape {gaps.shape}")
    return np.atleast_1d(gaps)


def intrinsic_dimension(
    found: Mapping[str, IntrinsicDimension], label: str = "score", title: str = ""
) -> Figure:
    """Draw the score after training in random subspaces against their dimension, for several networks.

    Args:
      found: by name, what `analysis.intrinsic_dimension` returns. Lines are medians over seeds, bands are
        quartiles; a dotted line is the median threshold. The legend has the median of the smallest dimension
        that reaches it, where a seed that reaches none counts as infinite.
      label: label of the vertical axis.
      title: title of the figure.

    Raises:
      ArgumentError: nothing to draw, or values that are not intrinsic dimensions.

    Example:
      >>> import jaxarch, numpy as np
      >>> found = jaxarch.analysis.IntrinsicDimension(
      ...     np.array([10, 100]), np.array([[0.5], [0.9]]), *np.array([[1.0], [0.9], [100], [200]])
      ... )
      >>> figure = jaxarch.plots.intrinsic_dimension({"dense": found})
      >>> figure.axes[0].get_legend().get_texts()[0].get_text()
      'dense: 100'
    """
    lines = panels("found", found, "name", _scores)
    with matplotlib.rc_context(STYLE):
        figure = NotebookFigure(figsize=(5.6, 3.4), layout="constrained")
        axes = figure.subplots()
        for index, (name, of) in enumerate(lines.items()):
            drawn = look(index)
            smallest = np.median(np.where(np.isnan(of.smallest), np.inf, of.smallest))
            told = f"{smallest:.4g}" if np.isfinite(smallest) else "not reached"
            medians(axes, of.dimensions, of.scores.T, **drawn, lw=1.6, label=f"{name}: {told}")
            axes.axhline(np.median(of.threshold), color=drawn["color"], ls=":", lw=0.8)
        log_scale(axes, "x")
        axes.set_xlabel("dimension of the subspace (line: median over seeds, band: quartiles)")
        axes.set_ylabel(label)
        axes.set_title(title, loc="left")
        axes.legend(title="smallest that reaches the threshold")
    return figure


def _scores(name: str, value: Any) -> IntrinsicDimension:
    """Read scores of shape (dimensions, seeds), and what belongs to them."""
    check_instance(name, value, IntrinsicDimension, "what analysis.intrinsic_dimension returns")
    of = IntrinsicDimension(*(array()(name, part) for part in value))
    if of.scores.ndim != 2 or not of.scores.size or len(of.scores) != np.size(of.dimensions):
        raise ArgumentError(
            f"{name}: expected scores of shape (dimensions, seeds), got shape {of.scores.shape}"
        )
    return of
