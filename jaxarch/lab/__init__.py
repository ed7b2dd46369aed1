"""Studies to run, check and write down; `pip install 'jaxarch[lab]'` installs their dependencies.

No file of the library imports this package. `jaxarch.lab.harness.catalogue` lists all studies by name.
"""

from typing import Any

import lazy_loader

from jaxarch._internal.errors import from_extra

_public, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    with from_extra("lab", f"jaxarch.lab.{name}"):
        return _public(name)
