"""Grids of runs: their definition and status."""
