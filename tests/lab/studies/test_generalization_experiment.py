"""Certified against measured errors, as an experiment: on digits and few steps."""

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from pages import charted

import jaxarch
from jaxarch.lab.data import load_images
from jaxarch.lab.harness import report_on, run_in
from jaxarch.lab.results import read_table
from jaxarch.lab.theory import generalization
from jaxarch.lab.theory.generalization import HALF, SHORT, Settings, prepare, searches
from jaxarch.lab.theory.oriented import oriented
from jaxarch.lab.theory.scattering import FINE, LIMIT, _energy, scattered
from jaxarch.lab.theory.sign_networks import (
    Scaled,
    _convolved,
    _windows,
    convolutional,
    multilayer,
    readout,
)

FEW = Settings(seeds=2, steps=200, densities=(0.2,), strengths=(1.0,), widths=(4,))
BOTH = pytest.mark.parametrize(
    "network", [convolutional((8, 8, 1), (4,), 10), multilayer((8, 8, 1), (20, 12), 10)]
)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("generalization")
    run_in(folder, generalization.EXPERIMENT, FEW)
    report_on(folder, generalization.EXPERIMENT)
    assert charted(folder, generalization.EXPERIMENT)
    return folder


def test_a_convolution_is_that_of_jax():
    x = jax.random.normal(jax.random.key(0), (2, 6, 5, 3))
    kernel = jax.random.normal(jax.random.key(1), (3, 3, 3, 4))
    expected = jax.lax.conv_general_dilated(
        x, kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    np.testing.assert_allclose(_convolved(x, kernel), expected, atol=1e-5)


@BOTH
def test_weights_are_signs_times_one_number_a_layer(network):
    for kernel in network.init(jax.random.key(0)).values():
        sizes = np.unique(np.abs(kernel))
        assert len(sizes) == 1
        assert len(np.unique(np.sign(kernel))) == 2


@BOTH
def test_the_scale_of_pixels_and_of_weights_changes_no_class(network):
    params, x = network.init(jax.random.key(0)), jax.random.uniform(jax.random.key(1), (5, 8, 8, 1))
    wider = Scaled(0.1)(jax.random.key(2), params)
    classes = network.apply(params, x).argmax(axis=1)
    np.testing.assert_array_equal(classes, network.apply(wider, 255 * x).argmax(axis=1))


def test_pictures_that_are_too_small_are_refused():
    with pytest.raises(jaxarch.ArgumentError, match="widths"):
        convolutional((8, 8, 1), (4, 4), 10)


def test_rows_that_errors_are_measured_on_are_not_chosen_by():
    problem = prepare(FEW.complete()).problems[1.0]
    assert not np.intersect1d(problem.training_rows(), problem.validation).size


def test_the_halves_are_the_training_rows():
    task = prepare(FEW.complete())
    both = np.concatenate(task.halves)
    np.testing.assert_array_equal(np.sort(both), np.sort(task.problems[1.0].training_rows()))


def edge(angle):
    y, x = np.mgrid[-8:8, -8:8] + 0.5
    return np.uint8(255 * (np.cos(angle) * x + np.sin(angle) * y > 0))[None, ..., None]


@pytest.mark.parametrize("direction", range(8))
def test_an_edge_is_largest_in_its_own_direction(direction):
    found = oriented(edge(2 * np.pi * direction / 8))
    assert found.shape == (1, 4, 4, 16)
    assert found[0, 1:3, 1:3, :8].max(axis=(0, 1)).argmax() == direction


@pytest.mark.parametrize("direction", range(4))
@pytest.mark.parametrize("bright", [True, False])
def test_a_bar_is_largest_in_its_own_direction(direction, bright):
    y, x = np.mgrid[-8:8, -8:8] + 0.5
    angle = np.pi * direction / 4
    inside = np.abs(np.cos(angle) * x + np.sin(angle) * y) < 1.5
    picture = np.uint8(255 * (inside == bright))[None, ..., None]
    bars = oriented(picture)[0, 1:3, 1:3, 8:].max(axis=(0, 1))
    assert bars.argmax() == 2 * direction + bright


def test_a_constant_picture_has_neither_edges_nor_bars():
    found = oriented(np.full((1, 32, 32, 1), 200, np.uint8))
    np.testing.assert_allclose(found, 0, atol=1e-6)


def test_the_largest_possible_edge_is_1():
    assert oriented(edge(0))[..., 0].max() == pytest.approx(1, abs=1e-6)


def test_rows_and_columns_beyond_the_last_whole_window_are_dropped():
    picture = np.zeros((1, 5, 5, 3), np.uint8)
    picture[:, 4], picture[:, :, 4] = 255, 255
    assert oriented(picture)[0, 0, 0, 16] == 0  # the brightness


def test_colours_are_six_more_features():
    red = np.zeros((1, 4, 4, 3), np.uint8)
    red[..., 0] = 255
    dark = [(0, 0.5, 0, 0, 0, 0), (1 / 6, 1 / 3, 0.5, 0, 0, 0.25)]
    for picture, expected in zip((0 * red, red), dark, strict=True):
        np.testing.assert_allclose(oriented(picture)[0, 0, 0], [0] * 16 + [*expected], atol=1e-6)


def test_features_of_a_picture_depend_on_no_other_picture():
    digits = load_images("digits").x[:5]
    np.testing.assert_array_equal(oriented(digits)[2:3], oriented(digits[2:3]))


def test_pictures_smaller_than_a_window_are_refused():
    with pytest.raises(jaxarch.ArgumentError, match="pool"):
        prepare(dataclasses.replace(FEW, features="oriented", pool=9).complete())


@pytest.fixture(scope="module")
def colourful():
    pictures = np.random.default_rng(0).integers(0, 256, (3, 18, 19, 3)).astype(np.uint8)
    return pictures, *scattered(pictures)


@pytest.mark.long
def test_scattered_features_are_counted_by_kind_and_limited(colourful):
    _, features, kinds = colourful
    assert features.shape == (3, sum(kinds.values()))
    assert features.dtype == np.float32
    assert np.abs(features).max() <= LIMIT


@pytest.mark.long
def test_scattered_features_of_a_picture_depend_on_no_other_picture(colourful):
    pictures, features, _ = colourful
    np.testing.assert_allclose(scattered(pictures[1:2])[0], features[1:2], atol=1e-3)


@pytest.mark.long
def test_rows_and_columns_beyond_the_last_whole_window_have_no_scattered_features(colourful):
    pictures, features, _ = colourful
    np.testing.assert_allclose(scattered(pictures[:, :16, :16])[0], features, atol=1e-3)


@pytest.mark.long
@pytest.mark.parametrize("direction", range(4))
def test_the_strongest_energy_is_in_the_direction_of_the_waves(direction):
    y, x = np.mgrid[-8:8, -8:8]
    angle = np.pi * direction / 4
    waves = np.sin(2 * (np.cos(angle) * x + np.sin(angle) * y))
    energy = _energy(jnp.asarray(waves, jnp.float32)[None, ..., None], FINE, 4, 1)
    assert energy.shape == (1, 16, 16, 4)
    assert (energy[0, 4:-4, 4:-4].argmax(axis=-1) == direction).all()


@pytest.mark.long
def test_grey_pictures_have_no_features_of_colours(colourful):
    pictures, _, kinds = colourful
    _, grey = scattered(pictures[..., :1])
    assert {kind for kind in kinds if "colours" in kind} == set(kinds) - set(grey)


def test_pictures_too_small_to_scatter_are_refused():
    with pytest.raises(jaxarch.ArgumentError, match="features"):
        scattered(np.zeros((1, 12, 16, 1), np.uint8))


def test_a_mask_of_a_readout_chooses_signs():
    network = readout({"first": 1, "second": 2}, 2)
    params = network.init(jax.random.key(0))
    size = np.sqrt(2 / 6)
    masked = jax.tree.map(jnp.zeros_like, params)
    masked["first"] = masked["first"].at[0, 0, 0].set(params["first"][0, 0, 0])
    masked["second"] = masked["second"].at[1, 1, 1].set(params["second"][1, 1, 1])
    found = network.apply(masked, jnp.array([[3.0, 5.0, 7.0]]))
    np.testing.assert_allclose(found, [[3 * size, -7 * size]], rtol=1e-6)


@pytest.mark.long
def test_the_plan_of_a_readout_counts_the_connections_of_both_signs(tmp_path):
    y = np.arange(40) % 2
    np.savez(tmp_path / "made.npz", x=np.zeros((40, 16, 16, 1), np.uint8), y=y)
    few = dataclasses.replace(FEW, dataset=str(tmp_path / "made.npz"), model="readout", widths=())
    lines = generalization.plan(few.complete())
    assert f"readout: {2 * 1160 * 2:,} connections of both signs" in lines


@pytest.mark.parametrize(
    ("asked", "features", "model"),
    [
        ({}, "scattered", "readout"),
        ({"model": "mlp"}, "oriented", "mlp"),
        ({"features": "oriented"}, "oriented", "convolutional"),
        ({"dataset": "mnist"}, "oriented", "convolutional"),
        ({"dataset": "mnist", "model": "readout"}, "scattered", "readout"),
        ({"dataset": "digits"}, "pixels", "convolutional"),
    ],
)
def test_features_and_parents_fit(asked, features, model):
    made = Settings(**{"dataset": "cifar10"} | asked).complete()
    made.check()
    assert (made.features, made.model) == (features, model)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"features": "oriented", "model": "readout"}, "model"),
        ({"features": "scattered", "model": "mlp"}, "model"),
        ({"widths": (4,)}, "widths"),
        ({"factors": (1.0, 2.0)}, "widths"),
        ({"pool": 2}, "widths"),
    ],
)
def test_settings_that_a_readout_does_not_have_are_refused(asked, said):
    with pytest.raises(jaxarch.ArgumentError, match=said):
        Settings(**{"dataset": "cifar10"} | asked).complete().check()


@pytest.mark.long
def test_every_search_is_certified_once_a_seed(small):
    table = read_table(small)
    assert (table.groupby("strategy").size() == FEW.seeds).all()
    assert set(table["strategy"]) == {name for name, _, _ in searches(FEW.complete(), 1)} | {HALF}


@pytest.mark.long
def test_the_conclusion_has_the_lowest_certified_errors_beside_measured_ones(small):
    table, made = read_table(small), report_on(small, generalization.EXPERIMENT)
    ones = table["strategy"] == generalization.WEIGHT_FREE
    for of in (table[~ones], table[ones]):
        bounds = of.groupby("strategy")["training_bound"].median()
        measured = of.groupby("strategy")["held_out_errors"].median()[bounds.idxmin()]
        assert f" {bounds.min():.3f} [" in made.conclusion
        assert f"({bounds.idxmin()} " in made.conclusion
        assert f"measured on held-out rows: {measured:.3f} [" in made.conclusion
    above = (table["held_out_errors"] > table["training_bound"]).sum()
    assert f"in {above} of {len(table)} runs" in made.conclusion
    assert {f"- {name}" for name in table["strategy"]} <= {str(line).split(":")[0] for line in made.body}


@pytest.mark.parametrize("strategies", [("edge-popup",), (generalization.WEIGHT_FREE,), ()])
def test_the_conclusion_is_of_the_certificates_that_there_are(strategies):
    one = {"asked": 0.2, "width": 1.0, "seed": 0, "training_bound": 0.5, "held_out_errors": 0.1}
    table = pd.DataFrame([one | {"strategy": name} for name in strategies or ("edge-popup",)])
    if not strategies:
        table["training_bound"] = np.nan
    settings = {"dataset": "digits", "model": "mlp", "seeds": 1, "delta": 0.05}
    said = " ".join(generalization.conclusion(SimpleNamespace(settings=settings, table=table)))
    assert ("5.0 [5.0, 5.0] times" in said) == bool(strategies)
    assert ("no run has a certificate" in said) == (not strategies)


@pytest.mark.long
def test_a_certified_error_is_the_bound_of_its_errors_and_its_length(small):
    for row in read_table(small).itertuples():
        examples = len(prepare(FEW.complete()).problems[1.0].training_rows())
        examples -= (examples + 1) // 2 if row.strategy == HALF else 0
        errors = round(row.training_errors * examples)
        length = row.description + np.log(FEW.choices)
        bound = jaxarch.theory.generalization.binomial_upper(errors, examples, FEW.delta, length=length)
        assert row.training_bound == pytest.approx(bound, rel=1e-9)


@pytest.mark.long
def test_edge_popup_keeps_the_density_asked_for(small):
    table = read_table(small)
    kept = table[table["strategy"] == "edge-popup"]
    assert (kept["kept"] == round(0.2 * kept["connections"].iloc[0])).all()


@pytest.mark.long
def test_a_price_makes_descriptions_shorter():
    settings = dataclasses.replace(FEW, strengths=(0.01, 3.0)).complete()
    problem = prepare(settings).problems[1.0]
    lengths = {}
    for name, strength, search in searches(settings, len(problem.training_rows())):
        if name == SHORT:
            network = search(jax.random.key(0), problem)
            lengths[strength] = jaxarch.theory.generalization.description_length(network.mask)
    assert lengths[3.0] < 0.8 * lengths[0.01]


def test_the_penalty_of_a_mask_is_the_price_of_its_description():
    mask = {"a": jnp.asarray(np.arange(100) < 10, jnp.float32)}
    length = jaxarch.theory.generalization.description_length({"a": np.arange(100) < 10})
    assert float(generalization.Priced(3.0, 1000)(mask)) == pytest.approx(3 * length / 1000, rel=1e-5)


def test_windows_keep_their_largest_value():
    x = jnp.arange(24.0).reshape(1, 4, 6, 1)
    np.testing.assert_array_equal(_windows(x)[0, ..., 0], [[7, 9, 11], [19, 21, 23]])


@pytest.mark.long
def test_a_prior_from_half_is_judged_by_the_other_half(monkeypatch, tmp_path):
    judged = []

    def certificates(done, problem, *rest):
        judged.append((*done, np.asarray(problem.training_rows())))
        return own(done, problem, *rest)

    own = generalization.certificates
    monkeypatch.setattr(generalization, "certificates", certificates)
    run_in(tmp_path, generalization.EXPERIMENT, dataclasses.replace(FEW, steps=10))
    halves = prepare(FEW.complete()).halves
    rows = dict(judged)[HALF]
    np.testing.assert_array_equal(np.sort(rows), np.sort(halves[1]))
    assert not np.intersect1d(rows, halves[0]).size


@pytest.mark.long
def test_a_prior_is_found_at_a_price_of_its_own_on_half_of_the_rows(monkeypatch, tmp_path):
    prices = []

    def shortest(settings, strength, examples, prior=None):
        prices.append((strength, examples, prior is not None))
        return own(settings, strength, examples, prior)

    own = generalization.shortest
    monkeypatch.setattr(generalization, "shortest", shortest)
    settings = dataclasses.replace(FEW, steps=10, densities=(), strengths=(2.0,), half_strength=0.5)
    run_in(tmp_path, generalization.EXPERIMENT, settings)
    every = len(prepare(settings.complete()).problems[1.0].training_rows())
    assert {*prices} == {(2.0, every, False), (0.5, (every + 1) // 2, False), (2.0, every, True)}


@pytest.mark.long
def test_a_prior_leans_to_the_mask_of_half_of_the_rows(monkeypatch, tmp_path):
    masks, priors = [], []

    def over_seeds(search, keys, problem, sweeps=None, **options):
        network, report = own(search, keys, problem, sweeps, **options)
        masks.append(network.mask)
        priors.append(sweeps and sweeps["prior"])
        return network, report

    own = generalization.over_seeds
    monkeypatch.setattr(generalization, "over_seeds", over_seeds)
    run_in(tmp_path, generalization.EXPERIMENT, dataclasses.replace(FEW, densities=()))
    (_, half, _), (_, _, prior) = masks, priors
    for path, mask in half.items():
        assert mask.any()
        np.testing.assert_array_equal(prior[path] > 0.5, mask)


def test_the_search_for_short_descriptions_hardens_to_its_last_temperature():
    settings = dataclasses.replace(FEW, hardest=300.0).complete()
    hard = generalization.shortest(settings, 1.0, 1000).settings.hard
    assert [float(hard(step)) for step in (0, settings.steps)] == pytest.approx([1, 300])


@pytest.mark.parametrize("setting", [{"softest": 1.5}, {"hardest": 0.5}])
def test_temperatures_on_the_wrong_side_of_the_first_are_refused(setting):
    with pytest.raises(jaxarch.ArgumentError, match=next(iter(setting))):
        dataclasses.replace(FEW.complete(), **setting).check()


@pytest.mark.long
def test_a_run_that_failed_is_counted_and_no_other_is_lost():
    settings = FEW.complete()
    problem = prepare(settings).problems[1.0]
    (_, _, search), *_ = searches(dataclasses.replace(settings, steps=2), 1)
    network, _ = jaxarch.over_seeds(search, settings.seed_keys(), problem, dead_start="ignore")
    network = network.replace(info=network.info.replace(failed_at=jnp.array([-1, 3])))
    table = generalization._certified("edge-popup", network, problem, settings)
    assert table["failed_at"].tolist() == [-1, 3]
    assert np.isfinite(table["training_bound"]).tolist() == [True, False]
    network = network.replace(info=network.info.replace(failed_at=jnp.array([0, 3])))
    both = generalization._certified("edge-popup", network, problem, settings)
    assert len(both) == 2
    assert both["training_bound"].isna().all()
