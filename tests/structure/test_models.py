"""Models of many families become smaller in one plain call, and compute what the masked ones do."""

from functools import cache

import jax
import pytest
from long_suite import partly_long
from places import ROOT

with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(ROOT / "benchmarks")
    import jax_models

MODELS = (
    "Llama under scan",
    "MLA",
    "Mamba 1, sequential",
    "Mamba 2",
    "bidirectional LSTM",
    "Swin",
    "YOLO",
    "DiT",
    "flow",
    "GNN",
)
QUICK = ("Mamba 1, sequential", "bidirectional LSTM", "flow", "GNN")


@pytest.fixture(autouse=True)
def biases_are_added_to_arrays_of_more_axes():
    """Public code relies on this, unlike the rest of the suite."""
    with jax.numpy_rank_promotion("allow"):
        yield


names = pytest.mark.parametrize("name", partly_long(MODELS, {*MODELS} - {*QUICK}))


@cache
def groups(name):
    model = jax_models.made(name)
    return model, jax_models.plan_of(model)


@cache
def planned(name):
    model, plan = groups(name)
    return model, plan, plan.apply()


@pytest.mark.parametrize("name", MODELS)
def test_all_groups_that_can_be_cut_by_hand_are_found(name):
    model, plan = groups(name)
    assert jax_models.missing(plan, model.expected) == {}


@pytest.mark.parametrize("name", MODELS)
def test_a_plan_uses_nearly_all_of_its_budget(name):
    _, plan = groups(name)
    assert 0.48 < plan.after.multiply_adds / plan.before.multiply_adds <= 0.5


@pytest.mark.long
@names
def test_a_smaller_model_computes_what_the_masked_one_does_for_another_number_of_examples(name):
    model, plan, small = planned(name)
    assert jax_models.difference_of_outputs(model, plan, small, jax_models.more(model.inputs)) < 1e-5


@pytest.mark.long
@names
def test_the_gradient_of_a_smaller_model_is_the_cut_gradient_of_the_masked_one(name):
    model, plan, small = planned(name)
    assert jax_models.difference_of_gradients(model, plan, small) < 1e-4


@pytest.mark.long
@pytest.mark.parametrize("name", ["Mamba 2", "Swin", "flow"])
def test_a_smaller_model_in_bfloat16_computes_what_the_masked_one_does(name):
    model, plan, _ = planned(name)
    assert jax_models.difference_in_bfloat16(model, plan) < 4 * jax.numpy.finfo(jax.numpy.bfloat16).eps


def test_experts_that_products_of_groups_of_rows_use_stay_whole_for_a_reason():
    model, plan = groups("MoE, ragged products")
    assert jax_models.missing(plan, model.expected) == {"experts": [4, 4]}
    assert any("it consists of groups of rows" in reason for reason in plan.groups.not_cut())
