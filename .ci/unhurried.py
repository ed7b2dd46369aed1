"""A pytest plugin for long runs: no test begins after a time, and files come in an order that a text says.

So a run ends in time on a machine of any speed, and what is left out differs from text to text.
"""

import hashlib
import time

import pytest
from skipped import NOT_BEGUN


def pytest_addoption(parser):
    """Take a time and a text."""
    group = parser.getgroup("unhurried")
    group.addoption("--until", type=float, help="seconds since 1970, after which tests are skipped")
    group.addoption("--order", help="any text: it says which file comes when")


def pytest_collection_modifyitems(config, items):
    """Bring files into the order of a digest of their names and the text."""
    text = config.getoption("order")
    if text is not None:
        items.sort(key=lambda item: hashlib.sha256(f"{text} {item.path.name}".encode()).digest())


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Skip what begins too late, before anything is made for it."""
    until = item.config.getoption("until")
    if until is not None and time.time() > until:
        pytest.skip(NOT_BEGUN)
