"""Catalogue of all experiments: the name for `jaxarch run`, and a description in one line.

A name is also the path of a module of the lab. The module is imported when its experiment is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jaxarch.lab.harness import Experiment

EXPERIMENTS = {
    "disentangling.strategies": (
        "section 5 of [D] on one task: AUC of every strategy, both orientations, paired tests"
    ),
    "disentangling.fig2": "figure 2 of [D]: the binarisation B_M and its derivative",
    "disentangling.fig3": "figure 3 of [D]: convergence of Algorithm 1 over M_hard and M_soft",
    "disentangling.fig4": (
        "figures 4 and 6 to 9 of [D]: run time against AUC, every strategy, tasks and training sizes"
    ),
    "disentangling.fig5": (
        "figures 5 and 10 of [D]: Laplacian spectra of real and binary networks, distances, PCA"
    ),
    "disentangling.flips": (
        "single flips of masks as in [D] until none lowers the loss: loss and AUC before and after, paired"
    ),
    "spectral.fig7": "figures 7, 11 to 15 of [S]: the hidden layer recruited as the target turns non-linear",
    "spectral.fig8": (
        "figure 8 of [S]: parameters of spectral networks and of networks with all skip connections"
    ),
    "spectral.fig9": (
        "figures 9 and 10, table 4 of [S]: a student with two hidden layers, a teacher with one of 20"
    ),
    "spectral.fig16": (
        "figures 16 and 17, table 1 of [S]: a spectral head on a convolutional network, beside a linear one"
    ),
    "spectral.fig18": (
        "figure 18, table 2 of [S], a stand-in: spectral and linear heads on a frozen backbone trained here"
    ),
    "spectral.rivals": (
        "spectral networks and their rivals made small: neurons left against error, a teacher of 20 neurons"
    ),
    "spectral.pictures": (
        "spectral networks and their rivals on pictures: how few hidden neurons reach an equal accuracy"
    ),
    "spectral.depth": (
        "teachers of one to three hidden layers: how often the depth of each is found, of how many neurons"
    ),
    "spectral.recovery": (
        "teachers of one to three hidden layers of 5 to 50 neurons: width and depth that each rival finds"
    ),
    "spectral.width": (
        "teachers of 20 neurons, Gaussian inputs, one output: neurons left without a strength to choose"
    ),
    "spectral.rank": (
        "section 4 of [S]: how gradually the rank rises where hidden eigenvalues start at 0, and elsewhere"
    ),
    "pruning.fig1": (
        "figure 1 of [A]: convergence of a sparse logistic regression at three soft temperatures"
    ),
    "pruning.transfer": (
        "figures 2 to 7 of [A]: architectures found on one task, trained on another with few examples"
    ),
    "pruning.reshuffle": (
        "table 1 of [A]: architectures against themselves reshuffled within layers, and their layers' "
        "densities"
    ),
    "pruning.channels": (
        "channels or neurons found by several searches and cut out: accuracy against multiply-adds"
    ),
    "tournament": (
        "every method on the same parents, budgets and seeds: ranks, accuracy against density and cost"
    ),
    "tournament.across_tasks": (
        "stored tournaments side by side: regret in every task and density, differences on a new task"
    ),
    "related_work.tickets": (
        "lottery tickets, pruned in rounds: against the whole network, and the same with fresh weights"
    ),
    "related_work.collapse": (
        "layers that lose their last connection as networks are pruned before training, and when"
    ),
    "related_work.trimmed_edges": (
        "edges of a citation graph trimmed by degree (TEDDY), at random or as learned: accuracy of a graph "
        "network"
    ),
    "analysis.architectures": (
        "the masks that a method finds for different seeds: how much they agree up to the order of units"
    ),
    "analysis.robustness": (
        "how far pixels may change before the class does, proven and attacked, against density and method"
    ),
    "analysis.intrinsic_dimension": (
        "the smallest random subspace in which a mask learns almost as well, against density and method"
    ),
    "analysis.instability": (
        "the step from which on two trainings of one mask end in one valley: tickets, random masks, dense"
    ),
    "theory.temperature_ratio": (
        "what the theory of the two-temperature step gives: exact step and prescribed rates, over soft/hard"
    ),
    "theory.generalization": (
        "certified against measured errors on new examples, of masks over signs and of weight-free networks"
    ),
    "theory.compression": (
        "Pick-to-Learn: errors certified by the few examples that a network is trained on, beside held-out "
        "ones"
    ),
}
DEFAULT = "disentangling.strategies"


def experiment(name: str) -> Experiment:
    """Import and return the experiment of a name in `EXPERIMENTS`."""
    made: Experiment = import_module(f"jaxarch.lab.{name}").EXPERIMENT
    return made
