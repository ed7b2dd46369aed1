"""jaxarch."""
