"""Methods by name, made from their options."""

from speedrunner.methods.registry import InvalidMethodOption, UnknownMethod, make, options

__all__ = ["InvalidMethodOption", "UnknownMethod", "make", "options"]
