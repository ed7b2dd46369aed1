"""The tangent kernel: its formula, masks, what it says of training, and models that it refuses."""

import flax.nnx as nnx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from compilations import compilations

import jaxarch
from jaxarch import ArgumentError, float64
from jaxarch.analysis import TangentKernel, cka, ntk


def drawn(seed, *shape, dtype=np.float32):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def mlp(params, x):
    hidden = jnp.tanh(x @ params["in"]["w"] + params["in"]["b"][None])
    return (hidden @ params["out"]).reshape(len(x), 3, 2)


PARAMS = {"in": {"w": drawn(0, 4, 5), "b": drawn(1, 5)}, "out": drawn(2, 5, 6)}
MASK = {"in": {"w": drawn(3, 4, 5) > 0, "b": None}, "out": drawn(4, 5, 6) > 0}
X = drawn(5, 7, 4)


def dense(function, params, x):
    """The kernel of all outputs by one Jacobian of the whole batch."""
    found = jax.jacrev(function)(params, x)
    rows = [
        of.reshape(-1, np.size(leaf)) for of, leaf in zip(*map(jax.tree.leaves, (found, params)), strict=True)
    ]
    return sum(np.asarray(of) @ np.asarray(of).T for of in rows)


def mean_of(theta, count):
    by_output = theta.reshape(count, -1, count, theta.shape[0] // count)
    return np.einsum("iaja->ij", by_output) / by_output.shape[1]


def test_the_kernel_of_a_linear_model_is_that_of_its_inputs():
    found = ntk(lambda params, x: x @ params, jnp.ones(3), jnp.array([[1.0, 2.0, 0.0], [0.0, 1.0, -1.0]]))
    assert found.kernel.tolist() == [[5, 2], [2, 2]]
    assert np.allclose(found.eigenvalues, [6, 1], atol=1e-6)  # their sum is 7, their product 6


@pytest.mark.parametrize("batch_size", [None, 1, 3, 7, 100])
@pytest.mark.parametrize("full", [False, True])
def test_it_is_the_product_of_the_jacobian_with_itself_for_any_batch_size(batch_size, full):
    with float64():
        params, x = jax.tree.map(lambda leaf: jnp.asarray(leaf, np.float64), (PARAMS, X))
        wanted = dense(mlp, params, x)
        found = ntk(mlp, params, x, batch_size=batch_size, full=full)
        assert found.kernel.dtype == np.float64
        assert np.allclose(found.kernel, wanted if full else mean_of(wanted, 7), rtol=1e-12, atol=1e-13)
        assert np.array_equal(found.kernel, found.kernel.T)
        assert np.allclose(found.eigenvalues, np.linalg.eigvalsh(found.kernel)[::-1], rtol=1e-12, atol=1e-12)


@pytest.mark.long
def test_pruned_connections_leave_the_kernel_and_the_others_count_where_they_are_alone():
    def kept_only(kept, x):  # a network that has no other parameters
        w, out = (jnp.zeros(m.shape).at[m].set(values) for m, values in zip(masks, kept[1:], strict=True))
        return mlp({"in": {"w": w, "b": kept[0]}, "out": out}, x)

    masks = MASK["in"]["w"], MASK["out"]
    kept = [PARAMS["in"]["b"], PARAMS["in"]["w"][masks[0]], PARAMS["out"][masks[1]]]
    assert np.allclose(
        ntk(mlp, PARAMS, X, mask=MASK, full=True).kernel, dense(kept_only, kept, X), rtol=1e-4, atol=1e-5
    )


@pytest.mark.long
def test_a_mask_of_ones_changes_nothing_and_of_zeros_removes_a_leaf():
    ones = jax.tree.map(lambda leaf: np.ones(leaf.shape, bool), PARAMS)
    assert np.array_equal(ntk(mlp, PARAMS, X, mask=ones).kernel, ntk(mlp, PARAMS, X).kernel)
    mask = {"in": {"w": None, "b": None}, "out": np.zeros((5, 6), np.int32)}
    no_head = {"in": PARAMS["in"], "out": 0 * PARAMS["out"]}
    # Behind a head of zeros only the head itself has gradients.
    assert np.any(ntk(mlp, no_head, X).kernel)
    assert not np.any(ntk(mlp, PARAMS, X, mask=mask).kernel)


def test_numbers_in_a_mask_enter_squared():
    x = jnp.array([[1.0, 2.0]])
    found = ntk(lambda params, x: x @ params["w"], {"w": jnp.ones(2)}, x, mask={"w": jnp.array([0.5, 3.0])})
    assert found.kernel.tolist() == [[0.25 + 9 * 4]]


def test_the_order_of_hidden_units_changes_nothing():
    order = np.random.default_rng(0).permutation(5)
    turned = {
        "in": {"w": PARAMS["in"]["w"][:, order], "b": PARAMS["in"]["b"][order]},
        "out": PARAMS["out"][order],
    }
    found = [ntk(mlp, params, X, full=True).kernel for params in (PARAMS, turned)]
    assert np.allclose(*found, rtol=1e-5, atol=1e-5)


@pytest.mark.long
def test_a_small_step_of_gradient_descent_changes_outputs_by_the_kernel_times_their_gradient():
    with float64():
        params, x = jax.tree.map(lambda leaf: jnp.asarray(leaf, np.float64), (PARAMS, X))

        def loss(outputs):
            return jnp.sum(jnp.cos(outputs))

        def masked(params):
            return mlp(jaxarch.masks.apply_mask(MASK, params), x)

        rate = 1e-6
        slope = jax.grad(lambda params: loss(masked(params)))(params)
        after = masked(jax.tree.map(lambda leaf, g: leaf - rate * g, params, slope))
        outputs = masked(params)
        theta = ntk(mlp, params, x, mask=MASK, full=True).kernel
        wanted = -theta @ jax.grad(loss)(outputs).reshape(-1)
        assert np.allclose((after - outputs).reshape(-1) / rate, wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.long
def test_wide_networks_have_the_arc_cosine_kernel():
    width = 20_000
    w, v, x = drawn(0, 6, width), drawn(1, width), drawn(2, 5, 6)

    def relu(params, x):
        hidden = jax.nn.relu(x @ params["w"])
        return hidden @ params["v"] * np.float32(np.sqrt(2 / width))

    size = np.linalg.norm(x, axis=1)
    cosine = np.clip(x @ x.T / np.outer(size, size), -1, 1)
    angle = np.arccos(cosine)
    zeroth, first = (np.pi - angle) / np.pi, (np.sin(angle) + (np.pi - angle) * cosine) / np.pi
    wanted = x @ x.T * zeroth + np.outer(size, size) * first
    # The kernel is a mean over units; its standard error is that of the mean.
    act = np.maximum(x @ w, 0)
    of_units = 2 * (
        act[:, None] * act[None] + v**2 * (act > 0)[:, None] * (act > 0)[None] * (x @ x.T)[..., None]
    )
    error = of_units.std(-1) / np.sqrt(width)
    found = ntk(relu, {"w": w, "v": v}, x).kernel
    assert (np.abs(found - wanted) < 4 * error).all()
    assert error.max() < 0.03 * wanted.max()


@pytest.mark.long
def test_many_seeds_are_one_call_with_and_without_jit():
    params = jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf, -leaf]), PARAMS)
    masks = jax.tree.map(lambda m: jnp.stack([m, ~m, m]), MASK)

    def of(params, mask):
        return ntk(mlp, params, X, mask=mask, batch_size=3)

    pairs = [jax.tree.map(lambda leaf, run=run: leaf[run], (params, masks)) for run in range(3)]
    each = np.stack([of(*pair).kernel for pair in pairs])
    for call in (jax.vmap(of), jax.jit(jax.vmap(of))):
        found = call(params, masks)
        assert np.allclose(found.kernel, each, rtol=1e-5, atol=1e-5)
        assert found.eigenvalues.shape == (3, 7)
        assert found.effective_rank.shape == found.condition_number.shape == (3,)
        alone = [TangentKernel(kernel, found.eigenvalues).alignment(np.arange(7) % 2) for kernel in each]
        assert np.allclose(found.alignment(np.arange(7) % 2), alone, atol=1e-5)


@pytest.mark.long
def test_it_can_be_differentiated():
    def trace(scale):
        return ntk(lambda params, x: params["w"] ** 2 * x, {"w": scale}, jnp.ones(2)).kernel.trace()

    assert float(jax.grad(trace)(jnp.float32(3))) == pytest.approx(48, rel=1e-5)  # of 2 (2 w)^2


def test_bfloat16_gradients_are_summed_in_float32():
    count = 4096
    params = {"w": jnp.ones(count, jnp.bfloat16)}
    found = ntk(lambda params, x: x @ params["w"], params, jnp.ones((2, count), jnp.bfloat16))
    assert found.kernel.dtype == np.float32
    assert found.kernel.tolist() == [[count, count], [count, count]]  # above 256, bfloat16 skips integers


def test_leaves_that_are_not_floating_point_are_constants():
    params = {
        "w": jnp.ones(2),
        "n": jnp.int32(3),
        "key": jax.random.key(0),
        "none": None,
        "flag": jnp.array(True),
    }
    found = ntk(lambda params, x: x @ params["w"] * params["n"].astype(np.float32), params, jnp.eye(2))
    assert found.kernel.tolist() == [[9, 0], [0, 9]]


@pytest.mark.long
def test_examples_may_be_any_tree_with_random_keys():
    def noisy(params, x):
        noise = jax.vmap(lambda key: jax.random.normal(key, (4,)))(x["key"])
        return mlp(params, x["x"] + noise)

    keys = jax.random.split(jax.random.key(0), 7)
    noise = jax.vmap(lambda key: jax.random.normal(key, (4,)))(keys)
    found = ntk(noisy, PARAMS, {"x": X, "key": keys}, batch_size=4).kernel
    assert np.allclose(found, ntk(mlp, PARAMS, X + noise).kernel, rtol=1e-5, atol=1e-5)


def with_batch_norm(head):
    def model(params, x):
        h = x @ params["w"]
        # Finite for one example too, so that only the check can find it.
        return (
            (h - h.mean(0, keepdims=True) / 2) * jax.lax.rsqrt(h.var(0, keepdims=True) + 1) @ params["head"]
        )

    return model, {"w": PARAMS["in"]["w"], "head": head * drawn(6, 5, 2)}


@pytest.mark.long
@pytest.mark.parametrize("head", [0, 1])
def test_batch_statistics_are_refused_and_traced_ones_have_no_kernel(head):
    model, params = with_batch_norm(head)
    with pytest.raises(ArgumentError, match="model: gradients of a batch's outputs differ from"):
        ntk(model, params, X)
    assert np.isnan(jax.jit(lambda params: ntk(model, params, X).kernel)(params)).all()


@pytest.mark.long
def test_examples_that_mix_behind_the_first_ones_are_refused():
    def model(params, x):
        return jnp.where(jnp.arange(len(x)) < 4, x @ params, (x @ params).sum())

    with pytest.raises(ArgumentError, match="model: gradients of a batch's outputs differ from"):
        ntk(model, jnp.ones(4), X)


@pytest.mark.long
def test_a_weight_that_is_nan_makes_the_kernel_nan_unless_it_is_pruned():
    params = {"in": PARAMS["in"], "out": PARAMS["out"].copy()}
    params["out"][0, 0] = np.nan
    mask = {"in": {"w": None, "b": None}, "out": ~np.isnan(params["out"])}
    assert np.isnan(ntk(mlp, params, X).kernel).all()
    assert np.isfinite(ntk(mlp, params, X, mask=mask).kernel).all()


@pytest.mark.long
def test_an_nnx_model_in_evaluation_mode_is_a_function_like_others():
    class Model(nnx.Module):
        def __init__(self, rngs):
            self.first, self.norm = nnx.Linear(4, 5, rngs=rngs), nnx.BatchNorm(5, rngs=rngs)

        def __call__(self, x):
            return jax.nn.relu(self.norm(self.first(x)))

    model = Model(nnx.Rngs(0))
    model.eval()
    graph, params, rest = nnx.split(model, nnx.Param, ...)

    def function(params, x):
        return nnx.merge(graph, params, rest)(x)

    assert np.allclose(ntk(function, params, X, full=True).kernel, dense(function, params, X), atol=1e-4)


@pytest.mark.long
def test_a_network_of_a_problem_has_its_own_mask_and_its_state_is_no_parameter():
    def init(key):
        return {"w": jax.random.normal(key, (4, 3))}, {"scale": jnp.float32(2)}

    def apply(params, state, x, key):
        return (x @ params["w"]) * state["scale"], state

    y = np.arange(7) % 3
    problem = jaxarch.supervised(
        jaxarch.models.Model(init, apply),
        (X, y),
        loss=optax.softmax_cross_entropy_with_integer_labels,
        optimizer=optax.sgd(0.1),
        steps=2,
        batch_size=7,
    )
    mask = {"w": drawn(3, 4, 3) > 0}
    params = jaxarch.masks.apply_mask(mask, {"w": drawn(4, 4, 3)})
    network = jaxarch.Network(params, mask, {"scale": jnp.float32(2)})
    found = ntk(problem, network, (X, y)).kernel
    gram = 4 * np.einsum("ip,pa,jp->ij", X, mask["w"].astype(np.float32), X) / 3
    assert np.allclose(found, gram, rtol=1e-4, atol=1e-5)
    with pytest.raises(ArgumentError, match="mask: a network has its own mask"):
        ntk(problem, network, (X, y), mask=mask)
    with pytest.raises(ArgumentError, match=r"network: expected a jaxarch.Network"):
        ntk(problem, params, (X, y))


def test_a_second_equal_call_compiles_nothing():
    ntk(mlp, PARAMS, X, mask=MASK)
    other = jax.tree.map(lambda leaf: 2 * leaf, PARAMS)
    with compilations() as seen:
        ntk(mlp, other, X, mask=MASK)
    assert seen == []


def test_arrays_that_are_split_over_explicit_axes_have_the_same_kernel():
    def linear(params, x):
        return x @ params["w"]

    w, x = drawn(0, 4, 6), drawn(1, 8, 4)
    wanted = ntk(linear, {"w": w}, x).kernel
    mesh = jax.make_mesh((2,), ("d",), axis_types=(jax.sharding.AxisType.Explicit,))
    with jax.set_mesh(mesh):
        rows, columns = (jax.NamedSharding(mesh, jax.P(*of)) for of in (("d",), (None, "d")))
        by_examples = ntk(linear, {"w": w}, jax.device_put(x, rows), batch_size=4).kernel
        by_units = ntk(linear, {"w": jax.device_put(w, columns)}, x).kernel
    assert np.allclose(by_examples, wanted, rtol=1e-5)
    assert np.allclose(by_units, wanted, rtol=1e-5)


def of_kernel(kernel):
    kernel = jnp.asarray(kernel, jnp.float32)
    return TangentKernel(kernel, jnp.linalg.eigvalsh(kernel)[::-1])


def test_the_condition_number_and_the_effective_rank_are_of_the_eigenvalues():
    found = of_kernel(np.diag([1.0, 2.0, 1.0]))
    assert float(found.condition_number) == pytest.approx(2, rel=1e-5)
    assert float(found.effective_rank) == pytest.approx(2**1.5, rel=1e-5)  # of shares 1/2, 1/4, 1/4
    assert float(of_kernel(np.eye(5)).effective_rank) == pytest.approx(5, rel=1e-5)
    assert float(of_kernel(np.ones((5, 5))).effective_rank) == pytest.approx(1, rel=1e-4)
    assert np.isinf(of_kernel(np.ones((5, 5))).condition_number)
    assert np.isinf(of_kernel(np.zeros((5, 5))).condition_number)
    assert float(of_kernel(np.zeros((5, 5))).effective_rank) == 0
    assert np.isnan(of_kernel(np.full((5, 5), np.nan)).effective_rank)
    # Eigenvalues of 0 may come out a little above or below.
    rounded = TangentKernel(jnp.eye(3), jnp.array([1.0, 1.0, -1e-3]))
    assert float(rounded.effective_rank) == pytest.approx(2, rel=1e-5)
    assert np.isinf(rounded._replace(eigenvalues=jnp.array([1.0, 1.0, 1e-9])).condition_number)


@pytest.mark.long
def test_alignment_is_the_cka_of_a_linear_model_s_inputs_with_one_hot_labels():
    x, y = drawn(0, 30, 4), np.random.default_rng(1).integers(0, 3, 30)
    x[:, 0] += y
    found = ntk(lambda params, x: x @ params, jnp.ones(4), x)
    wanted = float(cka(x, np.eye(3, dtype=np.float32)[y]))
    assert wanted > 0.1
    for labels in (y, y + 5, np.eye(3)[y], 1e25 * np.eye(3)[y], np.eye(3, dtype=int)[y]):
        assert float(found.alignment(labels)) == pytest.approx(wanted, rel=1e-4)
    scaled = found._replace(kernel=1e25 * found.kernel)
    assert float(scaled.alignment(y)) == pytest.approx(wanted, rel=1e-4)


def test_two_classes_align_like_signs_and_a_perfect_kernel_by_1():
    y = np.array([0, 1, 1, 0, 1, 0])
    signs = 2.0 * y - 1
    found = of_kernel(np.outer(signs, signs) + np.diag(np.arange(6.0)))
    assert float(found.alignment(y)) == pytest.approx(1, rel=1e-5)
    assert float(found.alignment(y == 1)) == float(found.alignment(y))
    assert float(found.alignment(signs)) == pytest.approx(1, rel=1e-5)
    assert np.isnan(found.alignment(np.zeros(6, int)))


@pytest.mark.parametrize("count", [7, 16])  # sums over these counts are rounded
def test_what_is_constant_up_to_rounding_aligns_with_nothing(count):
    varied = np.arange(count) % 2
    one_class, constant = of_kernel(np.outer(varied, varied)), of_kernel(np.full((count, count), 0.3))
    assert np.isnan(one_class.alignment(np.zeros(count, int)))
    assert np.isnan(constant.alignment(varied))
    assert np.isnan(constant.alignment(np.zeros(count, int)))
    assert np.isnan(one_class.alignment(np.arange(count)))  # each example is a class
    assert np.isclose(one_class.alignment(varied), one_class.alignment(varied == 0))


def test_labels_that_are_split_over_explicit_axes_align_as_others():
    labels = np.arange(8) % 2
    mesh = jax.make_mesh((2,), ("d",), axis_types=(jax.sharding.AxisType.Explicit,))
    with jax.set_mesh(mesh):
        found = ntk(scalar, W, drawn(1, 8, 4))
        split = jax.device_put(labels, jax.NamedSharding(mesh, jax.P("d")))
        assert np.isclose(found.alignment(split), found.alignment(labels), rtol=1e-5)


def scalar(params, x):
    return x @ params["w"]


W = {"w": np.ones(4, np.float32)}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: ntk(scalar, {"w": W["w"] * 1j}, X),
            "params: w: expected an array of numbers, got dtype complex",
        ),
        (
            lambda: ntk(scalar, {"w": np.ones(4, int)}, X),
            "params: expected at least one floating-point array",
        ),
        (lambda: ntk(scalar, jaxarch.Network(W), X), "params: expected parameters, got a Network"),
        (lambda: ntk(scalar, jax.eval_shape(lambda: W), X), "params: expected an array"),
        (lambda: ntk(scalar, W, X[:0]), "x: expected at least 1 examples"),
        (
            lambda: ntk(scalar, W, {"x": X, "y": X[:3]}),
            "x: expected at least 1 examples along the first axis",
        ),
        (lambda: ntk(lambda p, x: x["x"] @ p["w"], W, X), "model: it cannot be traced"),
        (lambda: ntk(lambda p, x: scalar(p, x) * 1j, W, X), "model: expected one array of real outputs"),
        (lambda: ntk(lambda p, x: (scalar(p, x), x), W, X), "model: expected one array of real outputs"),
        (lambda: ntk(lambda p, x: scalar(p, x).sum(), W, X), "model: expected one array of real outputs"),
        (
            lambda: ntk(lambda p, x: jnp.argmax(p["w"]) + x, W, X.astype(int)),
            "model: expected one array of real",
        ),
        (lambda: ntk(lambda p, x: x[:, :0] * p["w"][0], W, X), "model: expected outputs of one shape"),
        (lambda: ntk(lambda p, x: x @ (p["w"][:, None] * x.T), W, X), "model: expected outputs of one shape"),
        (lambda: ntk(scalar, W, X, mask={"v": W["w"]}), "mask: the model has no parameter 'v'"),
        (lambda: ntk(scalar, W, X, mask={"w": W["w"][:2]}), "mask: leaf 'w' has shape"),
        (lambda: ntk(scalar, W, X, mask={"w": W["w"] * 1j}), "mask: w: expected an array of numbers"),
        (
            lambda: ntk(
                lambda p, x: x @ p["a/b"] + x @ p["a"]["b"],
                {"a/b": W["w"], "a": {"b": W["w"]}},
                X,
                mask={"a/b": W["w"] > 0, "a": {"b": None}},
            ),
            "params: two leaves have the same path",
        ),
        (lambda: ntk(scalar, W, X, batch_size=0), "batch_size: expected an integer of at least 1"),
        (lambda: ntk(scalar, W, X, full=1), "full: expected True or False"),
        (lambda: ntk(scalar, W, X).alignment(np.zeros(6, int)), "labels: expected those of n >= 4 examples"),
        (lambda: ntk(scalar, W, X[:3]).alignment(np.arange(3)), "labels: expected those of n >= 4 examples"),
        (lambda: ntk(scalar, W, X).alignment(1j * X), "labels: expected an array of numbers"),
        (
            lambda: ntk(scalar, W, X).alignment(np.zeros((7, 1), int)),
            r"labels: expected classes of shape \(7,\), or targets of floating-point numbers, got int",
        ),
    ],
)
def test_what_has_no_kernel_is_refused(call, message):
    with jax.numpy_rank_promotion("allow"), pytest.raises(ArgumentError, match=message):
        call()
