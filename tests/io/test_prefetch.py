"""Batches read ahead and put on devices, for a loop of one's own."""

import gc
import subprocess
import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from small import in_float64

from jaxarch import ArgumentError
from jaxarch.io import Ahead, prefetch, repeat


def counted(batches, drawn):
    for batch in batches:
        drawn.append(batch)
        yield batch


def until(true):
    for _ in range(2000):
        if true():
            return
        time.sleep(0.005)
    raise AssertionError


def numbers(count, size=2):
    return [np.full(size, step, np.float32) for step in range(count)]


class Resumable:
    """An iterator with a state, as Grain's have."""

    def __init__(self, batches):
        self.batches, self.place = batches, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.place == len(self.batches):
            raise StopIteration
        self.place += 1
        return self.batches[self.place - 1]

    def get_state(self):
        return {"place": self.place}

    def set_state(self, state):
        self.place = state["place"]


def test_batches_come_in_their_order_and_end_where_the_loader_ends():
    assert [int(batch[0]) for batch in prefetch(numbers(5))] == list(range(5))


def test_what_comes_is_on_a_device():
    batch = next(prefetch([{"x": np.ones(2), "y": [np.zeros(1), np.zeros(1)]}]))
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(batch))
    assert isinstance(batch["y"], tuple)


@pytest.mark.parametrize("ahead", [1, 3])
def test_so_many_batches_are_read_ahead_and_no_more(ahead):
    drawn = []
    batches = prefetch(counted(numbers(20), drawn), ahead=ahead)
    for step in range(1, 6):
        next(batches)
        until(lambda: len(drawn) >= step + ahead)  # noqa: B023
        assert len(drawn) == step + ahead


def test_the_loader_is_read_while_a_step_is_taken():
    read = threading.Event()

    def loader():
        yield np.ones(1)
        read.set()
        yield np.ones(1)

    batches = prefetch(loader(), ahead=1)
    next(batches)
    assert read.wait(timeout=30)


def test_a_loader_may_write_all_its_batches_to_the_same_place():
    def loader():
        place = np.zeros(3, np.float32)
        for step in range(6):
            place[:] = step
            yield place

    assert [batch.tolist() for batch in prefetch(loader(), ahead=4)] == [[step] * 3 for step in range(6)]


def test_batches_are_split_over_devices_as_they_are_asked_to():
    sharding = NamedSharding(Mesh(np.array(jax.devices()), ("batch",)), PartitionSpec("batch"))
    batch = next(prefetch(numbers(1, size=4), sharding=sharding))
    assert batch.sharding == sharding
    assert {shard.data.shape for shard in batch.addressable_shards} == {(4 // len(jax.devices()),)}


@pytest.mark.parametrize(("wide", "dtype"), [(False, jnp.float32), (True, jnp.float64)])
def test_numbers_have_the_precision_that_jax_has_where_they_are_asked_for(wide, dtype):
    with in_float64(wide):
        batch = next(prefetch([np.ones(2, np.float64)]))
    assert batch.dtype == dtype


def test_its_state_is_that_after_the_last_batch_that_was_handed_out():
    loader = Resumable(numbers(9))
    batches = prefetch(loader, ahead=3)
    assert [int(next(batches)[0]) for _ in range(4)] == [0, 1, 2, 3]
    until(lambda: loader.place == 7)
    assert batches.get_state() == {"place": 4}
    assert [int(batch[0]) for batch in batches] == [4, 5, 6, 7, 8]


@pytest.mark.parametrize("taken", [0, 3, 9])
def test_it_goes_on_from_a_state_whatever_was_read_ahead(taken):
    batches = prefetch(Resumable(numbers(9)), ahead=3)
    for _ in range(taken):
        next(batches)
    batches.set_state({"place": 5})
    assert batches.get_state() == {"place": 5}
    assert [int(batch[0]) for batch in batches] == [5, 6, 7, 8]


def test_an_iterator_without_a_state_says_so():
    with pytest.raises(ArgumentError, match=r"^batches: list_iterator has no get_state"):
        prefetch(numbers(3)).get_state()


@pytest.mark.parametrize(
    ("spoiled", "message"),
    [
        (
            np.ones(1, np.float32),
            r"batch 2 has float32 of shape \(1,\), but earlier batches have .* \(2,\); drop",
        ),
        (np.ones(2, np.int32), "batch 2 has int32 of shape "),
        (np.array([1, np.inf], np.float32), "batch 2 has 1 values that are NaN or infinite"),
        ((np.ones(2), np.ones(2)), "batch 2 has another structure"),
        (np.array([1, 1e39]), "batch 2 has 1 values that are NaN or infinite"),
        (object(), "batch 2: expected arrays of numbers in tuples and dicts, got <object"),
    ],
)
def test_a_batch_that_is_not_like_those_before_is_refused_when_it_is_asked_for(spoiled, message):
    batches = prefetch([*numbers(2), spoiled, *numbers(1)])
    next(batches), next(batches)
    with pytest.raises(ArgumentError, match=f"^batches: {message}"):
        next(batches)


def test_batches_of_any_size_may_be_let_through():
    sizes = [batch.shape for batch in prefetch([np.ones((3, 2)), np.ones((1, 2))], same_shape=False)]
    assert sizes == [(3, 2), (1, 2)]


def test_what_a_loader_raises_comes_where_its_batch_is_asked_for():
    def loader():
        yield np.ones(1)
        raise OSError("the disk is gone")

    batches = prefetch(loader())
    next(batches)
    with pytest.raises(OSError, match="the disk is gone"):
        next(batches)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((3,), {}), "batches: expected an iterable of batches, got 3"),
        (((numbers(1),), {"ahead": 0}), "ahead: expected "),
        (((numbers(1),), {"same_shape": 1}), "same_shape: expected True or False, got 1"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    positional, named = arguments
    with pytest.raises(ArgumentError, match=f"^{message}"):
        prefetch(*positional, **named)


def test_nothing_is_read_after_it_is_closed():
    drawn = []
    batches = prefetch(counted(numbers(9), drawn), ahead=1)
    next(batches)
    batches.close()
    assert list(batches) == []
    assert len(drawn) <= 2


def test_a_loader_without_a_batch_is_not_begun_again_for_ever():
    assert list(repeat([])) == []


@pytest.mark.parametrize("loader", [iter([1]), 3])
def test_what_cannot_be_begun_again_is_not_repeated(loader):
    with pytest.raises(ArgumentError, match=r"^loader: expected an iterable that can be restarted"):
        repeat(loader)


def test_an_error_comes_again_until_one_goes_on_from_a_state():
    batches = prefetch(Resumable([*numbers(2), np.full(2, np.nan, np.float32), *numbers(1)]))
    next(batches), next(batches)
    for _ in range(2):
        with pytest.raises(ArgumentError, match="NaN"):
            next(batches)
    batches.set_state({"place": 1})
    assert next(batches)[0] == 1


def test_a_state_that_an_iterator_goes_on_changing_is_as_it_was():
    class Changing(Resumable):
        state = None

        def get_state(self):
            self.state = self.state or {}
            self.state["place"] = self.place
            return self.state

    batches = prefetch(Changing(numbers(9)), ahead=3)
    next(batches)
    assert batches.get_state() == {"place": 1}


def test_a_reader_is_done_when_it_is_left():
    def items(closed):
        while True:
            time.sleep(0.3)
            yield 1

    with Ahead(items, 1, lambda item: item) as ahead:
        next(ahead)
    assert not ahead._thread.is_alive()


def test_what_is_dropped_is_read_no_more():
    before = set(threading.enumerate())
    gc.disable()
    try:
        for _ in range(3):
            next(prefetch(repeat(numbers(2))))
        until(lambda: not set(threading.enumerate()) - before)
    finally:
        gc.enable()


@pytest.mark.long
def test_a_loader_that_waits_keeps_no_process_waiting():
    code = (
        "import numpy as np, queue, jaxarch\n"
        "def loader():\n"
        "    yield np.ones(1)\n"
        "    yield queue.Queue().get()\n"
        "for batch in jaxarch.io.prefetch(loader()): break\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_sharding_that_does_not_fit_is_refused():
    mesh = Mesh(np.array(jax.devices()), ("batch",))
    sharding = NamedSharding(mesh, PartitionSpec("batch"))
    with pytest.raises(ArgumentError, match=r"^sharding: it does not fit a batch: "):
        next(prefetch(numbers(1, size=len(jax.devices()) + 1), sharding=sharding))
