"""Numbers that stay as they are: one run of every method on digits, and two studies of each paper.

A change that moves code changes none of them. One that corrects a number, or a default, says so in the
changelog and writes them anew:

    python tests/frozen.py
"""

import hashlib
import json
import platform
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np

FILE = Path(__file__).with_name("frozen_numbers.json")

FEW = {"seeds": 2, "steps": 30, "train_per_class": 10}
FEW_OF_S = {"seeds": 2, "examples": 200, "held_out": 50, "batch_size": 20, "hidden": 6}
STUDIES = {
    "disentangling.strategies": {**FEW, "strategies": ("real", "real->bin", "bin", "bin->real warm")},
    "disentangling.fig3": {**FEW, "hards": (50.0, 500.0), "ratios": (1.0, 10.0)},
    "pruning.fig1": {"seeds": 2, "steps": 200, "early": 100, "soft": (1000.0, 10.0)},
    "pruning.transfer": {
        "seeds": 2,
        "sparsities": (0.5, 0.9),
        "sizes": (10,),
        "widths": (12,),
        "search_steps": 60,
        "training_steps": 10,
        "steps": 20,
        "samples": 2,
        "fraction": 0.7,
        "strength": 1e-3,
        "methods": ("AP", "IMP", "random"),
    },
    "spectral.fig7": {**FEW_OF_S, "alphas": 3, "betas": (5.0,), "input_eigenvalues": ("zero",), "epochs": 10},
    "spectral.fig9": {**FEW_OF_S, "presets": ("l1 3e-4",), "features": 4, "epochs": 100},
}


def machine() -> str:
    """A name for what decides the last bits: the processor and the releases that compile for it."""
    cpus = Path("/proc/cpuinfo")
    lines = cpus.read_text().splitlines() if cpus.exists() else [platform.processor()]
    kind = sorted({line for line in lines if line.startswith(("model", "flags", "Features"))}) or lines
    releases = [f"{name} {version(name)}" for name in ("jax", "jaxlib", "flax", "optax", "numpy")]
    return hashlib.sha256("\n".join([*kind, *releases]).encode()).hexdigest()[:16]


def numbers_of(leaves) -> dict:
    """A digest of arrays by name, and the sum and the 2-norm of each in float64, for other machines."""
    arrays = {name: np.asarray(leaf) for name, leaf in leaves.items()}
    digest = hashlib.sha256()
    for name, leaf in arrays.items():
        digest.update(f"{name} {leaf.dtype} {leaf.shape}".encode() + leaf.tobytes())
    sizes = {
        name: [float(leaf.sum(dtype=float)), float(np.linalg.norm(leaf))] for name, leaf in arrays.items()
    }
    return {"digest": digest.hexdigest()[:16], "leaves": sizes}


def of_method(name) -> dict:
    """Numbers of the network that a method finds on eight pixels of digits, in three steps."""
    from methods import keys, problem_of, strategy_of

    import jaxarch

    network, _ = jaxarch.over_seeds(strategy_of(name), keys(1), problem_of(name, runs=1))
    found = {"params": network.params, "mask": network.mask, "neurons": network.get(jaxarch.NeuronMask)}
    return numbers_of(jaxarch.named_leaves(found))


def of_study(name) -> dict:
    """Numbers of the table that a study writes, apart from times."""
    from jaxarch.lab.harness import run_in
    from jaxarch.lab.harness.catalogue import experiment
    from jaxarch.lab.results import read_table

    study = experiment(name)
    with tempfile.TemporaryDirectory() as folder:
        run_in(Path(folder), study, study.settings(**STUDIES[name]))
        table = read_table(Path(folder)).select_dtypes("number").dropna(axis=1)
    return numbers_of({column: table[column].to_numpy() for column in table if "second" not in column})


def main() -> None:
    """Write all of them."""
    import conftest  # noqa: F401  # the devices and XLA's flags, as pytest sets them
    from methods import METHODS

    numbers = {
        "machine": machine(),
        "methods": {name: of_method(name) for name in METHODS},
        "studies": {name: of_study(name) for name in STUDIES},
    }
    FILE.write_text(json.dumps(numbers, indent=1) + "\n")
    print(f"{FILE}: {len(numbers['methods'])} methods, {len(STUDIES)} studies")


if __name__ == "__main__":
    sys.path.insert(0, str(FILE.parent))
    main()
