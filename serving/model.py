"""A served model: opens conversations for the roles of a method."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cached_property
from weakref import WeakSet

from serving.admission import Admission
from serving.cards import ModelCard
from serving.conversation import ChatConversation, Conversation, Place, TokenConversation
from serving.engine.client import Engine
from serving.engine.metrics import CacheConfig
from serving.errors import InvalidCard, ServingError
from serving.meter import Meter
from serving.tokens.formats import load_format
from serving.tokens.tokenizer import ChatTokenizer
from serving.tokens.tool_check import ToolCheck
from serving.tokens.tools import ToolSpec
from serving.tokens.transcript import Transcript, common_prefix
from serving.usage import Usage

Messages = list[dict[str, str]]


class Model:
    """One model card with an engine that serves it.

    Args:
        tokenizer: needed on the tokens route.
        caches: the prefix cache of each replica; none where the engine does not tell.
        admissions: who may be cached, for each replica; none to let everybody in.
        open_: by replica, the open conversations of all clients; `None` counts this one's alone.

    Raises:
        InvalidCard: the card's route needs a tool format or a tokenizer that is missing.
    """

    def __init__(
        self,
        card: ModelCard,
        engine: Engine,
        tokenizer: ChatTokenizer | None,
        caches: Sequence[CacheConfig] = (),
        admissions: Sequence[Admission] = (),
        open_: list[int] | None = None,
    ) -> None:
        self.card = card
        self.engine = engine
        self.caches = caches
        self._tokenizer = tokenizer
        self._admissions = admissions
        self._open = open_ or [0] * max(len(caches), 1)
        self._warm: dict[tuple[int, ...], asyncio.Task[list[tuple[int, Usage]]]] = {}
        """Prefixes that were sent alone, or are being sent."""
        self._talks: WeakSet[TokenConversation] = WeakSet()
        self._format = None
        if card.route == "tokens":
            if card.tool_format is None or tokenizer is None:
                raise InvalidCard(f"model {card.name!r}: the tokens route needs tool_format and a tokenizer")
            self._format = load_format(card.tool_format)

    @property
    def meter(self) -> Meter:
        """What has been used."""
        return self.engine.meter

    def converse(
        self, role: str, messages: Messages, tools: list[ToolSpec], labels: dict[str, str]
    ) -> Conversation:
        """Open a conversation; its owner closes it.

        It stays with one replica, the one with the fewest open conversations, where its prefix is cached.

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
        transcript = self._transcript(role, messages, tools)
        place = self._place(self._open.index(min(self._open)), transcript.ids)
        talk = TokenConversation(self.engine, transcript, settings, self.card.context, labels, place)
        self._talks.add(talk)
        return talk

    async def warm(
        self, role: str, messages: Messages, tools: list[ToolSpec], labels: dict[str, str]
    ) -> list[tuple[int, Usage]]:
        """Send the prefix that conversations with this system message and these tools share, once and alone.

        Otherwise the first of many that begin at once compute it each for themselves; a hybrid model
        could never reuse it, since it keeps its state at the ends of prompts only.

        Args:
            messages: any such conversation's; what comes after the system message does not matter.

        Returns:
            For each replica the prefix's length in tokens, and its usage; nothing on the chat route.

        Raises:
            ServingError: the engine failed.
        """
        prefix = tuple(self.shared_prefix(role, messages, tools))
        if prefix not in self._warm:
            self._warm[prefix] = asyncio.create_task(self._send_alone(list(prefix), labels))
        try:
            return await asyncio.shield(self._warm[prefix])
        except ServingError:
            self._warm.pop(prefix, None)
            raise

    def forget_cache(self) -> None:
        """The engine is started again: nothing that was sent is there any more."""
        for prefix in [prefix for prefix, sent in self._warm.items() if sent.done()]:
            del self._warm[prefix]
        for talk in self._talks:
            talk.forget_cache()

    async def close(self) -> None:
        """Give up what is still being sent."""
        for sending in self._warm.values():
            sending.cancel()
        await asyncio.gather(*self._warm.values(), return_exceptions=True)

    async def _send_alone(self, prefix: list[int], labels: dict[str, str]) -> list[tuple[int, Usage]]:
        sent = []
        for replica, cache in enumerate(self.caches):
            if not cache.match_unit <= len(prefix) < self.card.context:
                continue
            reply = await self.engine.complete(
                prefix,
                max_tokens=1,
                labels={"role": "warming", **labels, "replica": str(replica)},
                replica=self._address(replica),
            )
            reply.record("ok", reply.usage)
            sent.append((len(prefix), reply.usage))
        return sent

    def shared_prefix(self, role: str, messages: Messages, tools: list[ToolSpec]) -> list[int]:
        """The token ids with which all first prompts begin that have this system message and these tools.

        None on the chat route.
        """
        if self._format is None:
            return []
        system = messages[:1]
        prompts = [
            self._transcript(role, [*system, {"role": "user", "content": text}], tools).ids
            for text in ("A", "!")
        ]
        return common_prefix(*prompts)

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

    def _transcript(self, role: str, messages: Messages, tools: list[ToolSpec]) -> Transcript:
        assert self._tokenizer is not None
        assert self._format is not None
        settings = self.card.role(role)
        return Transcript(
            self._tokenizer,
            self._format,
            messages,
            tools,
            thinking_style=self.card.thinking,
            thinking_tokens=settings.thinking_tokens,
            string_tokens=settings.string_tokens,
        )

    def _place(self, replica: int, ids: list[int]) -> Place:
        warm = (prefix for prefix, sent in self._warm.items() if sent.done())
        shared = max((prefix for prefix in warm if tuple(ids[: len(prefix)]) == prefix), key=len, default=())
        self._open[replica] += 1

        def leave() -> None:
            self._open[replica] -= 1

        return Place(
            replica=replica,
            address=self._address(replica),
            cache=self.caches[replica] if self.caches else None,
            shared=len(shared),
            seat=self._admissions[replica].seat(shared) if self._admissions else None,
            on_leave=leave,
        )

    def _address(self, replica: int) -> int | None:
        return replica if len(self.caches) > 1 else None

    @cached_property
    def _tool_check(self) -> ToolCheck | None:
        if self._format is None or self._tokenizer is None:
            return None
        return ToolCheck(self._tokenizer, self._format, self.card.role("actor").string_tokens)
