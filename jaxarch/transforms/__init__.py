"""Transforms: stages that turn one network into another, one per file."""

from jaxarch.transforms._at_density import at_density as at_density
from jaxarch.transforms._densities import density_name as density_name
from jaxarch.transforms._densities import of_density as of_density
from jaxarch.transforms._flip import flip as flip
from jaxarch.transforms._invert import invert as invert
from jaxarch.transforms._new_head import new_head as new_head
from jaxarch.transforms._prune import prune as prune
from jaxarch.transforms._recruit import recruit as recruit
from jaxarch.transforms._removals import largest_removal as largest_removal
from jaxarch.transforms._reshuffle import reshuffle as reshuffle
from jaxarch.transforms._retrain import retrain as retrain
from jaxarch.transforms._share_weight import SharedWeight as SharedWeight
from jaxarch.transforms._share_weight import share_weight as share_weight
from jaxarch.transforms._slim import slim as slim
from jaxarch.transforms._threshold import threshold as threshold
