"""How much memory there is, and what is refused because it would need more."""

from functools import partial

import pytest

from jaxarch import ArgumentError
from jaxarch._internal import memory
from jaxarch.lab.harness import catalogue, plan_of, read_settings, run_in

SEEDED = [
    name
    for name in catalogue.EXPERIMENTS
    if "seeds" in catalogue.experiment(name).settings.__dataclass_fields__
]


@pytest.fixture
def little(monkeypatch):
    """A machine with 2 MB left."""
    monkeypatch.setattr(memory, "free_memory", lambda: 2 * 10**6)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KiB"), (2**31, "2 GiB"), (2**60, "1.049e+06 TiB")],
)
def test_bytes_are_written_in_the_largest_unit_that_they_fill(count, text):
    assert memory.in_bytes(count) == text


@pytest.mark.parametrize("files", memory._CONTAINERS)
def test_free_is_no_more_than_what_the_container_may_still_use(files, tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "_GROUPS", tmp_path)
    (tmp_path / "memory").mkdir()
    machine = memory.free_memory()
    for name, number in zip(files, (100, 350), strict=True):
        (tmp_path / name).write_text(f"{number}\n")
    assert memory.free_memory() == 250
    (tmp_path / files[1]).write_text("max\n")
    assert machine is None or memory.free_memory() > 250


def test_what_needs_more_than_is_free_is_refused_with_both_numbers(little):
    memory.check_memory("width", 2 * 10**6, "one network")
    with pytest.raises(
        ArgumentError, match=r"^width: one network needs 3.815 MiB of memory, but 1.907 MiB are free$"
    ):
        memory.check_memory("width", 4 * 10**6, "one network")


def test_nothing_is_refused_where_nobody_says_how_much_is_free(monkeypatch):
    monkeypatch.setattr(memory, "free_memory", lambda: None)
    memory.check_memory("width", 10**30, "one network")


@pytest.mark.parametrize("name", SEEDED)
def test_every_experiment_refuses_more_seeds_than_fit_into_memory_before_anything_is_drawn(
    name, little, tmp_path
):
    experiment = catalogue.experiment(name)
    settings = read_settings(experiment.settings, {"seeds": "1000000000"})
    for begin in (partial(plan_of, experiment), partial(run_in, tmp_path, experiment)):
        with pytest.raises(
            ArgumentError, match=r"^seeds: what 1000000000 seeds bring needs .*, but 1.907 MiB are free"
        ):
            begin(settings)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        (
            "disentangling.strategies",
            {"depth": "100000", "seeds": "1"},
            "^depth: one network of 100000 layers needs 1.526 GiB",
        ),
        ("spectral.fig8", {"layers": "1000000000"}, "^layers: a table of 1000000000 rows needs 74.51 GiB"),
    ],
)
def test_networks_and_tables_that_do_not_fit_are_refused(name, values, message, little, tmp_path):
    experiment = catalogue.experiment(name)
    with pytest.raises(ArgumentError, match=message):
        run_in(tmp_path, experiment, read_settings(experiment.settings, values))
