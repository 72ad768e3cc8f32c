"""Runs untrusted code: skills, and programs of an inducer (docs/sandbox.md)."""
