"""Certificates in the reports of experiments: those of `jaxarch.certify`, run by run, told in a table."""

import dataclasses
from functools import cache
from io import StringIO

import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console
from small import straight

import jaxarch
from jaxarch.lab.disentangling import certifying, strategies
from jaxarch.lab.harness import certificate_table, certificates


@cache
def trained():
    """Two splits, both orientations, of a mask alone and of weights with and without a mask."""
    names = ("real", "bin", "bin->real cold")
    settings = strategies.Settings(seeds=2, steps=40, train_per_class=10, strategies=names)
    _, task, problem, chosen = strategies.prepare(settings)
    return task, problem, jaxarch.compare(chosen, settings.run_keys(task), problem)


@cache
def table():
    task, problem, done = trained()
    return certifying.certify_runs(done, task, problem)


def told(rendered):
    console = Console(file=StringIO(), width=120)
    for part in rendered:
        console.print(part)
    return console.file.getvalue()


@pytest.mark.long
def test_every_mask_that_was_chosen_has_the_certificate_of_its_run():
    task, problem, done = trained()
    assert table().groupby("strategy").size().to_dict() == {"bin": 4, "bin->real cold": 4}
    held_out = dataclasses.replace(problem, validation=jnp.asarray(task.test))
    row = table()[(table()["strategy"] == "bin") & table()["flipped"] & (table()["seed"] == 1)].iloc[0]
    alone = certifying.certified(done["bin"][0].of_run(3), held_out.of_run(3))
    assert (row["gap"], row["loss"]) == pytest.approx((alone.gap, alone.loss))
    assert (row["training_bound"], row["held_out_bound"]) == (alone.training.bound, alone.held_out.bound)
    assert (row["held_out_errors"], row["flips_better"]) == (alone.held_out.rate, alone.flips.better)


@pytest.mark.long
def test_the_threshold_is_that_of_the_fewest_errors_on_the_training_rows():
    task, problem, done = trained()
    one, network = problem.of_run(0), done["bin"][0].of_run(0)
    outputs = np.asarray(one.outputs(network.params, network.state))
    truth = task.targets[0][jaxarch.lab.data.load("digits").y[task.train[0]]] > 0.5
    thresholds = np.arange(1, 129) * 64 / 128
    fewest = min(np.sum((outputs > threshold) != truth) for threshold in thresholds)
    row = table()[table()["strategy"] == "bin"].iloc[0]
    assert round(row["training_errors"] * len(truth)) == fewest < len(truth) / 2


@pytest.mark.long
def test_inputs_that_were_made_of_all_examples_are_said_to_break_the_bounds():
    shown, other = (told(certifying.certified_table(table(), name, "")) for name in ("citeseer", "digits"))
    assert "! citeseer: its inputs are principal components of all examples" in shown
    assert "!" not in other


@pytest.mark.long
def test_trained_weights_have_no_bound_by_training_rows_and_it_is_said_why():
    text = told(certificate_table(table(), "here"))
    assert "no bound from training rows for bin->real cold: its weights are not all 1" in text
    assert "no bound from held-out rows" not in text
    assert "- that at most 128 networks, a number fixed beforehand" in text  # the thresholds


ALIKE = straight({"w": [[1.0, 1.0]]}, {"w": [[1.0, -1.0]]})
"""A problem whose networks have no outputs."""


def of_bounds(*bounds):
    """Runs with one connection of two, and certificates in which these bounds are put."""
    mask = {"w": jnp.tile(jnp.array([[True, False]]), (len(bounds), 1, 1))}
    network = jaxarch.Network({"w": mask["w"].astype(float)}, mask, {})
    left = iter(bounds)

    def certified(network, problem):
        found = jaxarch.certify(network, problem)
        training = jaxarch.certificates.Errors(1, 10, next(left))
        return dataclasses.replace(found, training=training, why_not="", assumptions=("that all is well",))

    return network, certified


def test_what_is_shown_of_a_bound_is_not_below_it():
    network, certified = of_bounds(0.1401, 0.1401)
    rows = certificates({"one": (network, None)}, ALIKE, {"seed": np.arange(2)}, certified)
    text = told(certificate_table(rows, "here"))
    assert ".15 [.15 .15]" in text
    assert "- that all is well" in text


def test_runs_that_failed_and_masks_that_lack_nothing_have_no_certificate():
    network, certified = of_bounds(0.1, 0.2, 0.3)
    failed = network.replace(info=jaxarch.TrainingInfo(failed_at=jnp.array([-1, 7, -1])))
    whole = network.replace(mask={"w": jnp.ones((3, 1, 2), bool)})
    seeds = {"seed": np.arange(3)}
    done = {"failed": (failed, None), "whole": (whole, None), "bare": (network.replace(mask=None), None)}
    rows = certificates(done, ALIKE, seeds, certified)
    assert rows[["strategy", "seed"]].to_numpy().tolist() == [["failed", 0], ["failed", 2]]
    assert certificate_table(certificates({"whole": (whole, None)}, ALIKE, seeds), "here") == []
