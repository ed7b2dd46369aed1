"""Parts handed to an executor, a fake one or processes: the numbers of one process, whoever dies."""

import dataclasses
import multiprocessing
import os
import pickle
import re
import signal
import subprocess
import sys
import time
import types
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ProcessPoolExecutor
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest
import spread_parts
from click.testing import CliRunner
from places import ROOT, TESTS, code_blocks
from spread_parts import Counting

import jaxarch
from jaxarch import ArgumentError
from jaxarch.lab.cli import app
from jaxarch.lab.harness import (
    LocalProcesses,
    Part,
    Parts,
    PartSettings,
    Spread,
    TrainingSettings,
    executor_of,
    report_on,
    run_in,
)
from jaxarch.lab.harness.catalogue import EXPERIMENTS, experiment
from jaxarch.lab.tournament.settings import TournamentSettings

NUMBERS = {"one": 4.1, "two": 10.2, "of tree": 10.0, "both": 21.4}


class Here(Executor):
    """Makes what it is handed at once, in this process; but first it raises what it is told to."""

    def __init__(self, failures=(), on_submit=False):
        self.failures, self.handed, self.closed, self.on_submit = list(failures), [], False, on_submit

    def submit(self, function, conditions, package):
        name = pickle.loads(package)[0]
        self.handed.append(name)
        future = Future()
        if self.failures and self.on_submit:
            raise self.failures.pop(0)
        if self.failures:
            future.set_exception(self.failures.pop(0))
        else:
            future.set_result(function(conditions, package))
        return future

    def shutdown(self, wait=True):
        self.closed = True


def made(executor=None, parts=None, settings=None, progress=None, attempts=10):
    settings = settings or Counting()
    spread = None if executor is None else Spread(executor, attempts=attempts)
    load = partial(spread_parts.load, settings.first)
    chosen = spread_parts.parts() if parts is None else parts
    found = Parts(settings).run(chosen, settings.first, load, progress=progress, spread=spread)
    tables = {part.name: of["number"].iloc[0] for part, of in found if part.like is None}
    return tables, spread


def test_parts_are_the_same_whoever_makes_them_and_in_their_order():
    alone, _ = made()
    elsewhere, _ = made(Here())
    assert list(alone) == list(elsewhere) == list(NUMBERS)
    assert alone == elsewhere == pytest.approx(NUMBERS)


def test_a_part_is_handed_over_when_all_that_it_is_after_is_there():
    executor = Here()
    made(executor)
    assert executor.handed.index("both") > executor.handed.index("two") > executor.handed.index("one")


@pytest.mark.parametrize("failure", [ConnectionError, RuntimeError, CancelledError, EOFError])
def test_a_part_whose_worker_died_is_made_again(failure):
    executor = Here([failure("it died")])
    numbers, spread = made(executor)
    assert numbers == pytest.approx(NUMBERS)
    assert spread.facts()["made again"] == {"one": 1}
    assert executor.handed.count("one") == 2


def test_a_part_is_begun_no_more_often_than_said():
    executor = Here([OSError("gone")] * 99)
    with pytest.raises(ArgumentError, match=r"executor: one was begun 3 times, .* OSError: gone; has"):
        made(executor, spread_parts.parts()[:1], attempts=3)
    assert executor.handed == ["one"] * 3


@pytest.mark.parametrize("on_submit", [False, True])
def test_a_broken_executor_is_made_again_by_its_factory(on_submit):
    executors = [Here([BrokenExecutor("broken")], on_submit), Here()]
    left = iter(executors)
    numbers, _ = made(lambda: next(left))
    assert numbers == pytest.approx(NUMBERS)
    assert all(executor.closed for executor in executors)


def test_a_broken_executor_that_was_handed_in_is_an_error_that_asks_for_a_factory():
    executor = Here([BrokenExecutor("broken")])
    with pytest.raises(ArgumentError, match=r"executor: a worker died .* give a function that makes it"):
        made(executor)
    assert not executor.closed


@pytest.mark.parametrize(
    ("function", "kind", "message"),
    [
        (spread_parts.refused, ArgumentError, "^first: expected another number$"),
        (spread_parts.faulty, RuntimeError, "bad failed in process .*(.|\n)*ZeroDivisionError"),
    ],
)
def test_an_error_of_a_part_ends_all_with_its_words_and_is_not_tried_again(function, kind, message):
    executor = Here()
    with pytest.raises(kind, match=message):
        made(executor, [Part("bad", function), *spread_parts.parts()])
    assert executor.handed.count("bad") == 1


def test_what_a_worker_warns_of_is_warned_of_here_and_in_the_manifest():
    with pytest.warns(jaxarch.ResultWarning, match="too few were found"):
        _, spread = made(Here(), [Part("poor", spread_parts.warned, 1)])
    assert spread.facts()["warnings"] == ["poor: ResultWarning: too few were found"]


def test_the_report_says_which_parts_were_made_again_and_what_workers_warned_of(tmp_path):
    with pytest.warns(jaxarch.ResultWarning):
        run_in(tmp_path, spread_parts.COUNTS, TrainingSettings(), executor=Here([OSError("gone")]))
    assert report_on(tmp_path, spread_parts.COUNTS).warnings == (
        "one was begun 2 times, since its worker died",
        "poor: ResultWarning: too few were found",
    )


def test_what_was_made_beside_a_part_that_is_refused_is_kept(tmp_path):
    parts = [Part("bad", spread_parts.refused), Part("one", spread_parts.number, 1)]
    with pytest.raises(ArgumentError, match="first: expected another number"):
        made(Here(), parts, Counting(resume=str(tmp_path)))
    assert (tmp_path / "one.csv").exists()


def test_progress_is_of_all_trainings_and_of_parts_done_of_parts():
    told = []
    made(Here(), progress=told.append)
    assert [border.name for border in told if border.making is None] == ["count 1", "count 3", "count 4"]
    counts = [(border.step, border.steps) for border in told if border.making is not None]
    assert counts[0] == (0, 5)
    assert counts[-1] == (5, 5)


def test_parts_that_are_written_are_not_made_again_and_go_on_with_or_without_workers(tmp_path):
    settings = Counting(resume=str(tmp_path / "parts"))
    first = Here([OSError("gone")] * 99)
    with pytest.raises(ArgumentError, match="executor: two was begun 1 times"):
        failing_at_two(first, settings)
    written = {path.stem for path in (tmp_path / "parts").iterdir() if path.suffix in (".csv", ".npz")}
    assert written == {"one", "tree", "of-tree"}
    second = Here()
    numbers, _ = made(second, settings=settings)
    assert numbers == pytest.approx(NUMBERS)
    assert set(second.handed) == {"two", "both"}
    assert made(settings=settings)[0] == numbers


def failing_at_two(executor, settings):
    def submit(function, conditions, package, submit=executor.submit):
        executor.failures = [OSError("gone")] if b"two" in package[:40] else []
        return submit(function, conditions, package)

    executor.submit = submit
    made(executor, settings=settings, attempts=1)


def test_a_folder_that_was_begun_before_a_setting_was_there_had_its_default(tmp_path):
    settings = Counting(resume=str(tmp_path))
    (tmp_path / "settings.json").write_text('{"first": 3}')
    Parts(settings)
    with pytest.raises(ArgumentError, match=r"resume: .* was begun with devices=0, not 2"):
        Parts(dataclasses.replace(settings, devices=2))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([Part("one", spread_parts.number), Part("one", spread_parts.number)], "parts: two are called 'one'"),
        (
            [Part("one", spread_parts.number, after=("two",))],
            "parts: 'one' is after 'two', which comes later",
        ),
        ([Part("one", lambda *_: None)], "parts: one cannot be sent to a worker: .* at the top of a module"),
    ],
)
def test_parts_that_cannot_be_made_elsewhere_are_refused(parts, message):
    with pytest.raises(ArgumentError, match=message):
        made(Here(), parts)


@pytest.mark.parametrize(
    ("executor", "message"),
    [
        (3, "executor: expected one of concurrent.futures, or a function that makes one, got 3"),
        (lambda: 3, "executor: expected one of concurrent.futures, got 3"),
        (
            lambda: ProcessPoolExecutor(1, multiprocessing.get_context("fork")),
            "executor: a process that uses JAX must not be forked",
        ),
    ],
)
def test_what_is_no_executor_or_forks_is_refused(executor, message):
    with pytest.raises(ArgumentError, match=message):
        made(executor)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("8786", "cluster: expected local:N or the address of a Dask scheduler"),
        ("local:0", "cluster: expected an integer of at least 1, got 0"),
        ("local:", "cluster: expected local:N"),
    ],
)
def test_a_cluster_that_is_none_is_refused(text, message):
    with pytest.raises(ArgumentError, match=message):
        executor_of(text)


def test_without_dask_its_address_is_refused_with_how_to_install_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ArgumentError, match=r"Dask is not installed; pip install 'jaxarch\[cluster\]'"):
        executor_of("tcp://127.0.0.1:8786")


def test_an_experiment_that_cannot_be_spread_is_refused_before_anything_runs_naming_those_that_can(tmp_path):
    done = CliRunner().invoke(app, ["run", "spectral.fig8", "--cluster", "local:2", "--root", str(tmp_path)])
    assert isinstance(done.exception, ArgumentError)
    assert str(done.exception).startswith(
        "cluster: spectral.fig8 is made by one process; the experiments with"
    )
    assert "tournament" in str(done.exception)
    assert not list(tmp_path.iterdir())


def test_devices_and_width_are_handed_to_every_training_where_they_are_said():
    @dataclasses.dataclass(frozen=True)
    class Wide(PartSettings):
        pass

    assert Wide().width() == {}
    assert Wide(devices=1, max_parallel_runs=3).width() == {
        "devices": jax.local_devices()[:1],
        "max_parallel_runs": 3,
    }
    with pytest.raises(ArgumentError, match="devices: expected at most"):
        Wide(devices=99).width()
    with pytest.raises(ArgumentError, match="max_parallel_runs: expected at least 0, got -1"):
        Wide(max_parallel_runs=-1).check()


# What follows starts processes.


@pytest.fixture(scope="module")
def importable():
    """Worker processes import what is beside this file."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(TESTS), str(ROOT), before or ""])
    yield
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before


@pytest.fixture(scope="module")
def dask(importable):
    """A factory of executors: a local cluster of Dask."""
    distributed = pytest.importorskip("distributed")
    import dask as settings

    # A local cluster gives up a worker that is not back within 15 seconds, which a busy machine may need.
    with (
        settings.config.set({"distributed.deploy.lost-worker-timeout": "1 hour"}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50
        ) as cluster,
    ):
        yield executor_of(cluster.scheduler_address)


@pytest.fixture(scope="module", params=["processes", "dask"])
def workers(request, importable):
    """A factory of executors."""
    return executor_of("local:2") if request.param == "processes" else request.getfixturevalue("dask")


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::RuntimeWarning")
def test_processes_find_what_one_process_finds(workers):
    numbers, spread = made(workers)
    assert numbers == made()[0]
    assert sum(spread.facts()["workers"].values()) == 5


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::RuntimeWarning")
def test_a_part_whose_process_is_killed_is_made_again_also_more_often_than_dask_allows(workers, tmp_path):
    # A pool begins anew after each death: two stand for many. Dask itself gives a part up after the fourth.
    deaths = 2 if workers.func is LocalProcesses else 4
    parts = [*spread_parts.parts(), Part("killed", spread_parts.killed, (str(tmp_path), deaths))]
    numbers, _ = made(workers, parts)
    assert len(list(tmp_path.iterdir())) == deaths
    assert numbers == pytest.approx(NUMBERS | {"killed": 3.0})


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::RuntimeWarning")
def test_workers_of_dask_tell_how_far_a_training_is(dask):
    told = []
    made(dask, [Part("one", spread_parts.telling, 6)], progress=told.append)
    steps = [border.step for border in told if border.name == "telling"]
    assert steps[-1] == 6
    assert len(steps) > 1


SCHEDULER = """
import time, distributed
if __name__ == "__main__":
    cluster = distributed.LocalCluster(
        n_workers=1, processes=False, protocol="tcp://", dashboard_address=":0"
    )
    print(cluster.scheduler_address, flush=True)
    time.sleep(600)
"""


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::RuntimeWarning")
def test_a_scheduler_that_goes_ends_the_run(importable, tmp_path):
    script = tmp_path / "scheduler.py"
    script.write_text(SCHEDULER)
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as process:
        factory = executor_of(process.stdout.readline().strip())

        def kill_once_begun(progress):
            if progress.name == "telling":
                process.kill()

        parts = [Part("telling", spread_parts.telling, 1000)]
        with pytest.raises(ArgumentError, match=r"^cluster: the scheduler is gone; with `resume`"):
            made(factory, parts, progress=kill_once_begun)


@pytest.mark.long
def test_a_pool_that_was_made_for_a_run_ends_with_it_though_its_processes_are_at_work(importable):
    def pool():
        return ProcessPoolExecutor(2, multiprocessing.get_context("spawn"))

    parts = [Part("lasting", spread_parts.lasting, 600), Part("refused", spread_parts.refused, 1)]
    before = set(multiprocessing.active_children())
    with pytest.raises(ArgumentError, match=r"^first: expected another number$"):
        made(pool, parts)
    latest = time.monotonic() + 60
    while set(multiprocessing.active_children()) > before and time.monotonic() < latest:
        time.sleep(0.1)
    assert set(multiprocessing.active_children()) <= before


SMALL = TournamentSettings(
    seeds=2, steps=4, methods=("random", "SNIP"), densities=(0.5, 0.1), devices=1, controls=("inverted",)
)
TIMES = ["seconds", "compile_seconds"]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What one process finds in a small tournament."""
    place = tmp_path_factory.mktemp("alone")
    run_in(place, experiment("tournament"), SMALL)
    return place


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::RuntimeWarning")
def test_a_tournament_has_the_same_bits_over_processes(alone, tmp_path):
    run_in(tmp_path, experiment("tournament"), SMALL, executor=executor_of("local:2"))
    for name in ("results.csv", "controls.csv", "comparisons.csv"):
        one, other = (pd.read_csv(place / name, engine="python") for place in (alone, tmp_path))
        pd.testing.assert_frame_equal(
            one.drop(columns=TIMES, errors="ignore"),
            other.drop(columns=TIMES, errors="ignore"),
            check_exact=True,
        )
    cluster = jaxarch.lab.results.read_manifest(tmp_path)["cluster"]
    assert sum(cluster["workers"].values()) == 5
    assert cluster["devices"] == {"1 x cpu": 5}


def ended(process):
    """Whether a process has ended, though nobody may have asked how."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


@pytest.mark.long
def test_the_processes_of_a_driver_that_is_killed_end_with_it(importable, tmp_path):
    code = (
        "import time; from jaxarch.lab.harness import LocalProcesses\n"
        "if __name__ == '__main__':\n"
        "    executor = LocalProcesses(1)\n"
        "    print(executor.submit(__import__('os').getpid).result(), flush=True)\n"
        "    time.sleep(600)\n"
    )
    script = tmp_path / "driver.py"
    script.write_text(code)
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as process:
        worker = int(process.stdout.readline())
        process.kill()
    latest = time.monotonic() + 60
    while not ended(worker) and time.monotonic() < latest:
        time.sleep(0.1)
    assert ended(worker)


@pytest.mark.long
def test_a_run_over_processes_that_is_interrupted_ends_with_one_line_and_goes_on(importable, tmp_path):
    arguments = ["run", "tournament", "--cluster", "local:2", "--seeds", "2", "--quiet"]
    arguments += ["--set", "methods=random,SNIP", "--set", "densities=0.5", "--set", "resume=kept"]

    def start(steps):
        return subprocess.Popen(
            [sys.executable, "-m", "jaxarch", *arguments, "--set", f"steps={steps}"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )

    process = start(10_000_000)
    latest = time.monotonic() + 120
    while not (tmp_path / "kept" / "settings.json").exists() and time.monotonic() < latest:
        time.sleep(0.1)
    time.sleep(5)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert error == (
        "jaxarch: interrupted; finished work is kept in kept; run the same command again to continue\n"
    )


@pytest.mark.long
def test_local_processes_are_ended_at_once_where_they_are_not_waited_for(importable):
    executor = LocalProcesses(1)
    executor.submit(np.add, 1, 1).result()
    future = executor.submit(time.sleep, 600)
    executor.shutdown(wait=False)
    assert isinstance(future.exception(timeout=60), BrokenExecutor)


PAGE = "docs/over_a_cluster.md"


@pytest.mark.long
def test_the_page_s_script_prints_its_totals_and_ranks_what_processes_found(tmp_path):
    script = tmp_path / "page.py"
    script.write_text("\n".join(code_blocks(PAGE)))
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    first, table = done.stdout.split("\n", 1)
    assert f"print(totals())  # {first}" in script.read_text()
    assert "SNIP" in table


def test_the_page_s_adapter_waits_for_jobs_and_cancels_them():
    names = {}
    exec(compile(code_blocks(PAGE)[-1], PAGE, "exec"), names)
    cancelled = []

    class Jobs:
        def submit(self, function, *args):
            job = types.SimpleNamespace(result=lambda: function(*args))
            job.cancel = lambda: cancelled.append(job)
            return job

    executor = names["Submitted"](Jobs())
    assert made(executor)[0] == pytest.approx(NUMBERS)
    executor.shutdown(wait=False)
    assert len(cancelled) == 5


def test_the_page_names_all_experiments_that_can_be_spread():
    page = (ROOT / PAGE).read_text()
    named = page.partition("The experiments with such parts are ")[2].partition(";")[0]
    spread = {name for name in EXPERIMENTS if experiment(name).spreads}
    assert set(re.findall(r"`(\S+)`", named)) == spread
