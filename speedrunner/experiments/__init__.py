"""Grids of runs: their definition, status and forecast."""
