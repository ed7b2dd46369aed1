"""Ctrl-C and SIGTERM, as a user sends them: one line, status 130 or 143, at any moment."""

import os
import signal
import subprocess
import sys
import time
from functools import partial

import pytest
from places import ROOT

# A hook that sends the process a signal as it begins to import a module. A shell that runs the tests in the
# background has told them to ignore Ctrl-C.
HOOK = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)

class AtImport:
    def find_spec(name, path=None, target=None):
        if name == os.environ.get("STOP_AT"):
            os.kill(os.getpid(), int(os.environ["STOP_WITH"]))

sys.meta_path.insert(0, AtImport)
"""
LONG = ["--set", "steps=100000000", "--set", "strategies=real", "--seeds", "1", "--quiet"]


@pytest.fixture
def start(tmp_path):
    """Start the command line in a process of its own, where a module's import may send it a signal."""
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "sitecustomize.py").write_text(HOOK)
    (tmp_path / "here").mkdir()
    package = str(ROOT)
    path = os.pathsep.join([str(tmp_path / "hook"), package, os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path, "XDG_CACHE_HOME": str(tmp_path / "cache")}

    def run(*arguments, at="", number=signal.SIGINT, code=None):
        command = [sys.executable, *(("-c", code) if code else ("-m", "jaxarch")), *arguments]
        return subprocess.Popen(
            command,
            cwd=tmp_path / "here",
            env=environment | {"STOP_AT": at, "STOP_WITH": str(int(number))},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return run


INTERRUPTED, TERMINATED = (signal.SIGINT, "interrupted", 130), (signal.SIGTERM, "terminated", 143)


long = partial(pytest.param, marks=pytest.mark.long)


@pytest.mark.long
# Some are imported by C extensions, which make errors of their own of an exception that passes through.
@pytest.mark.parametrize(
    ("at", "number", "line", "status"),
    [
        ("click", *INTERRUPTED),
        long("numpy.exceptions", *INTERRUPTED),
        ("numpy.random._pcg64", *TERMINATED),
        long("jaxlib.mlir._mlir_libs._mlirRegisterEverything", *INTERRUPTED),
        ("jax._src.api_util", *TERMINATED),
        long("pandas._libs.tslibs.parsing", *INTERRUPTED),
        long("scipy.linalg.cython_lapack", *TERMINATED),
        ("jaxarch.lab.harness.catalogue", *INTERRUPTED),
    ],
)
def test_a_signal_during_an_import_is_one_line(start, at, number, line, status):
    process = start("run", *LONG, at=at, number=number)
    out, error = process.communicate(timeout=60)
    assert (process.returncode, out, error) == (status, "", f"jaxarch: {line}; nothing was written\n")


def wait_for(condition, process):
    latest = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < latest
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


@pytest.mark.long
def test_a_run_that_is_interrupted_leaves_nothing(start, tmp_path):
    process = start("run", *LONG)
    wait_for(lambda: list(tmp_path.glob("here/results/.unfinished-*")), process)
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=60)
    assert (process.returncode, out, error) == (130, "", "jaxarch: interrupted; nothing was written\n")
    left = list(tmp_path.glob("here/results/*"))
    assert not [path for path in left if not path.name.startswith(".unfinished-")]


@pytest.mark.long
def test_a_run_that_can_be_resumed_says_so(start, tmp_path):
    process = start(
        *("run", "theory.temperature_ratio", "--quiet", "--seeds", "1", "--set", "resume=kept"),
        *("--set", "steps=100000000", "--set", "problems=linear", "--set", "ratios=1"),
    )
    wait_for((tmp_path / "here" / "kept").exists, process)
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 143
    assert error == (
        "jaxarch: terminated; finished work is kept in kept; run the same command again to continue\n"
    )


STUCK = """
import ctypes, signal, os, threading
from jaxarch._internal import interruption
interruption.GRACE_SECONDS = 0.2

def command():
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    ctypes.PyDLL(None).{call}
    raise AssertionError("not reached")

interruption.run(command)
"""
SWALLOWED = """
import os, signal, time
from jaxarch._internal import interruption
interruption.GRACE_SECONDS = 0.2

class Finalised:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)

def command():
    interruption.tell(lambda: "nothing was written")
    made = Finalised()
    del made
    time.sleep(60)

interruption.run(command)
"""
OVER = """
import os, signal
from jaxarch._internal import interruption
interruption.run(lambda: print("done"))
os.kill(os.getpid(), signal.SIGINT)
"""


def test_a_process_that_does_not_come_back_from_another_language_is_ended(start):
    # The compiler lets other threads run, as this does.
    code = STUCK.replace("PyDLL", "CDLL").format(call="sleep(60) or ctypes.CDLL(None).sleep(60)")
    process = start(code=code)
    _, error = process.communicate(timeout=30)
    assert (process.returncode, error) == (130, "jaxarch: interrupted; nothing was written\n")


def test_a_signal_in_a_finaliser_which_cannot_raise_ends_the_process(start):
    process = start(code=SWALLOWED)
    _, error = process.communicate(timeout=30)
    assert (process.returncode, error) == (130, "jaxarch: interrupted; nothing was written\n")


def test_a_signal_when_all_is_done_changes_nothing(start):
    process = start(code=OVER)
    out, error = process.communicate(timeout=30)
    assert (process.returncode, out, error) == (0, "done\n", "")


def test_what_a_shell_tells_a_process_to_ignore_stays_ignored(start):
    code = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)" + OVER.replace(
        'lambda: print("done")', "lambda: os.kill(os.getpid(), signal.SIGINT)"
    )
    process = start(code=code)
    assert process.communicate(timeout=30) == ("", "")
    assert process.returncode == 0
