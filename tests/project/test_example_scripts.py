"""The scripts under docs/examples run as they say, on few steps."""

import contextlib
import io
import os
import runpy
import subprocess
import sys

import jax
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
    arguments = [str(script), "--steps", "6", *SMALL.get(script.stem, [])]
    printed = (in_a_process if script.stem == "fsdp" else in_this_process)(arguments, tmp_path)
    assert PRINTED[script.stem] in printed


def in_this_process(arguments, folder):
    """Run a script as the main module: a process of its own would import JAX and all else anew."""
    printed = io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(printed),
        jax.numpy_rank_promotion("allow"),
    ):
        patch.chdir(folder)
        patch.setattr(sys, "argv", arguments)
        runpy.run_path(arguments[0], run_name="__main__")
    return printed.getvalue()


def in_a_process(arguments, folder):
    """Run a script in a process of its own, which has 8 devices."""
    flags = "--xla_force_host_platform_device_count=8 "
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=os.environ | {"XLA_FLAGS": flags + os.environ.get("XLA_FLAGS", "")},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
