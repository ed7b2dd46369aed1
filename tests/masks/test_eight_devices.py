"""On 8 devices: the numbers of one, and all that jaxarch makes is split as the parameters are."""

import json
import os
import subprocess
import sys

import pytest
from places import TESTS

pytestmark = pytest.mark.long

LAYOUTS = ("data parallel", "FSDP", "tensor parallel", "explicit axes")
PARTS = {"held": 0.2, "changing": 0.2, "learned": 0.5, "in NNX": 0.5, "calibrated": 0.5}
"""With the density of each mask."""
CASES = [f"{part}, {layout}" for layout in LAYOUTS for part in PARTS]


@pytest.fixture(scope="module")
def outcomes():
    """What each case printed."""
    flags = "--xla_force_host_platform_device_count=8 " + os.environ.get("XLA_FLAGS", "")
    script = TESTS / "eight_devices.py"
    done = subprocess.run(
        [sys.executable, script], env=os.environ | {"XLA_FLAGS": flags}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return {line["case"]: line for line in map(json.loads, done.stdout.splitlines())}


def test_every_case_was_run(outcomes):
    assert list(outcomes) == CASES


@pytest.mark.parametrize("case", CASES)
def test_a_mesh_gives_the_numbers_of_one_device_to_rounding(outcomes, case):
    assert outcomes[case]["difference"] < 5e-6
    assert outcomes[case]["overlap"] == 1


@pytest.mark.parametrize("case", CASES)
def test_what_is_made_is_split_as_the_parameters_are(outcomes, case):
    assert outcomes[case]["as_parameters"]


@pytest.mark.parametrize("case", CASES)
def test_masks_have_their_exact_size(outcomes, case):
    assert outcomes[case]["density"] == pytest.approx(PARTS[case.split(", ")[0]], abs=2e-4)
