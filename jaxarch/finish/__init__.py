"""What turns one network into another, one file each."""

from jaxarch.finish.at_density import at_density
from jaxarch.finish.new_head import new_head
from jaxarch.finish.prune import prune
from jaxarch.finish.recruit import recruit
from jaxarch.finish.reshuffle import reshuffled
from jaxarch.finish.retrain import retrain
from jaxarch.finish.threshold import threshold

__all__ = ["at_density", "new_head", "prune", "recruit", "reshuffled", "retrain", "threshold"]
