"""What turns one network into another, one finish a file."""

from jaxarch.finish._at_density import at_density as at_density
from jaxarch.finish._densities import density_name as density_name
from jaxarch.finish._densities import of_density as of_density
from jaxarch.finish._flip import flip as flip
from jaxarch.finish._invert import inverted as inverted
from jaxarch.finish._new_head import new_head as new_head
from jaxarch.finish._prune import prune as prune
from jaxarch.finish._recruit import recruit as recruit
from jaxarch.finish._removals import largest_removal as largest_removal
from jaxarch.finish._reshuffle import reshuffled as reshuffled
from jaxarch.finish._retrain import retrain as retrain
from jaxarch.finish._share_weight import share_weight as share_weight
from jaxarch.finish._slim import slim as slim
from jaxarch.finish._threshold import threshold as threshold
