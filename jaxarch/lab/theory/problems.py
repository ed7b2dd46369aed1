"""Names of the problems on which the theory is tested, and the quantity shown of each."""

NETWORK = "network"
PROBLEMS = {
    NETWORK: "F of the network found",
    "logistic": "gap of logistic regression",
    "linear": "gap of a linear f",
    "quadratic": "gap of a quadratic f",
}
"""Quantities shown; for convex problems, the gap of F above its least value, at the average mask."""
ON_DATA = (NETWORK, "logistic")
