"""Programs are written in one MLIR context after another, as tests compile thousands of small ones."""

import threading

PROGRAMS_OF_A_CONTEXT = 100


def share_contexts() -> None:
    """Let a hundred programs have one context: making one takes as long as writing a small program.

    A context keeps the constants of its programs, so that it must end some time. Two threads never share one,
    since a context is not made for that; neither does a program that is written while another one is. Where a
    release of JAX makes contexts elsewhere, nothing changes.
    """
    try:
        from jax._src.interpreters import mlir

        make = mlir.make_ir_context
    except (ImportError, AttributeError):
        return
    of_thread = threading.local()

    def shared():
        if mlir.ir.Context.current is not None:
            return make()
        written = getattr(of_thread, "written", 0)
        if written % PROGRAMS_OF_A_CONTEXT == 0:
            of_thread.context = make()
        of_thread.written = written + 1
        return of_thread.context

    mlir.make_ir_context = shared
