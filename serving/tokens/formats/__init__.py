"""Native tool-call formats: how a model writes a call."""

from typing import Protocol

from serving.tokens.formats import qwen3_xml
from serving.tokens.formats.json_calls import LLAMA, QWEN
from serving.tokens.frame import Frame
from serving.tokens.grammar import Part
from serving.tokens.tools import ToolCall, ToolSpec


class ToolFormat(Protocol):
    """One native format: a module or an object with these functions, and the frame of its models' turns."""

    FRAME: Frame
    BEGIN: str
    """The text with which each call begins."""
    FORM: str
    """How a call is written, for models whose chat template does not say it."""

    def call(self, tool: ToolSpec, string_tokens: int) -> Part:
        """Return the grammar of one call of `tool`, with each string bounded to `string_tokens`.

        It allows exactly what the model's chat template would write for such a call.

        Raises `InvalidTool`: the format cannot express some call of `tool`.
        """

    def parse(self, text: str, tools: dict[str, ToolSpec]) -> ToolCall:
        """Read the one call that `text` consists of, ignoring surrounding whitespace.

        Raises:
            InvalidCall: no call, more than one, one that cannot be read, an unknown tool, or arguments that
                its schema does not allow.
        """


FORMATS: dict[str, ToolFormat] = {
    "qwen3_json": QWEN,
    "qwen3_xml": qwen3_xml,
    "llama3_json": LLAMA,
}
"""The formats by their names in model configs."""
