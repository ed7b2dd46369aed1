"""Theorems of this library's own, with proofs in docs/theory.md, and what remains of refuted ones."""

from jaxarch.claims.own import (
    convex_sgd,
    descent,
    exact_step,
    forward_substitution,
    gated_form,
    gated_neurons,
    heavy_ball,
    iterates,
    mirror_flow,
    recruitment,
    recruitment_at_a_kink,
    regret,
    rounding_of_inverses,
    scaling,
    strongly_convex_sgd,
    vertex_distance,
)

__all__ = [
    "convex_sgd",
    "descent",
    "exact_step",
    "forward_substitution",
    "gated_form",
    "gated_neurons",
    "heavy_ball",
    "iterates",
    "mirror_flow",
    "recruitment",
    "recruitment_at_a_kink",
    "regret",
    "rounding_of_inverses",
    "scaling",
    "strongly_convex_sgd",
    "vertex_distance",
]
