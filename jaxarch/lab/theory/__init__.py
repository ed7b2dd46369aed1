"""Experiments that test the theorems in practice (`docs/theory.md`).

- the two-temperature step, its exact mirror step, and prescribed rates, over soft/hard: `temperature_ratio`
- certified and measured errors on new examples: `generalization`, with networks of `sign_networks`
  and features of `oriented` and `scattering`

Modules of the first: `settings`; `problems`, `convex` and `cases`, the tasks; `averaging`, the two steps;
`rates` and `gradients`, learning rates; `gaps`, the measurements; `ratio_report`, figures and tables.
"""
