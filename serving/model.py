"""A served model: opens conversations for the roles of a method."""

from __future__ import annotations

from functools import cached_property

from serving.cards import ModelCard
from serving.conversation import ChatConversation, Conversation, TokenConversation
from serving.engine import Engine
from serving.errors import InvalidCard
from serving.formats import load_format
from serving.tokens import ChatTokenizer
from serving.tool_check import ToolCheck
from serving.tools import ToolSpec
from serving.transcript import Transcript


class Model:
    """One model card with an engine that serves it.

    Args:
        tokenizer: needed on the tokens route.

    Raises:
        InvalidCard: the card's route needs a tool format or a tokenizer that is missing.
    """

    def __init__(self, card: ModelCard, engine: Engine, tokenizer: ChatTokenizer | None) -> None:
        self.card = card
        self.engine = engine
        self._tokenizer = tokenizer
        self._format = None
        if card.route == "tokens":
            if card.tool_format is None or tokenizer is None:
                raise InvalidCard(f"model {card.name!r}: the tokens route needs tool_format and a tokenizer")
            self._format = load_format(card.tool_format)

    def converse(
        self,
        role: str,
        messages: list[dict[str, str]],
        tools: list[ToolSpec],
        labels: dict[str, str],
    ) -> Conversation:
        """Open a conversation.

        Args:
            role: `actor`, `inducer` or another; chooses sampling and budgets from the card.
            messages: system and user messages.
            tools: what the model may call, in the order in which it is to see them.
            labels: stand in every ledger row of the conversation.
        """
        settings = self.card.role(role)
        labels = {"role": role, **labels}
        if self._format is None or self._tokenizer is None:
            return ChatConversation(self.engine, messages, tools, settings, labels)
        transcript = Transcript(
            self._tokenizer,
            self._format,
            messages,
            tools,
            thinking_style=self.card.thinking,
            thinking_tokens=settings.thinking_tokens,
            string_tokens=settings.string_tokens,
        )
        return TokenConversation(self.engine, transcript, settings, self.card.context, labels)

    def check_tool(self, tool: ToolSpec) -> None:
        """Make sure that the actor's calls of `tool` can be decoded and read (tokens route).

        Takes about a second the first time, milliseconds then.

        Raises:
            InvalidTool: they cannot.
        """
        if self._tool_check is not None:
            self._tool_check.check(tool)

    def count_tokens(self, text: str) -> int:
        """Tokens of a text from outside; without a tokenizer, its bytes, which are never fewer."""
        return len(text.encode() if self._tokenizer is None else self._tokenizer.outside_text(text))

    @cached_property
    def _tool_check(self) -> ToolCheck | None:
        if self._format is None or self._tokenizer is None:
            return None
        return ToolCheck(self._tokenizer, self._format, self.card.role("actor").string_tokens)
