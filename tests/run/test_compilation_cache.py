"""Compiled programs are kept in the folder that was named last."""

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

import jaxarch


@pytest.fixture(autouse=True)
def _no_cache_afterwards():
    before = jax.config.jax_compilation_cache_dir
    yield
    jax.config.update("jax_compilation_cache_dir", before)
    compilation_cache.reset_cache()


def test_programs_go_to_another_folder_as_soon_as_it_is_named(tmp_path):
    for number, name in enumerate(["first", "second"]):
        jaxarch.use_compilation_cache(tmp_path / name)
        jax.jit(lambda x, number=number: x + number)(1.0)
        assert list((tmp_path / name).iterdir()), name
