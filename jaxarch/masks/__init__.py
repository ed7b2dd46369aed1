r"""Masks over the connections of a network, and the two-temperature gradient that learns them.

A mask is the architecture: one bit per connection. Training learns it through real *scores* w, one per
connection. In the forward pass, the sharp sigmoid `sigma(hard * w)` multiplies the weights. In the backward
pass, the slope of a softer one, `sigma(soft * w)`, carries the gradient. At the end, the mask is `1[w > 0]`.

Scores, masks and parameters are pytrees of one structure. In scores and masks, a leaf that is not masked is
`None`. Scores are float32, whatever the dtype of the parameters. `hard` and `soft` are inverse temperatures,
called M_hard and M_soft in [D], t_l and t_s in [A].

Arrays may be split over devices along the axes of any mesh, explicit axes included. They stay where they are,
except in `reshuffle`, and in blocks and N:M under explicit axes.

[D] Colombo & Gao, Disentangling Neural Architectures and Weights, 2021.
[A] Colombo & Gao, Differentiable Architecture Pruning for Transfer Learning, 2021.
"""

from jaxarch.masks._arithmetic import apply_mask as apply_mask
from jaxarch.masks._arithmetic import check_booleans as check_booleans
from jaxarch.masks._arithmetic import check_fits as check_fits
from jaxarch.masks._arithmetic import connections as connections
from jaxarch.masks._arithmetic import density as density
from jaxarch.masks._arithmetic import describe as describe
from jaxarch.masks._arithmetic import full_mask as full_mask
from jaxarch.masks._arithmetic import layer_density as layer_density
from jaxarch.masks._arithmetic import overlap as overlap
from jaxarch.masks._arithmetic import reshuffle as reshuffle
from jaxarch.masks._arithmetic import weight_free as weight_free
from jaxarch.masks._gradient import check_clip as check_clip
from jaxarch.masks._gradient import check_temperatures as check_temperatures
from jaxarch.masks._gradient import clip_scores as clip_scores
from jaxarch.masks._gradient import hard_mask as hard_mask
from jaxarch.masks._gradient import init_scores as init_scores
from jaxarch.masks._gradient import penalty as penalty
from jaxarch.masks._gradient import soft_mask as soft_mask
from jaxarch.masks._gradient import two_temperature as two_temperature
from jaxarch.masks._keeping import keep as keep
from jaxarch.masks._largest import Scope as Scope
from jaxarch.masks._largest import check_density as check_density
from jaxarch.masks._largest import check_scope as check_scope
from jaxarch.masks._largest import erk_densities as erk_densities
from jaxarch.masks._largest import percentile_thresholds as percentile_thresholds
from jaxarch.masks._largest import threshold_mask as threshold_mask
from jaxarch.masks._largest import top_k as top_k
from jaxarch.masks._outliers import owl_densities as owl_densities
from jaxarch.masks._per_output import PerOutput as PerOutput
from jaxarch.masks._sized import sized_mask as sized_mask
from jaxarch.masks._units import Blocks as Blocks
from jaxarch.masks._units import GroupUnits as GroupUnits
from jaxarch.masks._units import NOfM as NOfM
from jaxarch.masks._units import Units as Units
from jaxarch.masks._units import UnitsLike as UnitsLike
