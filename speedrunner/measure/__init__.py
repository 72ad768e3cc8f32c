"""Measurements of this machine against stated targets: `speedrunner bench`."""
