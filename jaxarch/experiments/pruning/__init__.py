"""Experiments of [A], Colombo & Gao, Differentiable Architecture Pruning for Transfer Learning.

- section 3.1, figure 1, convergence for three soft temperatures: `fig1`
- section 3.2, figures 2 to 7, transfer (2 with `in_domain`): `transfer`
- section 3.3, table 1, layers reshuffled, and their densities: `reshuffle`

What the last two share: `settings`; `tasks`, data and problems; `searches`, the architectures; `trial`, what
is measured; `estimate`, how long it takes; `reporting`, files, figures and tables.
"""
