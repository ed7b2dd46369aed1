"""Experiments of [S], Peri, Chicchi, Fanelli & Giambagli, Spectral Architecture Search (SPARCS).

- section 5, figure 7, and appendix E, figures 11 to 15, from linear to quadratic targets: `fig7`
- section 5, figure 8, parameter counts: `fig8`
- section 5, figures 9 and 10, and appendix G, table 4, a teacher and its student: `fig9`
- spectral networks beside rivals, made small on the teacher's task: `rivals`

Shared modules: `training`, settings and read-out; `targets` and `teacher`, the tasks.
"""
