"""Distances between groups of vectors, such as the Laplacian spectra of networks found by strategies.

A group is an array of shape (runs, entries), one vector per run. A run with an entry that is not finite is
left out; `within` counts such runs.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from jaxarch._internal.errors import ArgumentError, check_concrete, from_extra, shown
from jaxarch.metrics import quartiles

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Plane", "between", "finite_runs", "principal_plane", "within"]


def finite_runs(groups: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the finite runs of each group in float64, shape (finite runs, entries).

    Raises:
      ArgumentError: no groups, or arrays that are not real or not of shape (runs, entries).

    Example:
      >>> import numpy as np
      >>> from jaxarch.structure import distances
      >>> distances.finite_runs({"ours": np.array([[1, 2], [3, np.nan]])})
      {'ours': array([[1., 2.]])}
    """
    if not isinstance(groups, Mapping) or not groups:
        raise ArgumentError("groups: expected a mapping from names to arrays of shape (runs, entries)")
    check_concrete("groups", groups)
    finite = {}
    for name, runs in groups.items():
        try:
            array = np.asarray(runs)
        except ValueError:
            raise ArgumentError(
                f"groups: {shown(name)}: expected an array, got rows of different lengths"
            ) from None
        if array.dtype.kind not in "fiub":
            raise ArgumentError(f"groups: {shown(name)}: expected real numbers, got {array.dtype}")
        if array.ndim != 2 or not array.shape[1]:
            raise ArgumentError(f"groups: {shown(name)}: expected shape (runs, entries), got {array.shape}")
        finite[name] = array[np.isfinite(array).all(axis=1)].astype(np.float64)
    return finite


def between(groups: Mapping[str, np.ndarray]) -> pd.DataFrame:
    r"""Compute the distance between the centroids of every two groups.

    Args:
      groups: by name, shape (runs, entries): the same entries in each; the numbers of runs may differ.

    Returns:
      One row per pair, with the names `first` and `second`; `distance`, the Euclidean distance between the
      two centroids (means over runs); and `standard_error = sqrt(tr S_1 / n_1 + tr S_2 / n_2)`, S the sample
      covariances and n the numbers of runs. Two groups of independent runs with the same mean are not at
      distance 0, but at about one standard error (in the root mean square). Runs that share a beginning may
      be closer. The standard error is NaN if a group has fewer than two finite runs; both numbers are NaN if
      a group has none.

    Raises:
      ArgumentError: as in `finite_runs`; vectors of different lengths.

    Example:
      >>> import numpy as np
      >>> from jaxarch.structure import distances
      >>> groups = {"ours": np.array([[-1, 0], [1, 0]]), "theirs": np.array([[3, 3], [3, 5]])}
      >>> table = distances.between(groups)  # of the centroids (0, 0) and (3, 4); tr S = 2 in both
      >>> table[["distance", "standard_error"]].iloc[0].round(3).tolist()
      [5.0, 1.414]
    """
    with from_extra("lab", "distances: a table"):
        import pandas as pd

    finite = _comparable(groups)
    rows = []
    for first, second in itertools.combinations(finite, 2):
        one, other = finite[first], finite[second]
        distance = float(np.linalg.norm(_centroid(one) - _centroid(other)))
        error = float(np.sqrt(_squared_error(one) + _squared_error(other)))
        rows.append({"first": first, "second": second, "distance": distance, "standard_error": error})
    return pd.DataFrame(rows, columns=["first", "second", "distance", "standard_error"])


def within(groups: Mapping[str, np.ndarray]) -> pd.DataFrame:
    """Compute how far the runs of each group lie from its centroid.

    Args:
      groups: by name, shape (runs, entries).

    Returns:
      One row per group: its name `group`; `runs`, the number of finite runs; `failed`, the number of others;
      `spread`, the median Euclidean distance of a run to the group's own centroid (the mean of the runs, this
      one included); and the quartiles `q25` and `q75` of these distances. NaN without runs.

    Raises:
      ArgumentError: as in `finite_runs`.

    Example:
      >>> import numpy as np
      >>> from jaxarch.structure import distances
      >>> groups = {"ours": np.array([[0, 0], [0, 2], [np.nan, 1]])}  # the centroid is (0, 1)
      >>> distances.within(groups).to_dict("records")
      [{'group': 'ours', 'runs': 2, 'failed': 1, 'spread': 1.0, 'q25': 1.0, 'q75': 1.0}]
    """
    with from_extra("lab", "distances: a table"):
        import pandas as pd

    rows = []
    for name, runs in finite_runs(groups).items():
        spread, q25, q75 = quartiles(np.linalg.norm(runs - _centroid(runs), axis=1))
        failed = len(groups[name]) - len(runs)
        rows.append(
            {"group": name, "runs": len(runs), "failed": failed, "spread": spread, "q25": q25, "q75": q75}
        )
    return pd.DataFrame(rows)


@dataclass(frozen=True)
class Plane:
    """The plane of the first two principal components, and the groups' coordinates in it.

    Attributes:
      points: by group, the coordinates of its finite runs, shape (runs, 2).
      centroids: by group, the mean of its points, shape (2,); NaN without runs.
      explained: the share of the variance of all runs along each component, shape (2,).
      components: orthonormal rows, shape (2, entries).
      mean: the mean of all runs, the origin of the plane, shape (entries,).
    """

    points: dict[str, np.ndarray]
    centroids: dict[str, np.ndarray]
    explained: np.ndarray
    components: np.ndarray
    mean: np.ndarray


def principal_plane(groups: Mapping[str, np.ndarray]) -> Plane:
    """Project all runs of all groups to the plane of their first two principal components.

    Distances in the plane are at most the true distances, which `between` and `within` give. The sign of a
    component is arbitrary and is fixed so that its entry of the largest magnitude is positive.

    Args:
      groups: by name, shape (runs, entries), at least two entries. A group counts by its number of runs.

    Returns:
      A `Plane`. If no two runs differ, there is no such plane: all points are 0, and `explained` and
      `components` are NaN.

    Raises:
      ArgumentError: as in `between`; vectors of one entry.

    Example:
      >>> import numpy as np
      >>> from jaxarch.structure import distances
      >>> plane = distances.principal_plane({"ours": np.array([[0, 0]]), "theirs": np.array([[6, 8]])})
      >>> print(plane.components[0].round(3), plane.explained.round(3))  # along (6, 8), seen from (3, 4)
      [0.6 0.8] [1. 0.]
      >>> [round(float(plane.points[name][0, 0]), 3) for name in ("ours", "theirs")]
      [-5.0, 5.0]
    """
    finite = _comparable(groups)
    runs = np.concatenate(list(finite.values()))
    if runs.shape[1] < 2:
        raise ArgumentError("groups: expected vectors of at least two entries, got one")
    mean = _centroid(runs)
    if len(runs) < 2 or not np.ptp(runs, axis=0).any():
        components, explained = np.full((2, runs.shape[1]), np.nan), np.full(2, np.nan)
        points = {name: np.zeros((len(vectors), 2)) for name, vectors in finite.items()}
    else:
        with from_extra("lab", "principal_plane: components"):
            from sklearn.decomposition import PCA

        fitted = PCA(2, svd_solver="full").fit(runs)
        largest = np.abs(fitted.components_).argmax(axis=1)
        components = fitted.components_ * np.sign(fitted.components_[[0, 1], largest])[:, None]
        explained = fitted.explained_variance_ratio_
        points = {name: (vectors - mean) @ components.T for name, vectors in finite.items()}
    centroids = {name: _centroid(coordinates) for name, coordinates in points.items()}
    return Plane(points, centroids, explained, components, mean)


def _centroid(runs: np.ndarray) -> np.ndarray:
    return runs.mean(axis=0) if len(runs) else np.full(runs.shape[1], np.nan)


def _squared_error(runs: np.ndarray) -> float:
    """Return the trace of the sample covariance, divided by the number of runs."""
    return float(runs.var(axis=0, ddof=1).sum() / len(runs)) if len(runs) >= 2 else float("nan")


def _comparable(groups: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the groups' finite runs, checked to be vectors of one length."""
    finite = finite_runs(groups)
    (first, entries), *others = [(name, runs.shape[1]) for name, runs in finite.items()]
    for name, count in others:
        if count != entries:
            raise ArgumentError(
                f"groups: expected vectors of equal length, got {count} entries in {shown(name)} and "
                f"{entries} in {shown(first)}"
            )
    return finite
