"""jaxarch: learned network architectures, measured apart from their weights.

    problem = jaxarch.supervised(model, (x, y), loss=..., optimizer=optax.adam(1e-2), steps=1000)
    found, report = jaxarch.over_seeds(jaxarch.search.two_temperature(), keys, problem)

A search is a pure function `(key, problem) -> Found`; a finish turns a `Found` into another; `chain` joins
them to a strategy; `over_seeds` runs a strategy for many keys in one program.
"""

from jaxarch import (
    bounds,
    claims,
    data,
    distances,
    graphs,
    intervals,
    masks,
    metrics,
    mirror,
    models,
    nodes,
    plots,
    search,
    spectral,
)
from jaxarch.devices import use_compilation_cache, use_cpu_cores
from jaxarch.errors import ArgumentError, DeadStartWarning, FoundWarning, NonFiniteWarning
from jaxarch.finish import new_head, prune, reshuffled, retrain, threshold
from jaxarch.fit_options import EarlyStopping, FitOptions, Progress
from jaxarch.masks import density, layer_density, overlap
from jaxarch.models import Model, SpectralMLP, direct_network, spectral_network, supervised, tanh_network
from jaxarch.problem import Found, Problem, architecture
from jaxarch.progress import ProgressBar
from jaxarch.search.agnostic import share_weight
from jaxarch.search.densities import at_density
from jaxarch.search.recruit import recruit
from jaxarch.shrink import Shrunk, shrink
from jaxarch.storage import Checkpoints, load_mask, load_tree, save_mask, save_tree
from jaxarch.strategies import disentangling_strategies
from jaxarch.strategy import HostSearch, Report, Strategy, chain, compare, evaluate, over_seeds
from jaxarch.training import Point, Training
from jaxarch.trees import everything, matrices, named_leaves, select

__version__ = "0.1.0"

__all__ = [
    "ArgumentError",
    "Checkpoints",
    "DeadStartWarning",
    "EarlyStopping",
    "FitOptions",
    "Found",
    "FoundWarning",
    "HostSearch",
    "Model",
    "NonFiniteWarning",
    "Point",
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
    "bounds",
    "chain",
    "claims",
    "compare",
    "data",
    "density",
    "direct_network",
    "disentangling_strategies",
    "distances",
    "evaluate",
    "everything",
    "graphs",
    "intervals",
    "layer_density",
    "load_mask",
    "load_tree",
    "masks",
    "matrices",
    "metrics",
    "mirror",
    "models",
    "named_leaves",
    "new_head",
    "nodes",
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
    "spectral_network",
    "supervised",
    "tanh_network",
    "threshold",
    "use_compilation_cache",
    "use_cpu_cores",
]
