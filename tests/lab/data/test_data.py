"""Data sets and tasks: what is read, how it is split, what is refused."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small import digits

import jaxarch
from jaxarch.lab.data import from_arrays, load, take_task_rows, two_groups, unit_norm

KEY = jax.random.key(0)
GROUPS = {"positive": (1, 2, 3), "negative": (4, 5, 6)}
SIZES = {"train_per_class": 100, "test_per_class": 50, "seeds": 3}


def test_digits_are_real_and_whole():
    data = load("digits")
    assert data.x.shape == (1797, 64)
    assert np.bincount(data.y).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_examples_have_unit_norm_and_zeros_stay_zero():
    np.testing.assert_allclose(np.linalg.norm(digits().x, axis=1), 1, rtol=1e-5)
    x = np.array([[0.0, 0.0], [3.0, 4.0]])
    np.testing.assert_allclose(unit_norm(from_arrays(x, [0, 1])).x, [[0, 0], [0.6, 0.8]], rtol=1e-6)


def test_an_npz_file_of_the_user_s_is_read(tmp_path):
    np.savez(tmp_path / "mine.npz", x=np.ones((6, 2, 2)), y=np.arange(6) % 3)
    data = load(tmp_path / "mine.npz")
    assert data.name == "mine"
    assert data.x.shape == (6, 4)
    assert data.x.dtype == np.float32


BAD_FILES = {
    "no y": ({"x": np.ones((2, 2))}, "dataset: .* has no array y; it has 'x'"),
    "rank": ({"x": np.ones(4), "y": np.arange(4)}, r"x: expected numbers of shape \(examples, features\)"),
    "NaN": ({"x": np.array([[np.nan, 1], [1, 1]]), "y": [0, 1]}, "x: 1 examples hold NaN or infinite"),
    "one class": ({"x": np.ones((2, 2)), "y": [3, 3]}, r"y: expected at least two classes, got \[3\]"),
    "lengths": ({"x": np.ones((2, 2)), "y": [0, 1, 1]}, "y: expected 2 labels, one for each row of x, got 3"),
    "labels": (
        {"x": np.ones((2, 2)), "y": [0.5, 1.5]},
        "y: expected integer class labels, got dtype float64",
    ),
    "text": ({"x": np.array([["a", "b"]]), "y": [0]}, "x: expected numbers"),
    "label rank": ({"x": np.ones((2, 2)), "y": np.ones((2, 2), int)}, "y: expected labels of shape"),
    "complex": ({"x": np.ones((2, 2)) * 1j, "y": [0, 1]}, "x: expected numbers of shape .*, got complex128"),
    "no features": ({"x": np.ones((2, 0)), "y": [0, 1]}, r"x: expected numbers of shape .* shape \(2, 0\)"),
    "beyond": ({"x": np.array([[1e39], [1]]), "y": [0, 1]}, "x: 1 examples hold .* beyond float32"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_arrays_are_refused_by_name(case, tmp_path):
    arrays, message = BAD_FILES[case]
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        load(tmp_path / "bad.npz")


def test_a_pickle_in_an_npz_file_is_refused(tmp_path):
    np.savez(tmp_path / "bad.npz", x=np.array([{"no": "array"}], dtype=object), y=np.arange(1))
    with pytest.raises(ValueError, match=r"dataset: .* is not a readable npz file of plain arrays"):
        load(tmp_path / "bad.npz")


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 cut off"])
def test_a_file_that_is_no_archive_is_refused(content, tmp_path):
    (tmp_path / "bad.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"dataset: .* is not a readable npz file"):
        load(tmp_path / "bad.npz")


@pytest.mark.parametrize("dataset", [None, 3, b"digits", "", "a\0b", ["digits"]])
def test_what_is_no_path_and_no_name_is_refused(dataset):
    with pytest.raises(ValueError, match=r"^dataset: expected a path, got "):
        load(dataset)


def test_a_name_too_long_for_a_file_is_refused_in_one_line():
    with pytest.raises(
        ValueError, match=r"^dataset: cannot look up 'x{30,}\.\.\.x{30,}' \(File name too long\)$"
    ):
        load("x" * 5000)


def test_times_are_no_numbers_and_no_labels():
    times = np.arange(2).astype("timedelta64[s]")
    with pytest.raises(ValueError, match=r"x: expected numbers .* timedelta64\[s\]"):
        from_arrays(times[:, None], [0, 1])
    with pytest.raises(ValueError, match=r"y: expected integer class labels, got dtype timedelta64\[s\]"):
        from_arrays(np.ones((2, 2)), times)


def test_rows_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match=r"^x: expected an array \(.*inhomogeneous"):
        from_arrays([[1, 2], [3]], [0, 1])


def test_an_unknown_data_set_and_a_missing_file_are_refused():
    with pytest.raises(ValueError, match="dataset: unknown 'digit'; did you mean 'digits'"):
        load("digit")
    with pytest.raises(ValueError, match=r"dataset: no such file: 'nowhere\.npz"):
        load("nowhere.npz")


@given(seed=st.integers(0, 1000), train=st.integers(1, 120), test=st.integers(1, 50))
def test_splits_are_balanced_and_disjoint(seed, train, test):
    task = two_groups(
        jax.random.key(seed), digits(), **GROUPS, train_per_class=train, test_per_class=test, seeds=1
    )
    for rows, count in ((task.train[0], train), (task.test[0], test)):
        classes, counts = np.unique(digits().y[rows], return_counts=True)
        assert classes.tolist() == [1, 2, 3, 4, 5, 6]
        assert (counts == count).all()
    rows = np.concatenate([task.train[0], task.test[0]])
    assert len(np.unique(rows)) == len(rows)


def test_splits_are_reproducible_from_the_key_and_differ_between_seeds():
    first, again = (two_groups(KEY, digits(), **GROUPS, **SIZES) for _ in range(2))
    other = two_groups(jax.random.key(1), digits(), **GROUPS, **SIZES)
    assert np.array_equal(first.train, again.train)
    assert not np.array_equal(first.train, other.train)
    assert not np.array_equal(first.train[0], first.train[1])


def test_more_seeds_leave_the_splits_of_the_first_as_they_were():
    few = two_groups(KEY, digits(), **GROUPS, **SIZES | {"seeds": 2})
    many = two_groups(KEY, digits(), **GROUPS, **SIZES | {"seeds": 4})
    assert np.array_equal(few.train[:2], many.train[:2])


def test_both_orientations_have_the_same_splits_and_opposite_labels():
    task = two_groups(KEY, digits(), **GROUPS, **SIZES)
    assert task.flipped.tolist() == [False] * 3 + [True] * 3
    assert task.seeds.tolist() == [0, 1, 2, 0, 1, 2]
    assert np.array_equal(task.train[:3], task.train[3:])
    labels = task.labels(digits(), task.test)
    assert np.array_equal(labels[:3], 1 - labels[3:])
    assert np.array_equal(labels[0] == 1, np.isin(digits().y[task.test[0]], (1, 2, 3)))


def test_the_batch_of_a_task_has_binary_labels():
    task = two_groups(KEY, digits(), **GROUPS, **SIZES)
    per_run = {"targets": jax.numpy.asarray(task.targets[5])}
    data = tuple(jax.numpy.asarray(a) for a in (digits().x, digits().y))
    x, y = take_task_rows(data, per_run, task.test[5])
    assert x.shape == (300, 64)
    assert np.array_equal(y, task.labels(digits(), task.test)[5])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"positive": ()}, "positive: expected at least one class"),
        ({"negative": (3, 4)}, r"negative: the groups must not overlap; both have \[3\]"),
        ({"negative": (4, 11)}, "negative: digits has no class 11"),
        ({"negative": (4, -1)}, "negative: digits has no class -1"),
        ({"positive": (1, 1)}, "positive: a class is named twice"),
        ({"train_per_class": 150}, "train_per_class: class 1 of digits has 182 examples, but 150 .* 50"),
        ({"train_per_class": 0}, "train_per_class: expected an integer of at least 1"),
        ({"test_per_class": 0}, "test_per_class: expected an integer of at least 1"),
        ({"seeds": 0}, "seeds: expected an integer of at least 1"),
    ],
)
def test_tasks_that_cannot_be_are_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message):
        two_groups(KEY, digits(), **(GROUPS | SIZES | change))


def test_problems_refuse_data_that_cannot_be_learned_from():
    import optax

    def make(x, y, **options):
        model = (lambda key: {"w": jax.numpy.zeros(2)}, lambda p, x: x @ p["w"])
        loss = optax.sigmoid_binary_cross_entropy
        return jaxarch.supervised(
            model, (x, y), loss=loss, optimizer=optax.sgd(0.1), **{"steps": 1} | options
        )

    x, y = np.ones((4, 2)), np.zeros(4)
    make(x, y)
    for arguments, options, message in [
        ((np.full((4, 2), np.nan), y), {}, "data: 8 values are NaN or infinite"),
        ((x, y[:2]), {}, "data: expected x of shape"),
        ((np.ones(4), y), {}, "data: expected x of shape"),
        ((x, y), {"steps": 0}, "steps: expected an integer of at least 1"),
        ((x, y), {"batch_size": 0}, "batch_size: expected an integer of at least 1"),
        ((x, y), {"train": np.array([4])}, r"train: rows must lie in \[0, 4\)"),
        ((x, y), {"train": np.array([], int)}, "train: expected at least one row"),
        ((x, y), {"train": np.array([0.5])}, "train: expected integer rows"),
        ((x, y), {"train": np.zeros((2, 1), int), "per_run": {"a": np.ones(3)}}, "per-run arrays disagree"),
    ]:
        with pytest.raises(ValueError, match=message):
            make(*arguments, **options)
