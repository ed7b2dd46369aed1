"""Optax transformations: masks that are held, masks that change as training goes on, mirror descent."""

from jaxarch.optim.hold import HoldState as HoldState
from jaxarch.optim.hold import check_held as check_held
from jaxarch.optim.hold import hold as hold
from jaxarch.optim.mirror_descent import mirror_descent as mirror_descent
