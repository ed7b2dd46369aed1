"""What the lab's users see, in one list: `jaxarch/lab/__init__.py` loads each when it is first touched."""

from . import claims as claims
from . import data as data
from . import reproduction as reproduction
from . import results as results
