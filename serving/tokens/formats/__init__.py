"""Native tool-call formats, each a module: how a model writes a call."""

from serving.tokens.formats import qwen3_json, qwen3_xml
from serving.tokens.formats.base import ParsedCall as ParsedCall
from serving.tokens.formats.base import ToolFormat as ToolFormat

FORMATS: dict[str, ToolFormat] = {"qwen3_json": qwen3_json, "qwen3_xml": qwen3_xml}
"""By their names in model cards."""
