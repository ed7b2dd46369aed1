"""jaxarch: learned network architectures, measured apart from their weights.

    problem = jaxarch.supervised(model, (x, y), loss=..., optimizer=optax.adam(1e-2), steps=1000)
    found, report = jaxarch.over_seeds(jaxarch.search.two_temperature(), keys, problem)

A search is a pure function `(key, problem) -> Network`; a finish turns a `Network` into another; `chain` joins
them to a strategy; `over_seeds` runs a strategy for many keys in one program.
"""

from jaxarch import claims, data, masks, metrics, models, plots, search, spectral, structure, theory
from jaxarch.errors import ArgumentError, DeadStartWarning, NonFiniteWarning, ResultWarning
from jaxarch.finish import new_head, prune, reshuffled, retrain, threshold
from jaxarch.finish.at_density import at_density
from jaxarch.finish.recruit import recruit
from jaxarch.masks import density, layer_density, overlap
from jaxarch.models import Model, SpectralMLP, direct_network, spectral_network, supervised, tanh_network
from jaxarch.problem import Network, Problem, architecture
from jaxarch.running.devices import use_compilation_cache, use_cpu_cores
from jaxarch.running.options import EarlyStopping, FitOptions, Progress
from jaxarch.running.progress import ProgressBar
from jaxarch.running.strategy import HostSearch, Report, Strategy, chain, compare, evaluate, over_seeds
from jaxarch.running.training import Training, TrainState
from jaxarch.search.agnostic import share_weight
from jaxarch.search.disentangling import disentangling_strategies
from jaxarch.storage import Checkpoints, load_mask, load_tree, save_mask, save_tree
from jaxarch.structure.shrink import Shrunk, shrink
from jaxarch.trees import everything, matrices, named_leaves, select

__version__ = "0.1.0"

__all__ = [
    "ArgumentError",
    "Checkpoints",
    "DeadStartWarning",
    "EarlyStopping",
    "FitOptions",
    "Network",
    "ResultWarning",
    "HostSearch",
    "Model",
    "NonFiniteWarning",
    "TrainState",
    "Problem",
    "Progress",
    "ProgressBar",
    "Report",
    "Shrunk",
    "SpectralMLP",
    "Strategy",
    "Training",
    "architecture",
    "at_density",
    "chain",
    "claims",
    "compare",
    "data",
    "density",
    "direct_network",
    "disentangling_strategies",
    "evaluate",
    "everything",
    "layer_density",
    "load_mask",
    "load_tree",
    "masks",
    "matrices",
    "metrics",
    "models",
    "named_leaves",
    "new_head",
    "over_seeds",
    "overlap",
    "plots",
    "prune",
    "recruit",
    "reshuffled",
    "retrain",
    "save_mask",
    "save_tree",
    "search",
    "select",
    "share_weight",
    "shrink",
    "spectral",
    "structure",
    "theory",
    "spectral_network",
    "supervised",
    "tanh_network",
    "threshold",
    "use_compilation_cache",
    "use_cpu_cores",
]
