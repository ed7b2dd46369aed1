"""Heads on a frozen backbone, the stand-in for [S] figure 18: what they are shown, and what is measured."""

import jax.numpy as jnp
import numpy as np
import pytest
from small import close

import jaxarch
from jaxarch import ArgumentError
from jaxarch.lab.harness import plan_of, report_on, run_in
from jaxarch.lab.reproduction import read_findings
from jaxarch.lab.results import read_manifest, read_table
from jaxarch.lab.spectral import fig18
from jaxarch.lab.spectral.heads import HEADS, LINEAR
from jaxarch.lab.tournament.task import prepare

SMALL = fig18.Settings(
    seeds=2, widths=(3, 4), backbone_steps=20, steps=20, every=10, hidden=6, batch_size=50, rate=1e-2
)


def ready():
    settings = SMALL.complete()
    settings.check()
    return settings


@pytest.mark.long
def test_what_a_head_is_shown_is_what_the_backbone_s_own_head_sees():
    settings = ready()
    base = prepare(settings.of_backbone())
    problem, whole = base.learning(np.arange(2)), jaxarch.search.dense(nonnegative=False)
    network, _ = jaxarch.over_seeds(whole, base.keys("search"), problem, dead_start="ignore")
    features = fig18.features_of(base, network, base.images)
    assert features.shape == (2, len(base.images.y), 4)
    heads = network.params["head"]
    outputs = jnp.einsum("rnf,rfc->rnc", features[:, base.test], heads["kernel"]) + heads["bias"][:, None]
    assert close(outputs, jaxarch.evaluate(whole, network, problem, base.test), 1e-4)


@pytest.mark.long
def test_every_seed_s_heads_are_trained_on_its_own_features():
    task = prepare(ready())
    features = np.random.default_rng(0).normal(size=(2, len(task.images.y), 4)).astype(np.float32)
    problem = fig18.on_features(LINEAR, task, features)
    rows = jnp.asarray([5, 1])
    for run in range(2):
        x, y = problem.gather(problem.data, problem.per_run[run], rows)
        assert np.array_equal(x, features[run, [5, 1]])
        assert np.array_equal(y, task.images.y[[5, 1]])


@pytest.mark.long
def test_every_head_is_measured_and_the_report_says_what_it_stands_in_for(tmp_path):
    run_in(tmp_path, fig18.EXPERIMENT, SMALL)
    table = read_table(tmp_path)
    assert (table.groupby("head").size() == 2).all()
    assert set(table["head"]) == set(HEADS)
    assert read_manifest(tmp_path)["backbone"] == "digits"
    report = report_on(tmp_path, fig18.EXPERIMENT)
    assert report.warnings[-1].startswith("a stand-in for CIFAR-100")
    assert report.conclusion.startswith("digits, heads on a frozen cnn trained on digits: test accuracy")
    for _, runs in table.groupby("head"):
        assert f"{runs['accuracy'].median():.4f} [" in report.conclusion
    whats = [found.what for found in read_findings(tmp_path)]
    assert whats[0] == "test accuracy of the backbone on digits"
    assert "largest hidden eigenvalue over the median one of the outputs: spectral head" in whats


@pytest.mark.long
def test_a_backbone_of_pictures_of_another_size_is_refused_before_anything_is_trained(tmp_path):
    path = tmp_path / "wide.npz"
    np.savez(path, x=np.arange(200 * 8 * 16, dtype=np.uint8).reshape(200, 8, 16), y=np.arange(200) % 10)
    settings = fig18.Settings(dataset=str(path), backbone="digits")
    for use in (plan_of, lambda of, given: run_in(tmp_path / "run", of, given)):
        with pytest.raises(
            ArgumentError, match=r"backbone: its pictures have shape \(8, 8, 1\), but those of"
        ):
            use(fig18.EXPERIMENT, settings)
