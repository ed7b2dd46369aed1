"""Kill processes of one command at random moments, start it again until it ends, and compare its numbers.

    python benchmarks/killed_processes.py --kills 30

Two processes run one experiment by `jaxarch run --distributed --processes 2`, with checkpoints. One of them
is killed after a time drawn anew for each kill. Printed are how long the others took to end, and whether the
results of the command that ended in the end are those of one that nobody disturbed.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

COLUMNS_OF_TIME = ["seconds"]
SETTINGS = ["--set", "strategies=real", "--seeds", "2", "--quiet"]


def command(folder: Path, out: str, steps: int, processes: int = 2) -> list[str]:
    """The command line, with checkpoints in a folder of its own for each result."""
    settings = [*SETTINGS, "--set", f"steps={steps}", "--set", f"resume={folder / out}-begun"]
    distributed = ["--distributed", "--processes", str(processes)]
    return [sys.executable, "-m", "jaxarch", "run", *settings, "--out", str(folder / out), *distributed]


def processes_of(launcher: int) -> list[int]:
    """The processes that a launcher has started, as Linux lists them."""
    listed = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    return [int(number) for number in listed]


def killed(arguments: list[str], after: float, draw: random.Random) -> tuple[int, float, str] | None:
    """Start, kill one process after a time: exit status, seconds until all had ended, what was said.

    `None` if the command was done before.
    """
    launcher = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        launcher.wait(timeout=after)
    except subprocess.TimeoutExpired:
        children = processes_of(launcher.pid)
        if not children:
            launcher.wait()
            return None
        os.kill(draw.choice(children), signal.SIGKILL)
        start = time.monotonic()
        _, said = launcher.communicate(timeout=120)
        took = time.monotonic() - start
        assert not any(Path(f"/proc/{child}").exists() for child in children), "a process is left"
        return launcher.returncode, took, said
    return None


def results(folder: Path) -> pd.DataFrame:
    """What was found, without times."""
    return pd.read_csv(folder / "results.csv", engine="python").drop(columns=COLUMNS_OF_TIME)


def same(one: Path, other: Path) -> bool:
    """Whether two result folders have the same numbers, losses included."""
    with np.load(one / "losses.npz") as mine, np.load(other / "losses.npz") as theirs:
        equal = all(mine[name].tobytes() == theirs[name].tobytes() for name in mine)
    return equal and results(one).equals(results(other))


def main() -> None:
    """Disturb until there have been so many kills; then print a line of what happened."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--steps", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    draw = random.Random(chosen.seed)
    with tempfile.TemporaryDirectory() as there:
        folder = Path(there)
        start = time.monotonic()
        subprocess.run(command(folder, "undisturbed", chosen.steps), check=True, stdout=subprocess.DEVNULL)
        whole = time.monotonic() - start
        kills, ended, equal, slowest = 0, 0, 0, 0.0
        while kills < chosen.kills:
            out = f"disturbed-{ended}"
            arguments = command(folder, out, chosen.steps)
            while kills < chosen.kills:
                outcome = killed(arguments, draw.uniform(0, whole), draw)
                if outcome is None:
                    break
                status, took, said = outcome
                kills, slowest = kills + 1, max(slowest, took)
                print(f"kill {kills}: status {status} after {took:.1f} s: {said.strip()[:160]}", flush=True)
            if not (folder / out).exists():
                subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL)
            ended += 1
            equal += same(folder / "undisturbed", folder / out)
    print(
        f"{kills} kills; all processes had ended after at most {slowest:.1f} s; {equal} of {ended} commands "
        "that were started again ended with the numbers of one that nobody disturbed, to the bit"
    )


if __name__ == "__main__":
    main()
