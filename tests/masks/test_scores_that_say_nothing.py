"""Scores and masks that mean little are named: by `masks.keep`, and by searches, once for all runs."""

import dataclasses
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxarch
from jaxarch import masks, saliency, search
from jaxarch.masks import _findings as findings
from jaxarch.masks import keep

KEY = jax.random.key(0)


def drawn(number, shape=(8, 8)):
    return jax.random.normal(jax.random.fold_in(KEY, number), shape)


def said(call):
    """The one line that a call warns with; nothing if it warns of nothing."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    assert all(warning.category is jaxarch.ResultWarning for warning in caught) and len(caught) < 2
    return str(caught[0].message) if caught else ""


HEALTHY = {"a": abs(drawn(0)), "b": abs(drawn(1)), "bias": None}


@pytest.mark.parametrize("scope", ["global", "layer", "erk"])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_of_scores_that_tell_connections_apart_nothing_is_said(scope, dtype):
    scores = jax.tree.map(lambda leaf: leaf.astype(dtype), HEALTHY)
    assert said(lambda: keep(scores, 0.2, scope)) == ""


SAID = {
    "NaN": ({"b": drawn(1).at[:2].set(jnp.nan)}, 0.5, "16 of 128 scores are NaN, in 'b', and rank last"),
    "infinite": ({"b": drawn(1).at[0, 0].set(jnp.inf)}, 0.5, "1 of 128 scores are infinite, in 'b'"),
    "zero": ({"a": jnp.zeros((8, 8)), "b": jnp.zeros((8, 8))}, 0.1, "all scores are 0, in 'a', 'b'"),
    "ties": ({"b": jnp.full((8, 8), 0.5)}, 0.5, "kept connections have the same score as"),
    "a layer of zeros": ({"b": jnp.zeros((8, 8))}, 0.4, "kept in 'b'; all scores of 'b' are 0"),
    "starved": ({"b": 1e-3 * abs(drawn(1))}, 0.3, "no connection is kept in 'b'; give a larger density"),
    "whole": ({"b": 100 + drawn(1)}, 0.5, "every connection is kept in 'b'"),
    "below zero": ({"b": -abs(drawn(1)).at[:3].set(0)}, 0.8, "score of 0, while 26 with"),
}


def test_ties_are_told_of_each_leaf_where_each_keeps_its_own():
    scores = {"a": jnp.full((8, 8), 0.5), "b": abs(drawn(1))}
    assert "32 of 64 kept connections have the same score as 32 pruned ones" in said(
        lambda: keep(scores, 0.5, "layer")
    )


@pytest.mark.parametrize("scores, density, text", SAID.values(), ids=SAID)
def test_what_a_mask_says_little_of_is_named_in_one_line(scores, density, text):
    line = said(lambda: keep(HEALTHY | scores, density))
    assert line.startswith("scores: ") and text in line and "\n" not in line


def test_scores_that_are_all_nan_and_densities_that_keep_nothing_are_refused():
    with pytest.raises(jaxarch.ArgumentError, match="scores: all 128 are NaN, in 'a', 'b'; look for NaN"):
        keep({path: jnp.full((8, 8), jnp.nan) for path in "ab"}, 0.5)
    with pytest.raises(
        jaxarch.ArgumentError, match=r"density: 0.003 of 128 .* to none; give 0.00781 or more"
    ):
        keep(HEALTHY, 0.003)


def test_under_a_transformation_the_mask_is_the_same_and_nothing_is_said():
    scores = {"a": jnp.zeros((8, 8))}
    made = []
    assert said(lambda: made.append(jax.jit(lambda scores: keep(scores, 0.1))(scores))) == ""
    assert (made[0]["a"] == masks.top_k(scores, 6)["a"]).all()


# Rounds ----------------------------------------------------------------------------------------------


def test_a_connection_that_is_pruned_does_not_come_back_whatever_its_score_is():
    held, before = {"a": drawn(0), "b": drawn(1)}, None
    for density in (0.75, 0.5, 0.25):  # half of the scores are below those of what is pruned
        mask = keep(held, density, within=before)
        assert sum(int(leaf.sum()) for leaf in mask.values()) == round(density * 128)
        assert before is None or all((before[path] | ~mask[path]).all() for path in mask)
        held, before = masks.apply_mask(mask, held), mask


@pytest.mark.parametrize("dtype", [jnp.int8, jnp.int32, jnp.uint32])
def test_the_least_integer_within_a_mask_is_kept_before_others_outside_of_it(dtype):
    scores = jnp.array([jnp.iinfo(dtype).max, jnp.iinfo(dtype).min, 5, 3], dtype)
    within = jnp.array([False, True, True, False])
    assert masks.top_k(scores, 2, within).tolist() == within.tolist()


def test_an_earlier_mask_is_found_by_path_as_in_a_dict_of_them_or_in_one_with_more_leaves():
    scores, before = {"a": {"w": drawn(0)}}, drawn(1) > 0
    for within in ({"a/w": before}, {"a": {"w": before}, "b": before}):
        kept = keep(scores, 0.1, within=within)
        assert kept.keys() == {"a"} and not (kept["a"]["w"] & ~before).any()


def test_nan_within_a_mask_is_kept_before_others_outside_of_it():
    scores, within = jnp.array([9, jnp.nan, 1, -jnp.inf]), jnp.array([False, True, True, False])
    assert masks.top_k(scores, 2, within).tolist() == within.tolist()


def test_what_is_left_is_all_that_a_traced_density_keeps_and_a_given_one_is_refused():
    within = {"a": jnp.arange(64).reshape(8, 8) < 10}
    kept = jax.jit(lambda density: keep({"a": drawn(0)}, density, within=within))(0.5)
    assert (kept["a"] == within["a"]).all()
    with pytest.raises(
        jaxarch.ArgumentError, match="density: it asks for 32, but `within` has only 10; give a lower"
    ):
        keep({"a": drawn(0)}, 0.5, within=within)
    with pytest.raises(jaxarch.ArgumentError, match="density: it asks for 32 of 'a', but `within` has"):
        keep({"a": drawn(0)}, 0.5, scope="layer", within=within)


@pytest.mark.parametrize("within", [{"a": None}, {"a": jnp.ones((8, 8))}, {"a": jnp.ones(8, bool)}, {"a": 1}])
def test_a_mask_of_other_leaves_is_refused(within):
    with pytest.raises(jaxarch.ArgumentError, match="within: "):
        keep({"a": drawn(0)}, 0.5, within=within)


def test_units_are_compared_by_what_is_left_of_them_and_none_comes_back():
    kernel = jnp.array([[1.0, 2], [3, 9], [5, 6]])
    within = {"kernel": jnp.array([[1, 1], [1, 0], [0, 0]], bool)}
    rows = keep({"kernel": kernel}, 1 / 3, units=masks.Blocks(1, 2), within=within)
    assert rows["kernel"].astype(int).tolist() == [[0, 0], [1, 0], [0, 0]]


def test_n_of_m_keeps_up_to_n_of_what_is_left():
    kernel = jnp.array([[9.0, 9], [8, -1], [jnp.nan, -2], [7, 7]])
    within = jnp.array([[0, 1], [1, 0], [1, 0], [0, 0]], bool)
    mask = keep({"kernel": kernel}, units="2:4", within={"kernel": within})["kernel"]
    assert (mask == within).all()
    assert (masks.NOfM(2, 4).largest({"kernel": kernel}, None, {"kernel": within})["kernel"] == within).all()


# Searches --------------------------------------------------------------------------------------------


def problem_of(last):
    x, y = np.asarray(drawn(2, (20, 8))), np.arange(20) % 3

    def init(key):
        return {"a": {"kernel": jax.random.normal(key, (8, 8))}, "head": {"kernel": last}}, {}

    def apply(params, state, x, key):
        return jnp.tanh(x @ params["a"]["kernel"]) @ params["head"]["kernel"], state

    loss = optax.softmax_cross_entropy_with_integer_labels
    return jaxarch.supervised(
        jaxarch.Model(init, apply), (x, y), loss=loss, optimizer=optax.sgd(0.1), steps=2
    )


ZEROS = problem_of(jnp.zeros((8, 3)))
KEYS = jax.random.split(KEY, 3)


@pytest.mark.parametrize(
    "stage, text",
    [
        (search.snip(0.5), "all scores are 0, in 'a/kernel', 'head/kernel' .* 'head/kernel' starts at 0"),
        (search.initial_magnitude(0.5), "no connection is kept in 'head/kernel' .in 3 of 3 runs."),
        (search.synflow(0.5, rounds=1), "saliencies are infinite, NaN or all 0 in 3 of 3 runs"),
        (search.random_mask(0.01), "no connection is kept in "),
    ],
    ids=["SNIP", "magnitude", "SynFlow", "random"],
)
def test_a_search_says_once_for_all_runs_what_its_scores_do_not_tell(stage, text):
    with pytest.warns(jaxarch.ResultWarning, match=text) as caught:
        _, report = jaxarch.over_seeds(stage, KEYS, ZEROS)
    assert len(caught) == 1 and report.notes == (str(caught[0].message),)


LEARNED = {
    "two-temperature": search.two_temperature(density=0.5),
    "two-temperature of its own density": search.two_temperature(),
    "edge-popup": search.edge_popup(0.5),
    "biprop": search.biprop(0.5),
    "movement": search.movement(0.5, scope="global", warmup=0.0, cooldown=0.0),
    "architecture pruning": search.architecture_pruning((0.5,), strength=1.0),
    "continuous sparsification": search.continuous_sparsification(0.5),
    "hard concrete": search.hard_concrete(0.5),
    "ProbMask": search.probmask(0.5),
    "MaskLLM": search.maskllm(),
    "SR-STE": search.sr_ste(),
    "soft threshold": search.soft_threshold(),
    "gradual magnitude": search.gradual_magnitude(0.5),
    "GraNet": search.granet(0.5),
    "AC/DC": search.acdc(0.5),
    "RigL": search.rigl(0.5),
    "CHT": search.cht(0.5),
    "Top-KAST": search.top_kast(0.5),
    "sparse evolution": search.sparse_evolution(0.5),
}


@pytest.mark.long
@pytest.mark.parametrize("stage", LEARNED.values(), ids=LEARNED)
def test_a_search_that_learns_says_once_which_layers_it_leaves_empty(stage):
    def found(settings, state):
        network = stage.network(settings, state)
        head = {"kernel": jnp.zeros_like(network.mask["head"]["kernel"])}
        return network.without(jaxarch.ByDensity).replace(mask={"a": network.mask["a"], "head": head})

    emptying = dataclasses.replace(stage, network=found)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", jaxarch.ResultWarning)
        _, report = jaxarch.over_seeds(emptying, KEYS, problem_of(drawn(3, (8, 3))), max_parallel_runs=1)
    told = [str(warning.message) for warning in caught if "no connection is kept" in str(warning.message)]
    assert len(told) == 1 and told[0] in report.notes
    assert told[0].startswith(f"{stage.name}: no connection is kept in 'head/kernel' (in 3 of 3 runs); give")


@pytest.mark.long
def test_a_search_whose_scores_are_all_nan_is_refused():
    with pytest.raises(jaxarch.ArgumentError, match="snip: scores: all 88 are NaN"):
        jaxarch.over_seeds(search.snip(0.5), KEYS, problem_of(jnp.full((8, 3), jnp.nan)))


@pytest.mark.long
def test_pruning_says_which_layers_are_lost():
    first = search.random_mask(1.0)
    strategy = jaxarch.chain(first, jaxarch.prune(0.9))
    with pytest.warns(jaxarch.ResultWarning, match="prune: no connection is kept in 'head/kernel'"):
        jaxarch.over_seeds(strategy, KEYS, problem_of(1e-6 * jnp.ones((8, 3))))


@pytest.mark.long
def test_of_a_healthy_search_nothing_is_said():
    problem = problem_of(drawn(3, (8, 3)))
    for stage in (search.snip(0.4), search.random_mask(0.4)):
        assert said(lambda stage=stage: jaxarch.over_seeds(stage, KEYS, problem)) == ""


def test_saliencies_that_overflow_are_said_to():
    deep = {"a": 1e20 * drawn(0), "b": 1e20 * drawn(1)}
    with pytest.warns(
        jaxarch.ResultWarning, match="128 of 128 scores are infinite, in 'a', 'b': they overflow"
    ):
        keep(saliency.synflow(lambda p: jnp.ones((1, 8)) @ p["a"] @ p["b"] * 1e10, deep), 0.1)


@pytest.mark.parametrize("pooled", [True, False])
def test_a_compiled_program_counts_what_numpy_does(pooled):
    scores = {"a": drawn(0, (2, 5, 4)), "b": drawn(1, (2, 6)).at[:, 0].set(jnp.nan).at[0, 1:3].set(0)}
    mask = jax.tree.map(lambda leaf: leaf > 0.2, scores)
    left = jax.tree.map(lambda leaf: (leaf > -0.5) | jnp.isnan(leaf), scores)
    for there in (left, dict.fromkeys(scores)):
        arrays = [(scores[path], mask[path], there[path]) for path in scores]
        by_numpy = findings._counts(np, jax.tree.map(np.asarray, arrays), np.int64, pooled)
        assert (np.asarray(findings._compiled_counts(arrays, pooled)) == by_numpy).all()


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.int8, bool])
def test_scores_of_any_dtype_are_counted_under_strict_promotion(dtype):
    scores, mask = {"w": jnp.zeros(4, dtype)}, {"w": jnp.ones(4, bool)}
    with jax.numpy_dtype_promotion("strict"):
        assert findings.look(scores, mask).zero.tolist() == [[4]]
