"""Check, before a tool is offered, that the engine can decode a model's calls of it: the engine's own grammar
library compiles the tool's grammar against the served tokenizer."""

from __future__ import annotations

from serving.errors import InvalidTool
from serving.tokens.formats import ToolFormat
from serving.tokens.grammar import structural_tag
from serving.tokens.tokenizer import ChatTokenizer
from serving.tokens.tools import ToolSpec


class ToolCheck:
    """Checks tools for one tokenizer and one native format of tool calls.

    Args:
        string_tokens: bound of each string argument in the grammar that the engine will get.
    """

    def __init__(self, tokenizer: ChatTokenizer, tool_format: ToolFormat, string_tokens: int) -> None:
        import xgrammar  # heavy

        self._format = tool_format
        self._string_tokens = string_tokens
        info = xgrammar.TokenizerInfo.from_huggingface(tokenizer.huggingface)
        self._compiler = xgrammar.GrammarCompiler(info, max_threads=1)

    def check(self, tool: ToolSpec) -> None:
        """Compile the grammar of the tool's calls. Raises `InvalidTool` if that fails."""
        tag = structural_tag(self._format.call(tool, self._string_tokens))
        try:
            self._compiler.compile_structural_tag(tag)
        except Exception as error:  # the library raises several kinds
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise InvalidTool(f"{tool.name}: its calls cannot be decoded: {reason}") from error
