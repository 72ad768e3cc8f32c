"""Measurements against stated targets: `speedrunner bench` and `speedrunner bench probe`."""
