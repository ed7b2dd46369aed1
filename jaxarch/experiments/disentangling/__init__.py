"""Experiments of [D], Colombo & Gao, Disentangling Neural Architectures and Weights.

- section 5, every strategy on one task: `strategies`
"""
