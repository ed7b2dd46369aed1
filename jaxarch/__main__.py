"""The command `jaxarch`, also as `python -m jaxarch`: signal handlers are set before the rest is imported."""

from __future__ import annotations

import importlib.util
import sys

from jaxarch._internal import interruption

OF_THE_LAB = (
    "altair",
    "click",
    "itables",
    "jinja2",
    "markupsafe",
    "matplotlib",
    "pandas",
    "rich",
    "scipy",
    "sklearn",
    "vl_convert",
)
"""Packages of the extra `lab`, by their import names."""


def main() -> None:
    """Run the command line."""
    interruption.run(_command)


def missing_of_the_lab() -> list[str]:
    """Return the packages of the extra `lab` that are not installed."""
    return [package for package in OF_THE_LAB if importlib.util.find_spec(package) is None]


def _command() -> None:
    # Check before training starts, since a report is written only at the end.
    if missing := missing_of_the_lab():
        needed = f"the command line needs {missing[0]}, which is not installed"
        print(f"jaxarch: {needed}; pip install 'jaxarch[lab]'", file=sys.stderr)
        sys.exit(2)
    from jaxarch.lab import cli

    cli.main()


if __name__ == "__main__":
    main()
