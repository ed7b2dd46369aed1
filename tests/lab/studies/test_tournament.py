"""The tournament: equal budgets, the same test rows, programs that densities share, controls, own methods."""

import dataclasses
import shutil
from collections import Counter
from types import SimpleNamespace

import jax
import numpy as np
import pandas as pd
import pytest
from compilations import compilations
from pages import charted
from places import ROOT, code_blocks
from scipy import stats

import jaxarch
from jaxarch.lab.harness import plan_of, report_on, run_in, time_of
from jaxarch.lab.harness.catalogue import experiment
from jaxarch.lab.harness.parts import check_parts, file_name
from jaxarch.lab.pruning.parents import in_words
from jaxarch.lab.tournament.control_report import decomposed
from jaxarch.lab.tournament.controls import controlled
from jaxarch.lab.tournament.entrants import AT_START, BATCHES, DENSE, ENTRANTS, NUMBERS_ALONE, At
from jaxarch.lab.tournament.experiment import _against_random, _compared, _computed
from jaxarch.lab.tournament.matches import PASSES, Played, _grades, play, play_own, table_of
from jaxarch.lab.tournament.names import ORIGINS, explain
from jaxarch.lab.tournament.own import Own, read_own
from jaxarch.lab.tournament.report import conclusion, ranking_of
from jaxarch.lab.tournament.settings import TournamentSettings
from jaxarch.lab.tournament.task import prepare, task_of
from jaxarch.lab.tournament.tuning import trials, tuned

METHODS = ("random", "random ERK", "SNIP", "two-temperature trained")
SMALL = TournamentSettings(seeds=2, steps=4, methods=METHODS, densities=(0.5, 0.1))
TOURNAMENT = experiment("tournament")
OPTIONS = {"name": "test", "dead_start": "ignore"}
WORDS = {"dataset": "citeseer-words"}
PLAYS = {"dataset": "tiny-shakespeare"}

OWN = """
import jaxarch

def even_layers(density):
    return jaxarch.chain(
        jaxarch.search.random_mask(density, scope="layer"), jaxarch.retrain("warm", nonnegative=False)
    )

def _helper(density):
    raise AssertionError
"""


STAGES = """
import jaxarch

def _bare(settings, key, problem, network):
    return jaxarch.Network(network.params, network.mask, network.state)

TRAIN = jaxarch.retrain("warm", nonnegative=False)
BARE = jaxarch.FunctionStage("bare", _bare, needs=jaxarch.Needs("required", ("params",)))
"""


def at(budget, steps=1000, densities=(0.2, 0.05, 0.02)):
    return At(densities, steps, budget, 0.0, 0.0, 50.0, 5.0)


def ready(settings):
    settings = settings.complete()
    settings.check()
    return settings


@pytest.fixture(scope="module")
def task():
    return prepare(ready(SMALL))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What a small tournament leaves, one method being a user's."""
    place = tmp_path_factory.mktemp("tournament")
    own = place / "mine.py"
    own.write_text(OWN)
    settings = dataclasses.replace(SMALL, own=str(own), controls=("reshuffled", "inverted"))
    run_in(place, TOURNAMENT, settings)
    return place


@pytest.fixture(scope="module")
def table(folder):
    return pd.read_csv(folder / "results.csv")


@pytest.fixture(scope="module")
def made(folder):
    """The report on it, with its figures in its folder."""
    return report_on(folder, TOURNAMENT)


@pytest.mark.parametrize("name", ENTRANTS)
@pytest.mark.parametrize("density", [0.2, 0.05, 0.02])
def test_at_an_equal_budget_every_network_takes_the_steps_of_two_phases_at_most(name, density):
    phases = ENTRANTS[name].phases(at("equal"), density)
    # What is looked at before training comes on top.
    steps = sum(phase.evaluations for phase in (phases[-1:] if ENTRANTS[name].family == AT_START else phases))
    assert 1390 <= steps <= 2000  # lottery tickets of a large density have fewer rounds behind them


def test_at_the_published_budget_methods_that_train_once_do_so_for_a_phase():
    assert [phase.evaluations for phase in ENTRANTS["SNIP"].phases(at("published"), 0.05)] == [
        BATCHES,
        1000,
    ]


def test_at_the_published_budget_every_round_of_lottery_tickets_is_a_phase():
    phases = ENTRANTS["lottery tickets"].phases(at("published"), 0.2)
    assert len(phases) == 9  # eight rounds of at most a fifth lead to .2, and the tickets are trained
    assert {phase.evaluations for phase in phases} == {1000}
    shares = [phase.whole + (1 - phase.whole) * 0.2 for phase in phases]
    np.testing.assert_allclose(shares[:3], [1.0, 0.2 ** (1 / 8), 0.2 ** (2 / 8)])


def test_late_tickets_as_published_train_for_what_is_left_after_the_step_they_go_back_to():
    first, *others = ENTRANTS["late tickets"].phases(at("published"), 0.2)
    assert first.evaluations == 1000
    assert {phase.evaluations for phase in others} == {900}


@pytest.mark.parametrize("budget", ["equal", "published"])
def test_what_trains_a_network_that_was_found_is_made_for_a_density_that_is_traced(budget):
    def make(density):
        one = at(budget)._replace(density=density)
        made = [entrant.finish(one) for entrant in ENTRANTS.values() if entrant.finish is not None]
        assert len(made) == 23  # thirteen methods train what they find while they search
        return density

    jax.make_jaxpr(make)(0.1)


@pytest.mark.long
def test_tickets_of_rounds_of_a_single_step_go_back_to_a_step_that_is_there(task):
    few = at("equal", steps=5, densities=(0.45, 0.3, 0.15))._replace(rate=1e-3)
    network = jax.eval_shape(ENTRANTS["late tickets"].find(few), jax.random.key(0), task.problem)
    assert len(network[jaxarch.ByDensity].masks) == 3


def test_rigl_looks_at_all_gradients_as_often_as_its_mask_changes():
    # Every 40 of 2,000 steps, before 1,500.
    assert [phase.evaluations for phase in ENTRANTS["RigL"].phases(at("equal"), 0.05)] == [1963, 37]


def test_granet_does_so_to_the_end_and_acdc_takes_half_of_its_steps_with_all_connections():
    # Every 40 of 2,000 steps. A cubic schedule that ends at .7 has a mean of a quarter of that.
    (falling, share, _), (changes, whole, _) = ENTRANTS["GraNet"].phases(at("equal"), 0.05)
    assert (falling, changes, whole) == (1951, 49, 1)
    np.testing.assert_allclose(share, 0.7 / 4)
    # Its warm-up, six phases of a 20th and the one of double length before the last phase.
    assert ENTRANTS["AC/DC"].phases(at("equal"), 0.05) == [(2000, 0.5, False)]


def test_a_third_of_a_step_of_top_kast_is_for_the_larger_set():
    (steps, whole, _), (_, of_all, _) = (ENTRANTS["Top-KAST"].phases(at("equal"), d)[0] for d in (0.05, 0.95))
    assert steps == 2000
    np.testing.assert_allclose(whole + (1 - whole) * 0.05, 0.05 + 0.1 / 3)
    np.testing.assert_allclose(of_all + (1 - of_all) * 0.95, 0.95 + 0.05 / 3)


def test_each_sample_of_a_step_of_probmask_counts_as_an_evaluation():
    phases = {budget: ENTRANTS["ProbMask"].phases(at(budget), 0.05)[0] for budget in ("equal", "published")}
    assert {budget: phase.evaluations for budget, phase in phases.items()} == {
        "equal": 1000,
        "published": 2000,
    }
    assert ENTRANTS["ProbMask"].find(at("equal")._replace(density=0.05)).samples == 2


@pytest.mark.long
def test_test_rows_are_the_same_for_all_and_nothing_is_trained_or_chosen_on_them(task):
    assert np.unique(task.test).size == task.test.size
    for train, held_out in zip(task.train, task.held_out, strict=True):
        rows = np.concatenate([train, held_out, task.test])
        assert np.unique(rows).size == rows.size == len(task.images.y)
    assert not np.array_equal(*task.held_out)


@pytest.mark.long
def test_every_method_starts_from_the_weights_of_its_seed(task):
    problem = task.learning(np.array([0, 1, 0]))
    starts = jax.vmap(lambda pair: dataclasses.replace(problem, paired=pair).start(pair)[0])(problem.paired)
    kernel = jax.tree.leaves(starts)[-1]
    assert (kernel[0] == kernel[2]).all()
    assert not (kernel[0] == kernel[1]).all()


@pytest.mark.long
def test_every_network_has_exactly_the_density_asked_for(table):
    found = table[table["strategy"] != DENSE]
    connections = 64 * 100 + 100 * 10
    kept = np.rint(found["measured_density"] * connections)
    assert (kept == np.rint(found["density"] * connections)).all()


@pytest.mark.long
def test_the_connections_of_its_layers_are_those_of_a_network(folder, table):
    by_layer = (
        pd.read_csv(folder / "layers.csv").groupby(["strategy", "density", "seed"])["connections"].sum()
    )
    measured = table[table["strategy"] != DENSE].set_index(by_layer.index.names)["measured_density"] * 7400
    np.testing.assert_allclose(by_layer.sort_index(), measured.sort_index(), atol=1e-2)


def test_there_is_a_row_for_every_method_density_and_seed_and_for_the_dense_network(table):
    counts = table.groupby("strategy").size()
    assert counts.drop(DENSE).to_dict() == dict.fromkeys([*METHODS, "even layers"], 4)
    assert counts[DENSE] == 2


@pytest.mark.long
def test_the_multiply_adds_of_a_network_are_those_that_its_cost_counts(task):
    played = play(
        ENTRANTS["random ERK"],
        task,
        np.arange(2),
        {"rate": np.full(2, 1e-3), "own": np.zeros(2)},
        OPTIONS,
    )
    rows = table_of("random ERK", ENTRANTS["random ERK"], played, task)
    mask = jax.tree.map(lambda leaf: leaf[0], played.mask)
    params = jax.vmap(task.problem.init)(task.keys("search"))[0]
    one = jax.tree.map(lambda leaf: leaf[0], params)
    network = jaxarch.Network(jaxarch.masks.apply_mask(mask, one), mask, {})
    counted = jaxarch.cost(network, task.problem).total
    assert rows["multiply_adds"].iloc[0] == pytest.approx(counted.masked.multiply_adds, rel=1e-6)
    assert rows["dense_multiply_adds"].iloc[0] == counted.dense.multiply_adds
    assert rows["training_multiply_adds"].iloc[0] == pytest.approx(
        PASSES * 60 * 2 * 4 * counted.masked.multiply_adds, rel=1e-6
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "stages"),
    [
        ("SNIP", 2),
        ("magnitude", 3),
        ("gradual magnitude", 1),
        ("RigL", 1),
        ("AP", 2),
        ("two-temperature trained", 2),
        ("edge-popup", 1),
    ],
)
def test_all_densities_and_seeds_share_a_program_a_stage(name, stages):
    # Of sizes that no other test has, so that nothing is compiled already.
    alone = prepare(ready(dataclasses.replace(SMALL, steps=5, batch_size=7, densities=(0.45, 0.3, 0.15))))
    values = {"rate": np.full(2, 1e-3), "own": np.full(2, 1e-3)}
    with compilations() as seen:
        play(ENTRANTS[name], alone, np.arange(2), values, OPTIONS, test=False)
    assert seen
    assert sum(program in ("jit(advance)", "jit(_function_program)") for program in seen) <= stages


@pytest.mark.long
def test_a_method_of_one_s_own_is_ranked_with_all_others(folder, table):
    ranks = pd.read_csv(folder / "ranks.csv")
    assert set(ranks["strategy"]) == {*METHODS, "even layers"}
    own = table[table["strategy"] == "even layers"]
    assert (own["family"] == "own").all()
    assert (own["gradient_evaluations"] == 8).all()  # one training, which has both phases
    assert (own["seconds"] < 60).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "own: no such file"),
        ("1 / 0", "own: mine.py failed: ZeroDivisionError"),
        ("x = 3", "own: expected mine.py to define a public function"),
        ("def edge_popup(density): pass", "own: the tables use the name 'edge popup' already"),
        ("def dense(density): pass", "own: the tables use the name 'dense' already"),
        ("import sys; sys.exit(0)", "own: mine.py failed: SystemExit"),
        ("def mine(density, steps): pass", "own: expected mine to take one argument, the density"),
    ],
    ids=[
        "no file",
        "one that fails",
        "no function",
        "a name alike",
        "a reference",
        "an end",
        "two arguments",
    ],
)
def test_a_file_that_is_no_method_is_refused(tmp_path, text, message):
    file = tmp_path / "mine.py"
    if text is not None:
        file.write_text(text)
    with pytest.raises(jaxarch.ArgumentError, match=message):
        read_own(str(file))


def of_controls(**accuracies):
    """A table of controls at one density, from (as found, reshuffled) of every seed, by method."""
    rows = [
        {"strategy": name, "density": 0.1, "seed": seed, "control": control, "accuracy": accuracy}
        for name, pairs in accuracies.items()
        for seed, pair in enumerate(pairs)
        for control, accuracy in zip(("as found", "reshuffled"), pair, strict=True)
    ]
    return pd.DataFrame(rows)


def test_a_gain_over_random_masks_is_divided_between_the_layers_densities_and_the_choice_within_them():
    random = [(0.5, 0.5), (0.4, 0.4), (0.6, 0.6)]
    controls = of_controls(random=random, SNIP=[(0.9, 0.6), (0.8, 0.7), (0.7, 0.6)])
    gain, share = decomposed(controls, "SNIP", 0.1)
    assert gain == pytest.approx(0.3)  # medians .8 and .5
    assert share == pytest.approx(1 / 3)  # .6 after shuffling


def test_a_gain_that_is_noise_is_not_divided_and_a_failed_seed_is_left_out():
    random = [(0.5, 0.5)] * 3
    controls = of_controls(
        random=random, SNIP=[(0.505, 0.5)] * 3, STR=[(np.nan, 0.7), (0.9, 0.7), (0.9, 0.7)]
    )
    gain, share = decomposed(controls, "SNIP", 0.1)
    assert gain == pytest.approx(0.005)
    assert np.isnan(share)
    np.testing.assert_allclose(decomposed(controls, "STR", 0.1), (0.4, 0.5))


@pytest.mark.long
def test_controls_are_of_the_same_densities_and_beside_the_masks_as_they_are(folder):
    controls = pd.read_csv(folder / "controls.csv")
    assert set(controls["control"]) == {"as found", "reshuffled", "inverted"}
    assert (controls.groupby(["strategy", "control"]).size() == 4).all()
    by_run = controls.pivot(
        index=["strategy", "density", "seed"], columns="control", values="measured_density"
    )
    assert (by_run["as found"] == by_run["reshuffled"]).all()
    assert (by_run["as found"] == by_run["inverted"]).all()


@pytest.mark.long
def test_a_run_that_failed_is_counted_and_comes_last(table):
    broken = table.copy()
    broken.loc[(broken["strategy"] == "SNIP") & (broken["seed"] == 0), "accuracy"] = np.nan
    found = ranking_of(broken)
    assert found.table.set_index("strategy").loc["SNIP", "failures"] == 2
    assert (
        found.table.iloc[-1]["strategy"] == "SNIP"
        or found.table.set_index("strategy").loc["SNIP", "rank"]
        > (ranking_of(table).table.set_index("strategy").loc["SNIP", "rank"])
    )


def test_findings_are_of_random_masks_minus_others_whatever_the_order_of_the_methods():
    def told(methods):
        accuracies = {"random": 0.2, "random ERK": 0.5, "SNIP": 0.7, "magnitude": 0.8}
        rows = [(name, 0.1, seed, accuracies[name] + seed / 50) for name in methods for seed in range(3)]
        table = pd.DataFrame(rows, columns=["strategy", "density", "seed", "accuracy"])
        return {line["what"]: line["median"] for line in _against_random(_compared(table))}

    first = told(["random", "random ERK", "SNIP", "magnitude"])
    assert len(first) == 4
    assert first == pytest.approx(told(["magnitude", "random ERK", "SNIP", "random"]))


def test_what_never_trains_weights_is_not_tuned_in_their_rate(task):
    wide = task._replace(settings=dataclasses.replace(task.settings, tune=4))
    for name in ("two-temperature", "edge-popup", "biprop"):
        tried = trials(ENTRANTS[name], wide)
        assert (tried["rate"] == task.settings.rate).all()
        assert tried["own"].nunique() == 4
    assert trials(ENTRANTS["two-temperature trained"], wide)["rate"].nunique() == 4


def test_a_trial_that_failed_is_chosen_after_one_at_chance(task, monkeypatch):
    def told(*args, **keywords):
        nothing = np.full(12, np.nan)
        validation = np.array([np.nan, np.nan, 0.02, 0.02, np.nan, np.nan] * 2)
        return Played(*[None] * 9)._replace(accuracy=nothing, validation=validation)

    monkeypatch.setattr("jaxarch.lab.tournament.tuning.play", told)
    wide = task._replace(settings=dataclasses.replace(task.settings, tune=3))
    assert tuned(ENTRANTS["random"], wide, OPTIONS)["chosen"].tolist() == [False, True, False]


def test_trials_begin_with_the_defaults_and_every_method_has_as_many(task):
    wide = task._replace(settings=dataclasses.replace(task.settings, tune=5))
    first, second = (trials(ENTRANTS[name], wide) for name in ("SNIP", "movement"))
    assert len(first) == len(second) == 5
    assert (first["rate"] == second["rate"]).all()
    assert first["rate"].iloc[0] == task.settings.rate
    _, default, low, high = ENTRANTS["movement"].own
    assert second["own"].iloc[0] == default
    assert second["own"].between(low, high).all()


@pytest.mark.long
def test_a_trial_is_chosen_by_rows_that_are_held_out_and_none_is_tested(task, monkeypatch):
    seen = []

    def told(*args, **keywords):
        seen.append(keywords["test"])
        played = play(*args, **keywords)
        assert np.isnan(played.accuracy).all()
        return played._replace(validation=np.array([0.1, 0.1, 0.9, 0.9, 0.2, 0.2] * 2))

    monkeypatch.setattr("jaxarch.lab.tournament.tuning.play", told)
    wide = task._replace(settings=dataclasses.replace(task.settings, tune=3))
    chosen = tuned(ENTRANTS["random"], wide, OPTIONS)
    assert seen == [False]
    assert chosen["chosen"].tolist() == [False, True, False]


@pytest.mark.long
def test_the_plan_says_what_each_method_takes_and_the_time_is_told():
    lines = "\n".join(plan_of(TOURNAMENT, SMALL))
    assert "SNIP: 18 gradient evaluations per network, 4 networks" in lines
    (time,) = time_of(TOURNAMENT, SMALL)
    assert time.startswith("time: about")


def test_a_search_that_finds_all_densities_is_timed_once(task):
    trained_twice = 2 * 2 * 2 * task.settings.steps
    assert _computed(ENTRANTS["SNIP"], task) == 2 * BATCHES + trained_twice
    assert _computed(ENTRANTS["magnitude"], task) == 2 * (1 + 2) * task.settings.steps
    assert _computed(ENTRANTS["SET"], task) == trained_twice


@pytest.mark.long
def test_the_report_has_the_dense_network_and_chance_and_draws_accuracy_against_all_that_it_took(
    folder, made
):
    names = [row[0] for row in made.body[0].rows]
    assert names[-2:] == ["dense", "chance"]
    drawn = {path.stem for path in folder.glob("*.png")}
    assert drawn >= {"ranks", "density", "cost", "gradient_evaluations"}
    assert len(charted(folder, TOURNAMENT)) == 3


@pytest.mark.long
def test_the_conclusion_has_the_best_mean_rank_and_its_accuracy_at_the_smallest_density(folder, table, made):
    first = pd.read_csv(folder / "ranks.csv").iloc[0]
    best = first["strategy"]
    assert f"{best} has the best mean rank of 5 methods, {first['rank']:.1f} [" in made.conclusion
    here = table[(table["density"] == 0.1) & (table["strategy"] == best)]
    assert (
        f"At density 0.1 the test accuracy of {best} is {here['accuracy'].median():.3f} [" in made.conclusion
    )
    explained = [line.split(":")[0] for line in made.body if str(line).startswith("- ")]
    assert set(explained[:7]) == {f"- {name}" for name in (*METHODS, "even layers", "dense", "chance")}
    assert "- even layers: a method of your own, from mine.py" in made.body


def told_of(methods, failed=(), step=0.1):
    """The conclusion on two seeds at one density, the later methods better, of which some failed."""
    rows = [
        (name, 0.1, seed, np.nan if name in failed else place * step + seed / 100)
        for place, name in enumerate((DENSE, *methods))
        for seed in range(2)
    ]
    table = pd.DataFrame(rows, columns=["strategy", "density", "seed", "accuracy"])
    settings = {"dataset": "digits", "model": "mlp", "budget": "equal"}
    compared = _compared(table)
    return " ".join(conclusion(SimpleNamespace(settings=settings, table=table, read=lambda name: compared)))


@pytest.mark.parametrize(
    ("methods", "failed", "words"),
    [
        (("random ERK", "SNIP"), (), "SNIP minus random ERK is +0.100 [+0.100, +0.100]"),
        (("SNIP", "random"), (), "random has the best mean rank of 2 methods"),
        (("SNIP", "mine"), (), "mine has the best mean rank"),
        (("random ERK", "SNIP"), ("random ERK",), "SNIP has the best mean rank"),
        (("random ERK", "SNIP"), ("random ERK", "SNIP"), "all 4 runs met NaN or infinity"),
    ],
)
def test_the_conclusion_is_of_the_methods_at_hand_and_has_no_nan(methods, failed, words):
    said = told_of(methods, failed)
    assert words in said
    assert "nan" not in said


def test_methods_of_the_same_mean_rank_share_it():
    said = told_of(("random ERK", "SNIP"), step=0.0)
    assert "random ERK and SNIP share the best mean rank of 2 methods, 1.5 [1.5, 1.5]" in said
    assert "0 of the others" in said


def test_every_method_is_explained_and_those_of_one_function_tell_how_they_differ():
    assert ORIGINS.keys() == ENTRANTS.keys()
    lines = dict(line.removeprefix("- ").split(": ", 1) for line in explain(ENTRANTS))
    assert lines.keys() == ENTRANTS.keys()
    assert lines["SNIP"] == f"{jaxarch.search.snip.method.source}: {jaxarch.search.snip.method.summary}"
    assert lines["late tickets"] == "like magnitude, but in rounds that rewind to early weights"
    functions = Counter(origin.function for origin in ORIGINS.values())
    assert all(origin.how for origin in ORIGINS.values() if functions[origin.function] > 1)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("1 / 0", r"own: mine\(0.5\) failed: ZeroDivisionError"),
        ("return 3", r"own: mine\(0.5\) failed: ArgumentError: chain: expected stages"),
        ("return jaxarch.search.random_mask(density)", "own: mine trains nothing"),
        (
            "return jaxarch.chain(jaxarch.search.random_mask(density), TRAIN, BARE)",
            "own: the last stage of mine drops the record of the training",
        ),
    ],
)
def test_a_function_that_makes_no_method_is_refused_before_anything_is_trained(tmp_path, body, message):
    file = tmp_path / "mine.py"
    file.write_text(f"{STAGES}\ndef mine(density):\n    {body}\n")
    with pytest.raises(jaxarch.ArgumentError, match=message):
        plan_of(TOURNAMENT, dataclasses.replace(SMALL, own=str(file)))


@pytest.mark.long
def test_a_method_of_one_s_own_that_finds_another_size_is_refused(task, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "import jaxarch\ndef cheat(density):\n    return jaxarch.search.dense(nonnegative=False)\n"
    )
    settings = dataclasses.replace(SMALL, methods=("random",), own=str(file))
    with pytest.raises(
        jaxarch.ArgumentError, match=r"own: expected networks of density .* from cheat, got 1 to 1"
    ):
        run_in(tmp_path, TOURNAMENT, settings)


@pytest.mark.long
def test_what_failed_as_it_was_found_has_failed_under_every_control(task):
    values = {"rate": np.full(2, 1e-3), "own": np.zeros(2)}
    played = play(ENTRANTS["random"], task, np.arange(2), values, OPTIONS)
    with_controls = task._replace(settings=dataclasses.replace(task.settings, controls=("inverted",)))
    failed = played._replace(failed_at=np.array([-1, 7, -1, -1], np.int32))
    found = controlled("random", failed, with_controls, 1e-3, OPTIONS)
    assert found.groupby("control")["failed_at"].apply(list).to_dict() == {
        "as found": [-1, 7, -1, -1],
        "inverted": [-1, 7, -1, -1],
    }
    assert found["accuracy"].isna().sum() == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods": ("SNIP",)}, "methods: expected at least two to rank"),
        ({"densities": (1e-5,)}, "densities: 1e-05 of 7400 connections leaves none"),
        ({"held_out": 0.999}, "held_out: 0.999 of the .* examples of a class is"),
        ({"methods": ("SNAP",)}, "methods: unknown 'SNAP'; did you mean 'SNIP'"),
        ({"densities": (1.5,)}, "densities: expected numbers between 0 and 1"),
        ({"seeds": 1}, "seeds: expected at least 2, to rank methods"),
        ({"controls": ("shuffled",)}, "controls: unknown 'shuffled'"),
        ({"tune": -1}, "tune: expected 0 or a number of trials"),
        ({"model": "resnet20", "widths": (3,)}, "widths: only an mlp, a cnn or a gpt takes widths"),
        ({"width_factor": 0.5}, "width_factor: only .* take a factor of channels; leave it out for mlp"),
        ({"width_factor": 0.0}, "width_factor: expected"),
        ({"held_out": 0.001}, "held_out: 0.001 of the .* examples of a class is 0"),
        (
            WORDS | {"model": "cnn"},
            "model: citeseer-words has 3703 features .* which cnn takes; expected mlp",
        ),
        (WORDS | {"pool": 2}, "pool: it changes pictures, and citeseer-words has none; leave it out"),
        (WORDS | {"augment": True}, "augment: it changes pictures, and citeseer-words has none"),
        ({"length": 8}, "length: digits is no text to be cut in windows; leave it out"),
        ({"model": "gpt"}, "model: gpt takes texts, and nothing else does; got gpt and digits"),
        (PLAYS | {"model": "mlp"}, "model: gpt takes texts, .*; got mlp and tiny-shakespeare"),
        (PLAYS | {"augment": True}, "augment: it changes pictures, and tiny-shakespeare has none"),
        (PLAYS | {"length": -1}, "length: expected"),
        (PLAYS | {"methods": ("SNIP", "PX")}, "methods: PX replaces the inputs by numbers, which the char"),
        (PLAYS | {"widths": (32, 16)}, "widths: all blocks of a gpt have as many features, a multiple of 4"),
        (PLAYS | {"widths": (10,)}, r"widths: all blocks .*, a multiple of 4, got \(10,\)"),
        (PLAYS | {"held_out": 1e-6}, "held_out: 1e-06 of the 31370 windows is 0"),
    ],
)
def test_settings_that_cannot_be_used_are_refused_by_name(changes, message):
    with pytest.raises(jaxarch.ArgumentError, match=message):
        plan_of(TOURNAMENT, dataclasses.replace(SMALL, **changes))


def test_features_are_standardized_by_rows_that_may_be_trained_on(tmp_path):
    x = np.random.default_rng(0).normal([5, -1, 0], [1e3, 1e-3, 0], (90, 3))
    np.savez(tmp_path / "mine.npz", x=x, y=np.arange(90) % 2)
    task = task_of(ready(dataclasses.replace(SMALL, dataset=str(tmp_path / "mine.npz"))))
    features, _ = task.problem.data
    trained_on = np.delete(features, task.test, axis=0)
    np.testing.assert_allclose(trained_on.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(trained_on.std(axis=0), [1, 1, 0], rtol=1e-3)
    assert task.form() == "3 features"


def test_a_class_without_rows_to_test_on_is_refused(tmp_path):
    np.savez(tmp_path / "mine.npz", x=np.eye(9), y=[0] * 7 + [1] * 2)
    settings = ready(dataclasses.replace(SMALL, dataset=str(tmp_path / "mine.npz")))
    with pytest.raises(
        jaxarch.ArgumentError, match="dataset: a class of mine has 2 examples; expected at least 3"
    ):
        task_of(settings)


def test_a_folder_from_before_there_were_layers_has_its_other_figures(folder, tmp_path):
    old = shutil.copytree(folder, tmp_path / "old")
    for file in (old / "layers.csv", *old.glob("*.png")):
        file.unlink()
    report_on(old, TOURNAMENT)
    assert (old / "ranks.png").exists()
    assert not (old / "layers.png").exists()


def test_words_are_learned_as_they_are():
    features, _ = task_of(ready(dataclasses.replace(SMALL, **WORDS))).problem.data
    assert np.unique(features).tolist() == [0, 1]


@pytest.fixture(scope="module")
def of_text(tmp_path_factory):
    """The results of a tournament on a user's text."""
    place = tmp_path_factory.mktemp("text")
    (place / "mine.txt").write_text("the cat sat. " * 200)
    settings = dataclasses.replace(
        SMALL,
        dataset=str(place / "mine.txt"),
        methods=("random", "SNIP"),
        widths=(8,),
        length=8,
        steps=40,
        densities=(0.5,),
    )
    run_in(place, TOURNAMENT, settings)
    return place


@pytest.mark.long
def test_a_text_s_accuracy_is_of_its_next_characters(of_text):
    """A phrase that repeats is learned: from some of its windows the next character is certain."""
    table = pd.read_csv(of_text / "results.csv")
    whole = table[table["strategy"] == DENSE]
    assert len(whole) == 2
    assert (whole["accuracy"] > 0.7).all()
    assert (whole["cross_entropy"] < np.log(2)).all()


def test_a_window_s_grades_are_means_over_its_characters():
    outputs = np.array([[[2.0, 0.0], [0.0, 1.0]], [[0.0, 3.0], [0.0, 0.0]]], np.float32)
    answers = np.array([[0, 0], [1, 0]])
    found = _grades(lambda params, state, batch: batch[0])(None, None, (outputs, answers))
    np.testing.assert_allclose(found["accuracy"], [0.5, 1.0])
    chances = np.exp(outputs) / np.exp(outputs).sum(-1, keepdims=True)
    of_answers = np.take_along_axis(chances, answers[..., None], -1)[..., 0]
    np.testing.assert_allclose(found["cross_entropy"], -np.log(of_answers).mean(1), rtol=1e-6)


@pytest.mark.long
def test_a_text_s_perplexities_are_reported(of_text):
    shown = report_on(of_text, TOURNAMENT).body[1]
    assert "perplexity" in shown.title
    of_dense = dict(zip(shown.columns, shown.rows[-1], strict=True))
    assert [row[0] for row in shown.rows[-1:]] == [DENSE]
    losses = pd.read_csv(of_text / "results.csv").set_index("strategy").loc[DENSE, "cross_entropy"]
    assert of_dense["0.5"].startswith(f"{np.exp(losses).median():.2f}")


@pytest.mark.long
def test_a_narrow_parent_has_its_channels_times_the_factor_and_says_so():
    narrow = dataclasses.replace(SMALL, model="resnet20", width_factor=0.25)
    task = prepare(narrow.complete())
    sizes = {path: leaf.shape for path, leaf in jaxarch.named_leaves(task.params).items()}
    assert sizes["convolution/kernel"] == (3, 3, 1, 4)
    assert sizes["head/kernel"] == (16, 10)
    assert plan_of(TOURNAMENT, narrow)[0].startswith("parent: resnet20 x 0.25, ")


def test_whatever_a_parent_is_called_a_result_folder_from_before_it_had_a_factor_is_read():
    assert in_words({"model": "resnet20"}) == "resnet20"
    assert in_words({"model": "vgg11", "width_factor": 0.125}) == "vgg11 x 0.125"
    assert in_words({"model": "mlp", "initial": "normal"}) == "mlp, normal initial weights"


@pytest.mark.long
def test_a_tournament_that_was_stopped_ends_with_the_numbers_of_one_that_was_not(table, tmp_path):
    methods = ("random", "SNIP")
    settings = dataclasses.replace(SMALL, methods=methods, resume=str(tmp_path / "parts"))
    columns = ["strategy", "density", "seed", "accuracy", "loss"]
    whole = table.loc[table["strategy"].isin([DENSE, *methods]), columns].reset_index(drop=True)
    for name in ("first", "second"):
        place = tmp_path / name
        place.mkdir()
        run_in(place, TOURNAMENT, settings)
        (tmp_path / "parts" / "SNIP.npz").unlink()
        again = pd.read_csv(place / "results.csv")[columns]
        pd.testing.assert_frame_equal(again, whole, rtol=1e-5)


@pytest.mark.long
def test_a_method_joins_a_tournament_whose_others_are_read_and_not_trained_again(tmp_path, monkeypatch):
    own = tmp_path / "mine.py"
    own.write_text(OWN)
    kept = dataclasses.replace(SMALL, resume=str(tmp_path / "parts"))
    run_in(tmp_path, TOURNAMENT, dataclasses.replace(kept, methods=METHODS[:2]))
    trained = []

    def told(entrant, *args):
        trained.append(entrant)
        return play(entrant, *args)

    def own_told(own, *args):
        trained.append(own.name)
        return play_own(own, *args)

    monkeypatch.setattr("jaxarch.lab.tournament.experiment.play", told)
    monkeypatch.setattr("jaxarch.lab.tournament.experiment.play_own", own_told)
    for changed in (False, True):
        if changed:
            own.write_text(OWN + "# another file\n")
        run_in(tmp_path, TOURNAMENT, dataclasses.replace(kept, methods=METHODS[:3], own=str(own)))
        assert set(pd.read_csv(tmp_path / "ranks.csv")["strategy"]) == {*METHODS[:3], "even layers"}
    assert trained == [ENTRANTS["SNIP"], "even layers", "even layers"]


def test_the_page_s_code_runs_and_its_own_method_is_one(tmp_path):
    names = {}
    ranked, few, own = code_blocks("docs/tournament.md")
    exec(compile(ranked, "docs/tournament.md", "exec"), names)
    assert names["found"].table["strategy"].tolist() == ["c", "b", "a"]
    assert names["needed"] > 1
    file = tmp_path / "mine.py"
    for code, search in ((few, "two_temperature"), (own, "snip")):
        file.write_text(code)
        (strategy,) = (own.function(0.1) for own in read_own(str(file)))
        assert [stage.name for stage in strategy.stages] == [search, "retrain warm"]


@pytest.mark.long
def test_scores_at_initialisation_beat_random_masks_as_the_literature_agrees():
    """SNIP and SynFlow "surpass the trivial baseline of random pruning" (Frankle et al., 2021, abstract)."""
    methods = ("SNIP", "SynFlow", "random", "random uniform")
    few = prepare(ready(dataclasses.replace(SMALL, methods=methods, densities=(0.05,), steps=300, seeds=3)))
    values = {"rate": np.full(3, few.settings.rate), "own": np.zeros(3)}
    accuracy = {name: play(ENTRANTS[name], few, np.arange(3), values, OPTIONS).accuracy for name in methods}
    for scored in ("SNIP", "SynFlow"):
        for drawn in ("random", "random uniform"):
            assert (accuracy[scored] > accuracy[drawn] + 0.05).all()


@pytest.mark.long
def test_random_masks_are_as_good_reshuffled_as_they_are():
    settings = dataclasses.replace(
        SMALL, methods=("random",), densities=(0.05,), steps=300, seeds=8, controls=("reshuffled",)
    )
    few = prepare(ready(settings))
    values = {"rate": np.full(8, few.settings.rate), "own": np.zeros(8)}
    played = play(ENTRANTS["random"], few, np.arange(8), values, OPTIONS)
    found = controlled("random", played, few, few.settings.rate, OPTIONS)
    by_seed = found.pivot(index="seed", columns="control", values="accuracy")
    difference = by_seed["reshuffled"] - by_seed["as found"]
    assert stats.ttest_1samp(difference, 0).pvalue > 0.01


@pytest.mark.long
def test_a_method_of_one_s_own_whose_weights_are_not_those_of_its_mask_is_refused(task, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "import jaxarch\n"
        "def forgets(density):\n"
        "    def kept(network):\n"
        "        return jaxarch.masks.keep(jaxarch.saliency.magnitude(network.params), density)\n"
        "    return jaxarch.chain(\n"
        "        jaxarch.search.dense(nonnegative=False),\n"
        "        lambda key, problem, network: network.replace(mask=kept(network)),\n"
        "    )\n"
    )
    settings = dataclasses.replace(SMALL, methods=("random",), own=str(file))
    with pytest.raises(
        jaxarch.ArgumentError, match=r"own: forgets has nonzero weights in .* where its mask is 0"
    ):
        run_in(tmp_path, TOURNAMENT, settings)


def test_what_a_method_of_one_s_own_takes_is_told_at_most(task):
    def tickets(density):
        train = jaxarch.retrain("warm", nonnegative=False)
        return jaxarch.chain(jaxarch.search.magnitude_pruning(density, fraction=0.5), train)

    own = Own("tickets", tickets)
    _, *before, last = own.phases(own.strategy(0.1, task), task)
    assert [phase.whole for phase in before] == [1] * 4
    assert last.whole == 0


@pytest.mark.long
def test_a_tournament_of_another_release_is_not_gone_on_with(tmp_path, monkeypatch):
    settings = dataclasses.replace(SMALL, methods=("random", "random ERK"), resume=str(tmp_path / "parts"))
    run_in(tmp_path, TOURNAMENT, settings)
    monkeypatch.setattr("jaxarch.lab.harness.parts.version", lambda name: "0.0.9")
    with pytest.raises(jaxarch.ArgumentError, match="jaxarch"):
        run_in(tmp_path, TOURNAMENT, settings)


KEPT = ROOT / "docs" / "results"
THREE = ("random", "magnitude at start", "SNIP")


def on_cifar(model, steps, **others):
    """The settings of the whole networks on CIFAR-10."""
    return TournamentSettings(
        dataset="cifar10",
        model=model,
        steps=steps,
        densities=(0.1, 0.01, 0.001),
        rate=1e-3,
        augment=True,
        max_parallel_runs=1,
        seeds=3,
        **{"resume": f"tournament_{model}"} | others,
    )


@pytest.mark.parametrize(
    ("settings", "methods"),
    [
        (TournamentSettings(dataset="mnist", resume="tournament_mnist"), list(ENTRANTS)),
        (TournamentSettings(key=1, resume="tournament_digits"), list(ENTRANTS)),
        (
            TournamentSettings(
                key=1, controls=("reshuffled", "reinitialised"), resume="tournament_digits_controls"
            ),
            list(ENTRANTS),
        ),
        (TournamentSettings(key=1, **WORDS, resume="tournament_citeseer"), list(ENTRANTS)),
        (
            TournamentSettings(key=1, **PLAYS, resume="tournament_shakespeare"),
            [name for name in ENTRANTS if name not in NUMBERS_ALONE],
        ),
        (
            TournamentSettings(key=1, model="cnn", steps=500, resume="tournament_digits_cnn"),
            list(ENTRANTS),
        ),
        (on_cifar("vgg16", 1500), (*THREE, "GraSP", "SynFlow")),
        (on_cifar("vgg16", 1500, initial="normal", resume="tournament_vgg16_normal"), THREE),
        (on_cifar("resnet18", 600), (*THREE, "GraSP", "SynFlow")),
    ],
    ids=[
        "mnist",
        "digits",
        "controls",
        "words",
        "text",
        "cnn",
        "vgg16",
        "vgg16 of normal weights",
        "resnet18",
    ],
)
def test_what_is_kept_is_gone_on_with_as_the_page_says_and_has_every_method(settings, methods, tmp_path):
    folder = shutil.copytree(KEPT / settings.resume, tmp_path / "kept")
    check_parts(dataclasses.replace(settings, resume=str(folder)).complete(), "tournament")
    names = {file_name(name) for name in (DENSE, *methods)}
    assert {file.stem for file in folder.glob("*.npz")} == names


def test_of_the_resnet18_that_is_kept_synflow_has_emptied_projections_and_nothing_else():
    with np.load(KEPT / "tournament_resnet18" / "SynFlow.npz") as found:
        layers = {name: share > 0 for name, share in found.items() if name.startswith("layers/")}
    projections = [f"layers/encoder/{block}/shortcut/kernel" for block in (2, 4, 6)]
    assert all(kept.all() for name, kept in layers.items() if name not in projections)
    kept = np.stack([layers[name] for name in projections])
    # Three densities, three seeds each.
    assert (~kept).sum(axis=0).tolist() == [2, 2, 2, 3, 3, 3, 3, 3, 3]


@pytest.fixture(scope="module")
def starts():
    """The digits' parent with its own weights, and with normal ones: the matrices of three seeds."""

    def of(initial):
        problem = task_of(ready(dataclasses.replace(SMALL, initial=initial))).problem
        draw = jax.vmap(lambda seed: problem.init(jax.random.key(seed))[0])
        return problem, jax.device_get(draw(np.arange(3)))

    return {initial: of(initial) for initial in ("model", "normal")}


@pytest.mark.long
def test_normal_initial_weights_have_the_sizes_of_the_models_own_and_no_edge(starts):
    own, normal = (jaxarch.named_leaves(starts[initial][1]) for initial in ("model", "normal"))
    for path, leaf in own.items():
        if leaf.ndim < 3:  # a bias of each seed
            np.testing.assert_array_equal(normal[path], leaf)
            continue
        spread = np.sqrt(np.square(leaf).mean(axis=(1, 2)))
        np.testing.assert_allclose(np.sqrt(np.square(normal[path]).mean(axis=(1, 2))), spread, rtol=0.05)
        assert np.abs(leaf).max() < 2.4 * spread.max() < 3 * spread.max() < np.abs(normal[path]).max()
        assert len({draw.tobytes() for draw in normal[path]}) == 3


@pytest.mark.long
def test_it_is_the_edge_of_flax_weights_that_empties_a_layer_under_initial_magnitude(starts):
    search = jaxarch.search.initial_magnitude(0.05)
    emptiest = {
        initial: [
            min(float(share) for share in jaxarch.layer_density(search(key, problem).mask).values())
            for key in jax.random.split(jax.random.key(0), 3)
        ]
        for initial, (problem, _) in starts.items()
    }
    assert max(emptiest["model"]) == 0 < min(emptiest["normal"])


@pytest.mark.long
@pytest.mark.parametrize("initial", ["model", "normal"])
def test_a_tournament_is_of_the_initial_weights_that_it_was_asked_for(initial, tmp_path):
    few = {"methods": ("random", "magnitude at start"), "densities": (0.05,)}
    settings = dataclasses.replace(SMALL, **few, initial=initial, resume=str(tmp_path / "parts"))
    run_in(tmp_path, TOURNAMENT, settings)
    with np.load(tmp_path / "parts" / "magnitude-at-start.npz") as found:
        emptiest = np.min([found[name] for name in found.files if name.startswith("layers/")], axis=0)
    assert ((emptiest > 0) == (initial == "normal")).all()
