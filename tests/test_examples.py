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


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_a_module_print_what_they_say(module):
    with jax.numpy_rank_promotion("allow"):
        outcome = doctest.testmod(importlib.import_module(module))
    assert outcome.attempted
    assert not outcome.failed
