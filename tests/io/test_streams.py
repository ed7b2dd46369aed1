"""Training batches that come from the host: what a training sees of them, and what is refused."""

import itertools
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from compilations import compilations
from small import Interrupted, close, interrupt_at, keys, same

import jaxarch
from jaxarch import ArgumentError, search
from jaxarch.io import Stream
from jaxarch.run import FunctionStage, Needs

STEPS = 12
X = np.asarray(jax.random.normal(jax.random.key(0), (40, 6)), np.float32)
Y = (X[:, 0] > 0).astype(np.int32)
ROWS = np.asarray(jax.random.randint(jax.random.key(1), (STEPS, 8), 0, 40))
BATCHES = [(X[rows], Y[rows]) for rows in ROWS]
KEPT_ONCE = interrupt_at(10)
"""Ends a training, in chunks of 5, when its first border has been kept."""


def model(rngs):
    return jaxarch.models.MLP((6, 8, 2), rngs=rngs)


def cross_entropy(outputs, labels):
    return optax.softmax_cross_entropy_with_integer_labels(outputs, labels)


def problem(stream=None, steps=STEPS, **settings):
    return jaxarch.supervised(
        model, (X, Y), loss=cross_entropy, optimizer=optax.adam(1e-2), steps=steps, stream=stream, **settings
    )


def learned(stream, strategy=None, runs=2, **options):
    strategy = strategy or search.two_temperature(weights="initial")
    return jaxarch.over_seeds(strategy, keys(runs), problem(stream), **{"chunk": 5} | options)[0]


class Loader:
    """An iterable without an index, as PyTorch's loaders are; it gives lists, and counts what is drawn."""

    def __init__(self, batches):
        self.batches, self.drawn = batches, 0

    def __iter__(self):
        for batch in self.batches:
            self.drawn += 1
            yield list(batch)


@pytest.mark.long
@pytest.mark.parametrize("loop", ["scan", "step"])
def test_a_stream_of_the_batches_that_rows_would_give_gives_the_same_numbers(loop):
    rows = problem(batch_size=8)
    key = keys(1)
    drawn = jax.random.split(jax.random.fold_in(key[0], 0), 3)[1]
    stream = [jax.device_get(rows.batch(drawn, step)) for step in range(STEPS)]
    strategy = search.two_temperature(weights="initial")
    of_rows, _ = jaxarch.over_seeds(strategy, key, rows, chunk=5, loop=loop)
    of_stream, _ = jaxarch.over_seeds(strategy, key, problem(stream), chunk=5, loop=loop)
    # They are two programs, which round on their own.
    assert close(of_stream, of_rows, 1e-6)


@pytest.mark.long
@pytest.mark.parametrize("chunk", [4, 50])
def test_the_windows_in_which_batches_come_change_no_bit(chunk):
    assert same(learned(BATCHES, chunk=chunk), learned(BATCHES))


@pytest.mark.long
def test_every_run_sees_the_same_batches_also_where_runs_are_trained_in_turn():
    stream = Loader(BATCHES)
    together, in_turn = learned(stream, max_parallel_runs=1, devices=jax.devices()[:1]), learned(BATCHES)
    assert np.allclose(together.info["loss"], in_turn.info["loss"], rtol=1e-5)
    # Once to see the form, and once for each of the two runs.
    assert stream.drawn == 1 + 2 * STEPS


SOURCES = {
    "a list": lambda: BATCHES,
    "a loader": lambda: Loader(BATCHES),
    "a function of the step": lambda: lambda step: iter(BATCHES[step:]),
    "a loader over and over": lambda: jaxarch.io.repeat(Loader(BATCHES)),
}


@pytest.mark.parametrize("name", SOURCES)
def test_batches_may_come_from(name):
    assert same(learned(SOURCES[name]()), learned(BATCHES))


@pytest.mark.parametrize("name", SOURCES)
def test_an_interrupted_training_goes_on_to_the_same_bits_with_batches_from(name, tmp_path):
    with pytest.raises(Interrupted):
        learned(SOURCES[name](), checkpoint=jaxarch.Checkpoints(tmp_path), progress=KEPT_ONCE)
    resumed = learned(SOURCES[name](), checkpoint=jaxarch.Checkpoints(tmp_path))
    assert same(resumed, learned(BATCHES))


def test_a_function_of_the_step_is_asked_to_go_on_where_the_training_does(tmp_path):
    asked = []

    def stream(step):
        asked.append(step)
        return BATCHES[step:]

    with pytest.raises(Interrupted):
        learned(stream, checkpoint=jaxarch.Checkpoints(tmp_path), progress=KEPT_ONCE)
    asked.clear()
    learned(stream, checkpoint=jaxarch.Checkpoints(tmp_path))
    # The form is that of the first batch; batch 4 is compared with the one before the interruption.
    assert asked == [0, 4]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            BATCHES[1:] + BATCHES[:1],
            "checkpoint: .* was saved by a training with other keys, settings, data or sizes",
        ),
        ([BATCHES[0], *reversed(BATCHES[1:])], "stream: batch 4 differs from the one before"),
    ],
)
def test_an_interrupted_training_does_not_go_on_with_other_batches(other, message, tmp_path):
    with pytest.raises(Interrupted):
        learned(BATCHES, checkpoint=jaxarch.Checkpoints(tmp_path), progress=KEPT_ONCE)
    with pytest.raises(ArgumentError, match=f"^{message}"):
        learned(other, checkpoint=jaxarch.Checkpoints(tmp_path))


def test_no_more_batches_are_drawn_ahead_than_two_chunks():
    stream, ahead = Loader(BATCHES), []
    learned(stream, chunk=2, progress=lambda border: ahead.append(stream.drawn - border.step))
    # One batch more was drawn to see the form.
    assert max(ahead) <= 1 + 2 * 2


@pytest.mark.long
def test_every_training_begins_with_the_first_batch():
    asked = []

    def stream(step):
        asked.append(step)
        return BATCHES[step:]

    learned(stream, jaxarch.chain(search.dense(), jaxarch.prune(0.5), jaxarch.retrain("cold")))
    # For the form, and for each of the two trainings.
    assert asked == [0, 0, 0]


OVER_BATCHES = {
    "snip": lambda loss, params: jaxarch.saliency.snip(params, jax.grad(loss)(params)),
    "grasp": jaxarch.saliency.grasp,
}


@pytest.mark.long
@pytest.mark.parametrize("name", OVER_BATCHES)
def test_a_search_that_is_no_training_gets_as_many_batches_as_it_needs(name):
    found = learned(BATCHES, getattr(search, name)(0.5, batches=3), runs=1).of_run(0)
    made = problem()
    params, state = made.init(jax.random.split(jax.random.fold_in(keys(1)[0], 0), 3)[0])

    def loss(params):
        return sum(made.loss(params, state, batch, None)[0] for batch in BATCHES[:3])

    scores = OVER_BATCHES[name](loss, params)
    assert same(found.mask, jaxarch.masks.keep(scores, 0.5))


@pytest.mark.long
def test_validation_rows_are_those_of_the_data():
    made = problem(BATCHES, validation=np.arange(30))
    network, report = jaxarch.over_seeds(search.dense(), keys(2), made, chunk=6)
    last = jax.vmap(lambda params, state: made.objective(params, state, jnp.arange(30)))(
        network.params, network.state
    )
    assert np.allclose(report.stages[0].validation["loss"][-1], last, rtol=1e-5)


@pytest.mark.long
def test_the_rows_given_as_training_rows_stand_for_all_examples():
    strategy = jaxarch.chain(search.dense(), jaxarch.threshold())
    made = problem(BATCHES, train=np.arange(20))
    network, _ = jaxarch.over_seeds(strategy, keys(2), made, chunk=6)
    assert jaxarch.density(network.of_run(0).mask) < 1


@pytest.mark.parametrize(
    "strategy",
    [
        lambda: jaxarch.chain(search.dense(), jaxarch.threshold()),
        lambda: search.agnostic(),
        lambda: search.random_search(0.5, samples=2),
        lambda: search.logistic_regression(),
    ],
    ids=["threshold", "agnostic", "random search", "logistic regression"],
)
def test_what_looks_at_all_training_examples_is_refused_before_anything_is_trained(strategy):
    steps = []
    with pytest.raises(ArgumentError, match=r"^stream: its examples have no rows"):
        learned(BATCHES, strategy(), progress=steps.append)
    assert not steps


def looks(key, problem):
    params, state = problem.init(key)
    x, _ = problem.batch(key, 1)
    return jaxarch.Network(
        params, jaxarch.masks.full_mask(jaxarch.select(params)), state, info=jaxarch.TrainingInfo({"x": x})
    )


def test_a_function_of_ones_own_gets_the_batches_that_its_needs_say():
    stage = FunctionStage(
        "looks", lambda settings, key, problem, network: looks(key, problem), needs=Needs(batches=2)
    )
    assert np.array_equal(learned(BATCHES, stage).info["x"], np.stack([BATCHES[1][0]] * 2))
    with pytest.raises(ArgumentError, match=r"^stream: its batches are available .*Needs\(batches"):
        learned(BATCHES, looks)


def test_a_second_equal_call_with_another_loader_compiles_nothing():
    learned(Loader(BATCHES))
    with compilations() as programs:
        learned(Loader(BATCHES))
    assert not programs


def spoiled(index, change):
    batches = list(BATCHES)
    batches[index] = change(*batches[index])
    return Loader(batches)


def nan(x, y):
    x = x.copy()
    x[2, 3] = np.nan
    return x, y


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        (lambda: Loader(BATCHES[:7]), "it ends after 7 batches, but 12 are needed"),
        (
            lambda: spoiled(6, lambda x, y: (x[:3], y[:3])),
            r"batch 6 has float32 of shape \(3, 6\) in '0', but",
        ),
        (lambda: spoiled(6, nan), "batch 6 has 1 values that are NaN or infinite"),
        (
            lambda: spoiled(6, lambda x, y: (x, y, y)),
            r"batch 6 has another structure .* \['0', '1', '2'\], the",
        ),
        (
            lambda: spoiled(6, lambda x, y: (x, y + 0.5)),
            "batch 6 has float32 of .* earlier batches have int32",
        ),
        (lambda: spoiled(6, lambda x, y: (x, y + np.int64(2**40))), "batch 6 has integers beyond int32"),
        (
            lambda: spoiled(6, lambda x, y: (x, ["a"] * 8)),
            "batch 6: expected arrays of numbers in tuples and",
        ),
    ],
    ids=["end", "shape", "NaN", "structure", "dtype", "large integers", "texts"],
)
def test_a_stream_that_does_not_go_on_alike_is_refused_at_the_step_where_it_happens(stream, message):
    steps = []
    with pytest.raises(ArgumentError, match=f"^stream: {message}"):
        learned(stream(), chunk=2, progress=lambda border: steps.append(border.step))
    assert steps[-1] == 6


def test_a_stream_that_is_known_to_be_too_short_is_refused_before_the_first_step():
    steps = []
    with pytest.raises(ArgumentError, match=r"^stream: it ends after 7 batches, but"):
        learned(BATCHES[:7], progress=steps.append)
    assert not steps


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        (
            iter(BATCHES),
            "a list_iterator can be used only once, but every training starts at the first batch",
        ),
        ([], "expected at least one batch, got none"),
        ({"x": X}, "expected an iterable of batches, or a function step -> iterable, got {'x'"),
        (3, "expected an iterable of batches, or a function step -> iterable, got 3"),
        (lambda: BATCHES, "expected an iterable of batches, or a function step -> iterable, got"),
        (Loader, "expected an iterable of batches, or a function step -> iterable, got"),
        (lambda step: step, "expected an iterable of batches, or a function .*; it returned 0"),
        ([None], "batch 0 has no array"),
        (
            [(X[:, :5], Y)],
            r"expected batches whose rows are like rows of the data, .* got \('\(40, 5\) ",
        ),
        ([(X.astype(np.float16), Y)], "expected batches whose rows are like rows of the data, .*float16"),
        ([X], "expected batches whose rows are like rows of the data, "),
    ],
)
def test_what_is_no_stream_of_such_batches_is_refused_where_it_is_given(stream, message):
    with pytest.raises(ArgumentError, match=f"^stream: {message}"):
        problem(stream)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 8}, "it sets the batches itself; leave out `batch_size` and `sampling`"),
        ({"sampling": "epochs"}, "it sets the batches itself; leave out `batch_size` and `sampling`"),
        ({"per_run": {"a": jnp.ones(2)}}, "all runs see the same batches; leave out `per_run`"),
        (
            {"train": np.arange(9), "train_size": 4},
            "all runs see the same batches; leave out `per_run` and `t",
        ),
    ],
)
def test_what_says_otherwise_which_examples_a_step_takes_is_refused(settings, message):
    with pytest.raises(ArgumentError, match=f"^stream: {message}"):
        problem(BATCHES, **settings)


def test_a_stage_of_another_batch_size_is_refused_before_the_stage_ahead_of_it_is_trained():
    steps = []
    strategy = jaxarch.chain(search.dense(), jaxarch.prune(0.5), jaxarch.retrain("cold", batch_size=3))
    with pytest.raises(ArgumentError, match=r"^stream: it sets the batches itself"):
        learned(BATCHES, strategy, progress=steps.append)
    assert not steps


class Shuffled:
    """A loader in another order each time that it is begun."""

    def __init__(self):
        self.draw = np.random.default_rng(0)

    def __iter__(self):
        return iter([BATCHES[index] for index in self.draw.permutation(STEPS)])


class Once(Loader):
    """A loader that goes on where it was."""

    def __iter__(self):
        if not self.drawn:
            self.going = super().__iter__()
        return self.going


@pytest.mark.parametrize("loader", [Shuffled(), Once(BATCHES)], ids=["shuffled", "once"])
def test_a_loader_that_begins_with_another_batch_each_time_is_refused(loader):
    with pytest.raises(ArgumentError, match=r"^stream: its first batch differs each time"):
        learned(loader)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: (x, -y), "batch 0 has labels -1 to 0, but the model has 2 outputs"),
        (lambda x, y: (x, y + 7), "batch 0 has labels 7 to 8, but the model has 2 outputs"),
        (lambda x, y: (x, y[:1]), "expected batches whose rows are like rows of the data"),
        (lambda x, y: (x[:0], y[:0]), "expected batches whose rows are like rows of the data"),
    ],
)
def test_labels_and_numbers_of_examples_that_do_not_fit_are_refused(change, message):
    with pytest.raises(ArgumentError, match=f"^stream: {message}"):
        problem([change(*batch) for batch in BATCHES])


def test_labels_are_looked_at_in_every_batch():
    with pytest.raises(
        ArgumentError, match=r"^stream: batch 6 has labels -1 to 1, but the model has 2 " "outputs"
    ):
        learned(spoiled(6, lambda x, y: (x, np.where(y == 0, -1, y))))


class Slow:
    """A loader with one place, as a file has; it notes who goes on with it when another has begun."""

    def __init__(self):
        self.begun, self.late = 0, []

    def __iter__(self):
        self.begun += 1
        mine = self.begun
        for batch in itertools.cycle(BATCHES):
            if mine != self.begun:
                self.late.append(mine)
            yield batch
            time.sleep(0.01)


@pytest.mark.long
def test_a_loader_is_read_by_one_training_at_a_time_also_where_one_stops_early():
    loader = Slow()
    made = problem(loader, steps=100, validation=np.arange(20))
    jaxarch.over_seeds(
        search.dense(),
        keys(3),
        made,
        chunk=5,
        max_parallel_runs=1,
        devices=jax.devices()[:1],
        early_stopping=jaxarch.EarlyStopping(patience=1, least=1.0),
    )
    # Once to see the form, and once for each of the runs, which are trained in turn.
    assert loader.begun == 1 + 3
    assert not loader.late


def test_what_a_later_stage_needs_is_known_before_the_first_is_trained():
    steps = []
    later = jaxarch.retrain("cold", nonnegative=False, steps=1000)
    strategy = jaxarch.chain(search.dense(), jaxarch.prune(0.5), later)
    with pytest.raises(ArgumentError, match=r"^stream: it ends after 12 batches, but 1000 are needed"):
        learned(BATCHES, strategy, progress=steps.append)
    assert not steps


def test_a_batch_beyond_those_that_were_asked_for_is_refused():
    stage = FunctionStage(
        "looks", lambda _, key, problem, network: looks(key, problem), needs=Needs(batches=1)
    )
    with pytest.raises(ArgumentError, match=r"^stream: batch 1 was requested, but the stage has 1"):
        learned(BATCHES, stage)


def test_two_streams_are_equal_if_their_batches_have_one_form():
    assert Stream(BATCHES) == Stream(Loader(BATCHES[2:]))
    assert Stream(BATCHES) != Stream([X])


@pytest.mark.long
def test_a_data_set_of_grain_is_a_stream(tmp_path):
    grain = pytest.importorskip("grain")
    examples = grain.MapDataset.source([(x, y) for x, y in zip(X, Y, strict=True)])
    stream = examples.seed(3).shuffle().repeat().batch(8)
    whole = learned(stream)
    with pytest.raises(Interrupted):
        learned(stream, checkpoint=jaxarch.Checkpoints(tmp_path), progress=KEPT_ONCE)
    assert same(learned(stream, checkpoint=jaxarch.Checkpoints(tmp_path)), whole)
    assert same(learned(stream.to_iter_dataset()), whole)
    assert not same(learned(list(itertools.islice(examples.repeat().batch(8), STEPS))), whole)
