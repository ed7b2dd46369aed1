"""Several processes as one program: which runs each has, what is refused, and one sweep over all of them."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
import several_processes as one
from hypothesis import given
from hypothesis import strategies as st
from places import ROOT, TESTS

import jaxarch
from jaxarch import ArgumentError
from jaxarch._internal.cpu_cores import keep_to_cores
from jaxarch.lab import launcher
from jaxarch.run._processes import Team
from jaxarch.run._shares import Shares

ENVIRONMENT = os.environ | {
    "JAX_PLATFORMS": "cpu",
    "PYTHONPATH": os.pathsep.join([str(ROOT), str(TESTS), os.environ.get("PYTHONPATH", "")]),
}


# Which runs each process has.


@given(st.integers(1, 60), st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(1, 60))
def test_shares_have_every_run_exactly_once(runs, devices, max_parallel_runs):
    used = min(runs, max_parallel_runs)
    per_device = -(-used // min(used, sum(devices)))
    found = []
    for index in range(len(devices)):
        shares = Shares.of(devices, used, index)
        width = per_device * shares.devices
        for start in range(0, runs, width):
            padded = np.resize(np.arange(start, min(start + width, runs)), width)
            mine = padded[shares.mine(per_device)]
            assert len(mine) == shares.local * per_device
            places = np.arange(start, start + width)[shares.mine(per_device)]
            kept = shares.rows(per_device)[index]
            found += [place for place in places[:kept] if place < runs]
    assert sorted(found) == list(range(runs))


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(1, 40))
def test_the_first_devices_are_used_and_no_process_has_more_than_it_has(devices, used):
    counts = Shares.of(devices, used).counts
    assert sum(counts) == min(used, sum(devices))
    assert all(count <= there for count, there in zip(counts, devices, strict=True))
    for earlier, later, there in zip(counts, counts[1:], devices, strict=False):
        assert earlier == there or not later


# What is refused.


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((False, "a:1", None, None), "--coordinator: works only with --distributed"),
        ((False, None, 2, None), "--processes: works only with --distributed"),
        ((True, "a:1", None, None), "--processes: missing; to start N processes by hand"),
        ((True, "a:1", 2, None), "--process: missing; to start N processes by hand"),
        ((True, None, 2, 0), "--coordinator: missing; to start N processes by hand"),
        ((True, None, 0, None), "--processes: expected at least 1, got 0"),
        ((True, "a", 2, 0), "--coordinator: expected HOST:PORT of process 0, got 'a'"),
        ((True, "a:99999", 2, 0), "--coordinator: expected HOST:PORT of process 0, got 'a:99999'"),
        ((True, "a:1", 2, 2), "--process: expected 0 to 1, got 2"),
    ],
)
def test_options_that_do_not_go_together_are_refused(given, message):
    with pytest.raises(ArgumentError) as error:
        launcher.check(*given)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    "given", [(False, None, None, None), (True, None, None, None), (True, None, 2, None)]
)
def test_options_that_go_together_are_taken(given):
    launcher.check(*given)


def test_devices_are_some_of_jax_or_all_hosts():
    with pytest.raises(
        ArgumentError, match=r"^devices: expected a list from .* or 'all hosts', got 'all host'"
    ):
        jaxarch.FitOptions(devices="all host")
    assert jaxarch.FitOptions(devices="all hosts").devices == "all hosts"


def test_one_process_is_a_team_of_its_own_that_tells_nothing():
    team = Team.of("all hosts")
    tree = {"a": np.arange(3)}
    assert team.size == 1
    assert team.gather("", tree, (3,)) is tree
    assert team.least("", 5) == 5
    assert team.exchange("", b"told") == [b"told"]


# One sweep over all of them.


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def start(case, folder, *cores):
    """One program of several processes, each with so many devices."""
    port = free_port()
    script = TESTS / "several_processes.py"
    started = [
        subprocess.Popen(
            [sys.executable, script, case.__name__, folder, *map(str, (port, len(cores), index, devices))],
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index, devices in enumerate(cores)
    ]
    STARTED.extend(started)
    return started


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="nothing keeps threads to cores here")
def test_processes_of_one_machine_keep_to_cores_of_their_own():
    all_cores = os.sched_getaffinity(0)
    kept = []
    try:
        for place in range(len(all_cores) + 1):
            keep_to_cores(1, place)
            kept.append(os.sched_getaffinity(0))
            os.sched_setaffinity(0, all_cores)
    finally:
        os.sched_setaffinity(0, all_cores)
    assert [len(cores) for cores in kept] == [1] * len(kept)
    assert set.union(*kept) == all_cores
    assert kept[-1] == kept[0]


def said(started):
    """What each process printed last, as JSON."""
    done = [process.communicate(timeout=500) for process in started]
    for process, (_, error) in zip(started, done, strict=True):
        assert process.returncode == 0, error[-3000:]
    return [json.loads(out.strip().splitlines()[-1]) for out, _ in done]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Results of each process in each case: this one with 2 devices, 2 with one each, 2 uneven ones."""
    return {
        "one": [one.quietly(one.numbers, None)],
        "two": said(start(one.numbers, tmp_path_factory.mktemp("two"), 1, 1)),
        "uneven": said(start(one.numbers, tmp_path_factory.mktemp("uneven"), 2, 1)),
    }


CASES = (
    *("training", "early stopping", "chain", "three runs", "one run", "groups", "run by run"),
    *("on the host", "settings", "random state", "callbacks"),
)


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_two_processes_find_to_the_bit_what_one_with_two_devices_finds(found, case):
    assert [each[case]["digest"] for each in found["two"]] == 2 * [found["one"][0][case]["digest"]]


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_uneven_processes_find_the_same_to_rounding_and_all_return_it(found, case):
    assert len({each[case]["digest"] for each in found["uneven"]}) == 1
    np.testing.assert_allclose(found["uneven"][0][case]["losses"], found["one"][0][case]["losses"], rtol=2e-4)


@pytest.mark.long
@pytest.mark.parametrize("layout", ["two", "uneven"])
def test_all_processes_have_the_notes_of_one(found, layout):
    notes = list(found["one"][0]["failing"]["notes"])
    assert len(notes) == 2
    assert [each["failing"]["notes"] for each in found[layout]] == len(found[layout]) * [notes]


@pytest.fixture(scope="module")
def refusals(tmp_path_factory):
    """Errors of two processes, by the thing that one of them does otherwise."""
    return said(start(one.refusals, tmp_path_factory.mktemp("refused") / "work", 1, 1))


@pytest.mark.long
@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("other keys", "processes: process 0 and process 1 differ in keys"),
        ("other settings", "processes: process 0 and process 1 differ in strategies"),
        ("a failure", "process 1 of 2: it is broken"),
        ("an option", "process 1 of 2: max_parallel_runs: expected"),
        ("another call", "processes: they are out of step: process 0 is at"),
        ("Orbax", "process 1 of 2: checkpoint: the format 'orbax' does not work with several processes"),
    ],
)
def test_what_one_process_does_otherwise_ends_all_in_one_line(refusals, case, message):
    for each in refusals:
        assert each[case].startswith((message, message.removeprefix("process 1 of 2: ")))


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """Results of two processes without interruption, and a folder in which they have begun the same."""
    folder = tmp_path_factory.mktemp("begun") / "kept"
    first, second = said(start(one.begun_and_ended, folder, 1, 1))
    whole, again = first
    assert first == second
    assert again == whole
    return whole, folder


@pytest.mark.long
def test_what_two_processes_have_begun_others_end_with_the_same_bits(begun, tmp_path):
    whole, folder = begun
    assert one.ended(shutil.copytree(folder, tmp_path / "one")) == whole
    three = said(start(one.ended, shutil.copytree(folder, tmp_path / "three"), 1, 1, 1))
    assert three == 3 * [whole]


@pytest.mark.long
def test_fewer_devices_do_not_go_on(begun, tmp_path):
    copy = shutil.copytree(begun[1], tmp_path / "copy")
    with pytest.raises(ArgumentError, match=r"was started with loop 'scan' on 2 devices \(cpu\)"):
        one.checkpointed(copy, devices=jax.devices()[:1])


# The command line.


STARTED = []


@pytest.fixture(autouse=True)
def nothing_is_left_running():
    """A test that fails leaves no process behind; those of a launcher end with it."""
    yield
    for process in STARTED:
        if process.poll() is None:
            process.kill()
    STARTED.clear()


def wait_for(is_so, seconds=200):
    latest = time.monotonic() + seconds
    while not is_so() and time.monotonic() < latest:
        time.sleep(0.1)
    assert is_so()


def arguments(folder, *more, steps=20):
    settings = ["--set", "strategies=real", "--set", f"steps={steps}", "--seeds", "2"]
    return ["run", *settings, "--root", str(folder), *map(str, more)]


def command(folder, *more, **settings):
    run = [sys.executable, "-m", "jaxarch", *arguments(folder, *more, **settings)]
    process = subprocess.Popen(
        run, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder
    )
    STARTED.append(process)
    return process


@pytest.mark.long
def test_the_command_writes_one_folder_with_the_numbers_of_one_process(tmp_path):
    from typed import in_process

    assert in_process(tmp_path, *arguments(tmp_path, "--out", tmp_path / "alone")).returncode == 0
    together = command(tmp_path, "--distributed", "--processes", 2)
    out, error = together.communicate(timeout=500)
    assert together.returncode == 0, error
    assert out.count("written to") == 1
    (folder,) = [path for path in tmp_path.iterdir() if path.name[0].isdecimal() or path.name[0] == "."]
    with np.load(tmp_path / "alone" / "losses.npz") as one, np.load(folder / "losses.npz") as other:
        for name in one:
            if one[name].dtype.kind == "f":
                np.testing.assert_allclose(one[name], other[name], rtol=1e-4)


@pytest.mark.long
def test_where_the_first_process_is_killed_the_others_are_ended_with_a_line_that_says_which(tmp_path):
    together = command(tmp_path, "--distributed", "--processes", 2, "--set", "resume=kept", steps=10**8)
    children = Path(f"/proc/{together.pid}/task/{together.pid}/children")
    wait_for((tmp_path / "kept" / "settings.json").exists)
    os.kill(int(children.read_text().split()[0]), signal.SIGKILL)
    _, error = together.communicate(timeout=60)
    assert together.returncode == launcher.LOST
    assert "jaxarch: process 0 of 2 ended (signal 9); the others are ended too\n" in error


@pytest.mark.parametrize("killed", [0, 1])
def test_the_launcher_says_which_process_is_killed_and_ends_the_others(tmp_path, monkeypatch, capfd, killed):
    waiting = tmp_path / "waiting"
    waiting.write_text("#!/bin/sh\nexec sleep 100\n")
    waiting.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(waiting))
    children = [launcher._Child(launcher.Place("127.0.0.1:1", 2, index)) for index in range(2)]
    STARTED.extend(child.process for child in children)
    children[killed].process.kill()
    assert launcher._watched(children) == launcher.LOST
    assert [child.process.returncode for child in children].count(-signal.SIGTERM) == 1
    line = f"jaxarch: process {killed} of 2 ended (signal 9); the others are ended too\n"
    assert capfd.readouterr().err == line
    for child in children:
        child.process.stderr.close()


@pytest.mark.long
def test_where_each_process_has_a_launcher_the_other_one_says_who_is_lost(tmp_path):
    where = ("--distributed", "--coordinator", f"127.0.0.1:{free_port()}", "--processes", 2, "--process")
    kept = ("--set", "resume=kept")
    both = [command(tmp_path, *where, index, *kept, steps=10**8) for index in range(2)]
    children = Path(f"/proc/{both[1].pid}/task/{both[1].pid}/children")
    wait_for((tmp_path / "kept" / "settings.json").exists)
    os.kill(int(children.read_text().split()[0]), signal.SIGKILL)
    errors = [each.communicate(timeout=90)[1] for each in both]
    assert [each.returncode for each in both] == [launcher.LOST] * 2
    assert "process 0 of 2 was ended because process 1 ended or cannot be reached" in errors[0]
    assert "process 1 of 2 ended (signal 9)" in errors[1]


@pytest.mark.long
def test_a_port_that_is_taken_is_one_line(tmp_path):
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        alone = command(tmp_path, "--distributed", "--coordinator", where, "--processes", 2, "--process", 0)
        _, error = alone.communicate(timeout=100)
    assert alone.returncode == 2
    assert error.startswith(f"jaxarch: --coordinator: cannot listen at {where} (")
