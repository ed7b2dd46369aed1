"""The names of the problems that the theory is tried on, and what is looked at of each."""

NETWORK = "network"
PROBLEMS = {
    NETWORK: "F of the network found",
    "logistic": "gap of logistic regression",
    "linear": "gap of a linear f",
    "quadratic": "gap of a quadratic f",
}
"""What is looked at: of convex problems, how far F is above its least value, at the average of the masks."""
ON_DATA = (NETWORK, "logistic")
