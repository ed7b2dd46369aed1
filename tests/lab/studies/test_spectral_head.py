"""A spectral head on a convolutional network ([S] figure 16): what is trained, taken away and measured."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small import Interrupted, close, interrupt_when, same

from jaxarch import ArgumentError
from jaxarch.io import read_npz
from jaxarch.lab.harness import Results, plan_of, report_on, run_in
from jaxarch.lab.reproduction import read_findings
from jaxarch.lab.results import read_table
from jaxarch.lab.spectral import fig16, heads
from jaxarch.lab.spectral.fig16 import Settings
from jaxarch.lab.spectral.heads import CURVES, EIGENVALUES, HEADS, LINEAR, WITHOUT
from jaxarch.lab.tournament.task import prepare
from jaxarch.spectral import direct_feedforward, direct_weights

SMALL = Settings(seeds=2, widths=(3, 4), steps=30, every=10, hidden=6, batch_size=50, rate=1e-2)
SPECTRAL = [head for head in HEADS if head != LINEAR]


def task_of(head):
    settings = SMALL.complete()
    return prepare(settings, settings.change(head))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("heads")
    run_in(made, fig16.EXPERIMENT, SMALL)
    return made


@pytest.mark.long
def test_every_head_begins_on_the_same_convolutions_and_sees_the_same_rows():
    linear, *others = (task_of(head) for head in HEADS)
    key = linear.keys("pairs")[0]
    convolutions = [task.problem.init(key)[0]["convolutions"] for task in (linear, *others)]
    for task, of_head in zip(others, convolutions[1:], strict=True):
        assert same(of_head, convolutions[0])
        assert same((task.train, task.held_out, task.test), (linear.train, linear.held_out, linear.test))


@pytest.mark.long
@pytest.mark.parametrize("head", SPECTRAL)
def test_without_its_hidden_neurons_a_head_is_the_linear_map_of_its_skip_connection(head):
    task = task_of(head)
    params, state = task.problem.init(jax.random.key(1))
    values = params["head"]["eigenvalues"]
    values["L2"] = jnp.linspace(-1, 1, 6)
    batch = task.problem.gather(task.problem.data, None, jnp.arange(40))
    features = task_of(LINEAR).problem.predict(
        {"convolutions": params["convolutions"], "norms": params["norms"], "head": IDENTITY},
        state_of(state),
        batch,
    )
    bare = heads.without_hidden(state, params)
    weights = direct_weights(params["head"], bare["head"], bias=True)
    assert set(weights) == {"W2_1", "b2"}
    assert close(task.problem.predict(params, bare, batch), direct_feedforward(weights, features), 1e-4)
    assert not close(
        task.problem.predict(params, state, batch), task.problem.predict(params, bare, batch), 1e-2
    )


IDENTITY = {"kernel": jnp.eye(4), "bias": jnp.zeros(4)}


def state_of(state):
    """The state of the parent with its own head."""
    return {name: leaf for name, leaf in state.items() if name != "head"}


@pytest.mark.long
def test_every_look_is_kept_with_and_without_hidden_neurons(folder):
    curves = read_table(folder, CURVES)
    assert (curves.groupby(["head", "seed"]).size() == 3).all()
    epochs = 10 * 50 / task_of(LINEAR).train.shape[1] * np.arange(1, 4)
    np.testing.assert_allclose(curves["epoch"].unique(), epochs)
    assert curves.loc[curves["head"] == LINEAR, WITHOUT].isna().all()
    assert curves.loc[curves["head"] != LINEAR, WITHOUT].notna().all()
    # At first the head of [S] is a perceptron nearly; a gated one is not.
    first = curves[curves["epoch"] == epochs[0]].groupby("head")[["accuracy", WITHOUT]].mean()
    assert abs(first.loc["spectral", "accuracy"] - first.loc["spectral", WITHOUT]) < 0.05
    assert set(read_table(folder)["head"]) == set(HEADS)


@pytest.mark.long
def test_a_network_that_has_no_neurons_left_is_the_one_without_them(folder):
    table = read_table(folder)
    bare = table[table["neurons"] == 0]
    assert len(bare)
    assert (bare["recruited_accuracy"] == bare["accuracy_without"]).all()
    assert table.loc[table["head"] != LINEAR, "neurons"].between(0, 6).all()


@pytest.mark.long
def test_the_report_has_a_row_for_each_head_and_draws_its_figures(folder):
    arrays = read_npz(folder / EIGENVALUES, "folder")
    shapes = {f"{head}/{layer}": (2, size) for head in SPECTRAL for layer, size in (("L2", 6), ("L3", 10))}
    assert shapes.items() <= {name: array.shape for name, array in arrays.items()}.items()
    table, *_ = report_on(folder, fig16.EXPERIMENT).body
    assert len(table.rows) == len(HEADS)
    words = " ".join(fig16.EXPERIMENT.conclusion(Results(folder)))
    accuracy = read_table(folder).pivot(index="seed", columns="head", values="accuracy")
    for head in HEADS:
        assert f"{accuracy[head].median():.4f} [" in words.split(f" ({head})")[0][-25:]
    gained = (accuracy["spectral"] - accuracy[LINEAR]).median()
    assert f"the difference to the linear head is {gained:+.4f} [" in words
    assert {path.name for path in folder.glob("*.png")} == {"accuracy.png", "eigenvalues.png"}
    assert len(read_findings(folder)) == 1 + 9 * len(SPECTRAL)


@pytest.mark.long
def test_a_stopped_run_is_continued_to_the_same_numbers(folder, tmp_path):
    # One head is done before the other is stopped; the third is trained in the folder alone.
    both = (LINEAR, "spectral")
    settings = dataclasses.replace(SMALL, heads=both, resume=str(tmp_path / "checkpoints"))
    stopped = interrupt_when(lambda told: told.name.startswith("spectral") and told.step == 20)
    with pytest.raises(Interrupted):
        run_in(tmp_path, fig16.EXPERIMENT, settings, stopped)
    run_in(tmp_path, fig16.EXPERIMENT, settings)
    whole, continued = (read_table(place).drop(columns="seconds") for place in (folder, tmp_path))
    assert continued.equals(whole[whole["head"].isin(both)])
    curves = read_table(folder, CURVES)
    assert read_table(tmp_path, CURVES).equals(curves[curves["head"].isin(both)])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"model": "mlp"},
            "model: expected one of cnn, resnet18, resnet20, vgg11, vgg16, whose head can be replaced; got",
        ),
        ({"heads": ("linear", "round")}, "heads: unknown 'round'"),
        ({"every": 31, "steps": 30}, "every: expected at most 30, the steps of a training, got 31"),
        ({"tolerance": 0.0}, "tolerance: "),
    ],
)
def test_settings_that_cannot_be_used_are_refused_before_anything_is_trained(settings, message):
    with pytest.raises(ArgumentError, match=message):
        plan_of(fig16.EXPERIMENT, Settings(**settings))
