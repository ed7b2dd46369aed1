"""How long a training takes: measured on a few of its steps, without what is done once."""

from types import SimpleNamespace

import jax
import numpy as np
import optax
import pytest

import jaxarch
from jaxarch import NonFiniteWarning, Progress, StageReport
from jaxarch.lab.harness import pace

KEYS = jax.random.split(jax.random.key(0), 6)


def problem(rate=0.1):
    net, x = jaxarch.direct_network((2, 3, 1), skips=False), np.ones((4, 2), np.float32)
    return jaxarch.supervised(
        net, (x, x[:, :1]), loss=optax.l2_loss, optimizer=optax.sgd(rate), steps=900, validation=np.arange(2)
    )


def trained(groups, monkeypatch):
    """The pace of 6 runs on 2 devices whose groups take 100 seconds, and after that 3 for each 20 steps."""
    now = [0.0]

    def over_seeds(strategy, keys, few, *, progress, chunk, **options):
        assert few.descent.steps == 2 * chunk == 40
        for group in range(groups):
            now[0] += 100
            for step in (20, 40):
                now[0] += 3
                progress(Progress("dense", step, 40, group, groups, 6 // groups, 0.0))
        return None, SimpleNamespace(stages=[StageReport("dense", 1e9, 7.0, 6, 2)])

    monkeypatch.setattr(pace, "over_seeds", over_seeds)
    monkeypatch.setattr(pace.time, "perf_counter", lambda: now[0])
    return pace.measured(jaxarch.search.dense(), KEYS, problem())


@pytest.mark.parametrize("groups", [1, 2])
def test_what_a_training_does_once_is_not_counted(groups, monkeypatch):
    found = trained(groups, monkeypatch)
    assert found.a_step == pytest.approx(groups * 3 * 2 / 6 / 20)
    assert found.compile_seconds == 7.0


def test_all_runs_of_a_sweep_share_the_devices(monkeypatch):
    assert trained(1, monkeypatch).seconds(6 * 1000) == pytest.approx(1000 / 20 * 3)


@pytest.mark.long
def test_the_pace_of_runs_that_fail_at_once_is_told_too():
    with pytest.warns(NonFiniteWarning):
        found = pace.measured(jaxarch.search.dense(), KEYS, problem(rate=np.inf))
    assert 0 < found.a_step < 1


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(119.4, "119 seconds"), (120, "2 minutes"), (7199, "120 minutes"), (9000, "2.5 hours")],
)
def test_times_are_said_in_words(seconds, words):
    assert pace.told(seconds, 2, "tests apart") == f"time: about {words} on 2 devices, tests apart"
