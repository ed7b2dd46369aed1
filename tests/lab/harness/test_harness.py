"""What every experiment goes through: settings are checked, what was found is written and read again."""

import ast
import dataclasses
import importlib
import inspect
import pkgutil
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from jaxarch import ArgumentError, Progress
from jaxarch._internal.errors import check_count, check_positive
from jaxarch.lab.harness import (
    Context,
    Experiment,
    ExperimentSettings,
    Outcome,
    TrainingSettings,
    catalogue,
    finding,
    plan_of,
    report_on,
    run_in,
    time_of,
)
from jaxarch.lab.results import read_manifest, read_table


@dataclasses.dataclass(frozen=True)
class Toy(TrainingSettings):
    """Two runs that count to their sizes, which suit the data set where none are named."""

    sizes: tuple[int, ...] = ()

    def complete(self):
        return dataclasses.replace(self, sizes=self.sizes or (3, 4))

    def check(self):
        super().check()
        self.check_numbers(check_count, "sizes")


def count(settings, context):
    return Outcome(
        pd.DataFrame({"size": settings.sizes, "failed_at": [7, -1]}),
        [finding("the sizes", settings.sizes), finding("nothing", np.nan)],
        costs={"counting": {"notes": {"of both": ["run 0: NaN at step 7"]}}},
        tables={"more.csv": pd.DataFrame({"a": [0.1]})},
        arrays={"counts.npz": {"to": {"3": np.arange(3)}}},
        facts={"where": "here"},
    )


def retell(results):
    yield f"{results.settings['sizes']} of {results.read('more.csv')['a'].item()}"
    yield str(results.arrays("counts.npz")["to/3"].tolist())
    yield from results.remarks(results.table.groupby("size"))


def conclude(results):
    yield f"The sizes sum to {results.table['size'].sum()}."
    yield "There are two."


TOY = Experiment(
    "jaxarch.lab.toys.count", Toy, lambda settings: [f"to {settings.sizes}"], count, retell, conclude
)


@pytest.fixture
def folder(tmp_path):
    run_in(tmp_path, TOY, Toy())
    return tmp_path


def test_what_a_run_found_is_written_with_the_name_of_its_experiment(folder):
    assert read_table(folder)["experiment"].tolist() == ["toys.count"] * 2
    manifest = read_manifest(folder)
    assert (manifest["experiment"], manifest["where"]) == ("toys.count", "here")
    assert manifest["wall_seconds"] >= 0
    assert manifest["key"]["seed"] == 0


def test_the_manifest_has_the_settings_as_they_were_completed(folder):
    assert read_manifest(folder)["settings"]["sizes"] == [3, 4]


def test_the_settings_that_a_run_names_are_those_of_the_manifest(tmp_path):
    def run(settings, context):
        return dataclasses.replace(count(settings, context), settings=Toy(key=5, sizes=(9, 9)))

    run_in(tmp_path, dataclasses.replace(TOY, run=run), Toy())
    assert read_manifest(tmp_path)["settings"]["sizes"] == [9, 9]


def test_findings_of_nothing_are_left_out(folder):
    assert read_table(folder, "findings.csv")["what"].tolist() == ["the sizes"]


def test_a_report_has_a_conclusion_then_settings_tables_and_arrays_then_warnings(folder):
    report = report_on(folder, TOY)
    assert report.conclusion == "The sizes sum to 7. There are two."
    assert report.body == ("[3, 4] of 0.1", "[0, 1, 2]")
    assert report.warnings == (
        "run 0: NaN at step 7",
        "3: 1 of 1 runs met NaN or infinity; they are left out",
    )


def test_a_conclusion_that_fails_costs_no_table(folder):
    def fails(results):
        raise KeyError("absent")
        yield

    report = report_on(folder, dataclasses.replace(TOY, conclusion=fails))
    assert report.conclusion == "See the tables."
    assert report.body == ("[3, 4] of 0.1", "[0, 1, 2]")
    assert report.warnings[-1] == "the conclusion could not be written (KeyError: 'absent')"


def test_a_printed_report_opens_with_its_conclusion_and_ends_with_its_warnings(folder):
    console = Console(width=80, file=StringIO())
    console.print(report_on(folder, TOY))
    lines = console.file.getvalue().split("\n")
    assert lines[1] == "The sizes sum to 7. There are two."
    assert lines[-5:] == [
        "",
        "warnings",
        "! run 0: NaN at step 7",
        "! 3: 1 of 1 runs met NaN or infinity; they are left out",
        "",
    ]


@pytest.mark.parametrize("use", [plan_of, time_of, lambda e, s: run_in(Path("nowhere"), e, s)])
def test_settings_are_completed_and_checked_before_an_experiment_sees_them(use):
    def seen(settings, *context):
        raise AssertionError(settings)

    experiment = dataclasses.replace(TOY, plan=seen, run=seen, estimate=seen)
    with pytest.raises(ArgumentError, match="sizes: expected an integer of at least 1, got 0"):
        use(experiment, Toy(sizes=(3, 0)))
    with pytest.raises(AssertionError, match=r"sizes=\(3, 4\)"):
        use(experiment, Toy())


def test_the_time_of_what_cannot_take_long_is_not_told():
    assert time_of(TOY, Toy()) == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seeds": 0}, "seeds: expected an integer of at least 1, got 0"),
        ({"batch_size": 0}, "batch_size: expected an integer of at least 1, got 0"),
        ({"key": -1}, "key: expected an integer from 0"),
        ({"sizes": (2, 2)}, "sizes: 2 is named twice"),
    ],
)
def test_what_all_trainings_have_is_checked_in_one_place(settings, message):
    with pytest.raises(ArgumentError, match=message):
        Toy(**{"sizes": (1,)} | settings).check()


def test_numbers_of_which_there_must_be_some_are_checked_one_by_one():
    @dataclasses.dataclass(frozen=True)
    class Rates(ExperimentSettings):
        rates: tuple[float, ...] = ()

    for rates, message in (((), "expected at least one number"), ((1.0, -2.0), "expected a positive")):
        with pytest.raises(ArgumentError, match=f"rates: {message}"):
            Rates(rates).check_numbers(check_positive, "rates")


def test_a_task_among_many_is_told_by_its_title():
    told = []
    Context("toys.count", Toy(), told.append).within("3 of 4").options["progress"](
        Progress("bin", 1, 2, 0, 1, 5, 0.5)
    )
    assert told[0].name == "3 of 4: bin"


def test_without_progress_and_resume_a_training_is_told_of_none():
    assert Context("toys.count", Toy()).within("3").options == {
        "progress": None,
        "checkpoint": None,
        "devices": None,
    }


def test_each_task_has_checkpoints_of_its_own(tmp_path):
    context = Context("toys.count", Toy(resume=str(tmp_path)))
    folders = [c.options["checkpoint"].folder for c in (context, context.within("3"), context.within("4"))]
    assert len(set(folders)) == 3
    assert all(folder.is_relative_to(tmp_path) for folder in folders)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("toys.count", {"key": 1}, "was begun with key=0, not 1"),
        ("toys.other", {}, "was begun with experiment=toys.count, not toys.other"),
    ],
)
def test_checkpoints_of_other_settings_or_another_experiment_are_refused(name, settings, message, tmp_path):
    assert Context("toys.count", Toy(resume=str(tmp_path))).options["checkpoint"]
    with pytest.raises(ArgumentError, match=message):
        _ = Context(name, Toy(resume=str(tmp_path), **settings)).options


@pytest.mark.parametrize("name", catalogue.EXPERIMENTS)
def test_a_name_of_the_catalogue_is_that_of_the_module_which_the_experiment_is_in(name):
    experiment = catalogue.experiment(name)
    assert experiment.name == name
    assert dataclasses.is_dataclass(experiment.settings)


def test_the_catalogue_has_every_experiment():
    package = importlib.import_module("jaxarch.lab")
    names = [module.name for module in pkgutil.walk_packages(package.__path__, "jaxarch.lab.")]
    modules = [importlib.import_module(name) for name in names]
    found = {module.EXPERIMENT.name for module in modules if hasattr(module, "EXPERIMENT")}
    assert found == set(catalogue.EXPERIMENTS)


def test_the_catalogue_imports_no_experiment_before_it_is_asked_for():
    code = ast.parse(inspect.getsource(catalogue))
    imported = {node.module for node in code.body if isinstance(node, ast.ImportFrom)}
    assert imported == {"__future__", "importlib", "typing"}
