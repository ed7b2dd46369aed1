"""The command line as it is typed, in the process of the tests."""

import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout

import pytest

from jaxarch.lab import cli


def in_process(folder, *arguments):
    """Run the command line in this process, which has its devices already."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(folder)
        patch.setattr(cli, "_prepare_jax", lambda: None)
        patch.setattr(sys, "argv", ["jaxarch", *arguments])
        with pytest.raises(SystemExit) as exit_:
            cli.main()
    return subprocess.CompletedProcess(arguments, exit_.value.code, out.getvalue(), err.getvalue())
