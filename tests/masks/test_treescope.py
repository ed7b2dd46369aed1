"""Masks and networks in notebooks, as treescope shows them, which comes with Flax."""

import jax.numpy as jnp
import treescope

import jaxarch

MASK = {"hidden": {"kernel": jnp.arange(12).reshape(4, 3) % 3 == 0, "bias": None}}


def test_a_mask_is_shown_by_path_with_what_it_keeps():
    text = treescope.render_to_text(MASK)
    assert "'kernel': # jax.Array bool(4, 3) true:4 false:8" in text
    assert "'bias': None" in text


def test_a_mask_is_drawn_where_arrays_are_drawn():
    with treescope.active_autovisualizer.set_scoped(treescope.ArrayAutovisualizer()):
        drawn = treescope.render_to_html(MASK, compressed=False)
    assert "buildArrayvizFigure" in drawn
    assert "buildArrayvizFigure" not in treescope.render_to_html(MASK, compressed=False)


def test_a_network_is_a_tree_of_its_fields():
    network = jaxarch.Network(
        {"kernel": jnp.ones((4, 3))},
        MASK["hidden"],
        records=(jaxarch.NeuronMask({"kernel": jnp.ones(3, bool)}),),
    )
    text = treescope.render_to_text(network)
    assert text.startswith("Network(\n  params={\n    'kernel': ")
    assert "jax.Array float32(4, 3)" in text
    assert "\n  mask={" in text
    assert "'kernel': <jax.Array bool(4, 3) true:4 false:8>" in text
    assert "NeuronMask(" in text
