"""Studies that compare networks with each other.

- the masks that pruning methods find for different seeds, up to the order of hidden units: `architectures`
"""
