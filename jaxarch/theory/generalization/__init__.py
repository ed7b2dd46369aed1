r"""Upper bounds on a mask's error rate on new examples; they fail with probability at most delta.

If the weights existed before the data, a search chooses nothing but the mask. Choosing it costs the length of
its description, `log 1/P(mask)`, with P fixed before the data were seen. For all masks at once, the error
rate on new examples is at most

    sup{p : P(Bin(n, p) <= errors) >= delta P(mask)}

(docs/theory.md, `certificate.generalization`). Numbers are Python floats, rounded outwards: a bound is never
below the result of exact arithmetic. Only `relaxed_length` uses JAX, for the penalty of a search.
"""

from jaxarch.theory.generalization._binomial import binomial_upper
from jaxarch.theory.generalization._bounds import kl_inverse, masked_bound, randomized_bound
from jaxarch.theory.generalization._compression import compression_bound
from jaxarch.theory.generalization._description import description_length, relaxed_length

__all__ = [
    "binomial_upper",
    "compression_bound",
    "description_length",
    "kl_inverse",
    "masked_bound",
    "randomized_bound",
    "relaxed_length",
]
