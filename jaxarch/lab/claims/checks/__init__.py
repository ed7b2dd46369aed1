"""Checks of claims: in drawn cases, exactly, on whole boxes, and by a search for the worst case."""
