"""All experiments, by the name that `jaxarch run` knows them by."""

from __future__ import annotations

from jaxarch.experiments.disentangling import fig2, fig3, fig4, fig5, strategies
from jaxarch.experiments.harness.experiment import Experiment
from jaxarch.experiments.pruning import fig1 as pruning_fig1
from jaxarch.experiments.pruning import reshuffle, transfer
from jaxarch.experiments.spectral import fig7, fig8, fig9, rivals
from jaxarch.experiments.theory import temperature_ratio

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        strategies.EXPERIMENT,
        fig2.EXPERIMENT,
        fig3.EXPERIMENT,
        fig4.EXPERIMENT,
        fig5.EXPERIMENT,
        fig7.EXPERIMENT,
        fig8.EXPERIMENT,
        fig9.EXPERIMENT,
        rivals.EXPERIMENT,
        pruning_fig1.EXPERIMENT,
        transfer.EXPERIMENT,
        reshuffle.EXPERIMENT,
        temperature_ratio.EXPERIMENT,
    )
}
DEFAULT = strategies.NAME
