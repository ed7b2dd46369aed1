"""The examples in docstrings print what they say."""

import doctest
import importlib
from pathlib import Path

import jax
import pytest
from long_suite import partly_long

import jaxarch

PACKAGE = Path(jaxarch.__file__).parent
MODULES = [
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    for path in sorted(PACKAGE.rglob("*.py"))
    if ">>> " in path.read_text()
]
LONG = {
    "jaxarch.certificates.certify",
    "jaxarch.certificates.prescribe",
    "jaxarch.lab.claims.checks.convexity",
    "jaxarch.lab.claims.checks.own_loss",
    "jaxarch.streams.augmentation",
    "jaxarch.finish.at_density",
    "jaxarch.finish.flip",
    "jaxarch.finish.recruit",
    "jaxarch.finish.retrain",
    "jaxarch.finish.share_weight",
    "jaxarch.finish.slim",
    "jaxarch.finish.threshold",
    "jaxarch.masks.arithmetic",
    "jaxarch.masks.gradient",
    "jaxarch.masks.units",
    "jaxarch.models.direct_network",
    "jaxarch.models.flax_models",
    "jaxarch.models.parents.spectral_cnn",
    "jaxarch.models.parents.transformers",
    "jaxarch.nnx.modules",
    "jaxarch.optim.mirror_descent",
    "jaxarch.optim.proximal",
    "jaxarch.optim.sparse",
    "jaxarch.lab.reproduction.rendering",
    "jaxarch.running.evaluation",
    "jaxarch.running.options",
    "jaxarch.running.runs",
    "jaxarch.running.stepwise",
    "jaxarch.search.agnostic",
    "jaxarch.search.biprop",
    "jaxarch.search.gradual_magnitude",
    "jaxarch.search.grasp",
    "jaxarch.search.group_lasso",
    "jaxarch.search.hard_concrete",
    "jaxarch.search.initial_magnitude",
    "jaxarch.search.magnitude_pruning",
    "jaxarch.search.random_search",
    "jaxarch.search.rigl",
    "jaxarch.search.sparse_evolution",
    "jaxarch.search.spectral",
    "jaxarch.search.spectral_depth",
    "jaxarch.search.synflow",
    "jaxarch.spectral.convolution",
    "jaxarch.spectral.network",
    "jaxarch.spectral.readout",
    "jaxarch.structure.cost",
    "jaxarch.structure.graphs",
    "jaxarch.structure.groups",
    "jaxarch.structure.shrink",
    "jaxarch.theory.bounds",
    "jaxarch.theory.generalization.bounds",
    "jaxarch.theory.mirror.divergence",
    "jaxarch.theory.mirror.dual_variables",
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
