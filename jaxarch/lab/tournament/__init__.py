"""Every method on the same parents, with the same budgets, over the same seeds: who does better than whom."""

from jaxarch.lab.tournament.experiment import EXPERIMENT as EXPERIMENT
