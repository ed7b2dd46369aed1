"""What makes a network: one method a file."""

from jaxarch.search.agnostic import agnostic as agnostic
from jaxarch.search.architecture_pruning import architecture_pruning as architecture_pruning
from jaxarch.search.biprop import biprop as biprop
from jaxarch.search.continuous_sparsification import continuous_sparsification as continuous_sparsification
from jaxarch.search.dense import dense as dense
from jaxarch.search.edge_popup import edge_popup as edge_popup
from jaxarch.search.gradual_magnitude import gradual_magnitude as gradual_magnitude
from jaxarch.search.grasp import grasp as grasp
from jaxarch.search.group_lasso import group_lasso as group_lasso
from jaxarch.search.hard_concrete import hard_concrete as hard_concrete
from jaxarch.search.initial_magnitude import initial_magnitude as initial_magnitude
from jaxarch.search.logistic_regression import logistic_regression as logistic_regression
from jaxarch.search.magnitude_pruning import magnitude_pruning as magnitude_pruning
from jaxarch.search.movement import movement as movement
from jaxarch.search.network_slimming import network_slimming as network_slimming
from jaxarch.search.random_mask import random_mask as random_mask
from jaxarch.search.random_search import random_search as random_search
from jaxarch.search.rigl import rigl as rigl
from jaxarch.search.snip import snip as snip
from jaxarch.search.soft_threshold import soft_threshold as soft_threshold
from jaxarch.search.sparse_evolution import sparse_evolution as sparse_evolution
from jaxarch.search.spectral import spectral as spectral
from jaxarch.search.spectral_depth import spectral_depth as spectral_depth
from jaxarch.search.synflow import synflow as synflow
from jaxarch.search.two_temperature import two_temperature as two_temperature
from jaxarch.search.untrained import untrained as untrained
