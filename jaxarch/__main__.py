"""`python -m jaxarch` is the command line."""

from jaxarch.cli import main

main()
