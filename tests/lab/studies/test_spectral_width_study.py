"""Teachers of one output whose width students find: the teachers, and the experiment, small."""

import jax
import numpy as np
import pytest
from pages import charted

from jaxarch.lab.harness import report_on, run_in
from jaxarch.lab.reproduction import read_findings
from jaxarch.lab.results import read_table
from jaxarch.lab.spectral import width

SMALL = {
    "seeds": 2,
    "teachers": 2,
    "features": 3,
    "neurons": 2,
    "hidden": (6, 6),
    "rounds": 2,
    "epochs": 4,
    "once_epochs": 4,
    "strengths": (1e-4, 1e-1),
    "examples": 400,
    "held_out": 60,
    "tested": 80,
    "batch_size": 20,
    "learning_rate": 1e-2,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("width")
    run_in(folder, width.EXPERIMENT, width.Settings(**SMALL))
    report_on(folder, width.EXPERIMENT)
    assert charted(folder, width.EXPERIMENT)
    return folder


def test_a_teacher_of_one_output_has_biases_and_outputs_of_variance_one():
    settings = width.Settings(teachers=2)
    x = np.asarray(settings.inputs(10))
    for index in range(2):
        teacher = jax.tree.map(lambda leaf, index=index: np.asarray(leaf[index]), width.teachers(settings))
        y = np.maximum(x @ teacher["into"] + teacher["bias"], 0) @ teacher["out"]
        taught = np.asarray(width.teach(teacher, x))
        assert taught.shape == (7500, 1)
        assert teacher["bias"].shape == (20,)
        assert teacher["bias"].all()
        np.testing.assert_allclose(taught, (y - y.mean()) / y.std(), atol=1e-4)


def test_every_seed_is_a_student_of_each_teacher():
    settings = width.Settings(**SMALL)
    own = width.problem(settings, 1).per_run["into"]
    assert own.shape == (4, 3, 2)
    assert (own[0] == own[1]).all()
    assert (own[0] != own[2]).any()


def test_rows_to_train_on_to_judge_on_and_to_test_on_are_apart():
    rows = width.Settings(**SMALL).rows()
    assert {name: len(of) for name, of in rows.items()} == {"train": 400, "validation": 60, "test": 80}
    assert len(np.unique(np.concatenate(list(rows.values())))) == 540


@pytest.mark.long
def test_every_student_is_measured_in_rounds_and_at_each_strength(folder):
    table = read_table(folder)
    assert table.groupby(["search", "teacher"]).size().tolist() == [2] * 6
    assert list(dict.fromkeys(table["search"])) == ["rounds", "once, 0.0001", "once, 0.1"]
    assert table["neurons"].between(0, 12).all()
    assert table["r2"].le(1).all()
    left = table.groupby("search")["neurons"].median()
    assert left["once, 0.1"] < left["once, 0.0001"]


@pytest.mark.long
def test_the_findings_of_the_width_are_named_apart(folder):
    found = read_findings(folder)
    assert len({line.what for line in found}) == len(found) == 3 * 3
