"""What Sphinx is told beyond its settings: what is public, the pages made of it, links and formulas."""
