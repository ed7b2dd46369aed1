"""The command `jaxarch`, also as `python -m jaxarch`: signals are watched before the rest is imported."""

from __future__ import annotations

from jaxarch import interruption


def main() -> None:
    """Entry point of the command line."""
    interruption.run(_command)


def _command() -> None:
    from jaxarch import cli

    cli.main()


if __name__ == "__main__":
    main()
