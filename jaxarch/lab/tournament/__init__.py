"""A ranking of all methods on the same parents, with the same budgets, over the same seeds."""

from jaxarch.lab.tournament.experiment import EXPERIMENT as EXPERIMENT
