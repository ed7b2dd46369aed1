"""The structure of networks: units of any model, smaller models, costs, graphs and spectra."""

from jaxarch.structure import distances, graphs
from jaxarch.structure._cost import cost, cost_of
from jaxarch.structure._cost_table import Cost, Counts, LayerCost
from jaxarch.structure._cut_files import load_cut, save_cut
from jaxarch.structure._groups import Folded, Group, Groups, axis_groups
from jaxarch.structure._layer_units import LayerUnits, layer_units
from jaxarch.structure._plan import Plan, plan
from jaxarch.structure._same import Comparison, LayerDifference, same
from jaxarch.structure._shrink import Shrunk, ShrunkNetwork, shrink
from jaxarch.structure._unit_graph import UnitGraph, unit_graph
from jaxarch.structure._unroll import unroll
from jaxarch.structure._uses import Weights, weights_of

__all__ = [
    "Comparison",
    "Cost",
    "Counts",
    "Folded",
    "Group",
    "Groups",
    "LayerCost",
    "LayerDifference",
    "LayerUnits",
    "Plan",
    "Shrunk",
    "ShrunkNetwork",
    "UnitGraph",
    "Weights",
    "axis_groups",
    "cost",
    "cost_of",
    "distances",
    "graphs",
    "layer_units",
    "load_cut",
    "plan",
    "same",
    "save_cut",
    "shrink",
    "unit_graph",
    "unroll",
    "weights_of",
]
