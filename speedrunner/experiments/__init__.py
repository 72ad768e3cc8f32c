"""Grids of runs: what an experiment consists of, where it stands, what it will cost."""
