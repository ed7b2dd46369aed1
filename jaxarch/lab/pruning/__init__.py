"""Experiments of [A], Colombo & Gao, Differentiable Architecture Pruning for Transfer Learning.

- section 3.1, figure 1, convergence for three soft temperatures: `fig1`
- section 3.2, figures 2 to 7, transfer (2 with `in_domain`): `transfer`
- section 3.3, table 1, reshuffled layers, and layer densities: `reshuffle`

One experiment comes from no paper: `channels` cuts out the neurons or channels that searches find. Its
modules are `unit_settings`, `unit_searches`, and `cutting`, the measurements.

Modules shared by `transfer` and `reshuffle`: `settings`; `tasks`, data and problems; `searches`, the
architectures; `trial`, the measurements; `estimate`, the expected duration; `reporting`, files, figures and
tables.
"""
