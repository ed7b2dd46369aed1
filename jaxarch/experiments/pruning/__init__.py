"""Experiments of [A], Colombo & Gao, Differentiable Architecture Pruning for Transfer Learning.

- section 3.1, figure 1, convergence for three soft temperatures: `fig1`
"""
