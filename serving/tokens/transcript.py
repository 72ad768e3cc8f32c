"""One conversation as token ids. This module does no input or output.

The chat template renders the first prompt. After that, the model's own ids and the framed replies are
appended, and nothing is rendered again: each prompt starts with the previous prompt and its answer, so
everything in the engine's cache stays a prefix.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

import msgspec

from serving.errors import InvalidCall, TruncatedCall
from serving.model_config import ModelConfig
from serving.tokens.formats import FORMATS
from serving.tokens.grammar import Part, dumps, free_text, one_of, sequence, thinking
from serving.tokens.tokenizer import ChatTokenizer
from serving.tokens.tools import ToolCall, ToolSpec

_THINK_BEGIN, _THINK_END = "<think>\n", "\n</think>\n\n"


class ReadAnswer(msgspec.Struct, frozen=True):
    """A parsed answer.

    Attributes:
        text: the text after the reasoning, without the end of the turn.
        reasoning_tokens: generated tokens up to the end of the thinking region, or up to the call.
        thought_cut: whether the budget ended the reasoning.
        call: the tool call; `None` exactly when `problem` says why there is none.
    """

    text: str
    reasoning: str
    reasoning_tokens: int
    call: ToolCall | None
    problem: InvalidCall | None
    thought_cut: bool = False


class Transcript:
    """Token ids of one conversation, in a model's native tool format.

    Args:
        model_config: of a model on the completions API.
        role: `actor`, `inducer` or another; chooses the budgets from the model config.
    """

    def __init__(
        self,
        model_config: ModelConfig,
        role: str,
        tokenizer: ChatTokenizer,
        messages: list[dict[str, str]],
        tools: list[ToolSpec],
    ) -> None:
        assert model_config.tool_format is not None
        tool_format, settings = FORMATS[model_config.tool_format], model_config.role(role)
        thinking_tokens, style = settings.thinking_tokens, model_config.thinking
        self._tokenizer = tokenizer
        self._format = tool_format
        self._tools = {tool.name: tool for tool in tools}
        template = tokenizer.template
        tools_in_system = model_config.tools_in == "system" or not template.writes_tools
        self._frame = template.frame(tool_format) if tools_in_system else tool_format.frame
        self._end_of_turn = tokenizer.control_id(self._frame.end_of_turn)
        self._stops = {self._end_of_turn, *tokenizer.control_ids([template.eos])}
        self.other_ends = tokenizer.control_ids(self._frame.other_ends) - self._stops
        self._thought_end = next(iter(tokenizer.control_ids([_THINK_END.strip()])), -1)
        self._budget = thinking_tokens
        self._string_tokens = settings.string_tokens
        self._thinks = style != "none" and thinking_tokens > 0
        self._reasons_in_text = style == "none" and thinking_tokens > 0
        self._begin = _THINK_BEGIN if self._thinks and style == "generated" else ""
        options: dict[str, bool | int | str] = {} if style == "none" else {"enable_thinking": self._thinks}
        options |= settings.template_options
        messages = template.first_messages(
            messages,
            tools if tools_in_system else [],
            tool_format.form,
            thinking_tokens if self._reasons_in_text else 0,
        )
        shown = [] if tools_in_system else tools
        self.ids, self._opening = tokenizer.first_prompt(messages, shown, **options)
        self._has_call = False
        self._closing = model_config.thinking_closing
        call = one_of(*(tool_format.call(tool, settings.string_tokens) for tool in tools))
        if self._thinks:
            region = thinking(thinking_tokens, self._begin, _THINK_END, self._frame.controls, self._closing)
            call = sequence(region, call)
        elif self._reasons_in_text:
            call = sequence(free_text(thinking_tokens, (*self._frame.controls, tool_format.begin)), call)
        self.grammar: Part = call

    @property
    def answer_tokens(self) -> int:
        """The most tokens that an answer takes, including the end of the turn."""
        return self.grammar.tokens + 1

    @property
    def text(self) -> str:
        """The whole conversation as text."""
        return self._tokenizer.decode(self.ids)

    def answer(self, ids: list[int]) -> ReadAnswer:
        """Append the model's ids, and parse them."""
        complete = bool(ids) and ids[-1] in self._stops
        body = ids[:-1] if complete else ids
        self.ids += [*body, self._end_of_turn]
        reasoning, text, reasoning_tokens, thought_cut = self._split(body)
        call, problem = None, None
        try:
            if not complete:
                raise TruncatedCall(f"the answer was cut after {len(ids)} tokens; write less", text)
            call = self._format.parse(text, self._tools)
            call = msgspec.structs.replace(call, cut=tuple(self._cut(call, body)))
        except InvalidCall as error:
            problem = error
        self._has_call = call is not None
        return ReadAnswer(text, reasoning, reasoning_tokens, call, problem, thought_cut)

    def written(self, reasoning: str, text: str) -> str:
        """Return everything that the model wrote, without the end of its turn, from the parts that `answer`
        read."""
        if not self._thinks:
            return reasoning + text
        return self._begin + reasoning + (_THINK_END + text if text else "")

    def tell(self, text: str) -> None:
        """Append the reply to the last answer and open the model's next turn."""
        self.ids += self.reply(text, has_call=self._has_call)

    def reply(self, text: str, *, has_call: bool) -> list[int]:
        """Return the ids of a reply to an answer with or without a valid call; they open the model's next
        turn."""
        before, after = self._frame.tool_reply if has_call else self._frame.user_turn
        if has_call and self._frame.json_replies:
            text = dumps(text)
        return self._tokenizer.framed(before, text, after + self._opening)

    def _split(self, ids: list[int]) -> tuple[str, str, int, bool]:
        """Return the reasoning, the text after it, how many of `ids` are the reasoning with its frame, and
        whether its budget ended it."""
        text = self._tokenizer.decode(ids)
        if self._reasons_in_text:
            reasoning, begin, rest = text.partition(self._format.begin)
            tokens = self._find_covering_ids(ids, reasoning)
            return reasoning, begin + rest, tokens, bool(begin) and tokens >= self._budget
        if not self._thinks:
            return "", text, 0, False
        before, end, rest = text.partition(_THINK_END.strip())
        thought = before.removesuffix("\n")
        reasoning = thought.removeprefix(_THINK_BEGIN)
        if not end:
            return reasoning, "", len(ids), False
        if ids.count(self._thought_end) == text.count(end):
            tokens = ids.index(self._thought_end) + 1
        else:  # it is spelled with ordinary tokens, which may extend beyond it
            tokens = self._find_covering_ids(ids, before + end)
        cut = tokens >= self._budget - 1 and thought.endswith(self._closing)
        if cut:
            own = thought.removesuffix(self._closing)
            inside = self._find_covering_ids(ids, own) - self._find_covering_ids(ids, self._begin)
            cut = inside >= self._budget - 1
        return reasoning, rest.removeprefix("\n\n"), tokens, cut

    def _cut(self, call: ToolCall, ids: list[int]) -> Iterator[str]:
        """Return the string arguments that reached their bound, so that the grammar ended them."""
        for name, value in call.arguments.items():
            # A token has at least one byte.
            if not isinstance(value, str) or len(value.encode()) < self._string_tokens - 1:
                continue
            text = self._tokenizer.decode(ids)
            spelling = value if value in text else dumps(value)[1:-1]
            before, found, _ = text.rpartition(spelling)
            if found:
                tokens = self._find_covering_ids(ids, before + found) - self._find_covering_ids(ids, before)
            else:  # the model used other escapes
                tokens = len(self._tokenizer.outside_text(value))
            if tokens >= self._string_tokens - 1:
                yield name

    def _find_covering_ids(self, ids: list[int], text: str) -> int:
        """Return the smallest number of leading `ids` that cover `text`, a prefix of their decoded text."""
        places = range(len(ids) + 1)
        return bisect_left(places, len(text), key=lambda count: len(self._tokenizer.decode(ids[:count])))


def common_prefix(one: list[int], other: list[int]) -> list[int]:
    """Return the ids that both lists start with."""
    shorter = min(len(one), len(other))
    differing = (n for n in range(shorter) if one[n] != other[n])
    return one[: next(differing, shorter)]
