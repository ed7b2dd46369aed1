"""Parent models: what they compute, what of them is masked, and that they are pruned and trained again."""

from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from small import abstract, parameters, same

import jaxarch
from jaxarch.models import CNN, MLP, VGG11, VGG16, VGG19, LeNet300100, ResNet, ResNet20, VisionTransformer

KEY = jax.random.key(0)
SIZES = {"inputs": 3, "outputs": 4}

PARENTS = {
    "MLP": (lambda rngs: MLP((192, 6, 5, 4), rngs=rngs), 8),
    "CNN": (lambda rngs: CNN((3, (4, 5)), **SIZES, rngs=rngs), 8),
    "VGG11": (lambda rngs: VGG11(1 / 64, **SIZES, rngs=rngs), 32),
    "ResNet8": (lambda rngs: ResNet((2, 4, 8), 1, shortcut="padding", **SIZES, rngs=rngs), 8),
    "VisionTransformer": (
        lambda rngs: VisionTransformer(1, 8, heads=2, size=(8, 8), dropout=0.1, **SIZES, rngs=rngs),
        8,
    ),
}
"""Small ones, and the side of the pictures that they see."""

LONG = {
    name: pytest.param(name, marks=pytest.mark.long)
    for name in ("CNN", "VGG11", "ResNet8", "VisionTransformer")
}
"""They compile for 5 s and more."""

RETRAINED = ["MLP", LONG["CNN"], LONG["VisionTransformer"]]
"""VGG11 is a CNN, and one more training of it or of ResNet8 compiles for seconds."""

BLOCK = ("attention/key", "attention/out", "attention/query", "attention/value", "layers/0", "layers/1")


def residual_path(blocks):
    convolutions = (f"encoder/{i}/convolutions/{j}" for i in range(blocks) for j in range(2))
    return ["convolution", *convolutions, "head"]


MASKED = {
    "MLP": ["layers/0", "layers/1", "layers/2"],
    "CNN": ["convolutions/0", "convolutions/1", "convolutions/2", "head"],
    "VGG11": [*(f"convolutions/{i}" for i in range(8)), "head"],
    "VGG19": [*(f"convolutions/{i}" for i in range(16)), "head"],
    "ResNet8": residual_path(3),
    "ResNet20": residual_path(9),
    "VisionTransformer": ["embedding", *(f"encoder/0/{name}" for name in BLOCK), "head"],
}


def pictures(side, count=6):
    return jax.random.normal(jax.random.key(1), (count, side, side, 3))


compiled_fast = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
"""Nearly all of the time goes to compiling."""


@pytest.fixture(scope="module", params=[LONG.get(name, name) for name in PARENTS])
def parent(request):
    """What a step of pruning and one of retraining make of a parent; its state before and after."""
    make, side = PARENTS[request.param]
    learning = jaxarch.supervised(
        make,
        (pictures(side), jnp.arange(6) % 4),
        loss=optax.softmax_cross_entropy_with_integer_labels,
        optimizer=optax.sgd(1e-2),
        steps=1,
        batch_size=6,
    )
    pruning = jaxarch.search.architecture_pruning(0.5, strength=0.1)

    @compiled_fast
    def run(problem):
        pruned = pruning(KEY, problem)
        seen = {
            "start": problem.init(KEY)[1],
            "pruned": pruned,
            "outputs": problem.outputs(pruned.params, pruned.state),
            "evaluated": problem.loss(pruned.params, pruned.state, problem.data, None)[1],
        }
        if request.param not in ("VGG11", "ResNet8"):
            seen["retrained"] = jaxarch.retrain("cold", nonnegative=False)(KEY, problem, pruned)
        return seen

    return request.param, jax.device_get(run(learning))


@pytest.mark.long
def test_kernels_are_masked_in_the_order_of_the_data_flow_and_nothing_else(parent):
    name, seen = parent
    assert list(jaxarch.named_leaves(seen["pruned"].mask)) == [f"{path}/kernel" for path in MASKED[name]]


@pytest.mark.parametrize("model", [VGG19, ResNet20])
def test_kernels_of_deep_networks_are_masked_in_the_order_of_the_data_flow(model):
    params = nnx.state(abstract(model, 1 / 8, **SIZES), nnx.Param)
    expected = [f"{path}/kernel" for path in MASKED[model.__name__]]
    assert list(jaxarch.named_leaves(jaxarch.select(params))) == expected


@pytest.mark.long
def test_outputs_are_one_a_class(parent):
    _, seen = parent
    assert seen["outputs"].shape == (6, 4)
    assert np.isfinite(seen["outputs"]).all()


@pytest.mark.long
def test_a_step_prunes_to_the_density(parent):
    _, seen = parent
    masks = jax.tree.leaves(seen["pruned"].mask)
    assert sum(mask.sum() for mask in masks) == round(0.5 * sum(mask.size for mask in masks))
    assert seen["pruned"].info["reached_at"] == 1


@pytest.mark.long
@pytest.mark.parametrize("parent", RETRAINED, indirect=True)
def test_a_retraining_leaves_what_is_pruned_at_exactly_zero(parent):
    _, seen = parent
    trained = jaxarch.named_leaves(seen["retrained"].params)
    for path, mask in jaxarch.named_leaves(seen["retrained"].mask).items():
        assert (trained[path][~mask] == 0).all()
        assert (trained[path][mask] != 0).all()


@pytest.mark.long
def test_batch_norm_s_averages_move_in_training_and_not_in_evaluation(parent):
    name, seen = parent
    start, trained, evaluated = (
        jax.tree.leaves(state) for state in (seen["start"], seen["pruned"].state, seen["evaluated"])
    )
    assert len(start) == {"CNN": 2 * 3, "VGG11": 2 * 8, "ResNet8": 2 * 7}.get(name, 0)
    assert not any(np.array_equal(*pair) for pair in zip(start, trained, strict=True))
    assert same(trained, evaluated)


CHANNELS = {
    VGG11: [64, 128, *[256] * 2, *[512] * 4],
    VGG16: [*[64] * 2, *[128] * 2, *[256] * 3, *[512] * 6],
    VGG19: [*[64] * 2, *[128] * 2, *[256] * 4, *[512] * 8],
}
"""Of the convolutions of configurations A, D and E."""


@pytest.mark.parametrize(("inputs", "outputs"), [(3, 10), (1, 100)])
@pytest.mark.parametrize("vgg", CHANNELS)
def test_a_vgg_has_the_parameters_of_its_convolutions_and_of_one_dense_layer(vgg, inputs, outputs):
    channels = [inputs, *CHANNELS[vgg]]
    convolutions = sum(9 * n * m for n, m in pairwise(channels))
    norms = 2 * sum(channels[1:])
    assert parameters(vgg, inputs=inputs, outputs=outputs) == convolutions + norms + (512 + 1) * outputs


@pytest.mark.parametrize(
    ("vgg", "sides"),
    [
        (VGG11, [32, 16] + [8] * 2 + [4] * 2 + [2] * 2),
        (VGG16, [32] * 2 + [16] * 2 + [8] * 3 + [4] * 3 + [2] * 3),
        (VGG19, [32] * 2 + [16] * 2 + [8] * 4 + [4] * 4 + [2] * 4),
    ],
)
def test_a_vgg_pools_after_each_of_its_five_stages(vgg, sides, monkeypatch):
    seen = []
    monkeypatch.setattr(nnx.BatchNorm, "__call__", lambda norm, x: seen.append(x.shape[1]) or x)
    jax.eval_shape(lambda: vgg(**SIZES, rngs=nnx.Rngs(0))(pictures(32)))
    assert seen == sides


def test_lenet_300_100_has_the_266_thousand_parameters_of_the_lottery_tickets():
    assert parameters(LeNet300100) == 784 * 300 + 300 * 100 + 100 * 10 + 300 + 100 + 10 == 266_610


def test_an_mlp_is_its_formula():
    model = MLP((192, 5, 4), activation=jnp.tanh, rngs=nnx.Rngs(0))
    x = pictures(8)
    first, second = model.layers
    hidden = jnp.tanh(x.reshape(6, 192) @ first.kernel[...])
    np.testing.assert_allclose(model(x), hidden @ second.kernel[...], atol=1e-5)


def transformer(**options):
    sizes = {"heads": 2, "size": (4, 8), **SIZES}
    return VisionTransformer(1, 8, **(sizes | options), rngs=nnx.Rngs(0))


@pytest.mark.long
def test_a_vision_transformer_knows_where_a_patch_is_by_the_positional_embedding_alone():
    model = transformer()
    x = pictures(8)[:, :4]
    swapped = jnp.concatenate([x[:, :, 4:], x[:, :, :4]], axis=2)
    assert not np.allclose(model(x), model(swapped), atol=1e-3)
    model.positions["bias"][...] = jnp.zeros((2, 8))
    np.testing.assert_allclose(model(x), model(swapped), atol=1e-5)
    assert not np.allclose(model(x), model(jnp.flip(x, 1)), atol=1e-3)


@pytest.mark.long
def test_dropout_is_drawn_in_training_and_off_in_evaluation():
    model = transformer(dropout=0.5)
    x = pictures(8)[:, :4]
    assert not np.allclose(model(x), model(x))
    model.eval()
    assert np.array_equal(model(x), transformer()(x))


def convolutional(channels=(4,), **sizes):
    return CNN(channels, **(SIZES | sizes), rngs=nnx.Rngs(0))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MLP((4,), rngs=nnx.Rngs(0)), "widths: expected an input size and at least one layer"),
        (lambda: MLP((5, 2), rngs=nnx.Rngs(0))(jnp.ones((2, 2, 2))), "x: expected 5 numbers per example"),
        (lambda: convolutional(()), "channels: expected positive integers"),
        (lambda: convolutional((4, ())), "channels: expected positive integers"),
        (lambda: convolutional(16), "channels: expected positive integers"),
        (lambda: convolutional((4, (4, -1))), "channels: expected an integer of at least 1, got -1"),
        (lambda: convolutional(outputs=0), "outputs: expected an integer of at least 1"),
        (lambda: convolutional((1, 1))(jnp.ones((1, 4, 3, 3))), "height and width at least 4"),
        (lambda: convolutional()(jnp.ones((1, 4, 4, 1))), r"images of shape \(batch, height, width, 3\)"),
        (lambda: LeNet300100(inputs=0, rngs=nnx.Rngs(0)), "inputs: expected an integer of at least 1, got 0"),
        (lambda: VGG11(-1.0, **SIZES, rngs=nnx.Rngs(0)), "width: expected a positive finite number"),
        (lambda: VGG16((1, 2), **SIZES, rngs=nnx.Rngs(0)), "width: expected one number"),
        (lambda: VGG19(0.0, **SIZES, rngs=nnx.Rngs(0)), "width: expected a positive finite number"),
        (lambda: transformer(heads=3), "features: expected a multiple of heads = 3"),
        (lambda: transformer(patch=3), "size: expected multiples of patch=3"),
        (lambda: transformer(size=8), "size: expected height and width"),
        (lambda: transformer(size=(8, 0)), "size: expected an integer of at least 1"),
        (lambda: transformer(hidden=0), "hidden: expected an integer of at least 1"),
        (lambda: transformer(dropout=1.0), r"dropout: expected a rate in \[0, 1\)"),
        (lambda: transformer()(pictures(8)), r"x: expected images of shape \(batch, 4, 8, 3\)"),
    ],
)
def test_sizes_that_cannot_be_used_are_refused(make, message):
    with pytest.raises(jaxarch.ArgumentError, match=message):
        make()
