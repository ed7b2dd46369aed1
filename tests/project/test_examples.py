"""The examples in docstrings print what they say."""

import doctest
import importlib
from pathlib import Path

import jax
import pytest
from long_suite import partly_long
from places import MISSING_ADAPTERS

import jaxarch

PACKAGE = Path(jaxarch.__file__).parent
MODULES = [
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    for path in sorted(PACKAGE.rglob("*.py"))
    if ">>> " in path.read_text() and path.parent.name not in MISSING_ADAPTERS
]
LONG = {
    "jaxarch.certificates._certify",
    "jaxarch.certificates._pick_to_learn",
    "jaxarch.certificates._prescribe",
    "jaxarch.lab.claims.checks.convexity",
    "jaxarch.lab.claims.checks.own_loss",
    "jaxarch.io._augmentation",
    "jaxarch.transforms._at_density",
    "jaxarch.transforms._flip",
    "jaxarch.transforms._recruit",
    "jaxarch.transforms._retrain",
    "jaxarch.transforms._share_weight",
    "jaxarch.transforms._slim",
    "jaxarch.transforms._threshold",
    "jaxarch.masks._arithmetic",
    "jaxarch.masks._gradient",
    "jaxarch.masks._units",
    "jaxarch.models._direct_network",
    "jaxarch.models._flax_models",
    "jaxarch.models._parents.spectral_cnn",
    "jaxarch.models._parents.transformers",
    "jaxarch.nnx._modules",
    "jaxarch.optim._mirror_descent",
    "jaxarch.optim._proximal",
    "jaxarch.optim._sparse",
    "jaxarch.lab.reproduction.rendering",
    "jaxarch.run._evaluation",
    "jaxarch.run._options",
    "jaxarch.run._runs",
    "jaxarch.run._stepwise",
    "jaxarch.search._acdc",
    "jaxarch.search._agnostic",
    "jaxarch.search._biprop",
    "jaxarch.search._cht",
    "jaxarch.search._fisher",
    "jaxarch.search._gradual_magnitude",
    "jaxarch.search._granet",
    "jaxarch.search._grasp",
    "jaxarch.search._group_lasso",
    "jaxarch.search._hard_concrete",
    "jaxarch.search._hutchinson",
    "jaxarch.search._initial_magnitude",
    "jaxarch.search._magnitude_pruning",
    "jaxarch.search._maskllm",
    "jaxarch.search._probmask",
    "jaxarch.search._prospr",
    "jaxarch.search._ntk_sap",
    "jaxarch.search._path_exclusion",
    "jaxarch.search._random_search",
    "jaxarch.search._rigl",
    "jaxarch.search._sparse_evolution",
    "jaxarch.search._spectral",
    "jaxarch.search._spectral_depth",
    "jaxarch.search._spectral_width",
    "jaxarch.search._sr_ste",
    "jaxarch.search._synflow",
    "jaxarch.search._top_kast",
    "jaxarch.spectral._convolution",
    "jaxarch.spectral._network",
    "jaxarch.spectral._readout",
    "jaxarch.structure._cost",
    "jaxarch.structure.graphs",
    "jaxarch.structure._groups",
    "jaxarch.structure._shrink",
    "jaxarch.theory.bounds",
    "jaxarch.theory.generalization._bounds",
    "jaxarch.theory.mirror._divergence",
    "jaxarch.theory.mirror._dual_variables",
}
"""Whose examples compile for seconds."""


@pytest.mark.parametrize("module", partly_long(MODULES, LONG))
def test_the_examples_of_a_module_print_what_they_say(module):
    with jax.numpy_rank_promotion("allow"):
        outcome = doctest.testmod(importlib.import_module(module))
    assert outcome.attempted
    assert not outcome.failed


def test_what_is_said_to_take_long_is_there():
    assert set(MODULES) >= LONG
