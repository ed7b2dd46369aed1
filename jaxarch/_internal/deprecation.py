"""Deprecations: an old name works for some releases, and warns once."""

from __future__ import annotations

import functools
import warnings


@functools.cache
def warn_deprecated(old: str, new: str, release: str) -> None:
    """Warn, the first time only, that a public name has changed.

    Call it in the function with the old name, or in the `__getattr__` of its former module. The warning then
    points at the user's line.

    Args:
      old: the old public name, such as `jaxarch.masks.keep`.
      new: the public name to use instead.
      release: the release that removes the old name, such as `0.3`.

    Example:
      >>> import warnings
      >>> from jaxarch._internal.deprecation import warn_deprecated
      >>> def retain(scores):
      ...     warn_deprecated("jaxarch.masks.retain", "jaxarch.masks.keep", "0.3")
      >>> with warnings.catch_warnings(record=True) as caught:
      ...     warnings.simplefilter("always")
      ...     retain(None), retain(None)
      (None, None)
      >>> [str(warning.message) for warning in caught]
      ['jaxarch.masks.retain is now jaxarch.masks.keep; jaxarch 0.3 removes the old name']
    """
    warnings.warn(
        f"{old} is now {new}; jaxarch {release} removes the old name", DeprecationWarning, stacklevel=3
    )
