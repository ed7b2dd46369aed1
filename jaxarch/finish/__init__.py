"""What turns one network into another, one finish a file."""

from jaxarch.finish.at_density import at_density as at_density
from jaxarch.finish.flip import flip as flip
from jaxarch.finish.invert import inverted as inverted
from jaxarch.finish.new_head import new_head as new_head
from jaxarch.finish.prune import prune as prune
from jaxarch.finish.recruit import recruit as recruit
from jaxarch.finish.reshuffle import reshuffled as reshuffled
from jaxarch.finish.retrain import retrain as retrain
from jaxarch.finish.share_weight import share_weight as share_weight
from jaxarch.finish.slim import slim as slim
from jaxarch.finish.threshold import threshold as threshold
