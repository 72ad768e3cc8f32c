"""Verify that a run matches its records, without a model or server."""
