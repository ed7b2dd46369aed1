"""The contract that every method keeps: pure, jittable, mappable, one trace, any pytree of parameters."""

import ast
import dataclasses
import inspect
from pathlib import Path

import jax
import numpy as np
import pytest
from compilations import compilations
from methods import IN_JAX, LONG, METHODS, RUN, RUNS, keys, problem_for, problem_of, strategy_of
from small import close, problem_in_containers, same

import jaxarch
from jaxarch.run._stage import as_stage

PACKAGE = Path(jaxarch.__file__).parent


@pytest.fixture(scope="module")
def networks():
    """What every method finds, by name: each is run once, for all tests."""
    found = {}

    def of(name):
        if name not in found:
            found[name] = jaxarch.over_seeds(strategy_of(name), keys(), problem_of(name))
        return found[name]

    return of


@pytest.mark.parametrize("folder", ["search", "transforms"])
def test_every_method_of_a_folder_is_listed(folder):
    described = {
        node.name
        for path in (PACKAGE / folder).glob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef)
        and any("method(" in ast.unparse(decorator) for decorator in node.decorator_list)
    }
    assert described
    assert described <= set(METHODS)


def test_what_is_said_to_take_long_is_there():
    assert set(IN_JAX) >= LONG


@pytest.mark.parametrize("name", METHODS)
def test_its_docstring_has_a_summary_and_says_what_it_takes_returns_and_refuses(name):
    text = inspect.getdoc(METHODS[name].make)
    assert METHODS[name].summary.endswith((".", "]).", ")."))
    assert "Returns:" in text
    has_arguments = bool(inspect.signature(METHODS[name].make).parameters)
    assert ("Args:" in text) == has_arguments


@pytest.mark.parametrize("name", METHODS)
def test_two_of_equal_settings_are_equal_and_hash_alike(name):
    first, second = METHODS[name].stage(), METHODS[name].stage()
    assert first is not second
    assert first == second
    assert hash(first) == hash(second)


@pytest.mark.long
@pytest.mark.parametrize("name", METHODS)
def test_over_seeds_gives_one_finite_result_a_run(name, networks):
    network, report = networks(name)
    outputs = jaxarch.evaluate(strategy_of(name), network, problem_of(name), np.arange(5))
    assert outputs.shape[:2] == (RUNS, 5)
    assert np.isfinite(outputs).all()
    assert report.seconds >= 0
    assert all(leaf.shape[0] == RUNS for leaf in jax.tree.leaves(network))


@pytest.mark.long
@pytest.mark.parametrize("name", RUN)
def test_a_second_equal_call_compiles_nothing(name, networks):
    networks(name)
    with compilations() as seen:
        jaxarch.over_seeds(strategy_of(name), keys(), problem_of(name))
    assert seen == []


@pytest.mark.long
@pytest.mark.parametrize("name", RUN)
def test_parameters_have_the_structure_shapes_and_dtypes_of_the_problem_s(name, networks):
    network = networks(name)[0].of_run(0)
    params, _ = jax.eval_shape(problem_of(name).init, keys()[0])
    assert jax.tree.structure(network.params) == jax.tree.structure(params)
    for leaf, expected in zip(jax.tree.leaves(network.params), jax.tree.leaves(params), strict=True):
        assert (leaf.shape, leaf.dtype) == (expected.shape, expected.dtype)


@pytest.mark.parametrize("name", RUN)
def test_parameters_are_masked_already(name, networks):
    network = networks(name)[0].of_run(0)
    if network.mask is None:
        assert network.get(jaxarch.NeuronMask) is not None
        return
    assert same(jaxarch.masks.apply_mask(network.mask, network.params), network.params)


@pytest.mark.parametrize("name", RUN)
def test_it_removes_no_more_than_it_says(name, networks):
    network = networks(name)[0]
    if network.mask is not None and METHODS[name].needs.network != "required":
        is_whole = all(leaf.all() for leaf in jax.tree.leaves(network.mask))
        removes = {removed for stage in strategy_of(name).stages for removed in stage.removes}
        assert is_whole or "connections" in removes


@pytest.mark.long
@pytest.mark.parametrize("name", IN_JAX)
def test_a_run_is_the_same_alone_and_mapped(name, networks):
    # Alone it is one loop of all steps; `over_seeds` maps it over the runs and devices.
    one = jax.jit(strategy_of(name))(keys()[1], problem_of(name).of_run(1))
    other = networks(name)[0].of_run(1)
    for made in (lambda n: n.params, lambda n: n.mask, lambda n: n.get(jaxarch.NeuronMask)):
        assert close(made(one), made(other), 1e-4)


@pytest.mark.parametrize("name", RUN)
def test_runs_with_other_keys_are_others(name, networks):
    network = networks(name)[0]
    assert not same(network.of_run(0).params, network.of_run(1).params)


@pytest.mark.parametrize("name", RUN)
def test_its_loss_is_traced_as_often_for_many_runs_as_for_one(name):
    counts = []
    for runs in (1, RUNS):
        traces = []
        learning = problem_of(name, runs=runs)

        def loss(params, state, batch, key, learning=learning, traces=traces):
            traces.append(1)
            return learning.loss(params, state, batch, key)

        shapes = dataclasses.replace(learning, loss=loss)
        jax.eval_shape(jax.vmap(strategy_of(name), in_axes=(0, shapes.in_axes())), keys(runs), shapes)
        counts.append(len(traces))
    assert counts[0] == counts[1]


@pytest.mark.parametrize("name", [run for run in RUN if METHODS[run.values[0]].parent == "any"])
def test_parameters_may_be_any_pytree(name):
    learning = problem_in_containers()
    network = jax.eval_shape(strategy_of(name), keys()[0], learning)
    params, _ = jax.eval_shape(learning.init, keys()[0])
    assert jax.tree.structure(network.params) == jax.tree.structure(params)
    assert network.mask["bias"] is None


@pytest.mark.parametrize("name", METHODS)
def test_what_it_cannot_do_without_is_refused_before_anything_is_run(name):
    stage = jaxarch.chain(METHODS[name].stage()).stages[0]
    if stage.needs.network == "required":
        with pytest.raises(jaxarch.ArgumentError, match="it needs a network; put a search before it"):
            jaxarch.over_seeds(stage, keys(), problem_of(name))
    if stage.needs.network == "none":
        with pytest.raises(jaxarch.ArgumentError, match="makes a network from nothing"):
            jaxarch.chain(jaxarch.search.random_mask(0.5), stage)
    if stage.needs.validation:
        blind = dataclasses.replace(problem_of(name), validation=None)
        with pytest.raises(jaxarch.ArgumentError, match="needs a problem with validation rows"):
            jaxarch.over_seeds(strategy_of(name), keys(), blind)


def test_plain_functions_are_stages_by_what_they_take():
    kinds = [
        (lambda key, problem: None, "none"),
        (lambda key, problem, network: None, "required"),
        (lambda key, problem, network=None: None, "optional"),
    ]
    for function, needs in kinds:
        assert as_stage(function).needs.network == needs


def test_there_is_a_problem_for_every_kind_of_parent():
    for method in METHODS.values():
        assert problem_for(method.parent).runs == RUNS
