"""Pictures: by name, from prepared folders and from files; their classes, balanced parts, and batches."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tfds_form
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import jaxarch
from jaxarch.io import take_images
from jaxarch.lab import cli
from jaxarch.lab.data import Images, balanced_rows, images_from_arrays, load, load_images

KEY = jax.random.key(0)
SPLIT = (("train", (2, 3)), ("test", (2,)))


@pytest.fixture(autouse=True)
def _nothing_but_what_a_test_puts_there(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    monkeypatch.delenv("JAXARCH_DATA", raising=False)


@pytest.fixture
def prepare(tmp_path):
    """Write a data set in the form of tensorflow-datasets."""
    for package in ("tensorflow_datasets", "PIL"):
        pytest.importorskip(package)

    def write(name, splits=SPLIT):
        return tfds_form.write(tmp_path, "tfrecord", name=name, splits=splits)

    return write


def pictures(labels, train=None):
    """Pictures of 2 x 2 pixels, all as bright as their row's number."""
    x = np.broadcast_to(np.arange(len(labels), dtype=np.uint8)[:, None, None, None], (len(labels), 2, 2, 1))
    return images_from_arrays(x, labels, "mine", train)


def test_the_digits_are_pictures_of_their_own_pixels():
    images, features = load_images("digits"), load("digits")
    assert (images.name, images.x.shape, images.train) == ("digits", (1797, 8, 8, 1), 1797)
    assert (images.x.dtype, images.y.dtype) == (np.uint8, np.int32)
    assert images.x.max() == 16
    assert np.array_equal(images.x.reshape(1797, 64), features.x)
    assert np.array_equal(images.y, features.y)


@pytest.mark.parametrize("given_as", ["name", "folder", "version"])
def test_what_is_prepared_is_read_by_name_and_by_path_training_pictures_first(given_as, prepare):
    place = prepare("small")
    name = {"name": "small", "folder": place.parent, "version": place}[given_as]
    images = load_images(name)
    assert (images.name, images.train) == ("small", 5)
    assert np.array_equal(images.x, tfds_form.IMAGES)
    assert np.array_equal(images.y, tfds_form.LABELS)


def test_validation_stands_in_for_test_and_without_either_all_are_for_training(prepare):
    prepare("validated", (("validation", (3,)), ("train", (4,))))
    prepare("whole", (("train", (7,)),))
    # Validation has the first three pictures.
    assert np.array_equal(load_images("validated").x, np.roll(tfds_form.IMAGES, -3, axis=0))
    assert load_images("validated").train == 4
    assert load_images("whole").train == 7


def test_pictures_alone_are_loaded_as_their_pixels_too(prepare):
    prepare("cifar10")
    data = load("cifar10")
    assert data.x.dtype == np.float32
    assert np.array_equal(data.x, tfds_form.IMAGES.reshape(7, -1))
    assert np.array_equal(data.y, tfds_form.LABELS)


def test_a_set_that_is_not_prepared_is_refused_with_the_way_to_get_it():
    for name in ("cifar10", "cifar100"):
        with pytest.raises(
            ValueError, match=rf"{name} is not ready: none of .*; to get it: tfds build {name}"
        ):
            load_images(name)
    with pytest.raises(ValueError, match="download: jaxarch cannot download cifar10; to get it: tfds build"):
        jaxarch.lab.data.download("cifar10")


def test_unknown_names_and_sets_without_pictures_are_refused():
    with pytest.raises(ValueError, match="dataset: unknown 'cifar11'; did you mean 'cifar10'"):
        load_images("cifar11")
    with pytest.raises(
        ValueError, match="citeseer has no pictures; expected one of digits, mnist, cifar10, cif"
    ):
        load_images("citeseer")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"name": "a"}', '{"name": "a", "splits": [1]}'])
def test_a_description_that_is_none_is_refused(content, prepare):
    place = prepare("small")
    (place / "dataset_info.json").write_text(content)
    with pytest.raises(ValueError, match=r"dataset: cannot read .*dataset_info\.json"):
        load_images("small")


def test_pictures_are_shown_with_their_shape_and_classes(prepare):
    prepare("cifar10")
    prepare("small")
    for name in ("cifar10", "small"):
        shown = CliRunner().invoke(cli.app, ["data", name]).output
        assert "7 pictures of 4 x 5 x 3, 5 of them for training" in shown
        assert "class 1          3 examples" in shown
        assert "60 features" not in shown


@pytest.mark.parametrize("shape", [(6, 2, 3), (6, 2, 3, 2)])
def test_a_file_of_pictures_is_read_with_or_without_an_axis_of_channels(shape, tmp_path):
    x = np.arange(np.prod(shape)).reshape(shape).astype(np.uint8)
    np.savez(tmp_path / "mine.npz", x=x, y=np.arange(6) % 3)
    images = load_images(tmp_path / "mine.npz")
    assert (images.name, images.train) == ("mine", 6)
    assert images.x.shape == (*shape, 1)[:4]
    assert np.array_equal(images.x.ravel(), x.ravel())


PIXELS = np.zeros((4, 2, 2), np.uint8)
BAD_FILES = {
    "dtype": ({"x": np.zeros((4, 2, 2)), "y": [0, 1, 0, 1]}, "x: expected uint8 pixels .* got float64"),
    "rank": ({"x": np.zeros((4, 2), np.uint8), "y": [0, 1, 0, 1]}, r"x: expected .* of shape \(4, 2\)"),
    "no pixels": ({"x": np.zeros((4, 0, 2), np.uint8), "y": [0, 1, 0, 1]}, r"x: expected .* \(4, 0, 2\)"),
    "no y": ({"x": PIXELS}, "dataset: .* has no array y; it has 'x'"),
    "lengths": ({"x": PIXELS, "y": [0, 1, 0]}, "y: expected 4 labels"),
    "negative": (
        {"x": PIXELS, "y": [0, 1, -1, 0]},
        "y: expected class labels of 0 to 2147483647, got -1 to 1",
    ),
    "fractions": ({"x": PIXELS, "y": [0, 1, 0.5, 0]}, "y: expected integer class labels"),
    "one class": ({"x": PIXELS, "y": [2, 2, 2, 2]}, r"y: expected at least two classes, got \[2\]"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_files_are_refused_by_name(case, tmp_path):
    arrays, message = BAD_FILES[case]
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(ValueError, match=message) as refused:
        load_images(tmp_path / "bad.npz")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("train", [0, 5, 1.5])
def test_more_pictures_for_training_than_there_are_or_none_are_refused(train):
    with pytest.raises(ValueError, match="train: expected"):
        pictures([0, 1, 0, 1], train)


def test_chosen_classes_are_labelled_in_the_order_given_and_the_split_is_kept():
    images = pictures([3, 1, 7, 1, 3, 7, 7, 1], train=5)
    chosen = images.of_classes((7, 3))
    assert chosen.x[:, 0, 0, 0].tolist() == [0, 2, 4, 5, 6]
    assert chosen.y.tolist() == [1, 0, 1, 0, 0]
    assert (chosen.train, chosen.name, chosen.y.dtype) == (3, "mine", np.int32)
    assert np.array_equal(images.of_classes(np.array([7, 3])).y, chosen.y)
    assert images.of_classes(range(1, 2)).y.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ((), "classes: expected at least one class"),
        ((1, 3, 1), r"classes: a class is named twice: \(1, 3, 1\)"),
        ((1, 2), r"classes: mine has no class 2; it has \[1, 3, 7\]"),
        ((-1, 1), "classes: mine has no class -1"),
        ((1.5,), "classes: mine has no class 1.5"),
        ("1", "classes: mine has no class 1"),
    ],
)
def test_classes_that_cannot_be_chosen_are_refused(classes, message):
    with pytest.raises(ValueError, match=message):
        pictures([1, 3, 7]).of_classes(classes)


def test_the_moments_are_those_of_each_channel_of_the_training_pictures():
    x = np.random.default_rng(0).integers(0, 256, (40, 5, 4, 3)).astype(np.uint8)
    x[:, :, :, 2] = 77
    images = Images("mine", x, np.arange(40, dtype=np.int32) % 2, 30)
    mean, std = images.moments()
    pixels = x[:30].reshape(-1, 3) / 255
    np.testing.assert_allclose(mean, pixels.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(std[:2], pixels.std(axis=0)[:2], rtol=1e-12)
    assert std[2] == 0


def test_a_batch_is_standardised_on_the_device():
    x = np.random.default_rng(0).integers(0, 256, (6, 4, 4, 2)).astype(np.uint8)
    data = (jnp.asarray(x), jnp.arange(6))
    mean, std = (0.4, 0.6), (0.2, 0.3)
    rows = jnp.array([5, 0, 5])
    batch, labels = jax.jit(take_images(mean, std))(data, None, rows)
    assert batch.dtype == jnp.float32
    assert labels.tolist() == [5, 0, 5]
    np.testing.assert_allclose(batch, (x[[5, 0, 5]] / 255 - mean) / std, rtol=1e-5, atol=1e-6)


def test_equal_moments_are_one_gather_so_that_programs_are_shared():
    assert take_images((0.5,), [0.25]) == take_images(np.array([0.5]), (0.25,))
    assert hash(take_images((0.5,), [0.25])) == hash(take_images([0.5], (0.25,)))
    assert take_images((0.5,), (0.25,)) != take_images((0.5,), (0.5,))


@pytest.mark.parametrize(
    ("mean", "std", "message"),
    [
        ((0.5,), (0.5, 0.5), r"mean: expected one number per channel, .* shapes \(1,\) and \(2,\)"),
        (0.5, 0.5, "mean: expected one number per channel"),
        ((0.5,), (0.0,), "std: expected a positive finite number"),
        ((np.nan,), (1.0,), "mean: expected a finite number"),
    ],
)
def test_moments_that_are_none_are_refused(mean, std, message):
    with pytest.raises(ValueError, match=message):
        take_images(mean, std)


@pytest.mark.parametrize("x", [np.zeros((2, 4, 4, 3), np.uint8), np.zeros((2, 4, 4, 1), np.float32)])
def test_pixels_that_are_no_uint8_or_of_other_channels_are_refused(x):
    with pytest.raises(ValueError, match="data: expected uint8 pixels with 1 channels"):
        take_images((0.5,), (0.5,))((x, np.zeros(2)), None, np.arange(2))


class Logits(nn.Module):
    """A linear network that refuses raw pixels."""

    @nn.compact
    def __call__(self, x):
        assert x.dtype == jnp.float32
        return nn.Dense(10)(x.reshape(x.shape[0], -1))


def test_a_network_is_made_for_what_is_gathered_and_the_data_stay_uint8():
    images = load_images("digits")
    problem = jaxarch.supervised(
        Logits(),
        (images.x, images.y),
        loss=optax.softmax_cross_entropy_with_integer_labels,
        optimizer=optax.sgd(0.1),
        steps=1,
        gather=take_images(*images.moments()),
    )
    assert problem.data[0].dtype == jnp.uint8
    params, state = jax.eval_shape(problem.init, KEY)
    assert jax.eval_shape(problem.outputs, params, state, jnp.arange(3)).shape == (3, 10)


LABELS = np.random.default_rng(0).permutation(np.repeat([0, 2, 5, 6], [30, 20, 40, 25]))
ROWS = np.arange(0, 115, dtype=np.int32)[3:]


@pytest.mark.long
@given(seed=st.integers(0, 1000), smaller=st.integers(1, 15), larger=st.integers(1, 15))
def test_smaller_sets_are_the_beginning_of_larger_ones_and_each_beginning_is_balanced(seed, smaller, larger):
    smaller, larger = sorted((smaller, larger))
    few, many = (
        balanced_rows(jax.random.key(seed), LABELS, ROWS, size=4 * count) for count in (smaller, larger)
    )
    assert np.array_equal(few, many[: len(few)])
    assert np.array_equal(LABELS[many].reshape(-1, 4), np.tile([0, 2, 5, 6], (larger, 1)))
    assert len(np.unique(many)) == len(many) == 4 * larger
    assert np.isin(many, ROWS).all()


def test_a_set_is_given_by_its_size_or_by_the_size_of_each_class():
    rows = balanced_rows(KEY, LABELS, ROWS, size=20)
    assert np.array_equal(rows, balanced_rows(KEY, LABELS, ROWS, per_class=5))
    assert rows.dtype == np.int32
    assert not np.array_equal(rows, balanced_rows(jax.random.key(1), LABELS, ROWS, size=20))


def test_classes_are_drawn_independently_of_one_another():
    labels = np.repeat([0, 1], 20)
    first, second = balanced_rows(jax.random.key(0), labels, np.arange(40), per_class=20).reshape(20, 2).T
    assert not np.array_equal(first, second - 20)


def test_each_row_of_a_class_is_as_likely_as_another():
    draws = [balanced_rows(jax.random.key(i), LABELS, ROWS, per_class=4) for i in range(60)]
    drawn = np.stack(draws)[:, 1::4]
    counts = np.bincount(drawn.ravel(), minlength=115)[ROWS[LABELS[ROWS] == 2]]
    assert counts.sum() == 240
    assert ((counts > 2) & (counts < 25)).all()  # 12 or 13 are expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": 10}, "size: expected a multiple of 4, the number of classes, got 10"),
        ({"size": 100}, "size: expected at least 25 rows of each class, got 20 of class 2"),
        (
            {"size": None, "per_class": 21},
            "per_class: expected at least 21 rows of each class, got 20 of class 2",
        ),
        ({"size": 0}, "size: expected an integer of at least 1"),
        ({"size": None}, "size: expected size or per_class, exactly one of the two"),
        ({"per_class": 1}, "size: expected size or per_class, exactly one of the two"),
        (
            {"rows": np.flatnonzero(LABELS != 5)},
            "size: expected at least 1 rows of each class, got 0 of class 5",
        ),
        ({"rows": [0, 0, 1]}, "rows: some occur twice"),
        ({"rows": [0, 115]}, "rows: expected 0 to 114, the rows of labels, got 0 to 115"),
        ({"rows": [-1, 3]}, "rows: expected 0 to 114"),
        ({"rows": []}, "rows: expected integers"),
        ({"labels": LABELS - 1}, "labels: expected non-negative integers, got -1"),
        ({"labels": LABELS / 2}, "labels: expected non-negative integers"),
        ({"labels": LABELS[:, None]}, r"labels: expected .* \(115, 1\)"),
    ],
)
def test_sets_that_cannot_be_drawn_are_refused_by_name(change, message):
    arguments = {"labels": LABELS, "rows": np.arange(115), "size": 4} | change
    with pytest.raises(ValueError, match=message):
        balanced_rows(KEY, **arguments)
