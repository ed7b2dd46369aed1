"""Experiments: figures and tables of the papers as something to run; `catalogue` has their names."""
