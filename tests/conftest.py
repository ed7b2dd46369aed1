"""Two CPU devices, strict broadcasting, one hypothesis profile, and small problems that many tests share."""

import mmap
import os
import tempfile
from pathlib import Path

import jax
import jaxlib
import pytest
from hypothesis import HealthCheck, settings

import jaxarch


def known_to_xla(flag: str) -> bool:
    """Whether this release has a flag: an unknown one would end the process."""
    library = max(
        filter(Path.is_file, Path(jaxlib.__file__).parent.iterdir()), key=lambda p: p.stat().st_size
    )
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(flag.encode()) >= 0


# Most of the time goes to compiling. LLVM's cheaper optimisation takes some 30% less, and simpler code for
# loops another 25% (11.6 and 8.7 s of CPU time for three strategies of [D]); XLA's passes stay. Without any
# optimisation, at 0, three files took 18% less, but a program crashed once as it was written to the cache.
FLAGS = {"xla_backend_optimization_level": "1", "xla_cpu_use_fusion_emitters": "false"}
chosen = [f"--{flag}={value}" for flag, value in FLAGS.items() if known_to_xla(flag)]
os.environ["XLA_FLAGS"] = " ".join([*chosen, os.environ.get("XLA_FLAGS", "")])
# Many tests compile the same programs: they are kept for the length of the run, for all of its processes.
if "JAXARCH_TEST_CACHE" not in os.environ:
    CACHE = tempfile.TemporaryDirectory()
    os.environ["JAXARCH_TEST_CACHE"] = CACHE.name
jaxarch.use_compilation_cache(os.environ["JAXARCH_TEST_CACHE"])
jaxarch.use_cpu_cores(2)
jax.config.update("jax_numpy_rank_promotion", "raise")

# No deadline: the first example of a shape compiles. Strategies draw shapes from a fixed menu.
settings.register_profile(
    "jaxarch", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
settings.load_profile("jaxarch")


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of further data sets, named by JAXARCH_DATA; tests that need it are skipped without."""
    folder = os.environ.get("JAXARCH_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("JAXARCH_DATA names no folder")
    return Path(folder)
