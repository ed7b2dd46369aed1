"""Area under the ROC curve: how well outputs separate two classes."""

from __future__ import annotations

import numpy as np

from jaxarch._internal.errors import ArgumentError, real_numbers


def auc(labels: np.ndarray, outputs: np.ndarray) -> np.ndarray:
    """Return the area under the ROC curve of every run: P(output of a 1 > output of a 0), ties counting half.

    Args:
      labels: 0 or 1, shape (..., n), with both present.
      outputs: scores, shape (..., n).

    Returns:
      Shape (...), in [0, 1]; NaN where an output is NaN. Equal to scikit-learn's to rounding, and many times
      faster over many runs.

    Raises:
      ArgumentError: shapes that differ, labels of one class only, values that are not real numbers.

    Example:
      >>> import jaxarch, numpy as np
      >>> labels, outputs = np.array([0, 0, 1, 1]), np.array([0.1, 0.4, 0.4, 0.8])
      >>> print(jaxarch.metrics.auc(labels, outputs))  # of four pairs three are in order, and one is a tie
      0.875
    """
    from scipy import stats

    labels, outputs = real_numbers("labels", labels), real_numbers("outputs", outputs)
    if labels.ndim == 0 or labels.shape[-1] == 0:
        raise ArgumentError(f"labels: expected shape (..., n), got {labels.shape}")
    if labels.shape != outputs.shape:
        raise ArgumentError(f"outputs: expected the labels' shape {labels.shape}, got {outputs.shape}")
    positives = (labels == 1).sum(-1)
    negatives = labels.shape[-1] - positives
    if (positives == 0).any() or (negatives == 0).any():
        raise ArgumentError("labels: expected both labels, 0 and 1, in every run")
    ranks = stats.rankdata(outputs, axis=-1)
    rank_sum = np.where(labels == 1, ranks, 0).sum(-1)
    return (rank_sum - positives * (positives + 1) / 2) / (positives * negatives)
