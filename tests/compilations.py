"""How often JAX compiles."""

import contextlib

import jax

_EVENTS = []
jax.monitoring.register_event_duration_secs_listener(
    lambda name, seconds, fun_name="", **_: _EVENTS.append((name, fun_name))
)


@contextlib.contextmanager
def compilations():
    """A list that has, after the block, what JAX has compiled in it, by the names of functions."""
    seen, before = [], len(_EVENTS)
    yield seen
    seen += [function for name, function in _EVENTS[before:] if name.endswith("backend_compile_duration")]
