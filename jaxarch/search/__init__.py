"""What makes a network: one method a file."""

from jaxarch.search.agnostic import agnostic as agnostic
from jaxarch.search.architecture_pruning import architecture_pruning as architecture_pruning
from jaxarch.search.dense import dense as dense
from jaxarch.search.group_lasso import group_lasso as group_lasso
from jaxarch.search.logistic_regression import logistic_regression as logistic_regression
from jaxarch.search.lottery import lottery as lottery
from jaxarch.search.magnitude_pruning import magnitude_pruning as magnitude_pruning
from jaxarch.search.random_mask import random_mask as random_mask
from jaxarch.search.random_search import random_search as random_search
from jaxarch.search.snip import snip as snip
from jaxarch.search.spectral import spectral as spectral
from jaxarch.search.two_temperature import two_temperature as two_temperature
from jaxarch.search.untrained import untrained as untrained
