"""The examples in docstrings print what they say."""

import doctest
import importlib
from pathlib import Path

import jax
import pytest

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
    "jaxarch.claims.checks.own_loss",
    "jaxarch.finish.flip",
    "jaxarch.finish.recruit",
    "jaxarch.finish.share_weight",
    "jaxarch.models.parents.spectral_cnn",
    "jaxarch.nnx.modules",
    "jaxarch.optim.proximal",
    "jaxarch.optim.sparse",
    "jaxarch.running.evaluation",
    "jaxarch.running.options",
    "jaxarch.running.runs",
    "jaxarch.search.magnitude_pruning",
    "jaxarch.search.spectral_depth",
    "jaxarch.spectral.convolution",
    "jaxarch.structure.groups",
    "jaxarch.structure.shrink",
    "jaxarch.theory.bounds",
    "jaxarch.theory.mirror.divergence",
}
"""Whose examples compile for seconds."""


@pytest.mark.parametrize(
    "module",
    [pytest.param(module, marks=pytest.mark.long if module in LONG else ()) for module in MODULES],
)
def test_the_examples_of_a_module_print_what_they_say(module):
    with jax.numpy_rank_promotion("allow"):
        outcome = doctest.testmod(importlib.import_module(module))
    assert outcome.attempted
    assert not outcome.failed


def test_what_is_said_to_take_long_is_there():
    assert set(MODULES) >= LONG
