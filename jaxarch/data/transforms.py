"""What is done to examples before a network sees them."""

from __future__ import annotations

import numpy as np

from jaxarch.data.sources import Dataset


def unit_norm(data: Dataset) -> Dataset:
    """Every example scaled to Euclidean norm 1 ([D] section 5); an example that is all zeros stays so."""
    norms = np.linalg.norm(data.x, axis=1, keepdims=True)
    return data._replace(x=np.divide(data.x, norms, out=np.zeros_like(data.x), where=norms > 0))
