"""Runs: planned, set up, carried out, gone on with."""
