"""One process of a program of several: run by test_several_processes.py, and imported for one alone.

Arguments: the case, a folder for checkpoints, the port, how many processes, which one, and its devices. It
prints a line of JSON.
"""

import json
import shutil
import sys
import warnings

import jax
import numpy as np
import optax

import jaxarch

if __name__ == "__main__":
    port, processes, mine, cores = map(int, sys.argv[3:7])
    jaxarch.use_cpu_cores(cores)
    # Before anything uses a device.
    jax.distributed.initialize(
        f"127.0.0.1:{port}", processes, mine, heartbeat_timeout_seconds=20, shutdown_timeout_seconds=20
    )

from contexts import share_contexts
from small import Interrupted, interrupt_at, keys, problem

from jaxarch import ArgumentError
from jaxarch._internal.digests import tree_digest
from jaxarch.search import dense, logistic_regression, two_temperature

ALL = {"devices": "all hosts", "chunk": 4}
SEARCH = two_temperature()


def with_random_state(key, problem, network):
    return network.with_records(jaxarch.Start({"key": jax.random.split(key, 2)}))


def diverging(rate):
    return jaxarch.chain(dense(), jaxarch.retrain("cold", nonnegative=False, optimizer=optax.sgd(rate)))


def at_rate(rate):
    return dense(nonnegative=False, optimizer=optax.sgd(rate))


def other_in_each_process(end):
    """Decide something that depends on the process: the first one's decision counts in all."""
    index = jax.process_index()
    return jaxarch.Decision(settings=end.settings / (2 + index), note=f"process {index}")


def by_all_runs(end):
    assert end.losses.shape == (4, 4)
    assert end.history.shape == (4, end.step)
    assert np.isfinite(end.history).all()
    jaxarch.density(end.network().mask)
    stop = end.step == 12 or end.history.sum() > 1e6
    return jaxarch.Decision(stop=stop, settings=np.asarray([1.0, 0.5, 0.5, 1.0]) * end.settings)


def cases():
    stop = jaxarch.EarlyStopping(patience=1)
    means = jax.numpy.asarray([-10.0, -8.0, -10.0, -8.0])
    chain = jaxarch.chain(dense(), jaxarch.prune(0.3), jaxarch.retrain("cold", nonnegative=False))
    yield "training", (SEARCH, keys(), problem()), ALL
    yield "early stopping", (SEARCH, keys(), problem(validation=True)), ALL | {"early_stopping": stop}
    yield "chain", (chain, keys(), problem()), ALL
    yield "three runs", (SEARCH, keys()[:3], problem(runs=3)), ALL
    yield "one run", (SEARCH, keys()[:1], problem(runs=1)), ALL
    yield "groups", (SEARCH, keys(), problem()), ALL | {"max_parallel_runs": 2}
    yield "run by run", (SEARCH, keys(), problem()), ALL | {"loop": "step"}
    yield "on the host", (logistic_regression(), keys(), problem()), ALL
    yield "settings", (lambda s: two_temperature(mean=s), keys(), problem(), means), ALL
    yield "random state", (jaxarch.chain(dense(), with_random_state), keys(), problem()), ALL
    rates = jax.numpy.asarray([0.3, np.nan, 0.3, np.nan])
    yield "failing", (diverging, keys(), problem(), rates), ALL
    falling = jax.numpy.asarray([0.3, 0.2, 0.1, 0.05])
    changed = {"callbacks": [other_in_each_process, by_all_runs]}
    yield "callbacks", (at_rate, keys(), problem(steps=20), falling), ALL | changed


def numbers(folder):
    told = {}
    for name, args, options in cases():
        network, report = jaxarch.over_seeds(*args, **options)
        losses = np.asarray(network.info.get("loss", np.zeros(1)), np.float64)
        told[name] = {
            "digest": tree_digest(network).tobytes().hex(),
            "losses": np.nan_to_num(losses).ravel().tolist(),
            "notes": report.notes,
            "width": report.width,
        }
    return told


def broken(progress):
    if jax.process_index() == 1:
        raise ArgumentError("it is broken")


def over(search=SEARCH, some=None, **options):
    return jaxarch.over_seeds(
        search, keys() if some is None else some, problem(), **{"devices": "all hosts", "chunk": 4, **options}
    )


def checkpointed(folder, **options):
    network, _ = over(checkpoint=jaxarch.Checkpoints(folder), **options)
    return tree_digest(network).tobytes().hex()


def begun_and_ended(folder):
    """Leave a copy of what was begun in another folder, and end it here."""
    index = jax.process_index()
    mine = f"{folder}-{index}"
    whole, _ = over()
    try:
        checkpointed(mine, progress=interrupt_at(8))
    except (Interrupted, ArgumentError):
        if index == 0:
            shutil.copytree(mine, folder)
    return [tree_digest(whole).tobytes().hex(), checkpointed(mine)]


def ended(folder):
    return checkpointed(folder if jax.process_index() == 0 else f"{folder}-{jax.process_index()}")


def another_call():
    Team = jaxarch.run._processes.Team
    team = Team.of("all hosts")
    with team.together():
        team.exchange(f"call {jax.process_index()}", b"")


def refusals(folder):
    """Return the errors of calls in which one process does something else, one after the other."""
    index = jax.process_index()
    orbax = jaxarch.Checkpoints(f"{folder}-{index}", format="orbax")
    calls = {
        "other keys": lambda: over(some=keys()[:: 1 - 2 * index]),
        "other settings": lambda: over(two_temperature(mean=0.5 + index)),
        "a failure": lambda: over(progress=broken),
        "an option": lambda: over(max_parallel_runs=1 - index),
        "another call": another_call,
        "Orbax": lambda: over(checkpoint=orbax),
    }
    return {name: refusal(call) for name, call in calls.items()}


def refusal(function):
    try:
        function()
    except ArgumentError as error:
        return str(error)
    return "nothing"


def quietly(case, folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return case(folder)


if __name__ == "__main__":
    share_contexts()
    print(json.dumps(quietly(globals()[sys.argv[1]], sys.argv[2])), flush=True)
