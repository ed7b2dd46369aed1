"""Citeseer: 3312 abstracts of papers as bags of words, six classes; installed with jaxarch."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from scipy import sparse

from jaxarch import ArgumentError
from jaxarch.io import read_npz
from jaxarch.lab.data.dataset import Dataset, from_arrays
from jaxarch.lab.data.transforms import principal_components

FILE = Path(__file__).with_name("citeseer.npz")
SHA256 = "b96a66c47725a3d4f99d6fabb0b3891d75e0d4422b32bc6f9e8df02bd392c190"


def features() -> Dataset:
    """Return Citeseer as in [D] section 5: the first 64 principal components of all 3312 abstracts."""
    x, y = words()
    return from_arrays(principal_components(x, 64), y, "citeseer")


def bags_of_words() -> Dataset:
    """Return all 3312 abstracts as their 3703 words, 0 or 1."""
    x, y = words()
    return from_arrays(x.toarray(), y, "citeseer-words")


def words() -> tuple[sparse.csr_matrix, np.ndarray]:
    """Return the bags of words (0 or 1, CSR, shape (3312, 3703)) and the classes (0 to 5) of all abstracts.

    The 15 of 3327 papers in the citation graph that have neither words nor a class are left out.

    Raises:
      ArgumentError: the file is not the installed one.
    """
    if not FILE.is_file() or hashlib.sha256(FILE.read_bytes()).hexdigest() != SHA256:
        raise ArgumentError(f"dataset: {FILE} is missing, truncated or altered; install jaxarch again")
    arrays = read_npz(FILE, "dataset")
    indices = arrays["indices"].astype(np.int32)
    ones = np.ones(len(indices), np.float64)
    matrix = sparse.csr_matrix((ones, indices, arrays["indptr"]), shape=tuple(arrays["shape"]))
    labelled = arrays["labels"] >= 0
    return matrix[labelled], arrays["labels"][labelled].astype(np.int32)
