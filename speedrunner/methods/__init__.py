"""Methods by name, made from their options."""

from speedrunner.methods.registry import InvalidMethodOption, UnknownMethod, make

__all__ = ["InvalidMethodOption", "UnknownMethod", "make"]
