"""jaxarch: learned network architectures, measured apart from their weights.

    problem = jaxarch.supervised(model, (x, y), loss=..., optimizer=optax.adam(1e-2), steps=1000)
    network, report = jaxarch.over_seeds(jaxarch.search.two_temperature(), keys, problem)

A stage is a pure function `(key, problem, network) -> Network`. A search makes a network from nothing, and a
transform turns one network into another. `chain` joins stages to a strategy, and `over_seeds` runs a strategy
for many keys in one program.

Every name is imported on first use.
"""

from typing import Any

import lazy_loader

_public, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
_OF_THE_LAB = ("claims", "data", "reproduction", "results")


def __getattr__(name: str) -> Any:
    if name == "streams":
        raise ImportError("jaxarch.streams has moved; import jaxarch.io")
    if name in _OF_THE_LAB:
        # Not an AttributeError, since `from jaxarch import data` would not show its text.
        raise ImportError(
            f"jaxarch.{name} has moved; pip install 'jaxarch[lab]', and import jaxarch.lab.{name}"
        )
    return _public(name)


__version__ = "0.1.0"
