"""A viewer of runs for a browser."""
