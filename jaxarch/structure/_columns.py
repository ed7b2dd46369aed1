"""Rows of text as a table of aligned columns."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def columns(rows: Sequence[tuple[str, ...]], right: Collection[int]) -> list[str]:
    """Align some rows: the columns of these numbers to the right, the others to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            f"{cell:>{width}}" if column in right else f"{cell:<{width}}"
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
