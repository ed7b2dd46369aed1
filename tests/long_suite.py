"""Which parameters of a test are in the long suite alone."""

import pytest


def partly_long(names, long):
    """The parameters of a test; those of `long`, which must be among them, marked as such."""
    names, long = list(names), set(long)
    assert long <= set(names), f"not there: {long - set(names)}"
    return [pytest.param(name, marks=[pytest.mark.long] * (name in long)) for name in names]
