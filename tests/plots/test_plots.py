"""Figures: what is enlarged, what the legends name, how texts are set. Not a pixel."""

import dataclasses
import subprocess
import sys

import jax
import jax.numpy as jnp
import matplotlib.colors
import numpy as np
import pytest

from jaxarch import ArgumentError, Network, NeuronMask, plots, spectral_network
from jaxarch.analysis import TangentKernel, connectivity
from jaxarch.plots import NotebookFigure
from jaxarch.plots._strategies import LEAST_MAGNIFICATION, MOST_MAGNIFICATION, crowd
from jaxarch.plots._style import log_scale, with_indices
from jaxarch.spectral import direct_weights

CHANCE = np.linspace(0.42, 0.58, 9)
CLOSE = {f"close {i}": 0.95 + 0.002 * i + np.linspace(-0.004, 0.004, 9) for i in range(5)}


def markers(values):
    return [(np.median(runs), *np.percentile(runs, (25, 75))) for runs in values]


def enlarged(values, **settings):
    """The limits of the panels of a figure, the second `None` if it is not there."""
    figure = plots.by_strategy({"series": values}, "AUC", **settings)
    whole, *other = (axes.get_xlim() for axes in figure.axes)
    return whole, other[0] if other else None


def test_the_enlarged_panel_has_the_markers_that_crowd_together_and_not_their_outliers():
    outlier = {"close 0": np.append(CLOSE["close 0"], 0.7)}
    whole, (low, high) = enlarged({"random": CHANCE, **CLOSE, **outlier}, chance=0.5)
    assert all(low < q25 and q75 < high for _, q25, q75 in markers(CLOSE.values()))
    assert low > 0.9
    assert whole[1] - whole[0] >= LEAST_MAGNIFICATION * (high - low)


def test_there_is_no_enlarged_panel_where_it_would_magnify_little():
    spread = {f"at {at}": at + np.linspace(-0.1, 0.1, 9) for at in (0.5, 0.6, 0.7, 0.8)}
    assert enlarged(spread, chance=0.5)[1] is None


@pytest.mark.parametrize("values", [{}, {"one": CHANCE}, {"failed": np.full(3, np.nan)}])
def test_there_is_no_enlarged_panel_where_nothing_crowds_together(values):
    assert enlarged(values)[1] is None


def test_the_enlarged_panel_has_the_value_that_it_matters_to_be_on_one_side_of():
    differences = {name: runs - 0.949 for name, runs in CLOSE.items()}
    _, (low, high) = enlarged({"far": 0.4 + CHANCE, **differences}, zero=0.0)
    assert low < 0 < high
    assert high - low < 0.05


def test_a_crowd_of_more_markers_is_preferred_to_a_slightly_denser_one():
    few = [(at, at, at) for at in (0.1, 0.101)]
    many = [(at, at, at) for at in (0.9, 0.901, 0.902, 0.903)]
    low, high = crowd([*few, *many], (0.0, 1.0))
    assert low < 0.9 < 0.903 < high
    assert low > 0.101


def test_equal_markers_are_not_enlarged_and_nearly_equal_ones_not_without_end():
    assert crowd([(0.5, 0.5, 0.5)] * 3 + [(0.9, 0.9, 0.9)], (0.4, 1.0)) is None
    low, high = crowd([(0.5, 0.5, 0.5), (0.5 + 1e-9,) * 3, (0.9, 0.9, 0.9)], (0.0, 1.0))
    assert high - low == pytest.approx(1 / MOST_MAGNIFICATION)


@pytest.mark.long
def test_many_series_are_drawn_and_told_apart():
    figure = plots.by_strategy({f"set {i}": {"bin": CHANCE} for i in range(9)}, "AUC")
    looks = {
        (matplotlib.colors.to_hex(h.get_color()), h.get_marker()) for h in figure.legends[0].get_lines()[:9]
    }
    assert len(looks) == 9


def test_every_line_of_every_panel_is_in_the_legend():
    at, runs = np.arange(3.0), np.ones((2, 3))
    rows = {
        "first": {"panel": {"one": (at, runs)}},
        "second": {"panel": {"one": (at, runs), "two": (at, runs)}},
    }
    (legend,) = plots.sweep(rows, "setting").legends
    assert [text.get_text() for text in legend.get_texts()] == ["one", "two"]


def test_the_legend_of_curves_has_the_lines_of_all_panels_and_tells_them_apart():
    line = (np.arange(3.0), np.arange(3.0))
    figure = plots.curves({"first": {"one": line, "two": line}, "second": {"two": line, "three": line}}, "x")
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["one", "two", "three"]
    shown = {line.get_label(): line.get_color() for axes in figure.axes for line in axes.lines}
    assert shown == {
        text.get_text(): line.get_color()
        for text, line in zip(legend.get_texts(), legend.get_lines(), strict=True)
    }
    assert len(set(shown.values())) == 3


def test_rows_of_spectra_keep_clear_of_the_labels_above_them():
    runs = np.sort(np.random.default_rng(0).random((3, 20)), axis=1)
    rows = {f"task {i}": {"real": {"real": runs}, "binary": {"bin": runs + 0.1}} for i in range(3)}
    figure = plots.spectral_comparison(rows)
    figure.draw_without_rendering()
    names = [text.get_window_extent() for axes in figure.axes for text in axes.texts]
    labels = [axes.xaxis.label.get_window_extent() for axes in figure.axes]
    assert len(names) == len(rows)
    assert max(name.y1 for name in names) <= figure.bbox.y1
    assert not any(name.overlaps(label) for name in names for label in labels)
    gaps = [label.y0 - name.y1 for name in names for label in labels if label.y0 > name.y1]
    assert min(gaps) > 3


@pytest.mark.parametrize(
    "text, set_",
    [
        ("L_1 trained", "$L_{1}$ trained"),
        ("start x 50/M_hard", r"start x 50/$M_\mathrm{hard}$"),
        ("R^2", "$R^{2}$"),
        (r"$L_1$, L_2", r"$L_1$, $L_{2}$"),
        ("train_per_class, my_data, 5 $ a L_1", "train_per_class, my_data, 5 $ a L_1"),
        (r"$\mathdefault{10^{3}}$", r"$\mathdefault{10^{3}}$"),
    ],
)
def test_indices_are_set_and_names_of_files_and_formulas_stay(text, set_):
    assert with_indices(text) == set_
    assert with_indices(set_) == set_


def test_titles_and_legends_set_their_indices():
    figure = plots.convergence({"M_soft 5": np.ones((2, 20))}, title="L_1 = 0")
    figure.draw_without_rendering()
    axes = figure.axes[0]
    assert axes.get_title(loc="left") == "$L_{1}$ = 0"
    assert axes.get_legend().get_texts()[0].get_text() == r"$M_\mathrm{soft}$ 5"


def test_all_text_is_large_enough_to_print():
    figure = plots.by_strategy({"series": {"random": CHANCE, **CLOSE}}, "AUC", "title", chance=0.5)
    figure.draw_without_rendering()
    assert min(text.get_fontsize() for text in figure.findobj(lambda a: hasattr(a, "get_fontsize"))) >= 7


def test_every_figure_of_the_package_is_there_and_listed():
    assert all(callable(getattr(plots, name)) for name in plots.__all__)
    assert set(plots.__all__) <= set(dir(plots))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = plots.nothing


@pytest.mark.long
def test_plots_metrics_and_distances_import_no_library_that_they_do_not_use_yet():
    program = """
import importlib, sys
for name in ("plots", "metrics", "structure.distances", "search", "lab.data"):
    importlib.import_module(f"jaxarch.{name}")
print(*({"matplotlib", "pandas", "sklearn", "scipy.stats"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_a_logarithmic_axis_near_1_is_labelled_in_decimals_and_a_wide_one_in_powers():
    def labels(low, high):
        figure = NotebookFigure()
        axes = figure.subplots()
        axes.plot([1, 2], [low, high])
        log_scale(axes, "y")
        figure.canvas.draw()
        return " ".join(label.get_text() for label in axes.get_yticklabels(which="both"))

    assert "0.02" in labels(0.0123, 0.04)
    assert "times" not in labels(1.0, 1.06)
    assert "10^{" in labels(1e-6, 1e-2)


def gated(widths=(2, 5, 4, 1), **parts):
    params, state = spectral_network(widths, form="gated").init(jax.random.key(0))
    return Network(params, **{"state": state, **parts})


def test_hidden_eigenvalues_are_drawn_by_size_and_those_removed_are_pale():
    network = gated()
    kept = {"eigenvalues": {"L2": np.arange(5) < 2, "L3": np.zeros(4, bool)}}
    figure = plots.recruited({"some": network.with_records(NeuronMask(kept)), "all": network})
    of_some, empty, *_ = figure.axes
    pale, left = (line.get_ydata() for line in of_some.lines)
    values = np.abs(np.asarray(network.params["eigenvalues"]["L2"]))
    np.testing.assert_array_equal(left, np.sort(values[:2])[::-1])
    np.testing.assert_array_equal(pale, np.sort(values[2:])[::-1])
    assert [axes.get_title(loc="left") for axes in (of_some, empty)] == [
        "L_2: 2 of 5 kept",
        "L_3: 0 of 4 kept",
    ]
    assert [axes.get_ylabel() for axes in figure.axes[::2]] == ["some\n|eigenvalue|", "all\n|eigenvalue|"]


def test_networks_of_other_depths_and_eigenvalues_of_0_are_drawn():
    deep, shallow = gated(), gated((2, 3, 1))
    shallow.params["eigenvalues"]["L2"] = shallow.params["eigenvalues"]["L2"] * 0
    figure = plots.recruited({"deep": deep, "shallow": shallow}, floor=1e-3)
    assert [axes.axison for axes in figure.axes] == [True, True, True, False]
    assert figure.axes[2].lines[1].get_ydata().tolist() == [np.float32(1e-3)] * 3


def test_eigenvalues_of_many_runs_or_of_none_are_refused():
    network = gated()
    runs = dataclasses.replace(network, params=jax.tree.map(lambda leaf: leaf[None], network.params))
    with pytest.raises(ArgumentError, match=r"'these' holds many runs; pass one, network.of_run\(i\)"):
        plots.recruited({"these": runs})
    with pytest.raises(ArgumentError, match="networks: expected at least one, got none"):
        plots.recruited({})


def test_spectra_of_kernels_are_medians_over_runs_without_what_is_rounding():
    runs = np.array([[4.0, 1.0, 1e-9], [9.0, 2.0, -1e-9], [16.0, 3.0, 1.0]])
    found = {"one": TangentKernel(np.eye(3), runs[2]), "many": TangentKernel(np.eye(3), runs)}
    figure = plots.kernel_spectra(found, title="kernels")
    (axes,) = figure.axes
    one, many = axes.lines
    assert one.get_ydata().tolist() == [16, 3, 1]
    assert many.get_ydata().tolist() == [9, 2]  # only one run has a third
    assert axes.get_xscale() == axes.get_yscale() == "log"
    assert axes.get_legend().get_title().get_text() == "effective rank, median over runs"
    wanted = float(np.median(TangentKernel(np.eye(3), runs).effective_rank))
    assert axes.get_legend().get_texts()[1].get_text() == f"many: {wanted:.3g}"


@pytest.mark.parametrize(
    "found",
    [
        {},
        {"one": np.ones(3)},
        {"one": TangentKernel(np.eye(3), np.ones((1, 1, 3)))},
        {"one": TangentKernel(np.zeros((3, 3)), np.zeros(3))},
        {"one": TangentKernel(np.full((3, 3), np.nan), np.full(3, np.nan))},
    ],
)
def test_other_than_kernels_have_no_spectra(found):
    with pytest.raises(ArgumentError, match="found: "):
        plots.kernel_spectra(found)


@pytest.mark.long
def test_the_figure_of_graphs_has_the_median_gap_of_each_layer_over_masks():
    masks = {
        "a": jnp.asarray(np.random.default_rng(0).random((3, 6, 5)) < 0.4),
        "b": jnp.zeros((3, 5, 4), bool),
    }
    found = jax.vmap(connectivity)(masks)
    one = connectivity({"a": jnp.ones((6, 5), bool), "b": jnp.ones((5, 4), bool)})
    figure = plots.connectivity({"some": found, "whole": one}, title="gaps")
    axes = figure.axes[0]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["some", "whole"]
    _, some, whole = axes.lines
    assert some.get_xdata().tolist() == [0]  # the second layer is empty
    assert some.get_ydata() == pytest.approx([float(np.median(found["a"].gap))])
    assert whole.get_ydata() == pytest.approx([float(one[name].gap) for name in "ab"])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["a", "b"]


@pytest.mark.parametrize(
    ("of", "message"),
    [
        ({}, "found: nothing to draw"),
        ({"a": connectivity({"x": np.eye(2, dtype=bool)})["x"]}, "found: 'a': expected a dict by layer"),
        ({"a": {"x": 1.5}}, "found: 'a': 'x': expected what analysis.connectivity returns"),
        (
            {
                "a": connectivity({"x": np.eye(2, dtype=bool)}),
                "b": connectivity({"y": np.eye(2, dtype=bool)}),
            },
            "found: 'b' has the layers y, not x",
        ),
    ],
)
def test_other_than_connectivity_has_no_figure(of, message):
    with pytest.raises(ArgumentError, match=f"^{message}"):
        plots.connectivity(of)


@pytest.mark.long
def test_weights_by_name_are_drawn_as_bundles_are():
    params = gated().params
    weights = direct_weights(params)
    lines = [
        [lines.get_segments() for lines in plots.architectures({"": {"": network}}).axes[0].collections]
        for network in (weights, {(int(name[1]), int(name[3])): leaf for name, leaf in weights.items()})
    ]
    assert len(lines[0]) == 6
    np.testing.assert_equal(*lines)


def test_panels_with_the_same_lines_share_one_legend_and_each_has_its_own_mark():
    line = (np.array([[0.1, 0.5]]), np.array([[0.8, 0.9]]))
    panels = {"one": {"ours": line, "theirs": line}, "two": {"ours": line, "theirs": line}}
    figure = plots.trade_offs(panels, "x", "y", marked={"true": {"one": 0.2, "two": 0.4}})
    assert [axes.get_legend() for axes in figure.axes] == [None, None]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["true", "ours", "theirs"]
    marks = [next(line for line in axes.lines if line.get_label() == "true") for axes in figure.axes]
    assert [mark.get_xdata()[0] for mark in marks] == [0.2, 0.4]


def test_panels_with_lines_of_their_own_have_legends_of_their_own():
    line = (np.array([[0.1, 0.5]]), np.array([[0.8, 0.9]]))
    figure = plots.trade_offs({"one": {"ours": line}, "two": {"theirs": line}}, "x", "y")
    assert not figure.legends
    legends = [[text.get_text() for text in axes.get_legend().get_texts()] for axes in figure.axes]
    assert legends == [["ours"], ["theirs"]]


def test_an_axis_of_shares_tells_those_near_one_apart_and_is_plain_where_one_is_reached():
    inside, whole = ((np.array([[0.1, 0.5]]), np.array([[0.98, high]])) for high in (0.99, 1.0))
    for line, scale in ((inside, "logit"), (whole, "linear")):
        figure = plots.trade_offs({"one": {"ours": line}, "two": {"theirs": line}}, "x", "y", shares=True)
        assert [axes.get_yscale() for axes in figure.axes] == [scale] * 2
    beside = {"reference": whole}
    figure = plots.trade_offs({"one": {"ours": inside}}, "x", "y", beside=beside, shares=True)
    assert figure.axes[0].get_yscale() == "linear"


def test_regrets_are_drawn_by_group_and_task_with_the_best_framed_and_failures_marked():
    ours = {"digits": {".2": 0.0, ".1": 0.0312}, "text": {".1": np.inf}}
    figure = plots.regrets({"learned": {"ours": ours}, "drawn": {"random": {"digits": {".1": 0.4}}}})
    (digits, text), (of_random, empty) = np.reshape(figure.axes[:4], (2, 2))
    assert [one.get_text() for one in digits.texts if one.get_text() != "learned"] == ["0", ".031"]
    assert len(digits.patches) == 1
    assert [one.get_text() for one in text.texts] == ["-"]
    assert [one.get_text() for one in of_random.texts if one.get_text() != "drawn"] == [".400"]
    assert not empty.texts
    assert [label.get_text() for label in of_random.get_xticklabels()] == [".2", ".1"]


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({}, "groups: nothing to draw"),
        ({"a": {"b": {"c": {}}}}, "groups: nothing to draw"),
        ({"a": {"b": {"c": {"d": -0.1}}}}, "expected a regret of at least 0"),
    ],
)
def test_regrets_that_are_none_are_refused(groups, message):
    with pytest.raises(ArgumentError, match=message):
        plots.regrets(groups)


def test_a_map_of_no_layer_is_refused():
    with pytest.raises(ArgumentError, match="groups: nothing to draw"):
        plots.connections_by_layer({"a": {"b": {"c": {}}}})


def test_a_setting_in_which_all_runs_failed_has_no_point():
    x, y = np.array([[0.1, 0.5], [0.1, 0.5]]), np.array([[np.nan, 0.9], [np.nan, 0.7]])
    (line, *_) = plots.trade_off({"ours": (x, y)}, "density", "accuracy").axes[0].lines
    assert np.isnan(line.get_ydata()).tolist() == [True, False]


def test_a_layer_that_some_run_empties_is_framed_with_their_share():
    layers = {
        "first": np.array([1200, 1300]),
        "second": np.array([0, 0, 3]),
        "third": np.array([0] + 300 * [7]),
    }
    (axes, *_) = plots.connections_by_layer({"learned": {"ours": {"density .1": layers}}}).axes
    assert [one.get_text() for one in axes.texts][:3] == ["1,250", "0 (67%)", "7 (<1%)"]
    assert len(axes.patches) == 2


@pytest.mark.parametrize("runs", [np.array([-1, 2]), np.array([]), np.array([np.inf]), 3])
def test_connections_that_are_no_counts_of_runs_are_refused(runs):
    with pytest.raises(ArgumentError, match="groups: 'a': 'b': 'c': 'd': expected"):
        plots.connections_by_layer({"a": {"b": {"c": {"d": runs}}}})
