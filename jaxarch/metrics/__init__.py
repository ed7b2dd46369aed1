"""What runs are compared by: how well outputs separate classes, paired differences, ranks."""

from jaxarch.metrics.differences import paired_differences as paired_differences
from jaxarch.metrics.differences import quartiles as quartiles
from jaxarch.metrics.ranks import Ranking as Ranking
from jaxarch.metrics.ranks import ranking as ranking
from jaxarch.metrics.ranks import runs_needed as runs_needed
from jaxarch.metrics.roc import auc as auc
