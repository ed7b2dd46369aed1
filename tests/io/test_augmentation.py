"""Random crops and mirrored pictures: each as likely as another, in training alone."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxarch
from jaxarch.io import crop_and_flip

KEY = jax.random.key(0)
PICTURE = np.arange(1, 25).reshape(4, 3, 2)


def variants(picture, pad, flip):
    """All that a picture may become, by brute force."""
    height, width, _ = picture.shape
    padded = np.pad(picture, ((pad, pad), (pad, pad), (0, 0)))
    places = [(i, j) for i in range(2 * pad + 1) for j in range(2 * pad + 1)]
    crops = [padded[i : i + height, j : j + width] for i, j in places]
    return crops + [crop[:, ::-1] for crop in crops] * flip


@pytest.mark.long
@pytest.mark.parametrize(("pad", "flip"), [(1, True), (2, False), (0, True), (5, False)])
def test_every_crop_occurs_as_often_as_another_and_nothing_else_does(pad, flip):
    expected = {variant.tobytes(): 0 for variant in variants(PICTURE, pad, flip)}
    batch = 100 * (2 * pad + 1) ** 2 * (1 + flip)
    made = np.asarray(crop_and_flip(pad, flip)(KEY, jnp.asarray(np.stack([PICTURE] * batch))))
    for picture in made.astype(PICTURE.dtype):
        expected[picture.tobytes()] += 1
    counts = np.array([expected[v.tobytes()] for v in variants(PICTURE, pad, flip)])
    empty = np.array([not v.any() for v in variants(PICTURE, pad, flip)])
    assert len(made) == batch
    assert (abs(counts[~empty] - 100) < 50).all()  # five standard deviations


def test_nothing_is_done_without_padding_and_mirroring():
    x = jax.random.normal(KEY, (3, 4, 4, 1))
    assert np.array_equal(crop_and_flip(0, False)(KEY, x), x)


@pytest.mark.parametrize("dtype", [jnp.uint8, jnp.bfloat16, jnp.float32])
def test_shape_and_dtype_are_kept(dtype):
    x = jnp.ones((3, 6, 5, 2), dtype)
    made = crop_and_flip()(KEY, x)
    assert (made.shape, made.dtype) == (x.shape, x.dtype)


@pytest.mark.long
def test_jit_and_vmap_over_runs_give_what_a_loop_gives():
    augment = crop_and_flip(2)
    x = jax.random.normal(KEY, (3, 5, 8, 6, 3))
    keys = jax.random.split(KEY, 3)
    together = jax.jit(jax.vmap(augment))(keys, x)
    assert np.array_equal(together, jnp.stack([augment(k, one) for k, one in zip(keys, x, strict=True)]))


def test_equal_settings_are_one_function_so_that_programs_are_shared():
    assert crop_and_flip(4) == crop_and_flip(np.int64(4), True)
    assert hash(crop_and_flip(4)) == hash(crop_and_flip())
    assert crop_and_flip(4) != crop_and_flip(4, False)


def test_settings_and_pictures_that_are_none_are_refused():
    with pytest.raises(ValueError, match="pad: expected an integer of at least 0, got -1"):
        crop_and_flip(-1)
    with pytest.raises(ValueError, match="flip: expected True or False, got 1"):
        crop_and_flip(4, 1)
    with pytest.raises(ValueError, match=r"x: expected pictures of shape .* got shape \(3, 4, 4\)"):
        crop_and_flip()(KEY, jnp.ones((3, 4, 4)))


def problem(augment, apply=None):
    """The loss is the mean of what the network gives out, by default its inputs."""

    def identity(params, state, x, key):
        return x[:, 0, 0, 0] * params["w"], state

    return jaxarch.supervised(
        jaxarch.Model(lambda key: ({"w": jnp.ones(())}, {}), apply or identity),
        (np.ones((6, 2, 2, 1), np.float32), np.zeros(6)),
        loss=lambda outputs, y: outputs,
        optimizer=optax.sgd(0.1),
        steps=1,
        augment=augment,
    )


def test_inputs_are_augmented_in_training_and_not_in_evaluation():
    made = problem(lambda key, x: 3 * x)
    params, state = made.init(KEY)
    batch = made.batch(KEY, 0)
    assert made.loss(params, state, batch, KEY)[0] == 3
    assert made.loss(params, state, batch, None)[0] == 1
    assert made.objective(params, state) == 1
    assert np.array_equal(made.outputs(params, state), np.ones(6))


def test_augmentation_and_dropout_draw_from_different_keys():
    def draw(key, shape):
        return jnp.zeros(shape) if key is None else jnp.full(shape, jax.random.uniform(key))

    def apply(params, state, x, key):
        return x[:, 0, 0, 0] * params["w"] - draw(key, x.shape[:1]), state

    made = problem(lambda key, x: draw(key, x.shape), apply)
    differences = [
        float(made.loss({"w": 1.0}, {}, made.batch(KEY, 0), jax.random.key(i))[0]) for i in range(4)
    ]
    assert (np.abs(differences) > 1e-3).all()
    assert len(set(differences)) == 4


def test_without_augmentation_a_network_s_key_is_the_step_s():
    def apply(params, state, x, key):
        return params["w"] * (0.0 if key is None else jax.random.uniform(key)) * x[:, 0, 0, 0], state

    made = problem(None, apply)
    value = made.loss({"w": 1.0}, {}, made.batch(KEY, 0), KEY)[0]
    assert value == pytest.approx(float(jax.random.uniform(KEY)), rel=1e-6)


@pytest.mark.parametrize(
    ("augment", "message"),
    [
        ("flip", r"augment: expected a function \(key, x\) -> x, got 'flip'"),
        (lambda key, x: x[:, 1:], r"augment: .* \(\(1, 2, 2, 1\), 'float32'\), got \(\(1, 1,"),
        (lambda key, x: x.astype(jnp.bfloat16), "augment: expected it to keep .*, got .*'bfloat16'"),
    ],
)
def test_what_is_no_augmentation_is_refused_when_the_problem_is_made(augment, message):
    with pytest.raises(ValueError, match=message):
        problem(augment)
