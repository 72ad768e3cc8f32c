"""Native tool-call formats: how a model writes a call, and how a reply to it is framed."""

from serving.tokens.formats.base import ParsedCall, ToolFormat, load_format

__all__ = ["ParsedCall", "ToolFormat", "load_format"]
