"""Experiments on what the theorems give in practice (`docs/theory.md`).

- the two-temperature step, its exact mirror step, and prescribed rates, over soft/hard: `temperature_ratio`
- certified against measured errors on new examples: `generalization`, of networks in `sign_networks`

The parts of the first: `settings`; `problems`, `convex` and `cases`, what is learned; `averaging`, the two
steps; `rates` and `gradients`, how fast; `gaps`, what is measured; `ratio_report`, what is shown.
"""
