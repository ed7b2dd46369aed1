"""Architectures that are drawn, and SNIP's: exact sizes, the densities of layers, saliency by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import keys, problem, same

import jaxarch
from jaxarch.masks import erk_densities
from jaxarch.search import grasp, random_mask, snip


@pytest.mark.parametrize("scope", ["global", "layer", "erk"])
@pytest.mark.parametrize("density", [0.013, 0.5, 1.0])
def test_a_random_mask_has_exactly_its_size(scope, density):
    search = random_mask(density, scope=scope)
    network = jax.jit(search)(keys()[0], problem().of_run(0))
    assert int(jaxarch.masks.connections(network.mask)) == round(density * 2 * 64 * 64)


@pytest.mark.long
@pytest.mark.parametrize("search", [random_mask, snip, grasp])
def test_of_several_densities_each_is_what_it_is_alone(search):
    one = problem().of_run(0)
    several = jax.jit(search((0.5, 0.1)))(keys()[0], one)
    taken = jaxarch.at_density(0.5)(keys()[0], one, several)
    assert same(taken.mask, jax.jit(search(0.5))(keys()[0], one).mask)
    assert same(several.mask, several[jaxarch.ByDensity].masks["0.1"])


def test_uniform_layers_differ_by_one_connection_at_most():
    network = random_mask(0.013, scope="layer")(keys()[0], problem().of_run(0))
    counts = [int(leaf.sum()) for leaf in jax.tree.leaves(network.mask)]
    assert abs(counts[0] - counts[1]) <= 1


@pytest.mark.long
def test_every_run_draws_another():
    network, _ = jaxarch.over_seeds(random_mask(0.2), keys(), problem())
    assert float(jaxarch.overlap(network.of_run(0).mask, network.of_run(1).mask)) < 0.2


def test_erk_densities_are_those_of_the_formula_by_hand():
    # 100 x 10 and 3 x 3 x 8 x 16: sums 110 and 30 of sizes 1000 and 1152; half of 2152 is 1076 = 140 epsilon.
    densities = erk_densities({"dense": (100, 10), "conv": (3, 3, 8, 16)}, 0.5)
    assert np.isclose(densities["dense"], 1076 / 140 * 110 / 1000)
    assert np.isclose(densities["conv"], 1076 / 140 * 30 / 1152)


def test_erk_keeps_small_leaves_whole_and_the_total_all_the_same():
    shapes = {"body": (300, 300), "head": (300, 2)}
    densities = erk_densities(shapes, 0.3)
    assert densities["head"] == 1.0
    kept = sum(densities[path] * np.prod(shape) for path, shape in shapes.items())
    assert np.isclose(kept, 0.3 * (300 * 300 + 600))


def test_snip_keeps_the_connections_with_the_largest_weight_times_gradient():
    x = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    y = (x @ np.array([1.0, 0.0, -2.0])).astype(np.float32)

    def init(key):
        return {"w": jnp.asarray([[0.5, 0.5, 0.1]])}

    def apply(params, x):
        return (x @ params["w"].T)[:, 0]

    learning = jaxarch.supervised(
        (init, apply), (x, y), loss=optax.squared_error, optimizer=optax.sgd(0.1), steps=1
    )
    weights = np.array([0.5, 0.5, 0.1])
    saliency = np.abs(weights * (2 * (x @ weights - y)[:, None] * x).mean(0))
    network = snip(0.4)(keys()[0], learning)
    np.testing.assert_allclose(network.info["saliency"]["w"][0], saliency, rtol=1e-5)
    assert np.flatnonzero(network.mask["w"][0]).tolist() == [int(saliency.argmax())]


@pytest.mark.long
def test_snip_over_many_batches_comes_near_to_that_of_all_rows():
    def saliency(batch_size, batches):
        learning = problem(batch_size=batch_size).of_run(0)
        return np.asarray(snip(0.5, batches=batches)(keys()[0], learning).info["saliency"]["w1"])

    whole = saliency(None, 1)
    one, many = (np.linalg.norm(saliency(4, batches) - whole) for batches in (1, 256))
    assert many < one / 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: random_mask(0.0), r"densities: expected a number in \(0, 1\]"),
        (lambda: random_mask(0.5, scope="even"), "scope: expected"),
        (lambda: snip(1.5), r"densities: expected a number in \(0, 1\]"),
        (lambda: snip(0.5, batches=0), "batches: expected an integer of at least 1"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.long
def test_many_runs_are_described_under_strict_promotion():
    # Remarks on masks of all runs are made on the host, after the stage.
    with jax.numpy_dtype_promotion("strict"):
        network, _ = jaxarch.over_seeds(jaxarch.search.random_mask(0.25), keys(4), problem())
    assert jax.vmap(jaxarch.density)(network.mask).tolist() == [0.25] * 4
