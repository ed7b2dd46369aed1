"""Residual networks: their sizes, their shortcuts, and what of them is masked."""

from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from small import abstract, masked_by_default, parameters, same

import jaxarch
from jaxarch.models import ResNet, ResNet18, ResNet20

SIZES = {"inputs": 3, "outputs": 4}


def pictures(side, channels=3, count=2):
    return jax.random.normal(jax.random.key(1), (count, side, side, channels))


def small(**options):
    options = {"widths": (2, 3), "blocks": 1, "rngs": nnx.Rngs(0)} | SIZES | options
    return ResNet(**options)


def plain_parameters(widths, blocks, inputs, outputs):
    """Of a network without shortcuts: 3x3 convolutions, their norms, and a head."""
    channels = [inputs, widths[0], *(width for width in widths for _ in range(2 * blocks))]
    convolutions = sum(9 * n * m for n, m in pairwise(channels))
    return convolutions + 2 * sum(channels[1:]) + (widths[-1] + 1) * outputs


def test_resnet_20_has_the_270_thousand_parameters_of_the_same_network_without_shortcuts():
    assert parameters(ResNet20, inputs=3, outputs=10) == plain_parameters((16, 32, 64), 3, 3, 10) == 269_722


def test_resnet_18_has_11_million_parameters_with_those_of_its_three_projections():
    widths = (64, 128, 256, 512)
    projections = sum(n * m + 2 * m for n, m in pairwise(widths))
    expected = plain_parameters(widths, 2, 3, 10) + projections
    assert parameters(ResNet18, inputs=3, outputs=10) == expected == 11_173_962


@pytest.mark.parametrize(
    ("shortcut", "widths", "more"),
    [
        ("padding", (4, 6), 0),
        ("padding", (4, 4), 0),
        ("projection", (4, 6), 4 * 6 + 2 * 6),
        ("projection", (4, 4), 4 * 4 + 2 * 4),
    ],
)
def test_a_shortcut_has_parameters_where_it_is_a_projection(shortcut, widths, more):
    found = parameters(ResNet, widths, 1, shortcut=shortcut, **SIZES)
    assert found == plain_parameters(widths, 1, **SIZES) + more


def test_each_stage_may_have_a_number_of_blocks_of_its_own():
    model = abstract(ResNet, (2, 2, 2), (1, 3, 2), **SIZES)
    assert [block.stride for block in model.encoder] == [1, 2, 1, 1, 2, 1]


@pytest.mark.parametrize(
    ("network", "sides"),
    [
        (ResNet20, [32] * (1 + 6) + [16] * 6 + [8] * 6),
        (ResNet18, [32] * (1 + 4) + [16] * 5 + [8] * 5 + [4] * 5),
    ],
)
def test_every_stage_but_the_first_halves_the_picture(network, sides, monkeypatch):
    seen = []
    monkeypatch.setattr(nnx.BatchNorm, "__call__", lambda norm, x: seen.append(x.shape[1]) or x)
    outputs = jax.eval_shape(lambda: network(1 / 8, **SIZES, rngs=nnx.Rngs(0))(pictures(32)))
    assert seen == sides
    assert outputs.shape == (2, 4)


@pytest.mark.parametrize("shortcut", ["padding", "projection"])
def test_pictures_of_any_size_have_outputs(shortcut):
    for side in (1, 2, 7, 8):
        outputs = jax.eval_shape(lambda side=side: small(shortcut=shortcut)(pictures(side)))
        assert outputs.shape == (2, 4)


@pytest.mark.long
def test_a_padded_shortcut_is_every_second_pixel_and_channels_of_zeros():
    block = small(shortcut="padding").encoder[1]
    for convolution in block.convolutions:
        convolution.kernel[...] = jnp.zeros_like(convolution.kernel[...])
    x = pictures(7, channels=2)
    taken = np.pad(x[:, ::2, ::2], ((0, 0),) * 3 + ((0, 1),))
    assert np.array_equal(block(x), np.maximum(taken, 0))


@pytest.mark.long
@pytest.mark.parametrize("side", [6, 7])
def test_a_convolution_that_halves_looks_around_the_pixels_that_the_shortcut_takes(side):
    convolution = small().encoder[1].convolutions[0]
    convolution.kernel[...] = jnp.zeros((3, 3, 2, 3)).at[1, 1, 0, 2].set(1)
    x = pictures(side, channels=2)
    assert np.array_equal(convolution(x)[..., 2], x[:, ::2, ::2, 0])


@pytest.mark.long
def test_kernels_start_as_normal_numbers_of_variance_two_over_the_inputs_of_a_neuron():
    model = nnx.jit(partial(small, widths=(16, 64)))()
    for kernel, inputs in (
        (model.encoder[1].convolutions[1].kernel[...], 9 * 64),
        (model.encoder[1].shortcut.kernel[...], 16),
    ):
        scaled = kernel / np.sqrt(2 / inputs)
        assert scaled.std() == pytest.approx(1, abs=0.05)
        assert jnp.abs(scaled).max() > 2.5


@pytest.mark.long
@pytest.mark.parametrize("shortcut", ["padding", "projection"])
def test_batch_norm_s_averages_move_in_training_and_not_in_evaluation(shortcut):
    def averages(model):
        return jax.tree.leaves(nnx.state(model, nnx.BatchStat))

    @jax.jit
    def states():
        model = small(shortcut=shortcut)
        seen = [averages(model)]
        for mode in (model.train, model.eval):
            mode()
            model(pictures(4))
            seen.append(averages(model))
        return seen

    start, trained, evaluated = states()
    assert len(start) == 2 * (5 if shortcut == "padding" else 6)
    assert not any(np.array_equal(*pair) for pair in zip(start, trained, strict=True))
    assert same(trained, evaluated)


def test_kernels_are_masked_in_the_order_of_the_data_flow_with_a_projection_after_its_block():
    assert masked_by_default(ResNet18, **SIZES) == [
        "convolution/kernel",
        *(
            f"encoder/{block}/{name}/kernel"
            for block in range(8)
            for name in ("convolutions/0", "convolutions/1", *(["shortcut"] if block in (2, 4, 6) else []))
        ),
        "head/kernel",
    ]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: small(widths=()), "widths: expected the channels of at least one stage"),
        (lambda: small(widths=8), "widths: expected the channels of at least one stage, got 8"),
        (lambda: small(widths=(4, 0)), "widths: expected an integer of at least 1, got 0"),
        (lambda: small(blocks=0), "blocks: expected an integer of at least 1, got 0"),
        (lambda: small(blocks=(1, 2, 3)), r"blocks: expected 2 integers, one per stage, got \(1, 2, 3\)"),
        (lambda: small(shortcut="none"), "shortcut: expected 'padding' or 'projection', got 'none'"),
        (lambda: small(widths=(4, 3), shortcut="padding"), "widths: expected widths that never decrease"),
        (lambda: small(inputs=0), "inputs: expected an integer of at least 1, got 0"),
        (lambda: small(outputs=2.5), "outputs: expected an integer of at least 1, got 2.5"),
        (
            lambda: small()(pictures(4, channels=1)),
            r"x: expected images of shape \(batch, height, width, 3\)",
        ),
        (lambda: ResNet20(0, **SIZES, rngs=nnx.Rngs(0)), "width: expected a positive finite number"),
        (lambda: ResNet18("wide", **SIZES, rngs=nnx.Rngs(0)), "width: expected a positive number"),
    ],
)
def test_what_cannot_be_used_is_refused(make, message):
    with pytest.raises(jaxarch.ArgumentError, match=message):
        make()
