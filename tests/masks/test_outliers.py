"""Densities by outliers."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxarch
from jaxarch.masks import owl_densities

SCORES = {
    "a/in": jnp.ones(20).at[0].set(60.0),
    "a/out": jnp.ones(40),
    "b/in": jnp.ones(100).at[:4].set(60.0),
    "b/out": None,
}


@pytest.mark.long
def test_all_layers_together_have_the_density():
    densities = owl_densities(SCORES, 0.4)
    sizes = [20, 40, 100]
    assert np.average([*densities.values()], weights=sizes) == pytest.approx(0.4)
    mask = jaxarch.masks.keep(SCORES, densities, jaxarch.masks.PerOutput(0))
    assert int(jaxarch.masks.connections(mask)) == 64


def test_layers_with_more_outliers_keep_more_within_twice_the_spread():
    densities = owl_densities(SCORES, 0.4, spread=0.05)
    # 5%, 0% and 4% of the scores are outliers.
    assert densities["a/in"] > densities["b/in"] > densities["a/out"]
    assert densities["a/in"] - densities["a/out"] == pytest.approx(0.1)
    assert densities["b/in"] - densities["a/out"] == pytest.approx(0.08)


def test_leaves_of_a_layer_share_its_density():
    densities = owl_densities(SCORES, 0.4, layer=lambda path: path.split("/")[0])
    # One outlier among 60 scores, and four among 100.
    assert densities["a/in"] == densities["a/out"] < densities["b/in"]


def test_layers_that_are_alike_have_one_density():
    assert owl_densities({"a": jnp.ones(4), "b": jnp.ones(8)}, 0.3) == {"a": 0.3, "b": 0.3}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"density": 0.0}, "density: expected a number in"),
        ({"density": 0.1, "spread": 0.5}, "spread: with 0.5 a layer would have the density"),
        (
            {"density": 0.1, "scores": {"a": -jnp.ones(3)}},
            "scores: expected numbers of at least 0, got less in 'a'",
        ),
        ({"density": 0.1, "layer": "a"}, "layer"),
    ],
)
def test_bad_arguments_are_refused(options, message):
    with pytest.raises(jaxarch.ArgumentError, match=message):
        owl_densities(options.pop("scores", SCORES), **options)
