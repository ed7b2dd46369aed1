"""Optax transformations: fixed and changing masks, clipped scores, mirror descent, penalties."""

from jaxarch.optim._clip_scores import clip_scores as clip_scores
from jaxarch.optim._find_mask import find_mask as find_mask
from jaxarch.optim._hold import HoldState as HoldState
from jaxarch.optim._hold import check_held as check_held
from jaxarch.optim._hold import hold as hold
from jaxarch.optim._mirror_descent import mirror_descent as mirror_descent
from jaxarch.optim._proximal import ProximalState as ProximalState
from jaxarch.optim._proximal import proximal as proximal
from jaxarch.optim._sparse import SparseState as SparseState
from jaxarch.optim._sparse import at_random as at_random
from jaxarch.optim._sparse import sparse as sparse
from jaxarch.optim._stop_at import StopState as StopState
from jaxarch.optim._stop_at import stop_at as stop_at
from jaxarch.optim._unit_penalties import GrowingState as GrowingState
from jaxarch.optim._unit_penalties import add_group_lasso as add_group_lasso
from jaxarch.optim._unit_penalties import add_growing_penalty as add_growing_penalty
