"""Files that are complete or not there, and folders that one process at a time holds."""

import gc
import os
import signal
import subprocess
import sys

import pytest

import jaxarch
from jaxarch.io._files import HOLDER, LOCK, claim, complete_file

HOLD = """
import os, sys, time
from filelock import FileLock
folder, lock, holder = sys.argv[1:]
os.makedirs(folder, exist_ok=True)
held = FileLock(os.path.join(folder, lock))
held.acquire(blocking=False)
with open(os.path.join(folder, holder), "w") as file:
    file.write(f"process {os.getpid()} on here")
print("held", flush=True)
"""
"""What `claim` does, in a process that need not load JAX."""


def command(folder, then=""):
    return [sys.executable, "-c", HOLD + then, str(folder), LOCK, HOLDER]


@pytest.fixture
def holder(tmp_path):
    """Another process, which holds the folder."""
    held = command(tmp_path / "work", "time.sleep(600)")
    with subprocess.Popen(held, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_folder_that_another_process_holds_is_refused_naming_both_until_that_is_killed(tmp_path, holder):
    message = rf"^folder: '.*work' is in use by process {holder.pid} on here; wait until it ends, or use"
    with pytest.raises(jaxarch.ArgumentError, match=message):
        jaxarch.Checkpoints(tmp_path / "work")
    partial = tmp_path / "work" / "tree.npz.1-ab.partial"
    partial.write_text("half")
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    kept = jaxarch.Checkpoints(tmp_path / "work")
    assert str(os.getpid()) in (tmp_path / "work" / HOLDER).read_text()
    assert not partial.exists()
    del kept


def test_an_experiment_that_is_resumed_twice_at_once_is_told_who_resumes_it(tmp_path, holder):
    pytest.importorskip("altair")
    from jaxarch.lab.harness.parts import Parts
    from jaxarch.lab.pruning.transfer import Settings

    settings = Settings(resume=str(tmp_path / "work"))
    with pytest.raises(jaxarch.ArgumentError, match=rf"^resume: '.*work' is in use by process {holder.pid}"):
        Parts(settings)


def test_a_process_may_use_its_folder_as_often_as_it_likes_whatever_it_is_called(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = jaxarch.Checkpoints("work")
    second = jaxarch.Checkpoints(tmp_path / "work")
    assert first._held is second._held


@pytest.mark.long
def test_a_folder_is_free_again_when_nothing_uses_it_any_more(tmp_path):
    held = claim(tmp_path)
    refused = subprocess.run(command(tmp_path), capture_output=True, text=True)
    assert "Timeout" in refused.stderr
    del held
    gc.collect()
    again = subprocess.run(command(tmp_path), capture_output=True, text=True)
    assert again.stdout == "held\n", again.stderr


def test_two_writers_of_one_file_do_not_meet_and_the_last_one_wins(tmp_path):
    with complete_file(tmp_path / "a") as first, complete_file(tmp_path / "a") as second:
        first.write(b"first")
        second.write(b"second")
        assert len(list(tmp_path.iterdir())) == 2
    assert (tmp_path / "a").read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [tmp_path / "a"]


def test_a_file_that_fails_leaves_the_one_before(tmp_path):
    (tmp_path / "a").write_text("before")
    with pytest.raises(RuntimeError), complete_file(tmp_path / "a") as file:
        file.write(b"half")
        raise RuntimeError
    assert (tmp_path / "a").read_text() == "before"
    assert list(tmp_path.iterdir()) == [tmp_path / "a"]
