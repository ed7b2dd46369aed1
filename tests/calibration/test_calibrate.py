"""Calibration as a user meets it: batches, padding, Wanda, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compilations import compilations
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import jaxarch

RNG = np.random.default_rng(0)
PARAMS = {
    "in": jnp.asarray(RNG.normal(size=(4, 6)), jnp.float32),
    "out": jnp.asarray(RNG.normal(size=(6, 2)), jnp.float32),
}
X = jnp.asarray(RNG.normal(size=(10, 4)), jnp.float32)


def apply(params, x):
    return jnp.tanh(x @ params["in"]) @ params["out"]


def squares(batches, **options):
    return jaxarch.calibrate(apply, PARAMS, batches, **options).squares(PARAMS)


def test_batches_of_any_shape_add_up():
    whole, parts = squares([X]), squares(iter([X[:3], X[3:6], X[6:]]))
    for path in PARAMS:
        np.testing.assert_allclose(whole[path], parts[path], rtol=1e-5)


def test_padding_does_not_count():
    def sequences(params, batch):
        return apply(params, batch[0])

    there = jnp.arange(5)[None] < jnp.array([[3], [5]])
    # Padding may hold anything.
    x = jnp.where(there[..., None], X.reshape(2, 5, 4), jnp.nan)
    of = jaxarch.calibrate(sequences, PARAMS, [(x, there)], valid=lambda batch: batch[1])
    for path, expected in squares([X.reshape(2, 5, 4)[there]]).items():
        np.testing.assert_allclose(of.squares(PARAMS)[path], expected, rtol=1e-5)


def test_padding_does_not_count_in_rows_that_are_flattened():
    def flattened(params, batch):
        return apply(params, batch[0].reshape(-1, 4))

    there = jnp.arange(5)[None] < jnp.array([[3], [5]])
    batch = X.reshape(2, 5, 4), there
    of = jaxarch.calibrate(flattened, PARAMS, [batch], valid=lambda batch: batch[1]).squares(PARAMS)
    for path, expected in squares([X.reshape(2, 5, 4)[there]]).items():
        np.testing.assert_allclose(of[path], expected, rtol=1e-5)


def test_rows_that_padding_does_not_fit_are_named():
    def model(params, batch):
        return apply(params, batch[0].sum(1))

    batch = X.reshape(2, 5, 4), jnp.ones((2, 5), bool)
    with pytest.warns(jaxarch.ResultWarning, match=r"valid: its shape \(2, 5\) does not fit the rows \(2,\)"):
        jaxarch.calibrate(model, PARAMS, [batch], valid=lambda batch: batch[1])


def test_steps_on_another_kind_of_mesh_axes_are_run():
    mesh = jax.make_mesh((1,), ("one",), axis_types=(AxisType.Explicit,))
    with jax.set_mesh(mesh):
        split = NamedSharding(mesh, PartitionSpec("one", None))
        inner = jax.sharding.auto_axes(lambda x: jnp.tanh(x).reshape(-1, 4), out_sharding=split)
        params, x = jax.device_put((PARAMS, X), split)
        of = jaxarch.calibrate(lambda params, x: inner(x) @ params["in"], params, [x]).squares(params)
    np.testing.assert_allclose(of["in"][:, 0], (np.tanh(X) ** 2).sum(0), rtol=1e-5)


def test_products_and_look_ups_on_another_kind_of_mesh_axes_are_read():
    mesh = jax.make_mesh((1,), ("one",), axis_types=(AxisType.Explicit,))
    with jax.set_mesh(mesh):
        whole = NamedSharding(mesh, PartitionSpec(None, None))
        product = jax.sharding.auto_axes(lambda w, x: jnp.tanh(x) @ w, out_sharding=whole)

        def model(params, places):
            return product(params["in"], params["table"].at[places].get(out_sharding=whole))

        params, places = jax.device_put(
            ({"in": PARAMS["in"], "table": X}, np.array([1, 1, 0])), NamedSharding(mesh, PartitionSpec())
        )
        of = jaxarch.calibrate(model, params, [places]).squares(params)
    np.testing.assert_allclose(of["in"][:, 0], (np.tanh(X[places]) ** 2).sum(0), rtol=1e-5)
    assert of["table"][:3, 0].tolist() == [1, 2, 0]


def test_wanda_keeps_the_weights_of_the_plain_formula():
    calibration = jaxarch.calibrate(apply, PARAMS, [X])
    scores = jaxarch.saliency.wanda(PARAMS, calibration)
    mask = jaxarch.masks.keep(scores, 0.5, jaxarch.masks.PerOutput(calibration.inputs))
    hidden = np.tanh(np.asarray(X, float) @ np.asarray(PARAMS["in"], float))
    for path, inputs in {"in": X, "out": hidden}.items():
        plain = np.abs(PARAMS[path]) * np.linalg.norm(inputs, axis=0)[:, None]
        kept = np.argsort(np.argsort(-plain, axis=0), axis=0) < len(plain) // 2
        assert (np.asarray(mask[path]) == kept).all()


def test_half_precision_is_summed_in_single_precision():
    half = jax.tree.map(lambda leaf: leaf.astype(jnp.float16), PARAMS)
    large = jnp.full((400, 4), 100, jnp.float16)  # whose squares, added up, are no float16
    of = jaxarch.calibrate(apply, half, [large]).squares(half)
    assert of["in"].dtype == jnp.float32 and (of["in"] == 4e6).all()


def test_a_second_calibration_compiles_nothing():
    other = X + 1
    squares([X])
    with compilations() as found:
        jaxarch.calibrate(apply, PARAMS, [other])
    assert not found


@pytest.mark.long
def test_the_parameters_stay_as_they_are():
    before = jax.tree.map(np.array, PARAMS)
    jaxarch.sparsegpt(apply, PARAMS, [X], 0.5)
    assert jax.tree.all(jax.tree.map(lambda one, other: (one == other).all(), before, PARAMS))


@pytest.mark.parametrize(
    ("batches", "options", "message"),
    [
        ([], {}, "batches: expected at least one"),
        (X, {}, "batches: expected a list of batches"),
        ({"x": X}, {}, "batches: expected a list of batches"),
        ([X * jnp.nan], {}, "batches: inputs of 'in' are NaN or infinite"),
        ([X[:, :3]], {}, "function: it cannot be traced"),
        ([X], {"valid": lambda batch: batch}, "valid: expected an array of booleans"),
        ([X], {"where": "hidden"}, "where: no leaf is selected by 'hidden'"),
    ],
)
def test_bad_input_is_refused(batches, options, message):
    with pytest.raises(jaxarch.ArgumentError, match=message):
        jaxarch.calibrate(apply, PARAMS, batches, **options)


def test_parameters_of_another_model_are_refused():
    calibration = jaxarch.calibrate(apply, PARAMS, [X])
    with pytest.raises(jaxarch.ArgumentError, match=r"'in' with the calibrated shape \(4, 6\)"):
        jaxarch.saliency.wanda(PARAMS | {"in": jnp.ones((4, 7))}, calibration)
