"""A name that is deprecated works on, and says once what to use and until when."""

import warnings

from jaxarch._internal.deprecation import warn_deprecated


def old_name():
    warn_deprecated("jaxarch.old_name", "jaxarch.new_name", "0.3")
    return "what the new one returns"


def test_a_deprecated_name_warns_once_at_the_line_that_uses_it():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = [old_name() for _ in range(2)]
    assert found == ["what the new one returns"] * 2
    (warning,) = caught
    assert warning.category is DeprecationWarning
    assert (
        str(warning.message) == "jaxarch.old_name is now jaxarch.new_name; jaxarch 0.3 removes the old name"
    )
    assert warning.filename == __file__
