"""The language model: its sizes, what its logits depend on, and that it is pruned and trained again."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from small import abstract, masked_by_default, parameters

import jaxarch
from jaxarch.models import GPT

KEY = jax.random.key(0)
VOCABULARY, LENGTH = 7, 5
SIZES = {"depth": 1, "features": 8, "heads": 2, "length": LENGTH, "vocabulary": VOCABULARY}
TEXT = jnp.array([1, 5, 2, 0, 2])
"""Without tokens 3, 4 and 6."""
OTHERS = jnp.where(jnp.eye(LENGTH, dtype=bool), 4, TEXT[None])
"""Texts of which one token each is another."""


def gpt(**options):
    return GPT(**(SIZES | options), rngs=nnx.Rngs(0))


def decided(model):
    """With kernels 20 times as large, so that what logits depend on is seen in them."""
    params = nnx.state(model, nnx.Param)
    nnx.update(model, jax.tree.map(lambda leaf: 20 * leaf if leaf.ndim > 1 else leaf, params))
    return model


@pytest.fixture(scope="module")
def logits():
    """What one model makes of several texts."""

    @jax.jit
    def run():
        model = decided(gpt())
        seen = {"text": model(TEXT[None])[0], "others": model(OTHERS), "begun": model(TEXT[None, :3])[0]}
        again = jnp.full((1, LENGTH), 3)
        seen["again"] = model(again)[0]
        model.positions["bias"][...] = jnp.zeros((LENGTH, SIZES["features"]))
        return seen | {"again, without positions": model(again)[0]}

    return jax.device_get(run())


@pytest.mark.long
def test_there_is_a_logit_for_each_token_at_each_position(logits):
    assert logits["text"].shape == (LENGTH, VOCABULARY)


@pytest.mark.parametrize("position", range(LENGTH))
def test_a_token_changes_its_own_logits_and_later_ones_and_none_before(logits, position):
    other = logits["others"][position]
    np.testing.assert_allclose(other[:position], logits["text"][:position], atol=1e-6)
    assert (np.abs(other[position:] - logits["text"][position:]).max(1) > 1e-3).all()


def test_a_text_s_beginning_has_the_same_logits_alone(logits):
    np.testing.assert_allclose(logits["begun"], logits["text"][:3], atol=1e-6)


def test_a_token_said_again_is_told_apart_by_its_position_alone(logits):
    assert (np.abs(logits["again"][1:] - logits["again"][0]).max(1) > 1e-3).all()
    without = logits["again, without positions"]
    np.testing.assert_allclose(without, np.broadcast_to(without[0], without.shape), atol=1e-6)


@pytest.mark.long
def test_dropout_is_drawn_in_training_and_off_in_evaluation():
    @nnx.jit
    def run(model, plain):
        drawn = model(TEXT[None])
        model.eval()
        return drawn, model(TEXT[None]), plain(TEXT[None])

    drawn, evaluated, plain = run(gpt(dropout=0.5), gpt())
    assert not np.allclose(drawn, plain)
    np.testing.assert_allclose(evaluated, plain, atol=1e-6)


@pytest.mark.long
def test_a_tied_head_is_the_embedding():
    @jax.jit
    def run():
        model = gpt(tied=True)
        before = model(TEXT[None])
        model.embedding.embedding[...] = model.embedding.embedding[...].at[3].multiply(2)
        return before, model(TEXT[None])

    before, after = run()
    others = jnp.delete(jnp.arange(VOCABULARY), 3)
    np.testing.assert_allclose(after[..., others], before[..., others], atol=1e-6)
    np.testing.assert_allclose(after[..., 3], 2 * before[..., 3], atol=1e-6)


@pytest.mark.long
def test_the_smallest_gpt_2_has_its_124_million_parameters():
    features, length, vocabulary = 768, 1024, 50257
    attention, perceptron, norm = 4 * features * (features + 1), (8 * features + 5) * features, 2 * features
    expected = (vocabulary + length) * features + 12 * (attention + perceptron + 2 * norm) + norm
    sizes = {"heads": 12, "length": length, "vocabulary": vocabulary}
    assert parameters(GPT, 12, features, **sizes, tied=True) == expected == 124_439_808


def test_a_head_of_its_own_has_as_many_parameters_as_the_embedding():
    assert parameters(GPT, **SIZES) == parameters(GPT, **SIZES, tied=True) + 8 * VOCABULARY


def test_kernels_that_end_a_branch_start_smaller_by_the_root_of_all_branches():
    @jax.jit
    def kernels():
        block = gpt(depth=2, features=64).encoder[1]
        branch = block.attention.out, block.layers[1]
        return [[layer.kernel[...] for layer in layers] for layers in (branch, [block.layers[0]])]

    ends, others = kernels()
    for kernel in ends:
        assert kernel.std() == pytest.approx(0.02 / 2, rel=0.05)
    for kernel in others:
        assert kernel.std() == pytest.approx(0.02, rel=0.05)


BLOCK = ("attention/key", "attention/out", "attention/query", "attention/value", "layers/0", "layers/1")


@pytest.mark.long
@pytest.mark.parametrize("tied", [False, True])
def test_embedding_and_kernels_are_masked_in_the_order_of_the_data_flow_and_nothing_else(tied):
    assert masked_by_default(GPT, **(SIZES | {"depth": 11}), tied=tied) == [
        "embedding/embedding",
        *(f"encoder/{block}/{layer}/kernel" for block in range(11) for layer in BLOCK),
        *([] if tied else ["head/kernel"]),
    ]


@pytest.mark.long
@pytest.mark.parametrize("tied", [False, True])
def test_it_is_pruned_and_trained_again_to_say_the_next_token(tied):
    texts = np.add.outer(np.arange(VOCABULARY), np.arange(LENGTH + 1)) % VOCABULARY
    learning = jaxarch.supervised(
        lambda rngs: GPT(**SIZES, tied=tied, dropout=0.1, rngs=rngs),
        (texts[:, :-1], texts[:, 1:]),
        loss=optax.softmax_cross_entropy_with_integer_labels,
        optimizer=optax.adam(1e-2),
        steps=200,
    )
    pruning = jaxarch.search.random_mask(0.5)
    network = jax.jit(jaxarch.chain(pruning, jaxarch.retrain("cold", nonnegative=False)))(KEY, learning)
    trained = jaxarch.named_leaves(network.params)
    for path, mask in jaxarch.named_leaves(network.mask).items():
        assert (trained[path][~mask] == 0).all()
    said = learning.outputs(network.params, network.state).argmax(-1)
    assert (said == texts[:, 1:]).mean() > 0.9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depth": 0}, "depth: expected an integer of at least 1, got 0"),
        ({"hidden": 0}, "hidden: expected an integer of at least 1, got 0"),
        ({"length": 0}, "length: expected an integer of at least 1, got 0"),
        ({"vocabulary": 2.5}, r"vocabulary: expected an integer of at least 1, got 2\.5"),
        ({"heads": 3}, "features: expected a multiple of heads = 3, got 8"),
        ({"dropout": -0.1}, r"dropout: expected a rate in \[0, 1\), got -0\.1"),
        ({"tied": "yes"}, "tied: expected True or False, got 'yes'"),
    ],
)
def test_sizes_that_cannot_be_used_are_refused(options, message):
    with pytest.raises(jaxarch.ArgumentError, match=message):
        gpt(**options)


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((2, 3), jnp.float32), ((2, 3), bool), ((3,), jnp.int32), ((2, LENGTH + 1), jnp.int32)],
)
def test_inputs_that_are_no_texts_of_tokens_are_refused(shape, dtype):
    expected = r"x: expected integers of shape \(batch, length\) with length at most 5, got "
    with pytest.raises(jaxarch.ArgumentError, match=expected):
        abstract(GPT, **SIZES)(jnp.zeros(shape, dtype))
