"""Acceptance checks for developers, which pytest does not run: `python -m tests.bench --help`."""
