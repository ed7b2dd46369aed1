"""Running stages: one run as a pure function, many runs as one program."""
