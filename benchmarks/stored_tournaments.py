"""Which results does docs/results lack, and what can be added to them in the minutes at hand?

    python benchmarks/stored_tournaments.py --list          # what is missing, in order
    python benchmarks/stored_tournaments.py --minutes 9     # train the next methods, and add them
    python benchmarks/stored_tournaments.py --at-once 4 --copy OUT   # on a GPU that four methods share

Methods are trained in a fixed order: eight named ones on a ResNet-20, then all others, then VGG16 and
ResNet-18. Each call goes on with `jaxarch run tournament --set resume=docs/results/...`, and ends when its
minutes are over. A method that is done then has its file there, and in `--copy` too. One that is not goes on
from its checkpoints (NAME.working) if they are still there, and starts anew otherwise. The dense network
comes first.

CIFAR-10 has to be at hand (`jaxarch data cifar10`, JAXARCH_DATA). Settings are those of the folders that
exist; `resume=` refuses others. The ResNet-20 has 10,000 steps of 128 for a method that trains once, which is
30 epochs, and half of them each for a search and a training.

Answer: nothing is trained on the ResNet-20 yet; on two cores a method takes about a day, as
`--dry-run` estimates.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxarch.lab.harness.parts import file_name
from jaxarch.lab.tournament.entrants import ENTRANTS

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"
FIRST = ("random", "gradual magnitude", "two-temperature trained", "SNIP")
FIRST += ("RigL", "SynFlow", "magnitude", "random ERK")
METHODS = (*FIRST, *(name for name in ENTRANTS if name not in FIRST))
CIFAR = {"dataset": "cifar10", "seeds": 3, "rate": 0.001, "augment": True, "max_parallel_runs": 1}
TASKS: dict[str, dict[str, Any]] = {
    "tournament_resnet20": CIFAR | {"model": "resnet20", "steps": 5000, "densities": "0.1,0.05,0.02"},
    "tournament_vgg16": CIFAR | {"model": "vgg16", "steps": 1500, "densities": "0.1,0.01,0.001"},
    "tournament_resnet18": CIFAR | {"model": "resnet18", "steps": 600, "densities": "0.1,0.01,0.001"},
}
"""Settings of each task, by the name of its folder, in order."""
SPARE = 15.0
"""Seconds in which processes end and files are copied."""


def file_of(folder: Path, method: str) -> Path:
    """Return the file of a method's results in a folder of `resume`."""
    return folder / f"{file_name(method)}.npz"


def missing(folder: Path, methods: tuple[str, ...] = METHODS) -> list[str]:
    """Return the methods without a file of results in a folder, in order; `dense` is the whole network."""
    return [name for name in ("dense", *methods) if not file_of(folder, name).exists()]


def fill(
    folder: Path, settings: Mapping[str, Any], methods: tuple[str, ...], seconds: float, at_once: int = 1
) -> list[str]:
    """Train the methods that a folder lacks, in order, for so many seconds; return those that were done.

    Args:
      folder: the folder to add to; it is made if there is none.
      settings: settings of the tournament.
      methods: methods to train, two or more.
      seconds: time after which the training is ended.
      at_once: methods that are trained at the same time, each in a process of its own.
    """
    before = missing(folder, methods)
    changes = {**settings, "methods": ",".join(methods), "resume": folder}
    command = [sys.executable, "-m", "jaxarch", "run", "tournament", "--root", str(folder / ".runs")]
    for name, value in changes.items():
        command += ["--set", f"{name}={value}"]
    if at_once > 1:
        command += ["--cluster", f"local:{at_once}"]
    # Processes that share a GPU take its memory as they need it, not three quarters each.
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    try:
        if process.wait(max(seconds, 0)):
            raise SystemExit(f"{folder.name}: the tournament ended with status {process.returncode}")
    except subprocess.TimeoutExpired:
        pass
    finally:
        # Also after Ctrl-C: a process that is left behind would go on, and hold the folder.
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        shutil.rmtree(folder / ".runs", ignore_errors=True)
    after = missing(folder, methods)
    return [name for name in before if name not in after]


def main() -> None:
    """List what is missing, or train for some minutes."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--minutes", type=float, default=9.0, help="time after which no training goes on")
    parser.add_argument("--at-once", type=int, default=1, help="methods trained at the same time")
    parser.add_argument("--copy", type=Path, help="folder that new files are copied to")
    parser.add_argument("--list", action="store_true", help="list what is missing, and train nothing")
    chosen = parser.parse_args()
    end = time.monotonic() + 60 * chosen.minutes - SPARE
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    for task, settings in TASKS.items():
        folder = RESULTS / task
        if not chosen.list and missing(folder) and time.monotonic() < end:
            done = fill(folder, settings, METHODS, end - time.monotonic(), chosen.at_once)
            print(f"{task}: added {', '.join(done) or 'nothing'}", flush=True)
            if chosen.copy is not None:
                (chosen.copy / task).mkdir(parents=True, exist_ok=True)
                for file in (folder / "settings.json", *(file_of(folder, name) for name in done)):
                    if file.exists():
                        shutil.copy(file, chosen.copy / task / file.name)
        left = missing(folder)
        print(f"{task}: {len(left)} of {len(METHODS) + 1} missing: {', '.join(left) or 'none'}", flush=True)


if __name__ == "__main__":
    main()
