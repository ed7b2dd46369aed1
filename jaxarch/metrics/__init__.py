"""Metrics to compare runs: area under the ROC curve, paired differences, ranks, regrets, several tasks."""

from jaxarch.metrics._across_tasks import AcrossTasks as AcrossTasks
from jaxarch.metrics._across_tasks import across_tasks as across_tasks
from jaxarch.metrics._differences import paired_differences as paired_differences
from jaxarch.metrics._differences import quartiles as quartiles
from jaxarch.metrics._ranks import Ranking as Ranking
from jaxarch.metrics._ranks import ranking as ranking
from jaxarch.metrics._ranks import runs_needed as runs_needed
from jaxarch.metrics._regret import regret as regret
from jaxarch.metrics._roc import auc as auc
