"""Preprocessing of examples."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from jaxarch import ArgumentError
from jaxarch.lab.checks import check_count, from_extra
from jaxarch.lab.data.dataset import Dataset, array_of, check_dataset


def unit_norm(data: Dataset) -> Dataset:
    """Scale every example to Euclidean norm 1 ([D] section 5); an all-zero example stays zero.

    Raises:
      ArgumentError: data that is not a `Dataset`.

    Example:
      >>> import jaxarch
      >>> data = jaxarch.lab.data.from_arrays([[3, 4], [0, 0]], [0, 1])
      >>> print(jaxarch.lab.data.unit_norm(data).x)
      [[0.6 0.8]
       [0.  0. ]]
    """
    check_dataset(data)
    norms = np.linalg.norm(data.x, axis=1, keepdims=True)
    return data._replace(x=np.divide(data.x, norms, out=np.zeros_like(data.x), where=norms > 0))


def crop_and_pool(images: np.ndarray, crop: int = 2, window: int = 3) -> np.ndarray:
    """Cut off `crop` pixels on each side, then average over non-overlapping windows ([D] section 5).

    The defaults turn 28 x 28 pixels into 64 numbers: 24 x 24 pixels in 8 x 8 windows of 3 x 3. [D] says
    'pooling'; taking the mean is our reading.

    Args:
      images: shape (examples, height, width).
      crop: pixels to cut off on each side.
      window: side length of a window, in pixels.

    Returns:
      float32, shape (examples, windows), row by row, in the range of the pixels.

    Raises:
      ArgumentError: another rank; a side that is not a multiple of `window` after cropping.

    Example:
      >>> import jaxarch, numpy as np
      >>> picture = np.arange(16).reshape(1, 4, 4)  # 0, 1, 4 and 5 are in the first window
      >>> jaxarch.lab.data.crop_and_pool(picture, crop=0, window=2).tolist()
      [[2.5, 4.5, 10.5, 12.5]]
      >>> jaxarch.lab.data.crop_and_pool(np.zeros((1, 28, 28))).shape
      (1, 64)
    """
    check_count("crop", crop, least=0)
    check_count("window", window)
    images = array_of("images", images)
    if images.ndim != 3 or any(side <= 2 * crop or (side - 2 * crop) % window for side in images.shape[1:]):
        raise ArgumentError(
            f"images: expected shape (examples, height, width) with sides of {2 * crop} plus a multiple of "
            f"{window}, got {images.shape}"
        )
    if images.dtype.kind not in "biuf":
        raise ArgumentError(f"images: expected numbers, got dtype {images.dtype}")
    examples, height, width = images.shape
    inner = images[:, crop : height - crop, crop : width - crop]
    rows, columns = inner.shape[1] // window, inner.shape[2] // window
    windows = inner.reshape(examples, rows, window, columns, window)
    return windows.mean(axis=(2, 4), dtype=np.float32).reshape(examples, rows * columns)


def principal_components(x: np.ndarray | sparse.spmatrix, count: int) -> np.ndarray:
    """Project examples onto the first principal components of all examples ([D] section 5).

    A component's sign is arbitrary, but it matters to a network without negative weights that is odd in its
    inputs, such as (11): flipping all signs swaps the labels. The sign is therefore fixed such that the entry
    of largest magnitude of each component is positive.

    Args:
      x: numbers, dense or sparse, shape (examples, features).
      count: number of components.

    Returns:
      float32, shape (examples, count), with mean 0. The result is the same on each call: a dense matrix is
      decomposed in full, a sparse one by Lanczos iterations to machine precision from a fixed start.

    Raises:
      ArgumentError: more components than there are (for a sparse matrix, one fewer); not a matrix of finite
        numbers.

    Example:
      >>> import jaxarch, numpy as np
      >>> x = np.array([[0, 0], [3, 4], [9, 12]])  # on a line, 5 and 10 apart; the mean is (4, 16/3)
      >>> [[round(value, 2) for value in row] for row in jaxarch.lab.data.principal_components(x, 1).tolist()]
      [[-6.67], [-1.67], [8.33]]
    """
    with from_extra("lab", "principal_components: components"):
        from sklearn.decomposition import PCA

    check_count("count", count)
    is_sparse = sparse.issparse(x)
    x = x if is_sparse else array_of("x", x)
    values = sparse.csr_matrix(x).data if is_sparse else x
    if x.ndim != 2 or x.dtype.kind not in "biuf" or not np.isfinite(values).all():
        raise ArgumentError(
            f"x: expected finite numbers of shape (examples, features), got {x.dtype} of shape {x.shape}"
        )
    most = min(x.shape) - is_sparse
    if count > most:
        raise ArgumentError(
            f"count: expected at most {most} components for x of shape {x.shape}, got {count}"
        )
    fitted = PCA(count, svd_solver="arpack" if is_sparse else "full", random_state=0).fit(x)
    components = fitted.components_
    largest = np.abs(components).argmax(axis=1)
    signs = np.sign(components[np.arange(count), largest])
    return (fitted.transform(x) * signs).astype(np.float32)
