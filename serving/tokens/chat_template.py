"""Chat templates: the parts of a prompt that a template writes, and those that it omits and we add.

Many templates ignore tools, some refuse a system message, and some have no message for a tool's reply.
Without this module, the grammar would force valid calls of tools that the model never saw.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import product
from typing import Any

from serving.child_answer import answer_in_child
from serving.errors import InvalidModelConfig
from serving.tokens.formats import Frame, ToolFormat
from serving.tokens.grammar import dumps
from serving.tokens.tools import ToolSpec

Messages = list[dict[str, str]]

TOOLS = """\
# Tools

You act by calling one of these tools; each is described by one line of JSON:
<tools>
{tools}
</tools>

Each of your answers ends with one call, in this form:
{form}

The reply to a call is in the next message, between <tool_response> and </tool_response>.\
"""
"""The section of a system message that describes the tools."""

REASONING = "Reason in plain text before each call, in at most {tokens} tokens."
"""The sentence for a model without thinking."""

RENDER_S, RENDER_BYTES, RENDER_CHARACTERS = 10.0, 2**30, 2**20
"""Most time and memory of all short conversations, and text of each: a template may loop without end."""

_PROBE = ToolSpec(
    "zqtool",
    "Zqdoc text.",
    {"type": "object", "properties": {"zqparameter": {"type": "string"}}, "required": ["zqparameter"]},
)
_FIRST, _ANSWER, _SECOND = "zqfirst", "zqanswer", "zqsecond"
_TURNS: Messages = [
    {"role": "user", "content": _FIRST},
    {"role": "assistant", "content": _ANSWER},
    {"role": "user", "content": _SECOND},
]


def system_sections(tools: Sequence[ToolSpec], form: str, reasoning_tokens: int) -> list[str]:
    """Return what a system message says of tools and of reasoning; see `ChatTemplate.first_messages`."""
    lines = "\n".join(dumps(tool.openai["function"]) for tool in tools)
    sections = [TOOLS.format(tools=lines, form=form)] if tools else []
    return sections + ([REASONING.format(tokens=reasoning_tokens)] if reasoning_tokens else [])


class ChatTemplate:
    """One chat template.

    Args:
        render: returns the text of messages and tools; with `open_turn`, up to the model's next turn. Raises
            `InvalidModelConfig` if the template refuses them.
        control: control tokens of the tokenizer.
        eos: the token at which the engine ends an answer.
    """

    def __init__(self, render: Callable[..., str], control: Sequence[str], eos: str) -> None:
        self.render = render
        self._control = re.compile("|".join(map(re.escape, control)))
        self.eos = eos

    def check_limits(self) -> None:
        """Raise `InvalidModelConfig` if short conversations take too much time, memory or text.

        A child process renders them: a loop inside one expression cannot be interrupted.
        """
        if answer_in_child(self._try_short_conversations, RENDER_S, RENDER_BYTES) != b"fits":
            raise InvalidModelConfig(
                f"the chat template takes more than {RENDER_S:g} s, {RENDER_BYTES >> 20} MiB of memory or"
                f" {RENDER_CHARACTERS:,} characters for conversations of at most 4 short messages"
            )

    def _try_short_conversations(self) -> bytes:
        """Return `fits` if no conversation of 1 to 4 messages is too large."""
        system = [{"role": "system", "content": _ANSWER}]
        conversations = (_TURNS[:1], system + _TURNS[:1], _TURNS, system + _TURNS)
        for messages, tools, open_turn in product(conversations, ([], [_PROBE.openai]), (True, False)):
            try:
                if len(self.render(messages, tools, open_turn)) > RENDER_CHARACTERS:
                    return b"too large"
            except InvalidModelConfig as error:
                if isinstance(error.__cause__, MemoryError):
                    return b"too large"
        return b"fits"

    @cached_property
    def answer_header(self) -> str:
        """The text with control tokens that the template writes in the history before each answer, after the
        generation prompt, such as a channel of gpt-oss; empty if there is none.

        The engine's answer must begin after it. Tags of an empty thought do not count.
        """
        opened, closed = (self.try_render(_TURNS[:1], [], open_turn=is_open) for is_open in (True, False))
        history = self.try_render(_TURNS, [])
        header, answer, _ = history[len(opened) :].partition(_ANSWER)
        has_control = set(self._control.findall(header)) - {"<think>", "</think>"}
        is_header = answer and has_control and opened != closed and history.startswith(opened)
        return header if is_header else ""

    @cached_property
    def writes_tools(self) -> bool:
        """Whether a prompt has each tool's name, documentation and parameters."""
        text = self.try_render([{"role": "user", "content": _FIRST}], [_PROBE.openai])
        return all(word in text for word in (_PROBE.name, _PROBE.doc, "zqparameter"))

    @cached_property
    def writes_system(self) -> bool:
        """Whether a prompt has the system message as well as the tools that the template writes."""
        messages = [{"role": "system", "content": _ANSWER}, {"role": "user", "content": _FIRST}]
        return _ANSWER in self.try_render(messages, [_PROBE.openai] if self.writes_tools else [])

    def note(self, tools_in_system: bool) -> str:
        """Return a line for users on what the template omits; empty if it omits nothing.

        Args:
            tools_in_system: whether the system message shows the tools even if the template could.
        """
        missing = ["tools"] * (not self.writes_tools) + ["the system message"] * (not self.writes_system)
        where = "system" if self.writes_system else "first user"
        parts = [f"omits {' and '.join(missing)}, which go into the {where} message"] * bool(missing)
        if tools_in_system and self.writes_tools:
            parts.append(
                f"has a call format that is none of ours: the tools go into the {where} message as JSON"
            )
        if self.answer_header:
            parts.append(
                f"writes {self.answer_header!r} before each answer, which each prompt then ends with"
            )
        return f"the chat template {'; it '.join(parts)}" if parts else ""

    def first_messages(
        self, messages: Messages, tools: Sequence[ToolSpec], form: str, reasoning_tokens: int = 0
    ) -> Messages:
        """Return messages that the template writes whole.

        Args:
            tools: the tools that the system message must show; empty if the template writes them.
            form: how the model writes a call.
            reasoning_tokens: budget of the reasoning that the model writes as plain text; 0 for none.
        """
        if sections := system_sections(tools, form, reasoning_tokens):
            has_system = messages[0]["role"] == "system"
            text = "\n\n".join([messages[0]["content"]] * has_system + sections)
            messages = [{"role": "system", "content": text}, *messages[has_system:]]
        if messages[0]["role"] == "system" and not self.writes_system:
            system, first, *rest = messages
            messages = [{**first, "content": f"{system['content']}\n\n{first['content']}"}, *rest]
        return messages

    def frame(self, tool_format: ToolFormat) -> Frame:
        """Return the text around later messages: a tool's reply is a user message.

        Raises:
            InvalidModelConfig: the template cannot write a user message after an answer, or no control token
                ends an answer.
        """
        end, before, after, controls = self._later_turn
        own = tool_format.frame
        return Frame(
            end_of_turn=end,
            other_ends=own.other_ends,
            user_turn=(before, after),
            tool_reply=(f"{before}<tool_response>\n", f"\n</tool_response>{after}"),
            controls=tuple(dict.fromkeys([*own.controls, *controls])),
        )

    @cached_property
    def _later_turn(self) -> tuple[str, str, str, list[str]]:
        """The token that ends an answer, the text before and after the next message, and control tokens."""
        text, closed = self.render(_TURNS, [], True), self.render(_TURNS, [], False)
        match = re.search(f"{_ANSWER}(.*?){_SECOND}(.*)", closed, re.DOTALL)
        if match is None or not text.startswith(closed):
            raise InvalidModelConfig("the chat template cannot write a user message after an answer")
        between, after = match.groups()
        end = self._control.search(between)
        if end is None:
            raise InvalidModelConfig("no control token ends an answer in the chat template")
        return end.group(), between[end.end() :], after, self._control.findall(text)

    def try_render(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]], *, open_turn: bool = False
    ) -> str:
        """Return the text of messages; empty if the template refuses them."""
        try:
            return self.render(messages, tools, open_turn)
        except InvalidModelConfig:
            return ""
