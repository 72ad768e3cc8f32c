"""Measurements against stated targets: `speedrunner bench` and `speedrunner probe`."""
