"""The error of a configuration."""

from __future__ import annotations


class InvalidConfig(Exception):
    """A configuration names a key that does not exist, or gives one a value that it cannot have."""
