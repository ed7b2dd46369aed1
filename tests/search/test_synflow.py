"""SynFlow in rounds: by hand, beside the published loop in NumPy, and where others leave no path."""

from functools import cache
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import same

import jaxarch
from jaxarch import masks, saliency
from jaxarch.search import snip, synflow

KEY = jax.random.key(0)


def layers(kernels, biases=None):
    """A network of ReLUs with these weights, whatever the key."""
    biases = [np.zeros(kernel.shape[1], np.float32) for kernel in kernels] if biases is None else biases
    params = [{"kernel": k, "bias": b} for k, b in zip(kernels, biases, strict=True)]

    def apply(params, x):
        for index, layer in enumerate(params):
            x = (jax.nn.relu(x) if index else x) @ layer["kernel"] + layer["bias"][None]
        return x

    return lambda key: jax.tree.map(jnp.asarray, params), apply


def learning(model, inputs, outputs, x=None, **changes):
    x = np.random.default_rng(0).normal(size=(12, inputs)).astype(np.float32) if x is None else x
    return jaxarch.supervised(
        model,
        (x, np.arange(12) % outputs),
        loss=optax.softmax_cross_entropy_with_integer_labels,
        optimizer=optax.sgd(0.1),
        steps=1,
        **changes,
    )


def drawn(*widths):
    """Kernels of a size that suits ReLUs."""
    shapes = pairwise(widths)
    rng = np.random.default_rng(1)
    return [(rng.normal(size=shape) * np.sqrt(2 / shape[0])).astype(np.float32) for shape in shapes]


def kernels_of(mask):
    return [np.asarray(layer["kernel"]) for layer in mask]


ONES = np.ones((12, 1), np.float32)


def left(mask):
    """Which connections a mask keeps, layer by layer."""
    return ["".join(str(int(entry)) for entry in kernel.ravel()) for kernel in kernels_of(mask)]


@pytest.mark.long
def test_a_saliency_is_the_sum_over_paths_of_the_products_of_sizes():
    # The hidden neurons are 1 + 5, 11.5 and 2: saliencies are 4, 23 and 2 before them, 24, 23 and 2 behind.
    kernels = [np.float32([[-1, 11.5, 2]]), np.float32([[4], [-2], [1]])]
    problem = learning(layers(kernels, [np.float32([-5, 0, 0]), np.float32([0])]), 1, 1, -3 * ONES)
    several = synflow((5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6), rounds=1)(KEY, problem)
    masks_left = [left(several[jaxarch.ByDensity].masks[f"{kept / 6:.6g}"]) for kept in (5, 4, 3, 2, 1)]
    assert masks_left == [["111", "110"], ["110", "110"], ["010", "110"], ["010", "100"], ["000", "100"]]


SMALL = [np.float32([[1, 1]]), np.float32([[3, 2], [4, 0.5]])]
"""Saliencies are 5 and 4.5 in the first layer, 3, 2, 4 and .5 in the second."""


@pytest.mark.long
def test_a_round_judges_the_network_that_the_round_before_has_left():
    # In three rounds 4, 3 and 2 are left. After the first, saliencies are 3 and 4 in either layer.
    problem = learning(layers(SMALL), 1, 2, ONES)
    assert left(synflow(1 / 3, rounds=1)(KEY, problem).mask) == ["11", "0000"]
    assert left(synflow(1 / 3, rounds=3)(KEY, problem).mask) == ["01", "0010"]


def test_what_is_pruned_does_not_come_back():
    # The first round keeps 10 of 27: one path, and what is behind eight neurons that nothing comes to. The
    # second keeps 4, the path and two that have no flow, as have those that were pruned and come before.
    first = np.ones((2, 9), np.float32)
    first[:, 0] = 5, 0.01
    problem = learning(layers([first, np.ones((9, 1), np.float32)]), 2, 1)
    assert left(synflow(0.37**2, rounds=2)(KEY, problem).mask) == ["1" + 17 * "0", "111000000"]


def by_the_published_loop(kernels, biases, density, rounds):
    """Algorithm 1 in NumPy: scores of products of sizes, the fewest left after each round."""
    kept = [np.ones(kernel.shape, bool) for kernel in kernels]
    total = sum(kernel.size for kernel in kernels)
    for k in range(1, rounds + 1):
        sizes = [np.float64(np.abs(kernel * mask)) for kernel, mask in zip(kernels, kept, strict=True)]
        forward = [np.ones(kernels[0].shape[0])]
        for size, bias in zip(sizes, biases, strict=True):
            forward.append(forward[-1] @ size + np.abs(bias))
        backward = [np.ones(kernels[-1].shape[1])]
        for size in sizes[::-1]:
            backward.append(size @ backward[-1])
        scores = [
            np.where(mask, size * np.outer(before, behind), -1)
            for mask, size, before, behind in zip(kept, sizes, forward, backward[-2::-1], strict=False)
        ]
        least = np.sort(np.concatenate([score.ravel() for score in scores]))[::-1]
        threshold = least[round(density ** (k / rounds) * total) - 1]
        kept = [score >= threshold for score in scores]
    return kept


@pytest.mark.parametrize("rounds", [1, 7, 100])
def test_it_is_the_published_loop(rounds):
    kernels = drawn(5, 12, 4, 12, 3)
    biases = [np.linspace(-0.1, 0.2, kernel.shape[1], dtype=np.float32) for kernel in kernels]
    problem = learning(layers(kernels, biases), 5, 3)
    found = jax.jit(synflow((0.4, 0.15), rounds=rounds))(KEY, problem)
    for density in (0.4, 0.15):
        ours = kernels_of(found[jaxarch.ByDensity].masks[f"{density}"])
        assert same(ours, by_the_published_loop(kernels, biases, density, rounds))


DEEP = drawn(8, 32, 32, 32, 32, 3)
"""A network of which nothing but SynFlow in rounds leaves a path at a density of half a percent."""


@cache
def of_deep(densities=0.005, rounds=100):
    return jax.jit(synflow(densities, rounds=rounds))(KEY, learning(layers(DEEP), 8, 3))


def paths(mask):
    """The products of sizes along all paths that are left."""
    left = [np.abs(kernel) * kept for kernel, kept in zip(DEEP, kernels_of(mask), strict=True)]
    return np.linalg.multi_dot(left).sum()


@pytest.mark.long
def test_there_is_a_path_where_one_round_magnitudes_and_snip_leave_none():
    problem = learning(layers(DEEP), 8, 3)
    params, _ = problem.init(KEY)
    assert paths(of_deep().mask) > 0
    assert paths(of_deep(rounds=1).mask) == 0
    assert paths(masks.keep(saliency.magnitude(params), 0.005)) == 0
    assert paths(jax.jit(snip(0.005))(KEY, problem).mask) == 0


@pytest.mark.long
def test_a_branch_that_little_flow_goes_through_is_emptied_and_a_path_is_left():
    before, branch, back, behind = drawn(8, 16, 64, 16, 3)
    shortcut = np.full((16, 16), 0.01, np.float32)
    params = {"before": before, "branch": branch, "back": back, "behind": behind, "shortcut": shortcut}

    def apply(params, x):
        x = x @ params["before"]
        x = jax.nn.relu(x @ params["branch"]) @ params["back"] + x @ params["shortcut"]
        return x @ params["behind"]

    scores = saliency.synflow(lambda params: apply(params, jnp.ones((1, 8))), params)
    assert scores["shortcut"].sum() < 0.01 * scores["back"].sum()
    problem = learning((lambda key: jax.tree.map(jnp.asarray, params), apply), 8, 3)
    found = jax.jit(synflow((0.3, 0.01)))(KEY, problem)[jaxarch.ByDensity]
    for density in ("0.3", "0.01"):
        left = {name: int(mask.sum()) for name, mask in found.masks[density].items()}
        assert left.pop("shortcut") == 0 and min(left.values()) > 0
        sizes = masks.apply_mask(found.masks[density], jax.tree.map(jnp.abs, params))
        assert (apply(sizes, jnp.ones((1, 8))) > 0).any()


@pytest.mark.long
def test_every_density_is_exact_and_what_it_is_alone():
    several = of_deep((0.3, 0.033, 0.005))
    size = sum(kernel.size for kernel in DEEP)
    for density in (0.3, 0.033, 0.005):
        assert int(masks.connections(several[jaxarch.ByDensity].masks[f"{density}"])) == round(density * size)
    assert same(several.mask, of_deep().mask)


@pytest.mark.long
def test_no_data_are_looked_at():
    one, other = (learning(layers(DEEP), 8, 3, factor * np.ones((12, 8), np.float32)) for factor in (1, -3))
    assert same(
        jax.jit(synflow(0.1, rounds=2))(KEY, one).mask, jax.jit(synflow(0.1, rounds=2))(KEY, other).mask
    )


@pytest.mark.parametrize(
    ("factor", "failed_at"), [(1.0, -1), (1e15, 0), (0.0, 0)], ids=["a network", "overflow", "no flow"]
)
def test_saliencies_that_say_nothing_are_told(factor, failed_at):
    kernels = [np.float32(factor * kernel) for kernel in drawn(2, 3, 3, 2)]
    network = synflow(0.5, rounds=2)(KEY, learning(layers(kernels), 2, 2))
    assert int(network.info.failed_at) == failed_at


@pytest.mark.long
def test_the_first_round_that_fails_is_told_of_the_density_that_it_is_of():
    # Two rounds to one connection of six: after the first, the two of the first layer are left.
    search, problem = synflow((1.0, 1 / 6), rounds=2), learning(layers(SMALL), 1, 2, ONES)
    assert int(search(KEY, problem).info.failed_at) == 1
    assert int(jaxarch.chain(search, jaxarch.at_density(1.0))(KEY, problem).info.failed_at) == -1


def embedding():
    def init(key):
        return {"table": jnp.ones((5, 2)), "head": jnp.ones((2, 3))}

    def apply(params, x):
        return params["table"][x].mean(1) @ params["head"]

    return init, apply


def test_inputs_that_are_no_floats_are_refused():
    problem = learning(embedding(), 4, 3, np.zeros((12, 4), np.int32))
    with pytest.raises(
        jaxarch.ArgumentError, match="expected floating-point inputs, which synflow sets to 1"
    ):
        synflow(0.5, rounds=1)(KEY, problem)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: synflow(0.0), r"densities: expected a number in \(0, 1\]"),
        (lambda: synflow(0.5, rounds=0), "rounds: expected an integer of at least 1"),
        (lambda: synflow(0.5, units="2:4"), "rounds: 2:4 is pruned in one round; give rounds=1"),
        (lambda: synflow(0.25, rounds=1, units="2:4"), "density: 2:4 keeps 0.5 of the connections"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(make, message):
    with pytest.raises(jaxarch.ArgumentError, match=message):
        make()
