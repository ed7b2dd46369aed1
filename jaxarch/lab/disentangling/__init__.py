"""Experiments of [D], Colombo & Gao, Disentangling Neural Architectures and Weights.

- section 3, figure 2, the binarization and its derivative: `fig2`
- section 4, figure 3, convergence over both temperatures: `fig3`
- section 5, every strategy on one task: `strategies`
- section 5, figure 4 and appendix C, figures 6 to 9, run time and AUC: `fig4`
- section 5, figure 5 and appendix D, figure 10, Laplacian spectra: `fig5`
- single flips after the search, until none lowers F: `flips`

Shared modules: `settings`; `trial`, the tasks and their network; `measuring`, the measurements of
strategies; `certifying`, the certificates of their masks.
"""
