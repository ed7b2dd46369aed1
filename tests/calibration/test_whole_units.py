"""Whole units are chosen by what they add to squared outputs."""

import jax
import jax.numpy as jnp
import numpy as np

import jaxarch

EXPERTS, WIDTH, HIDDEN = 4, 8, 12
RARE = 2


def mixture(params, x):
    gates = jax.nn.softmax(x @ params["gate"] + params["bias"])
    hidden = jax.nn.relu(jnp.einsum("nw,ewh->neh", x, params["in"]))
    return jnp.einsum("ne,neh,ehw->nw", gates, hidden, params["out"])


def given():
    rng = np.random.default_rng(0)
    shapes = {"gate": (WIDTH, EXPERTS), "in": (EXPERTS, WIDTH, HIDDEN), "out": (EXPERTS, HIDDEN, WIDTH)}
    params = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    # The expert with the largest weights is hardly ever chosen.
    params["out"][RARE] *= 3
    params["bias"] = np.where(np.arange(EXPERTS) == RARE, -9, 0).astype(np.float32)[None]
    return jax.tree.map(jnp.asarray, params), jnp.asarray(rng.normal(size=(64, WIDTH)), jnp.float32)


def test_the_expert_that_the_gate_hardly_chooses_goes_first_whatever_its_weights():
    params, x = given()

    def kept(scores):
        options = {"budget": "80% parameters", "scope": "global", "units": "experts"}
        return jaxarch.structure.plan(mixture, params, x, scores=scores, **options).mask["gate"][0].tolist()

    by_inputs = jaxarch.saliency.wanda(params, jaxarch.calibrate(mixture, params, [x]), where="out")
    assert kept(jax.tree.map(jnp.square, by_inputs)) == [expert != RARE for expert in range(EXPERTS)]
    assert kept(jaxarch.saliency.magnitude(params, where="out"))[RARE]
