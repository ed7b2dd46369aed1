"""Experiments of [A], Colombo & Gao, Differentiable Architecture Pruning for Transfer Learning.

- section 3.1, figure 1, convergence for three soft temperatures: `fig1`
- section 3.2, figures 2 to 7, transfer (2 with `in_domain`): `transfer`
- section 3.3, table 1, layers reshuffled, and their densities: `reshuffle`

And one of no paper, neurons or channels that searches find, cut out: `channels`; its `unit_settings`,
`unit_searches`, and `cutting`, what is measured.

What `transfer` and `reshuffle` share: `settings`; `tasks`, data and problems; `searches`, the
architectures; `trial`, what is measured; `estimate`, how long it takes; `reporting`, files, figures and
tables.
"""
