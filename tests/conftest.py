"""Two CPU devices, strict broadcasting, one hypothesis profile, and small problems that many tests share."""

import gc
import mmap
import os
from pathlib import Path

import jax
import jaxlib
import pytest
from compilations import compilations
from contexts import share_contexts
from hypothesis import HealthCheck, settings
from places import MISSING_ADAPTERS, TESTS

import jaxarch
from jaxarch.__main__ import missing_of_the_lab


def known_to_xla(flag: str) -> bool:
    """Whether this release has a flag, as a string of its own: an unknown one would end the process."""
    library = max(
        filter(Path.is_file, Path(jaxlib.__file__).parent.iterdir()), key=lambda p: p.stat().st_size
    )
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(f"\0{flag}\0".encode()) >= 0


# Most of the time goes to compiling: half of it without LLVM's optimisation and with simpler code for loops.
# The passes of XLA stay, and a module is compiled as one, since tests run in parallel. No program is kept on
# disk: few are needed twice, and reading takes its time.
FLAGS = {
    "xla_backend_optimization_level": "0",
    "xla_cpu_use_fusion_emitters": "false",
    "xla_cpu_parallel_codegen_split_count": "1",
}
chosen = [f"--{flag}={value}" for flag, value in FLAGS.items() if known_to_xla(flag)]
os.environ["XLA_FLAGS"] = " ".join([*chosen, os.environ.get("XLA_FLAGS", "")])
os.environ.setdefault("KERAS_BACKEND", "jax")
jaxarch.use_cpu_cores(2)
jax.config.update("jax_numpy_rank_promotion", "raise")

# No program need say which line of Python each of its operations is from. So it is in the processes of tests.
os.environ["JAX_TRACEBACK_IN_LOCATIONS_LIMIT"] = "0"
jax.config.update("jax_traceback_in_locations_limit", 0)

# What is imported stays: collecting garbage need not look through it again and again, nor many times a trace.
gc.freeze()
gc.set_threshold(10_000, 10, 10)

share_contexts()

# No deadline: the first example of a shape compiles. Strategies draw shapes from a fixed menu.
settings.register_profile(
    "jaxarch", deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
settings.load_profile("jaxarch")


MANY_PROGRAMS = 500
compiled: list[str] = []


@pytest.fixture(scope="module", autouse=True)
def few_programs():
    """Forget compiled programs now and then: beside 3,000 of them the next takes almost twice as long.

    Never inside of a file, whose tests may rest on what an earlier one compiled.
    """
    with compilations() as seen:
        yield
    compiled.extend(seen)
    if len(compiled) > MANY_PROGRAMS:
        jax.clear_caches()
        gc.collect()
        gc.freeze()
        compiled.clear()


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of further data sets, named by JAXARCH_DATA; tests that need it are skipped without."""
    folder = os.environ.get("JAXARCH_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("JAXARCH_DATA names no folder")
    return Path(folder)


collect_ignore = [f"frameworks/test_{room}.py" for room in MISSING_ADAPTERS]
WITH_THE_LAB = ("lab", "plots", "project")
"""Rooms of tests that need what the extra `lab` brings."""
MISSING = missing_of_the_lab()


class WithoutTheLab(pytest.Module):
    """A file of tests that is skipped as a whole."""

    def collect(self):
        # The name makes the reason another for each file: of equal ones pytest-xdist shows the first alone.
        pytest.skip(f"{self.name} needs {MISSING[0]}: pip install '.[lab]'", allow_module_level=True)


def pytest_pycollect_makemodule(module_path, parent):
    """Skip the lab's rooms by file where the library alone is installed."""
    room = module_path.relative_to(TESTS).parts[0]
    return WithoutTheLab.from_parent(parent, path=module_path) if MISSING and room in WITH_THE_LAB else None
