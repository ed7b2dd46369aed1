"""The scripts under docs/examples run as they say, on few steps."""

import os
import subprocess
import sys

import pytest
from places import ROOT

pytestmark = pytest.mark.long

SCRIPTS = sorted((ROOT / "docs" / "examples").glob("*.py"))
SMALL = {"resnet": ["--width", "0.25", "--seeds", "2"]}
NEEDS = {"plain_and_equinox": "equinox"}
PRINTED = {
    "fsdp": "density 0.100; a device holds arrays of [(8, 512), (64, 10)]",
    "linen": "at density 0.100",
    "lora": "at density 0.50 of the corrections",
    "lstm": "at density 0.30, the median of 3 seeds",
    "plain_and_equinox": "; held: accuracy",
    "resnet": "the median of 2 seeds",
    "trained_model": "at density 0.200",
    "transformer": "at density 0.30",
}


def test_every_script_is_tested():
    assert {script.stem for script in SCRIPTS} == PRINTED.keys()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_prints_what_it_found(script, tmp_path):
    if script.stem in NEEDS:
        pytest.importorskip(NEEDS[script.stem])
    flags = "--xla_force_host_platform_device_count=8 " if script.stem == "fsdp" else ""
    done = subprocess.run(
        [sys.executable, script, "--steps", "6", *SMALL.get(script.stem, [])],
        cwd=tmp_path,
        env=os.environ | {"XLA_FLAGS": flags + os.environ.get("XLA_FLAGS", "")},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert PRINTED[script.stem] in done.stdout
