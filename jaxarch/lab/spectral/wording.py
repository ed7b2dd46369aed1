"""Words shared by the reports on spectral networks: meanings of names and columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

MEANING = {
    "spectral": "weights of eigenvectors and eigenvalues, with all skip connections ([S], Peri et al. 2025)",
    "gated spectral": "as in [S] (Peri et al. 2025), but an eigenvalue gates what enters its neuron alone",
    "spectral, no skips": "as in [S] (Peri et al. 2025), without skip connections; random hidden eigenvalues",
    "gated spectral, layers taken out": "gated spectral, whose layers are removed one by one",
    "weights, all skips": "ordinary weights between all pairs of layers",
    "weights, no skips": "ordinary weights between neighboring layers",
    "batch norm": "weights, no skips, with batch norm (network slimming, Liu et al. 2017)",
    "gated channels": "convolutions whose channels are gated by eigenvalues, with skip connections",
    "batch norm channels": "convolutions with batch norm (network slimming, Liu et al. 2017)",
    "perceptron": "a spectral network whose hidden eigenvalues start at 0, so that it starts as a linear map",
    "random eigenvalues": "a spectral network whose hidden eigenvalues start at random values",
    "linear": "the parent's own head, one dense layer",
    "L_1 trained": "input eigenvalues are trained and penalized, as in the code of [S]",
    "L_1 = 0": "input eigenvalues stay 0, as in section 4 of [S]",
    "table 4": "squared L2 penalty, as table 4 of [S] says",
    "authors code": "L2 penalty without the square, as in the code of [S]",
    "l1 3e-4": "L1 penalty, not in [S]",
    "direct, with all skips": "ordinary weights between all pairs of layers",
    "direct, without skips": "ordinary weights between neighboring layers",
}
"""One line on each network, start or penalty that a report names."""
PENALTY = (
    "L1 on hidden eigenvalues (spectral, gated), a group lasso on each neuron's weights (weights), or L1 on "
    "batch-norm scales (batch norm)"
)
"""Penalties of the rivals in `rivals.RIVALS` and `channels.ON_PICTURES`."""
LEFT = "removing more raises the validation loss by more than the tolerance"
"""Rule for the neurons that are left."""
SECONDS = "of a run: wall time x devices / runs, without compilation"


def explain(names: Iterable[str], columns: Mapping[str, str]) -> list[str]:
    """Return a line on each name that is shown, then on each column."""
    named = {name: MEANING[name] for name in dict.fromkeys(names) if name in MEANING}
    return [f"- {name}: {meaning}" for name, meaning in {**named, **columns}.items()]
