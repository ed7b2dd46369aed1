"""Numbers of `frozen_numbers.json` stay: to the bit where they were made, to rounding on other machines."""

import json

import frozen
import numpy as np
import pytest
from methods import METHODS

pytestmark = pytest.mark.long

FROZEN = json.loads(frozen.FILE.read_text())
TO_THE_BIT = FROZEN["machine"] == frozen.machine()


def check(found, expected):
    """Compare digests where they were made here, and sums and norms to rounding elsewhere."""
    assert found["leaves"].keys() == expected["leaves"].keys()
    for name, sizes in expected["leaves"].items():
        assert np.allclose(found["leaves"][name], sizes, rtol=1e-4, atol=1e-5), name
    if TO_THE_BIT:
        assert found["digest"] == expected["digest"]


def test_every_method_and_every_study_of_the_file_is_there():
    assert set(METHODS) == set(FROZEN["methods"])
    assert list(frozen.STUDIES) == list(FROZEN["studies"])


@pytest.mark.parametrize("name", FROZEN["methods"])
def test_a_method_finds_the_network_that_it_found(name):
    check(frozen.of_method(name), FROZEN["methods"][name])


@pytest.mark.parametrize("name", FROZEN["studies"])
def test_a_study_has_the_numbers_that_it_had(name):
    check(frozen.of_study(name), FROZEN["studies"][name])
