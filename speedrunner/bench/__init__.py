"""Measurements against stated targets: `speedrunner bench`, `probe` and `study`."""
