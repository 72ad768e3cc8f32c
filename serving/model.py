"""A served model: opens conversations for the roles of a method."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Sequence
from math import ceil

import msgspec

from serving.admission import Replica
from serving.apis.chat_completions import ChatConversation
from serving.apis.completions import TokenConversation
from serving.apis.messages import MessageConversation
from serving.apis.responses import ResponsesConversation
from serving.conversation import Conversation
from serving.engine.client import Engine, Prompt
from serving.errors import InvalidTool, ServingError
from serving.model_config import ModelConfig, Roles
from serving.tokens.formats import FORMATS
from serving.tokens.grammar import structural_tag
from serving.tokens.tokenizer import ChatTokenizer
from serving.tokens.tools import ToolSpec
from serving.tokens.transcript import Transcript, common_prefix

Messages = list[dict[str, str]]

MESSAGE_APIS: dict[str, type[MessageConversation]] = {
    "chat": ChatConversation,
    "responses": ResponsesConversation,
}
"""The conversations of the APIs of messages, by the name of the API."""

BYTES_PER_TOKEN = 4.0
"""Bytes of a token in the limits of texts without a tokenizer. It is fixed, so that a sleep that is called
again meets the same limits; the provider's counts would change them."""


class Model:
    """One model config with an engine that serves it.

    Args:
        tokenizer: needed on the completions API.

    Attributes:
        tokenizer: `None` on the APIs of messages.
        note_tools: called with the labels and the tools of each conversation that is opened.
    """

    def __init__(
        self,
        model_config: ModelConfig,
        engine: Engine,
        tokenizer: ChatTokenizer | None,
        replicas: Sequence[Replica] = (),
    ) -> None:
        self.model_config = model_config
        self.engine = engine
        self.replicas = replicas or [Replica()]
        self.tokenizer = tokenizer
        self.note_tools: Callable[[dict[str, str], list[ToolSpec]], None] = lambda labels, tools: None
        self._warm: dict[tuple[int, ...], asyncio.Task[int]] = {}
        """Prefixes that were sent alone, or are being sent."""
        self._format = None
        if model_config.api == "completions":
            assert model_config.tool_format is not None
            self._format = FORMATS[model_config.tool_format]

    def converse(
        self, role: str, messages: Messages, tools: list[ToolSpec], labels: dict[str, str]
    ) -> Conversation:
        """Open a conversation. The caller closes it.

        It stays with one replica, where its prefix is cached: the one with the fewest open conversations.

        Args:
            role: `actor`, `inducer` or another; chooses sampling and budgets from the model config.
        """
        settings = self.model_config.role(role)
        labels = {"role": role, **labels}
        self.note_tools(labels, tools)
        if self._format is None or self.tokenizer is None:
            api = MESSAGE_APIS[self.model_config.api]
            return api(self.engine, messages, tools, settings, labels)
        transcript = self._transcript(role, messages, tools)
        replica = min(self.replicas, key=lambda replica: len(replica.slots))
        sent = (prefix for prefix, sending in self._warm.items() if sending.done())
        shared = [prefix for prefix in sent if tuple(transcript.ids[: len(prefix)]) == prefix]
        slot = replica.slot(max(shared, key=len, default=()))
        context = self.model_config.context
        return TokenConversation(self.engine, transcript, settings, context, labels, slot)

    async def warm(self, role: str, messages: Messages, tools: list[ToolSpec], labels: dict[str, str]) -> int:
        """Send the prefix that conversations with this system message and these tools share, once and alone.

        Otherwise, when many conversations start at once, each computes the prefix for itself. A hybrid model
        could never reuse it, since it keeps its state only at the ends of prompts.

        Args:
            messages: the messages of any such conversation; only the system message matters.

        Returns:
            The prefix's length in tokens; 0 if no replica could reuse it, so that it was not sent.

        Raises `ServingError`: the engine failed.
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
        """Forget the prefixes that were sent, so that they are sent again, with another cache salt."""
        for prefix in [prefix for prefix, sent in self._warm.items() if sent.done()]:
            del self._warm[prefix]

    async def close(self) -> None:
        """Cancel prefixes that are still being sent."""
        for sending in self._warm.values():
            sending.cancel()
        await asyncio.gather(*self._warm.values(), return_exceptions=True)

    async def _send_alone(self, prefix: list[int], labels: dict[str, str]) -> int:
        sent = 0
        for replica in self.replicas:
            if (
                replica.cache is None
                or not replica.cache.match_unit <= len(prefix) < self.model_config.context
            ):
                continue
            reply = await self.engine.complete(
                Prompt(prefix),
                max_tokens=1,
                labels={"role": "prefix_warm_up", **labels, "replica": str(replica.number)},
                replica=replica.address,
            )
            reply.record("ok", reply.usage)
            sent = len(prefix)
        return sent

    def shared_prefix(self, role: str, messages: Messages, tools: list[ToolSpec]) -> list[int]:
        """Return the token ids that start each first prompt with this system message and these tools.

        Empty on the APIs of messages.
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
        """Check that the engine can decode the actor's calls of `tool` (completions API): its own grammar
        library compiles their grammar.

        Takes about a second the first time, then milliseconds.

        Raises `InvalidTool`: it cannot.
        """
        if self._format is None or self.tokenizer is None:
            return
        call = self._format.call(tool, self.model_config.role("actor").string_tokens)
        try:
            self.tokenizer.grammar_compiler.compile_structural_tag(structural_tag(call))
        except Exception as error:  # the library raises several kinds
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise InvalidTool(f"{tool.name}: its calls cannot be decoded: {reason}") from error

    def with_roles(self, roles: Roles) -> Model:
        """Return the same model and engine, with other sampling and budgets."""
        other = copy.copy(self)
        other.model_config = msgspec.structs.replace(self.model_config, roles=roles)
        return other

    def count_tokens(self, text: str, bytes_per_token: float = BYTES_PER_TOKEN) -> int:
        """Return the number of tokens of an outside text. Without a tokenizer, estimate it by its bytes."""
        if self.tokenizer is None:
            return ceil(len(text.encode(errors="replace")) / bytes_per_token)
        return len(self.tokenizer.outside_text(text))

    def _transcript(self, role: str, messages: Messages, tools: list[ToolSpec]) -> Transcript:
        assert self.tokenizer is not None
        return Transcript(self.model_config, role, self.tokenizer, messages, tools)
