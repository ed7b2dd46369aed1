"""The paper's preprocessing: windows of pictures, principal components."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from jaxarch.lab.data import crop_and_pool, load, principal_components


def test_windows_are_means_of_the_cropped_picture_row_by_row():
    image = np.arange(28 * 28).reshape(1, 28, 28) % 251
    pooled = crop_and_pool(image)
    assert pooled.shape == (1, 64)
    assert pooled.dtype == np.float32
    assert pooled[0, 0] == pytest.approx(image[0, 2:5, 2:5].mean())
    assert pooled[0, 9] == pytest.approx(image[0, 5:8, 5:8].mean())
    assert pooled[0, 7] == pytest.approx(image[0, 2:5, 23:26].mean())


def test_the_border_does_not_count():
    image = np.full((1, 28, 28), 255, np.uint8)
    image[:, 2:-2, 2:-2] = 7
    assert (crop_and_pool(image) == 7).all()


@pytest.mark.parametrize("shape", [(3, 28), (3, 28, 27), (3, 4, 4), (3, 28, 28, 1)])
def test_pictures_that_no_windows_fill_are_refused(shape):
    with pytest.raises(ValueError, match="images: expected shape"):
        crop_and_pool(np.zeros(shape))


@given(st.integers(0, 1000))
def test_components_are_the_same_for_dense_and_sparse_words(seed):
    words = (np.random.default_rng(seed).random((40, 12)) < np.linspace(0.05, 0.6, 12)).astype(float)
    dense = principal_components(words, 5)
    assert dense.dtype == np.float32
    np.testing.assert_allclose(dense, principal_components(sparse.csr_matrix(words), 5), atol=1e-5)


@given(st.integers(0, 1000))
def test_signs_of_components_follow_the_examples_and_not_the_solver(seed):
    """The largest entry of each component is positive: so the coordinates grow with that feature."""
    x = np.random.default_rng(seed).normal(size=(30, 6)) * [6, 5, 4, 3, 2, 1]
    centred = x - x.mean(axis=0)
    components = np.linalg.lstsq(principal_components(x, 6), centred, rcond=None)[0]
    np.testing.assert_allclose(components @ components.T, np.eye(6), atol=1e-5)
    largest = np.abs(components).argmax(axis=1)
    assert (components[np.arange(6), largest] > 0).all()


def test_components_have_falling_variance_and_no_mean():
    x = principal_components(load("digits").x, 10)
    assert (np.diff(x.var(axis=0)) < 0).all()
    np.testing.assert_allclose(x.mean(axis=0), 0, atol=1e-4)


def test_more_components_than_there_are_are_refused():
    x = np.eye(6, 4)
    assert principal_components(x, 4).shape == (6, 4)
    with pytest.raises(
        ValueError, match=r"count: expected at most 4 components for x of shape \(6, 4\), got 5"
    ):
        principal_components(x, 5)
    with pytest.raises(ValueError, match="count: expected at most 3 components"):
        principal_components(sparse.csr_matrix(x), 4)
