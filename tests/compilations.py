"""How often JAX compiles."""

import contextlib

import jax

_EVENTS = []
jax.monitoring.register_event_duration_secs_listener(lambda name, seconds, **_: _EVENTS.append(name))


@contextlib.contextmanager
def compilations():
    """A list that has, after the block, JAX's events of compiling in it."""
    seen, before = [], len(_EVENTS)
    yield seen
    seen += [name for name in _EVENTS[before:] if name.endswith("backend_compile_duration")]
