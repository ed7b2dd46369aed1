"""Programs are written in one MLIR context after another, as tests compile thousands of small ones."""

import itertools

PROGRAMS_OF_A_CONTEXT = 100


def share_contexts() -> None:
    """Let a hundred programs have one context: making one takes as long as writing a small program.

    A context keeps the constants of its programs, so that it must end some time. Where a release of JAX makes
    contexts elsewhere, nothing changes.
    """
    try:
        from jax._src.interpreters import mlir

        make = mlir.make_ir_context
    except (ImportError, AttributeError):
        return
    count, kept = itertools.count(), []

    def shared():
        if next(count) % PROGRAMS_OF_A_CONTEXT == 0:
            kept[:] = [make()]
        return kept[0]

    mlir.make_ir_context = shared
