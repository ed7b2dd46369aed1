"""Experiments of [S], Peri, Chicchi, Fanelli & Giambagli, Spectral Architecture Search (SPARCS).

- section 5, figure 7, and appendix E, figures 11 to 15, from linear to quadratic targets: `fig7`
- section 5, figure 8, how many parameters there are: `fig8`
- section 5, figures 9 and 10, and appendix G, table 4, a teacher and its student: `fig9`
- spectral networks beside others, made small on the task of the teacher: `rivals`

What they share: `training`, settings and read-out; their tasks, `targets` and `teacher`.
"""
