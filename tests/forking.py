"""Runs tests in processes forked from one that has imported what they all import, but not jaxarch.

    python tests/forking.py        # each line of the input has the arguments of a pytest, as JSON

What others have written is imported once, half of the time that a test takes in a process of its own; what a
test imports or changes ends with its process.
"""

import importlib
import json
import os
import signal
import sys
import tempfile

IMPORTED = "pytest hypothesis jax flax.nnx flax.linen optax scipy.stats pandas sklearn"
SECONDS = 300
"""How long a pytest may take."""


def status_of(arguments: list[str], said: int) -> int:
    """The exit status of a pytest in a process that writes to a file; negative if it was ended."""
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS)
        os.dup2(said, 1)
        os.dup2(said, 2)
        import pytest

        status = int(pytest.main(arguments))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main() -> None:
    """Answer each line with one: the exit status, and what was said."""
    for name in IMPORTED.split():
        importlib.import_module(name)
    for line in sys.stdin:
        with tempfile.TemporaryFile("w+") as said:
            status = status_of(json.loads(line), said.fileno())
            said.seek(0)
            print(json.dumps([status, said.read()]), flush=True)


if __name__ == "__main__":
    main()
