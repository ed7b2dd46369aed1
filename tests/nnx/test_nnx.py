"""Masks learned inside a Flax NNX model: what is trained, and that all else is the model's own."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from small import same

import jaxarch
from jaxarch import masks
from jaxarch.nnx import Masked, Score


class Net(nnx.Module):
    """Dense layers, batch norm, and dropout."""

    def __init__(self, rngs):
        self.hidden = nnx.Linear(64, 20, rngs=rngs)
        self.norm = nnx.BatchNorm(20, momentum=0.5, rngs=rngs)
        self.dropout = nnx.Dropout(0.2, rngs=rngs)
        self.head = nnx.Linear(20, 10, rngs=rngs)

    def __call__(self, x):
        return self.head(self.features(x))

    def features(self, x):
        return self.dropout(nnx.relu(self.norm(self.hidden(x))))


def perceptron(rngs):
    return jaxarch.models.MLP((64, 20, 10), rngs=rngs)


@cache
def digits():
    data = jaxarch.lab.data.load("digits")
    return jnp.asarray(data.x / 16, jnp.float32)[:300], jnp.asarray(data.y)[:300]


def loss_of(model, x, y):
    return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()


@nnx.jit
def score_step(model, optimizer, x, y):
    loss, gradient = nnx.value_and_grad(loss_of, argnums=nnx.DiffState(0, Score))(model, x, y)
    optimizer.update(model, gradient)
    return loss


def trained(model, steps, rate=1e-2):
    """The model after some steps on its scores alone."""
    optimizer = nnx.Optimizer(model, optax.adam(rate), wrt=Score)
    return [float(score_step(model, optimizer, *digits())) for _ in range(steps)]


def arrays(model, kind):
    """Copies of a model's variables of a kind, by path."""
    return {path: np.array(leaf) for path, leaf in jaxarch.named_leaves(nnx.state(model, kind)).items()}


@pytest.mark.long
def test_it_computes_with_the_sharp_sigmoid_of_the_scores_times_the_weights():
    plain = perceptron(nnx.Rngs(0))
    drawn = masks.init_scores(jax.random.key(1), jaxarch.select(nnx.state(plain, nnx.Param)), 0.0, 0.02)
    model = Masked(plain, hard=40.0, soft=4.0, scores=drawn)
    x, _ = digits()
    params = nnx.state(plain, nnx.Param)
    graph = nnx.graphdef(plain)
    by_hand = nnx.merge(graph, masks.apply_mask(masks.soft_mask(drawn, 40.0, 4.0), params))
    np.testing.assert_array_equal(model(x), by_hand(x))
    assert not np.array_equal(model(x), plain(x))


@pytest.mark.long
def test_scores_alone_are_learned_and_weights_stay_to_the_bit():
    model = Masked(jaxarch.models.MLP((64, 200, 10), rngs=nnx.Rngs(0)))
    before = arrays(model, nnx.Param)
    losses = trained(model, 60)
    assert same(before, arrays(model, nnx.Param))
    assert 0.1 < model.density() < 0.9
    assert losses[-1] < 0.5 * losses[0]
    found = model.strip()
    x, y = digits()
    assert (found(x).argmax(-1) == y).mean() > 0.7


@pytest.mark.long
def test_by_default_it_begins_nearly_as_the_model_it_was_given():
    plain = perceptron(nnx.Rngs(0))
    x, _ = digits()
    outputs = plain(x)
    np.testing.assert_allclose(Masked(plain)(x), outputs, rtol=0.05, atol=0.05)
    assert Masked(plain).density() == 1
    assert np.unique(Masked(plain, hard=50.0).scores["layers/0/kernel"]) == np.float32(0.1)


def problem(optimizer, steps=100):
    x, y = digits()
    return jaxarch.supervised(
        perceptron,
        (x, y),
        loss=lambda outputs, labels: optax.softmax_cross_entropy_with_integer_labels(outputs, labels).mean(),
        optimizer=optimizer,
        steps=steps,
        batch_size=32,
    )


def batches(learning, key, steps):
    """The batches that a stage would draw."""
    _, batch_key, _ = jax.random.split(key, 3)
    return [learning.batch(batch_key, index) for index in range(steps)]


def plain_model(params):
    model = perceptron(nnx.Rngs(0))
    nnx.update(model, params)
    return model


@pytest.mark.long
def test_a_hundred_steps_in_one_s_own_loop_are_those_of_the_search():
    learning, key = problem(optax.adam(1e-2)), jax.random.key(3)
    search = jaxarch.search.two_temperature(weights="initial", mean=5.0, std=2.0)
    found = jax.jit(search)(key, learning)

    params_key, scores_key, _ = jax.random.split(jax.random.split(key, 3)[0], 3)
    params, _ = learning.init(params_key)
    drawn = masks.init_scores(scores_key, jaxarch.select(params), 5.0, 2.0, 50.0)
    model = Masked(plain_model(params), scores=drawn)
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=Score)
    losses = [score_step(model, optimizer, *batch) for batch in batches(learning, key, 100)]

    np.testing.assert_allclose(losses, found.info["loss"], rtol=1e-4)
    for path, score in jaxarch.named_leaves(found.info["scores"]).items():
        np.testing.assert_allclose(model.scores[path][...], score, atol=2e-4)


@pytest.mark.long
def test_a_hundred_steps_of_architecture_pruning_in_one_s_own_loop_are_those_of_the_search():
    learning, key = problem(optax.sgd(0.1)), jax.random.key(4)
    search = jaxarch.search.architecture_pruning(0.5, strength=1e-3, std=0.03)
    found = jax.jit(search)(key, learning)
    assert 5 < found.info["reached_at"][0] < 95

    params_key, scores_key = jax.random.split(jax.random.split(key, 3)[0])
    params, _ = learning.init(params_key)
    drawn = masks.init_scores(scores_key, jaxarch.select(params), 0.0, 0.03)
    begun = jax.tree.map(jnp.abs, drawn)
    model = Masked(plain_model(params), hard=100.0, soft=10.0, factor=False, scores=begun)
    scores = nnx.Optimizer(model, optax.chain(optax.sgd(1.1), jaxarch.optim.stop_at(0.5)), wrt=Score)
    weights = nnx.Optimizer(model, optax.sgd(0.1), wrt=nnx.Param)

    @nnx.jit
    def step(model, scores, weights, x, y):
        def loss(model):
            data = loss_of(model, x, y)
            return data + model.penalty(1e-3), data

        both = nnx.DiffState(0, nnx.Any(Score, nnx.Param))
        (_, value), gradient = nnx.value_and_grad(loss, argnums=both, has_aux=True)(model)
        of_scores, of_weights = nnx.split_state(gradient, Score, nnx.Param)
        scores.update(model, of_scores)
        weights.update(model, of_weights)
        return value

    for batch in batches(learning, key, 100):
        step(model, scores, weights, *batch)
    assert int(scores.opt_state[-1].reached_at[...]) == found.info["reached_at"][0]
    assert masks.overlap(model.mask(0.5), found.mask) > 0.99
    for path, weight in jaxarch.named_leaves(found.params).items():
        kept = jaxarch.named_leaves(model.strip(0.5).layers).get(path.removeprefix("layers/"))
        np.testing.assert_allclose(kept, weight, atol=1e-4)


def test_batch_statistics_and_random_streams_are_the_model_s_own():
    alone, inside = Net(nnx.Rngs(0)), Net(nnx.Rngs(0))
    x, _ = digits()
    model = Masked(inside, scores=1e4)
    for _ in range(3):
        np.testing.assert_array_equal(model(x), alone(x))
    assert same(arrays(alone, nnx.BatchStat), arrays(inside, nnx.BatchStat))
    assert same(arrays(alone, nnx.RngCount), arrays(inside, nnx.RngCount))
    assert inside.norm.mean[...].any()


def test_batch_statistics_go_on_in_training():
    model = Masked(Net(nnx.Rngs(0)))
    before = arrays(model, nnx.BatchStat)
    trained(model, 3)
    assert not same(before, arrays(model, nnx.BatchStat))


def test_evaluation_is_set_through_it():
    model = Masked(Net(nnx.Rngs(0)))
    x, _ = digits()
    assert not np.array_equal(model(x), model(x))
    model.eval()
    np.testing.assert_array_equal(model(x), model(x))


class Told(nnx.Module):
    """A dense layer within another module, which tells what it computes."""

    def __init__(self, rngs):
        self.inner = nnx.Linear(64, 3, rngs=rngs)

    def __call__(self, x):
        self.sow(nnx.Intermediate, "told", y := self.inner(x))
        return y


class Outer(nnx.Module):
    def __init__(self, rngs):
        self.told = Told(rngs)

    def __call__(self, x):
        return self.told(x)


def sown(model, x):
    outputs = model(x)
    return outputs, nnx.pop(model, nnx.Intermediate)


def with_gradient(model, x):
    def loss(model):
        outputs = model(x)
        return outputs.sum(), outputs

    outputs = nnx.grad(loss, argnums=nnx.DiffState(0, Score), has_aux=True)(model)[1]
    return outputs, nnx.pop(model, nnx.Intermediate)


@pytest.mark.filterwarnings("ignore:Using 'Module.sow():DeprecationWarning")
@pytest.mark.parametrize(
    "calling",
    [
        sown,
        nnx.jit(sown),
        with_gradient,
        pytest.param(
            lambda model, x: nnx.capture(model, nnx.Intermediate)(x),
            marks=pytest.mark.skipif(not hasattr(nnx, "capture"), reason="Flax has no nnx.capture yet"),
        ),
    ],
    ids=["call", "jit", "grad", "capture"],
)
def test_what_a_model_sows_is_kept(calling):
    model = Masked(Outer(nnx.Rngs(0)))
    for _ in range(2):
        outputs, kept = calling(model, digits()[0])
        (told,) = nnx.to_pure_dict(kept)["model"]["told"]["told"]
        np.testing.assert_array_equal(told, outputs)


def test_any_method_can_be_called():
    model = Masked(Net(nnx.Rngs(0)), scores=0.0)
    model.eval()
    x, _ = digits()
    half = Net(nnx.Rngs(0))
    half.eval()
    half.hidden.kernel[...] = half.hidden.kernel[...] / 2
    np.testing.assert_allclose(model.merged().features(x), half.features(x), rtol=1e-5, atol=1e-6)


@pytest.mark.long
def test_what_is_stripped_is_the_plain_model_with_weights_that_are_0():
    model = Masked(perceptron(nnx.Rngs(0)))
    trained(model, 20)
    found = model.strip(0.25)
    assert isinstance(found, jaxarch.models.MLP)
    kept = {path: leaf != 0 for path, leaf in arrays(found, nnx.Param).items() if "kernel" in path}
    assert masks.overlap(kept, jaxarch.named_leaves(model.mask(0.25))) == 1
    assert masks.density(model.mask(0.25)) == 0.25
    found.layers[0].kernel[...] = jnp.full((64, 20), 7.0)
    found.layers[0].bias[...] = jnp.full(20, 7.0)
    assert not (model.model.layers[0].kernel[...] == 7).any()
    assert not (model.model.layers[0].bias[...] == 7).any()


@pytest.mark.long
def test_what_is_stripped_is_trained_on_under_its_mask():
    model = Masked(perceptron(nnx.Rngs(0)))
    mask, found = model.mask(0.25), model.strip(0.25)
    tx = jaxarch.optim.hold(mask, optax.adamw(1e-2))
    optimizer = nnx.Optimizer(found, tx, wrt=nnx.Param)
    for _ in range(3):
        optimizer.update(found, nnx.grad(loss_of)(found, *digits()))
    jaxarch.optim.check_held(mask, nnx.state(found, nnx.Param))


def test_its_mask_goes_to_a_file_and_comes_back(tmp_path):
    model = Masked(perceptron(nnx.Rngs(0)), where="*/0/kernel")
    jaxarch.save_mask(tmp_path / "mask.npz", model.mask(0.5))
    again = jaxarch.load_mask(tmp_path / "mask.npz", like=nnx.state(perceptron(nnx.Rngs(1)), nnx.Param))
    assert same(again, model.mask(0.5))


def test_another_temperature_compiles_nothing_anew():
    model, traced = Masked(perceptron(nnx.Rngs(0))), []

    @nnx.jit
    def outputs(model, x):
        traced.append(x)
        return model(x)

    x, _ = digits()
    before = outputs(model, x)
    model.hard[...] = jnp.float32(10.0)
    assert not np.array_equal(outputs(model, x), before)
    assert len(traced) == 1


def test_it_can_be_captured_by_a_function_that_jax_compiles():
    model = Masked(perceptron(nnx.Rngs(0)))
    x, _ = digits()
    np.testing.assert_allclose(jax.jit(lambda x: model(x))(x), model(x), rtol=1e-6)


class Layers(nnx.Module):
    """A stack of layers in one scan, each rematerialised."""

    def __init__(self, rngs):
        @nnx.split_rngs(splits=3)
        @nnx.vmap
        def make(rngs):
            return nnx.Linear(64, 64, rngs=rngs)

        self.stack = make(rngs)
        self.head = nnx.Linear(64, 10, rngs=rngs)

    def __call__(self, x):
        @nnx.scan(in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
        @nnx.remat
        def layer(x, linear):
            return nnx.tanh(linear(x))

        return self.head(layer(x, self.stack))


@pytest.mark.long
def test_layers_of_a_scan_have_a_score_for_each_connection_of_each():
    model = Masked(Layers(nnx.Rngs(0)))
    assert model.scores["stack/kernel"].shape == (3, 64, 64)
    losses = trained(model, 20)
    assert losses[-1] < losses[0]
    assert len(np.unique(np.asarray(model.mask()["stack"]["kernel"]).mean((1, 2)))) > 1


@pytest.mark.long
def test_a_stack_of_masked_models_is_trained_as_each_alone():
    def make(key):
        return Masked(perceptron(nnx.Rngs(key)))

    keys = jax.random.split(jax.random.key(0), 3)
    stacked = nnx.vmap(make)(keys)
    gradient = nnx.grad(loss_of, argnums=nnx.DiffState(0, Score))
    together = nnx.vmap(gradient, in_axes=(0, None, None))(stacked, *digits())
    for index, key in enumerate(keys):
        alone = jaxarch.named_leaves(gradient(make(key), *digits()))
        for path, leaf in jaxarch.named_leaves(together).items():
            np.testing.assert_allclose(leaf[index], alone[path], rtol=1e-3, atol=1e-6)


class Tied(nnx.Module):
    """A layer that is used twice."""

    def __init__(self, rngs):
        self.first = nnx.Linear(64, 64, rngs=rngs)
        self.second = self.first

    def __call__(self, x):
        return self.second(nnx.tanh(self.first(x)))


def test_parameters_that_are_shared_have_one_score_and_one_mask():
    model = Masked(Tied(nnx.Rngs(0)))
    assert list(model.scores) == ["first/kernel"]
    merged = model.merged()
    assert merged.first.kernel is merged.second.kernel
    found = model.strip(0.5)
    assert found.first.kernel is found.second.kernel


def test_the_parameters_of_lora_are_masked_beside_frozen_ones():
    base = nnx.Linear(64, 10, rngs=nnx.Rngs(0))
    lora = nnx.LoRA(64, 4, 10, base_module=base, rngs=nnx.Rngs(1))
    lora.lora_b[...] = jax.random.normal(jax.random.key(2), (4, 10))
    model = Masked(lora, where=["lora_a", "lora_b"])
    before = arrays(model, nnx.Param)
    losses = trained(model, 20)
    assert losses[-1] < losses[0]
    assert set(model.scores) == {"lora_a", "lora_b"}
    assert same(before, arrays(model, nnx.Param))


def test_scores_are_float32_and_weights_keep_their_dtype():
    model = Masked(nnx.Linear(64, 10, param_dtype=jnp.bfloat16, rngs=nnx.Rngs(0)))
    assert model.scores["kernel"].dtype == jnp.float32
    assert model.strip().kernel.dtype == jnp.bfloat16
    assert len(trained(model, 2)) == 2


REFUSED = {
    "model: expected a Flax NNX module": lambda: Masked(lambda x: x),
    "where: no leaf is selected by '\\*/weight'": lambda: Masked(perceptron(nnx.Rngs(0)), where="*/weight"),
    "soft: expected at most hard": lambda: Masked(perceptron(nnx.Rngs(0)), hard=5.0, soft=50.0),
    "hard: expected": lambda: Masked(perceptron(nnx.Rngs(0)), hard=-1.0),
    "scores: expected scores for every masked parameter, got none for 'layers/1/kernel'": lambda: Masked(
        perceptron(nnx.Rngs(0)), scores={"layers/0/kernel": jnp.ones((64, 20))}
    ),
    "scores: 'layers/0/bias' is not masked": lambda: Masked(
        perceptron(nnx.Rngs(0)),
        scores=masks.init_scores(jax.random.key(0), nnx.state(perceptron(nnx.Rngs(0)), nnx.Param)),
    ),
    "scores: 'layers/0/kernel' has shape": lambda: Masked(
        perceptron(nnx.Rngs(0)),
        scores={"layers/0/kernel": jnp.ones((20, 64)), "layers/1/kernel": jnp.ones((20, 10))},
    ),
    "scores: expected": lambda: Masked(perceptron(nnx.Rngs(0)), scores=float("nan")),
    r"density: expected a number in \(0, 1\]": lambda: Masked(perceptron(nnx.Rngs(0))).mask(10),
    "strength: expected": lambda: Masked(perceptron(nnx.Rngs(0))).penalty(-1.0),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_masked_is_refused_in_one_line(message):
    with pytest.raises(jaxarch.ArgumentError, match=message) as caught:
        REFUSED[message]()
    assert "\n" not in str(caught.value)


# Both modes of Flax's graph updates ------------------------------------------------------------------


def numbers_of_a_loop():
    """Scores, masks, masked gradients, and a step on a mask that is learned over batch norm and dropout."""
    plain = perceptron(nnx.Rngs(0))
    gradient = nnx.grad(loss_of)(plain, *digits())
    mask = masks.keep(jaxarch.saliency.snip(nnx.state(plain, nnx.Param), gradient), 0.2)
    of_gradient, of_module = (masks.apply_mask(mask, tree) for tree in (gradient, plain))

    @nnx.jit
    def step(model, optimizer, x, y):
        graph, scores, rest = nnx.split(model, Score, ...)
        loss = lambda scores, rest: loss_of(nnx.merge(graph, scores, rest), x, y)  # noqa: E731
        optimizer.update(model, nnx.grad(loss)(scores, rest))

    model = Masked(Net(nnx.Rngs(0)), where="*/kernel")
    step(model, nnx.Optimizer(model, optax.adam(0.1), wrt=Score), *digits())
    trees = (mask, of_gradient, of_module, nnx.state(model, Score), nnx.state(model, nnx.BatchStat))
    return type(gradient), [jaxarch.named_leaves(tree) for tree in trees]


@pytest.mark.long
@pytest.mark.skipif(not hasattr(nnx, "set_graph_updates"), reason="this Flax has one mode")
def test_a_loop_has_the_same_numbers_with_and_without_graph_updates():
    found = []
    for updates in (True, False):
        with nnx.set_graph_updates(updates):
            found.append(numbers_of_a_loop())
    (with_updates, first), (without, second) = found
    assert (with_updates, without) == (nnx.State, jaxarch.models.MLP)
    assert same(first, second)


def test_gradients_of_another_module_are_refused():
    params = nnx.state(nnx.Linear(3, 2, rngs=nnx.Rngs(0)), nnx.Param)
    with pytest.raises(jaxarch.ArgumentError, match=r"^gradients: 'kernel' has none; differentiate with"):
        jaxarch.saliency.snip(params, nnx.LayerNorm(3, rngs=nnx.Rngs(0)))
