"""What benchmarks compare is the same computation, and there is something to compare."""

import dataclasses
import os

import pytest
from places import ROOT

with pytest.MonkeyPatch.context() as patch:
    # On import it sets how XLA runs, for a process of its own.
    for name in ("XLA_FLAGS", "JAX_PLATFORMS"):
        patch.setenv(name, os.environ.get(name, ""))
    patch.syspath_prepend(ROOT / "benchmarks")
    import smaller_models
    import spectral_pass
    import stored_tournaments


@pytest.fixture(scope="module", params=smaller_models.CASES, ids=lambda case: f"{case.model}, {case.what}")
def case(request):
    return dataclasses.replace(request.param, batch=1)


@pytest.fixture(scope="module")
def sides(case):
    return smaller_models.sides(case)


@pytest.mark.long
def test_a_cut_model_computes_what_the_masked_one_does_and_what_one_made_so_small_does(case, sides):
    smaller_models.check(case, sides)


@pytest.mark.long
def test_the_program_of_a_cut_model_costs_what_that_of_one_made_so_small_does(case, sides):
    def cost(side):
        program, leaves = sides[side]
        counted = program.lower(leaves, case.inputs(1)).compile().cost_analysis()
        return {unit: counted[unit] for unit in ("flops", "bytes accessed")}

    assert cost(smaller_models.SMALLER) == cost(smaller_models.BY_HAND)


def test_the_benchmark_of_a_pass_has_every_form_of_a_spectral_network_in_time_and_memory():
    measured = spectral_pass.measure((3, 4, 4, 2), 5, 2)
    networks = {"plain", "spectral", "gated", "materialised"}
    assert measured.keys() == networks | {f"{name} bytes" for name in networks}
    assert all(len(measured[name]) == 2 for name in networks)


@pytest.mark.long
def test_stored_tournaments_go_on_where_the_last_minutes_ended(tmp_path):
    settings = {"dataset": "digits", "seeds": 2, "steps": 5, "densities": "0.2"}
    methods = ("random", "SNIP")
    assert stored_tournaments.fill(tmp_path / "few", settings, methods, 0) == []
    done = stored_tournaments.fill(tmp_path / "few", settings, methods, 300)
    assert done == ["dense", "random", "SNIP"]
    assert stored_tournaments.missing(tmp_path / "few", (*methods, "AC/DC")) == ["AC/DC"]


def test_folders_to_be_filled_have_the_settings_that_the_page_has():
    page = (ROOT / "docs" / "tournament.md").read_text()
    for task in ("tournament_vgg16", "tournament_resnet18"):
        settings = stored_tournaments.TASKS[task]
        assert f"model={settings['model']}" in page
        assert f"steps={settings['steps']}" in page
