"""Studies: run, checked and written down. `pip install 'jaxarch[lab]'` brings what they need.

No file of the library imports it. `jaxarch.lab.harness.catalogue` has the names of all studies.
"""

from typing import Any

import lazy_loader

from jaxarch._internal.errors import from_extra

_public, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    with from_extra("lab", f"jaxarch.lab.{name}"):
        return _public(name)
