"""Experiments of other papers, whose methods jaxarch has.

- J. Frankle and M. Carbin, The lottery ticket hypothesis, 2019, sections 1 and 2, LeNet-300-100: `tickets`
- H. Tanaka et al., Pruning neural networks without any data, 2020, layer collapse: `collapse`
"""
