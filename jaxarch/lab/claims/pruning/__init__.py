"""Claims of [A], Colombo and Gao, Differentiable Architecture Pruning for Transfer Learning, 2021."""

from jaxarch.lab.claims.pruning import (
    convergence,
    convergence_proof,
    log_likelihood,
    logistic_regression,
    mean_loss,
    penalty,
    search_problem,
    step_error,
)

__all__ = [
    "convergence",
    "convergence_proof",
    "log_likelihood",
    "logistic_regression",
    "mean_loss",
    "penalty",
    "search_problem",
    "step_error",
]
