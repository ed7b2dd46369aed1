r"""How often a mask may be wrong on new examples: upper bounds that fail with probability delta at most.

Weights that were there before the data leave a search nothing to choose but the mask. A mask that few others
are like is paid for with its length, `log 1/P(mask)`, P fixed before the data were seen: for all masks at
once the error on new examples is at most

    sup{p : P(Bin(n, p) <= errors) >= delta P(mask)}

(docs/theory.md, `certificate.generalization`). Numbers are Python's, rounded outwards: a bound is never below
the one that exact arithmetic would give. `relaxed_length` alone is JAX's, for the penalty of a search.
"""

from jaxarch.theory.generalization._binomial import binomial_upper
from jaxarch.theory.generalization._bounds import kl_inverse, masked_bound, randomized_bound
from jaxarch.theory.generalization._description import description_length, relaxed_length

__all__ = [
    "binomial_upper",
    "description_length",
    "kl_inverse",
    "masked_bound",
    "randomized_bound",
    "relaxed_length",
]
