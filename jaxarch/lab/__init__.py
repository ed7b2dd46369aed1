"""What runs, checks and writes down studies: `pip install 'jaxarch[lab]'`.

No file of the library imports it. `jaxarch.lab.harness.catalogue` has the names of all studies.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
