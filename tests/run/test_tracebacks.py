"""A loss that raises has few frames of jaxarch above it."""

import dataclasses
import traceback
from pathlib import Path

import jax
import numpy as np
import pytest
from small import keys, problem

import jaxarch
from jaxarch.search import dense

PACKAGE = str(Path(jaxarch.__file__).parent)
ONE = jax.devices()[:1]
MOST = 9
"""Frames of a program on one device; where runs are spread over several, each device's share is two more."""


class MineError(Exception):
    """An error of a user's loss."""


def losses():
    """Losses that raise when they are called for the first time, the second, and so on."""
    # Made outside of any trace, since it is kept for other tests.
    right = problem(steps=2).loss
    for bad in range(20):
        called = []

        def loss(params, state, batch, key, called=called, bad=bad):
            called.append(None)
            if len(called) > bad:
                raise MineError
            return right(params, state, batch, key)

        yield loss, called, bad


def depths(call):
    """Count the frames of jaxarch above the loss, for each call of it that may raise."""
    found = []
    for loss, called, bad in losses():
        try:
            call(dataclasses.replace(problem(steps=2), loss=loss))
        except MineError as error:
            frames = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
            found.append(sum(name.startswith(PACKAGE) for name in frames))
        else:
            assert len(called) == bad
            return found
    raise AssertionError("the loss is called again and again")


@pytest.mark.long
@pytest.mark.parametrize("runs", [{}, {"settings": {"std": np.asarray([0.2, 0.3, 0.2, 0.3])}}])
@pytest.mark.parametrize("loop", ["auto", "scan"])
def test_few_frames_lie_between_over_seeds_and_the_loss(loop, runs):
    strategy = (lambda settings: dense(std=settings["std"])) if runs else dense()

    def call(problem):
        jaxarch.over_seeds(strategy, keys(), problem, devices=ONE, loop=loop, **runs)

    found = depths(call)
    assert len(found) >= 2
    assert max(found) <= MOST


@pytest.mark.long
def test_few_frames_lie_between_compare_and_the_loss():
    strategies = {"one": dense(), "two": jaxarch.chain(dense(), jaxarch.retrain("cold"))}
    assert max(depths(lambda problem: jaxarch.compare(strategies, keys(), problem, devices=ONE))) <= MOST


@pytest.mark.long
def test_devices_that_share_the_runs_add_no_more_than_two_frames():
    assert max(depths(lambda problem: jaxarch.over_seeds(dense(), keys(), problem))) <= MOST + 2


@pytest.mark.long
def test_a_strategy_called_by_hand_has_fewer():
    call = lambda problem: jaxarch.chain(dense())(keys()[0], problem.of_run(0))  # noqa: E731
    assert max(depths(call)) <= 6
