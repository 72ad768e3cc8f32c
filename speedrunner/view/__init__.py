"""A browser viewer for runs."""
