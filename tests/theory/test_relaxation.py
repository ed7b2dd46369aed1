"""Linear bounds of programs: sound, never looser than intervals, and as close as CROWN."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small import in_float64

from jaxarch.theory._lines import lines
from jaxarch.theory._pairs import LONGEST_SORT, in_pairs
from jaxarch.theory.intervals import Interval, interval_bounds
from jaxarch.theory.lipschitz import lipschitz_bound
from jaxarch.theory.relaxation import linear_bounds

generator = np.random.default_rng(0)
FIRST, SECOND, LAST = (
    (generator.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32)
    for shape in ((4, 6), (6, 6), (6, 3))
)


def layers(activation):
    """Return a network of two hidden layers; each half of its inputs passes by the first."""

    def network(x):
        hidden = activation(x @ FIRST + 0.1)
        return activation(hidden @ SECOND) @ LAST

    return network


def attention(x):
    rows = x.reshape(2, 2)
    weights = jax.nn.softmax(rows @ FIRST[:2, :3] @ (rows @ FIRST[2:, :3]).T)
    return weights @ rows @ SECOND[:2, :3]


def norm(x):
    hidden = x @ FIRST
    centred = hidden - hidden.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt(hidden.var(-1, keepdims=True) + 0.1) @ LAST


def halves(x):
    """Return the larger and the smaller entries of pairs, as GroupSort does, in two layers."""
    hidden = jnp.sort((x @ FIRST).reshape(3, 2)).reshape(6)
    return jnp.sort((hidden @ SECOND).reshape(3, 2)).reshape(6) @ LAST


def pooled(x):
    """Return a network whose windows reach beyond, overlap, and take means as well."""
    hidden = (x @ FIRST).reshape(1, 3, 2, 1)
    hidden = jax.lax.reduce_window(hidden, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 1, 1, 1), "SAME")
    return (
        jax.lax.reduce_window(hidden, 0.0, jax.lax.add, (1, 2, 1, 1), (1, 1, 1, 1), "SAME").reshape(6) @ LAST
    )


NETWORKS = {
    "ReLU": layers(jax.nn.relu),
    "GELU": layers(jax.nn.gelu),
    "ELU": layers(jax.nn.elu),
    "hard tanh": layers(jax.nn.hard_tanh),
    "attention": attention,
    "norm": norm,
    "quotient": lambda x: jnp.sin(FIRST[0, 0]) * x[:2] / (2 + jnp.exp(x[2:])) - x[2:],
    "derivative of ReLU": jax.grad(lambda x: (layers(jax.nn.relu)(x) ** 2).sum()),
    "GroupSort": halves,
    "pooling": pooled,
    "maxima": lambda x: jnp.stack([(x @ FIRST).max(), jnp.minimum(x[0], x[1]) - x[1]]),
    "waves": layers(jnp.sin),
    "choice": lambda x: jnp.where(x[:2] > 0.2, x[2:], 1.0) + x[1:3],
}


QUICK = ("ReLU", "GELU", "attention")
EACH = [pytest.param(name, marks=[] if name in QUICK else pytest.mark.long) for name in NETWORKS]


def boxes():
    """Return boxes of many widths, 0 among them, and points in them."""
    generator = np.random.default_rng(1)
    centre = generator.normal(size=(12, 4))
    radius = np.repeat([0, 1e-3, 0.05, 0.5], 3)[:, None] * generator.random((12, 4))
    lower, upper = (centre - radius).astype(np.float32), (centre + radius).astype(np.float32)
    share = generator.random((12, 400, 4))
    share[:, :200] = share[:, :200].round()
    points = (lower[:, None] * (1 - share) + upper[:, None] * share).astype(np.float32)
    return lower, upper, np.clip(points, lower[:, None], upper[:, None])


@functools.cache
def bounds_of(name):
    lower, upper, points = boxes()
    linear = jax.jit(jax.vmap(linear_bounds(NETWORKS[name])))(lower, upper)
    intervals = jax.jit(jax.vmap(interval_bounds(NETWORKS[name])))(lower, upper)
    values = jax.jit(jax.vmap(jax.vmap(NETWORKS[name])))(points)
    return linear, intervals, np.asarray(values)


@pytest.mark.long
@pytest.mark.parametrize("name", EACH)
def test_linear_bounds_enclose_what_is_computed_at_every_point(name):
    (low, high), _, values = bounds_of(name)
    assert (np.asarray(low)[:, None] <= values).all()
    assert (values <= np.asarray(high)[:, None]).all()


@pytest.mark.long
@pytest.mark.parametrize("name", EACH)
def test_linear_bounds_are_never_looser_than_intervals(name):
    (low, high), (least, largest), _ = bounds_of(name)
    assert (low >= least).all()
    assert (high <= largest).all()


@pytest.mark.parametrize(
    ("name", "share"),
    [("ReLU", 0.6), ("GELU", 0.5), ("attention", 0.8), pytest.param("norm", 0.3, marks=pytest.mark.long)],
)
def test_linear_bounds_of_deep_programs_are_closer_than_intervals(name, share):
    (low, high), (least, largest), _ = bounds_of(name)
    assert np.median(np.asarray(high - low)[6:] / np.asarray(largest - least)[6:]) < share


def crown(weights, biases, centre, radius):
    """Return bounds by CROWN in float64, each layer's bounds by a pass of its own, met with intervals."""
    found = []
    for last in range(len(weights)):
        ends = []
        for sign in (1, -1):
            rows, offset = sign * np.eye(weights[last].shape[1]), np.zeros(weights[last].shape[1])
            for place in reversed(range(last + 1)):
                offset, rows = offset + rows @ biases[place], rows @ weights[place].T
                if place:
                    low, high = found[place - 1]
                    is_open = (low < 0) & (high > 0)
                    above = np.where(is_open, high / np.where(is_open, high - low, 1), low >= 0)
                    below = np.where(is_open, high > -low, low >= 0)
                    offset = offset + np.minimum(rows, 0) @ np.where(is_open, -low * above, 0)
                    rows = np.maximum(rows, 0) * below + np.minimum(rows, 0) * above
            ends.append(sign * (offset + rows @ centre - np.abs(rows) @ radius))
        box = np.maximum(found[-1], 0) if found else [centre - radius, centre + radius]
        up, down = np.maximum(weights[last], 0), np.minimum(weights[last], 0)
        ends[0] = np.maximum(ends[0], box[0] @ up + box[1] @ down + biases[last])
        ends[1] = np.minimum(ends[1], box[1] @ up + box[0] @ down + biases[last])
        found.append(ends)
    return found[-1]


def test_bounds_of_a_network_of_relu_are_those_of_crown():
    lower, upper, _ = boxes()
    low, high = bounds_of("ReLU")[0]
    weights, biases = (
        [np.float64(w) for w in (FIRST, SECOND, LAST)],
        [0.1 * np.ones(6), np.zeros(6), np.zeros(3)],
    )
    for place in range(6, 12):
        centre, radius = (
            (np.float64(upper[place]) + lower[place]) / 2,
            (np.float64(upper[place]) - lower[place]) / 2,
        )
        least, largest = crown(weights, biases, centre, radius)
        np.testing.assert_allclose(high[place] - low[place], largest - least, rtol=2e-3, atol=1e-5)


def test_a_product_beside_its_factor_is_bounded_by_the_plane_through_the_middles():
    low, high = linear_bounds(lambda x: x[0] * x[1] - x[0])(jnp.zeros(2), jnp.ones(2))
    # x y - x is within 1/4 of (y - x) / 2 - 1/4, and between -1 and 0.
    np.testing.assert_allclose([low, high], [-1, 0.5], atol=1e-5)
    assert low <= -1


def test_in_boxes_of_one_point_bounds_enclose_the_exact_values_whatever_was_rounded():
    generator = np.random.default_rng(2)
    first, last = (generator.normal(size=shape).astype(np.float32) for shape in ((40, 60), (60, 20)))
    centre = generator.normal(size=(10, 40)).astype(np.float32)
    bounds = jax.jit(jax.vmap(linear_bounds(lambda x: x @ first @ last)))
    low, high = bounds(centre, centre)
    exact = np.float64(centre) @ np.float64(first) @ np.float64(last)
    assert (low < exact).all()
    assert (exact < high).all()


@pytest.mark.long
def test_two_neurons_that_make_a_distance_have_its_range():
    def distance(x):
        return jax.nn.relu(x[0] - x[1]) + jax.nn.relu(x[1] - x[0]) - 0.5 * x[0]

    low, high = linear_bounds(distance)(jnp.asarray([1.0, -1.0]), jnp.asarray([2.0, 0.5]))
    np.testing.assert_allclose([low, high], [0, 2], atol=1e-4)  # |x - y| - x / 2


# Maxima and sorts, made of pairs


@pytest.mark.long
def test_the_larger_of_two_values_remembers_that_it_is_one_of_them():
    def fun(x):
        return jnp.maximum(x[0], x[1]) - x[0]

    box = jnp.zeros(2), jnp.ones(2)
    np.testing.assert_allclose(linear_bounds(fun)(*box), [-0.5, 1], atol=1e-4)  # Intervals say -1.
    np.testing.assert_allclose(linear_bounds(fun, ascent=20)(*box), [0, 1], atol=1e-3)


@pytest.mark.long
def test_a_sorted_array_has_the_sum_of_its_entries():
    low, high = linear_bounds(lambda x: jnp.sort(x).sum() - x.sum())(-jnp.ones(3), jnp.ones(3))
    np.testing.assert_allclose([low, high], [0, 0], atol=1e-4)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, pytest.param(LONGEST_SORT, marks=pytest.mark.long)])
def test_rounds_of_pairs_sort(size):
    x = np.random.default_rng(size).integers(0, 9, (3, size, 2)).astype(np.float32)
    params = {"dimension": 1, "num_keys": 1}
    np.testing.assert_array_equal(in_pairs("sort", params, x.shape)(jnp.asarray(x)), np.sort(x, 1))


WINDOWS = {
    "valid": ((2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1), (1, 1)),
    "overlapping, padded": ((3, 2), (2, 1), ((1, 1), (0, 1)), (1, 1), (1, 1)),
    "cropped": ((2, 1), (1, 1), ((-1, 0), (-2, 0)), (1, 1), (1, 1)),
    "dilated": ((2, 3), (1, 1), ((0, 1), (2, 2)), (1, 2), (2, 1)),
}


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("extreme", ["max", "min"])
def test_pairs_make_the_extremes_of_windows(name, extreme):
    window = dict(
        zip(
            ("window_dimensions", "window_strides", "padding", "base_dilation", "window_dilation"),
            WINDOWS[name],
            strict=True,
        )
    )
    x = np.random.default_rng(0).integers(-9, 9, (6, 5)).astype(np.float32)
    take, start = (jax.lax.max, -jnp.inf) if extreme == "max" else (jax.lax.min, jnp.inf)
    found = in_pairs(f"reduce_window_{extreme}", window, x.shape)(jnp.asarray(x))
    np.testing.assert_array_equal(found, jax.lax.reduce_window(x, start, take, **window))


def test_windows_without_an_entry_and_long_sorts_have_the_bounds_of_intervals():
    def fun(x):
        padded = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1,), (1,), ((1, 0),))
        return padded[1:], jnp.sort(jnp.concatenate([x] * 12))

    box = -jnp.ones(3), jnp.ones(3)
    mine, theirs = linear_bounds(fun)(*box), interval_bounds(fun)(*box)
    jax.tree.map(np.testing.assert_array_equal, mine, theirs)


@pytest.mark.long
@pytest.mark.parametrize("bounds", [linear_bounds, lipschitz_bound])
@pytest.mark.parametrize("where", [None, np.arange(6) < 4], ids=["", "masked"])
def test_the_maximum_that_a_softmax_subtracts_is_not_taken_apart(bounds, where):
    def plain(x):
        terms = jnp.exp(x) if where is None else jnp.where(where, jnp.exp(x), 0)
        return terms / terms.sum()

    def length(fun):
        return len(str(jax.make_jaxpr(bounds(lambda x: fun(x @ FIRST)))(-jnp.ones(4), jnp.ones(4))))

    # With a mask it has more choices of its own.
    assert length(lambda x: jax.nn.softmax(x, where=where)) < (1.5 if where is None else 2) * length(plain)


@pytest.mark.long
def test_a_maximum_of_many_values_is_within_the_bounds_of_each():
    def rows(x):
        return jax.nn.relu(x @ FIRST) @ SECOND + jnp.linspace(0, 3, 6)

    box = -jnp.ones(4), jnp.ones(4)
    low, high = linear_bounds(lambda x: rows(x).max())(*box)
    least, largest = linear_bounds(rows)(*box)
    assert low >= least.max() - 1e-5
    assert high <= largest.max() + 1e-5


@pytest.mark.parametrize("take", [jnp.max, jnp.sort, lambda x: jnp.maximum(x[:2], x[1:])])
def test_extremes_of_truth_values_have_the_bounds_of_intervals(take):
    def fun(x):
        return take(x > 0) * 2.0 + x.sum()

    box = jnp.array([-1.0, 1, 2]), jnp.array([1.0, 2, 3])
    np.testing.assert_allclose(linear_bounds(fun)(*box), interval_bounds(fun)(*box), atol=1e-4)


# Lines that bounds choose


@pytest.mark.long
def test_lines_too_steep_for_their_heights_are_not_turned_to():
    size = np.float32(1.1e19)

    def fun(x):
        return jnp.square(x) * 1e-30 - x * (size * np.float32(1e-30))

    low = linear_bounds(fun, ascent=10)(jnp.zeros(1), jnp.full(1, size))[0]
    assert low <= -(float(size) ** 2) * 1e-30 / 4 * (1 - 1e-5)


@pytest.mark.long
def test_a_quotient_by_one_number_has_lines_of_its_shape():
    def fun(x):
        return x[:2] / (x[2] + 3) - x[:2]

    low, high = linear_bounds(fun, ascent=2)(-jnp.ones(3), jnp.ones(3))
    assert (low <= -0.75).all()
    assert (high >= 0.75).all()


@pytest.mark.long
def test_a_bound_s_choice_does_not_depend_on_its_size():
    lower, upper, _ = boxes()

    @jax.jit
    def width(scale):
        def network(x):
            hidden = jax.nn.relu(x @ FIRST + jnp.float32(0.1))
            return jax.nn.relu(hidden @ SECOND) @ (scale * LAST)

        low, high = linear_bounds(network, ascent=5)(lower[11], upper[11])
        return (high - low) / scale

    with jax.numpy_dtype_promotion("strict"):
        widths = width(jnp.float32(1)), width(jnp.float32(1e-12))
    np.testing.assert_allclose(*widths, rtol=1e-3)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "share"), [("ReLU", 0.95), ("GELU", 0.95), ("GroupSort", 0.99), ("quotient", 1)]
)
def test_bounds_that_choose_their_lines_enclose_values_and_are_never_looser(name, share):
    (low, high), _, values = bounds_of(name)
    lower, upper, _ = boxes()
    chosen_low, chosen_high = jax.jit(jax.vmap(linear_bounds(NETWORKS[name], ascent=10)))(lower, upper)
    assert (np.asarray(chosen_low)[:, None] <= values).all()
    assert (values <= np.asarray(chosen_high)[:, None]).all()
    # Two programs round differently.
    assert (chosen_low >= low - 1e-5).all()
    assert (chosen_high <= high + 1e-5).all()
    assert (chosen_high - chosen_low).sum() < share * (high - low).sum()


@pytest.mark.long
def test_rows_one_after_the_other_have_the_bounds_of_all_at_once():
    lower, upper, _ = boxes()
    one = linear_bounds(NETWORKS["ReLU"], rows_at_once=5)(lower[8], upper[8])
    np.testing.assert_allclose(one, [end[8] for end in bounds_of("ReLU")[0]], rtol=1e-5)


@pytest.mark.long
def test_bounds_of_float64_are_closer_to_the_values_than_float32_can_tell():
    with in_float64(True):
        x = jnp.asarray([0.1, -0.2, 0.3, 0.4])
        low, high = linear_bounds(NETWORKS["ReLU"])(x, jnp.array(x))
        assert (high > low).all()
        assert (high - low < 1e-12).all()


def test_numbers_of_16_bits_have_the_bounds_of_intervals():
    def fun(x):
        return jax.nn.relu(x @ FIRST.astype(jnp.bfloat16))

    box = jnp.zeros(4, jnp.bfloat16), jnp.ones(4, jnp.bfloat16)
    for mine, theirs in zip(linear_bounds(fun)(*box), interval_bounds(fun)(*box), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_what_a_look_up_fills_in_is_part_of_its_bounds():
    def fun(x):
        return jax.nn.relu(x).at[jnp.array([0, 7])].get(mode="fill", fill_value=7.0)

    low, high = linear_bounds(fun)(-jnp.ones(3), jnp.ones(3))
    np.testing.assert_allclose([low, high], [[0, 7], [1, 7]], atol=1e-4)


def test_what_is_looked_up_once_is_not_charged_for_sums():
    backwards = np.arange(100)[::-1]
    low, high = linear_bounds(lambda x: x[backwards][backwards] - x)(-jnp.ones(100), jnp.ones(100))
    assert (high - low).max() < 5e-6


def test_what_cancels_in_a_function_of_one_number_is_off_by_its_rounding():
    def fun(x):
        return (jnp.exp(x) * 1e7 + x) - jnp.exp(x) * 1e7

    low, high = linear_bounds(fun)(jnp.float32([0.1]), jnp.float32([0.2]))
    assert (low < 0.1).all()
    assert (high > 0.2).all()


def test_an_empty_array_has_empty_bounds():
    assert linear_bounds(lambda x: jnp.tanh(x) * x)(jnp.zeros(0), jnp.ones(0))[0].shape == (0,)


@pytest.mark.long
def test_a_thousand_steps_of_one_entry_are_bounded():
    def fun(x):
        for _ in range(1000):
            x = x * 1.001 + 0.001
        return jnp.tanh(x)

    low, high = linear_bounds(fun)(jnp.float32([0.0]), jnp.float32([0.1]))
    assert low < np.tanh(1.7168) < np.tanh(1.9886) < high


def test_products_summed_in_another_type_have_the_bounds_of_intervals():
    def fun(x):
        return jnp.tanh(jax.lax.dot(x, x, preferred_element_type=jnp.float64))

    with in_float64(True), jax.numpy_dtype_promotion("strict"):
        x = jnp.float32([0.1, 0.2])
        low, high = map(float, linear_bounds(fun)(x, 2 * x))
    assert low < np.tanh(0.0501) < np.tanh(0.1999) < high


def test_arrays_that_are_split_over_explicit_axes_are_refused():
    mesh = jax.make_mesh((2,), ("a",), axis_types=(jax.sharding.AxisType.Explicit,))
    split = jax.device_put(FIRST, jax.NamedSharding(mesh, jax.P(None, "a")))
    with (
        jax.set_mesh(mesh),
        pytest.raises(ValueError, match="fun: it uses arrays that are split over explicit"),
    ):
        linear_bounds(lambda x: jnp.tanh(x @ split))(-jnp.ones(4), jnp.ones(4))


@pytest.mark.parametrize("steps", [-1, 1.5, True])
def test_steps_that_are_no_count_are_refused(steps):
    with pytest.raises(ValueError, match="ascent: expected an integer of at least 0"):
        linear_bounds(jnp.tanh, ascent=steps)


@pytest.mark.parametrize("rows", [0, 1.5, True])
def test_rows_that_are_no_count_are_refused(rows):
    with pytest.raises(ValueError, match="rows_at_once: expected an integer of at least 1"):
        linear_bounds(jnp.tanh, rows_at_once=rows)


# Lines around functions of one number

CURVES = {
    "relu": (jax.nn.relu, [0.0]),
    "tanh": (jnp.tanh, [0.0]),
    "gelu": (jax.nn.gelu, [0.0]),
    "leaky relu": (jax.nn.leaky_relu, [0.0]),
    "hard tanh": (jax.nn.hard_tanh, [-1.0, 1.0]),
    "step": (lambda x: jnp.where(x > 0, 1.0, 0.0), [0.0]),
    "square": (jnp.square, [0.0]),
    "exp": (jnp.exp, [0.0]),
}
LOW = np.float32([-1, -2, 0.5, -3, 0, 0.3, -4])
HIGH = np.float32([2, 1, 1, -1, 1, 0.3, 5])


def arrays_of_lines(fun, low, high, kinks=(0.0,)):
    def arrays(low, high):
        found = lines(fun, Interval(low, high), kinks, has_fan=True)
        return found._replace(values=(found.values.lower, found.values.upper))

    return jax.jit(arrays)(low, high)


@functools.cache
def lines_of(name):
    fun, kinks = CURVES[name]

    found = jax.tree.map(np.float64, arrays_of_lines(fun, LOW, HIGH, kinks))
    x = np.float64(LOW) + np.linspace(0, 1, 4001)[:, None] * (np.float64(HIGH) - LOW)
    with in_float64(True):
        values = np.asarray(fun(jnp.asarray(x)))
    return found, x, values


@pytest.mark.parametrize("name", CURVES)
def test_lines_enclose_a_function_in_its_interval(name):
    found, x, values = lines_of(name)
    assert (found.below.slope * x + found.below.intercept <= values).all()
    assert (found.above.slope * x + found.above.intercept >= values).all()
    assert (found.values[0] <= values).all()
    assert (found.values[1] >= values).all()


def envelope_in_the_middle(x, values):
    """Return the height of the lower convex hull of points over the middle of their interval."""
    middle, heights = (x[0] + x[-1]) / 2, np.inf
    left, right = x <= middle, x >= middle
    for place in np.flatnonzero(left)[::20]:
        to_right = np.maximum(x[right] - x[place], 1e-9)
        heights = min(
            heights, (values[place] + (values[right] - values[place]) * (middle - x[place]) / to_right).min()
        )
    return heights


@pytest.mark.parametrize("name", CURVES)
def test_lines_are_near_the_convex_hull_in_the_middle_of_the_interval(name):
    found, x, values = lines_of(name)
    for place in (0, 1, 6):
        middle = (np.float64(LOW[place]) + HIGH[place]) / 2
        below = found.below.slope[place] * middle + found.below.intercept[place]
        above = found.above.slope[place] * middle + found.above.intercept[place]
        least = envelope_in_the_middle(x[:, place], values[:, place])
        largest = -envelope_in_the_middle(x[:, place], -values[:, place])
        slack = 0.015 * np.ptp(values[:, place])
        assert least - slack <= below
        assert above <= largest + slack


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.parametrize("turn", [-2.0, -0.7, 1.3, 2.0])
def test_turned_lines_enclose_a_function_too(name, turn):
    found, x, values = lines_of(name)
    turns = np.full(LOW.shape, turn, np.float32)
    for sign, line in ((1, found.below), (-1, found.above)):
        turned = jax.tree.map(np.float32, line).turned(jnp.asarray(turns))
        heights = np.float64(turned.slope) * x + np.float64(turned.intercept)
        assert (sign * heights <= sign * values).all()


def test_only_a_function_that_jumps_is_said_to_jump():
    jumps = {name: bool(lines_of(name)[0].jumps.any()) for name in CURVES}
    assert [name for name, does in jumps.items() if does] == ["step"]


def test_a_function_with_kinks_away_from_0_has_its_range():
    low, high = linear_bounds(lambda x: jax.nn.hard_tanh(x) - x)(jnp.float32([-0.5]), jnp.float32([3.0]))
    np.testing.assert_allclose([low[0], high[0]], [-2, 0], atol=1e-4)


def test_lines_of_an_interval_without_ends_are_no_bounds():
    found = arrays_of_lines(jnp.exp, jnp.float32([-np.inf, 0]), jnp.float32([0, np.inf]))
    assert np.isneginf(found.below.turned(jnp.ones(2)).intercept).all()
    assert np.isposinf(found.above.turned(jnp.ones(2)).intercept).all()
    assert (found.below.slope == 0).all()
    assert np.isneginf(found.below.intercept).all()
    assert np.isposinf(found.above.intercept).all()
