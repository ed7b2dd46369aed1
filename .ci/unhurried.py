"""A pytest plugin: no test begins after a time, so that a run ends on a machine of any speed."""

import time

import pytest
from skipped import NOT_BEGUN


def pytest_addoption(parser):
    """Take a time."""
    group = parser.getgroup("unhurried")
    group.addoption("--until", type=float, help="seconds since 1970, after which tests are skipped")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Skip what begins too late, before anything is made for it."""
    until = item.config.getoption("until")
    if until is not None and time.time() > until:
        pytest.skip(NOT_BEGUN)
