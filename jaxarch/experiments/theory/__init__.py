"""Experiments on what the theorems give in practice (`docs/theory.md`).

- the two-temperature step, its exact mirror step, and prescribed rates, over soft/hard: `temperature_ratio`
"""
