"""Citeseer: 3312 abstracts of papers as bags of words, six classes, citations; installed with jaxarch."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import sparse

from jaxarch import ArgumentError
from jaxarch.io import read_npz
from jaxarch.lab.data.dataset import Dataset, from_arrays
from jaxarch.lab.data.transforms import principal_components

FILE = Path(__file__).with_name("citeseer.npz")
SHA256 = "9bf6ac70c59bc81af648256ebf0422b076eb1201f54c7019774887be0d1d4d99"
TRAINED_ON, VALIDATED_ON, TESTED_ON = 120, 500, 1000


class Graph(NamedTuple):
    """A graph whose nodes have features and classes, with a split of the nodes.

    Attributes:
      x: features, float32, shape (nodes, features).
      y: classes, int32, shape (nodes,).
      edges: the two nodes of every undirected edge, int32, shape (2, edges): each edge once, with the smaller
        node first, and no edge from a node to itself.
      train: rows of the nodes to train on.
      validation: rows of the nodes to choose settings by.
      test: rows of the nodes to test on.
    """

    x: np.ndarray
    y: np.ndarray
    edges: np.ndarray
    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


def features() -> Dataset:
    """Return Citeseer as in [D] section 5: the first 64 principal components of all 3312 abstracts."""
    x, y = words()
    return from_arrays(principal_components(x, 64), y, "citeseer")


def bags_of_words() -> Dataset:
    """Return all 3312 abstracts as their 3703 words, 0 or 1."""
    x, y = words()
    return from_arrays(x.toarray(), y, "citeseer-words")


def citation_graph() -> Graph:
    """Return Citeseer as a graph: 3312 papers by their 3703 words, 0 or 1, and 4536 citations between them.

    The split is Planetoid's (Z. Yang, W. Cohen and R. Salakhutdinov, 2016, arXiv:1603.08861): 20 papers of
    each class to train on, 500 for validation, 1000 to test on. The other papers have classes here too, which
    a comparison with others' results must not read.

    Papers that have neither words nor a class are left out with their 16 citations. So are the directions of
    citations, repeated ones and papers that cite themselves.

    Raises:
      ArgumentError: the file is not the installed one.

    Example:
      >>> import jaxarch
      >>> graph = jaxarch.lab.data.citation_graph()
      >>> graph.x.shape, graph.edges.shape, len(graph.train)
      ((3312, 3703), (2, 4536), 120)
    """
    arrays = _arrays()
    x, y = _words(arrays)
    labelled = arrays["labels"] >= 0
    edges = arrays["edges"].astype(np.int32)
    edges = (np.cumsum(labelled, dtype=np.int32) - 1)[edges[:, labelled[edges].all(axis=0)]]
    rows = np.arange(len(y), dtype=np.int32)
    validation = rows[TRAINED_ON:][:VALIDATED_ON]
    return Graph(x.toarray().astype(np.float32), y, edges, rows[:TRAINED_ON], validation, rows[-TESTED_ON:])


def words() -> tuple[sparse.csr_matrix, np.ndarray]:
    """Return the bags of words (0 or 1, CSR, shape (3312, 3703)) and the classes (0 to 5) of all abstracts.

    The 15 of 3327 papers in the citation graph that have neither words nor a class are left out.

    Raises:
      ArgumentError: the file is not the installed one.
    """
    return _words(_arrays())


def _arrays() -> dict[str, np.ndarray]:
    if not FILE.is_file() or hashlib.sha256(FILE.read_bytes()).hexdigest() != SHA256:
        raise ArgumentError(f"dataset: {FILE} is missing, truncated or altered; install jaxarch again")
    return read_npz(FILE, "dataset")


def _words(arrays: dict[str, np.ndarray]) -> tuple[sparse.csr_matrix, np.ndarray]:
    indices = arrays["indices"].astype(np.int32)
    ones = np.ones(len(indices), np.float64)
    matrix = sparse.csr_matrix((ones, indices, arrays["indptr"]), shape=tuple(arrays["shape"]))
    labelled = arrays["labels"] >= 0
    return matrix[labelled], arrays["labels"][labelled].astype(np.int32)
