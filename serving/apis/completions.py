"""The completions API (`/v1/completions`): prompts of token ids, and tool calls constrained by our
grammar."""

from __future__ import annotations

import msgspec

from serving.admission import Slot
from serving.conversation import (
    NEUTRAL,
    Completion,
    Conversation,
    sampling,
    status_of,
)
from serving.engine.client import Engine, Prompt
from serving.errors import ContextOverflow, TruncatedCall
from serving.model_config import Role
from serving.tokens.grammar import structural_tag
from serving.tokens.transcript import Transcript


class TokenConversation(Conversation):
    """A conversation as token ids.

    Attributes:
        transcript: all its ids so far.
        tag: the structural tag that each request carries.
        options: the other fields of each request, without the prompt and its length.
        replica: the engine's replica that holds it.
    """

    def __init__(
        self,
        engine: Engine,
        transcript: Transcript,
        role: Role,
        context: int,
        labels: dict[str, str],
        slot: Slot,
    ) -> None:
        self.transcript = transcript
        self.tag = structural_tag(transcript.grammar)
        self._engine = engine
        self._context = context
        self._labels = {**labels, "replica": str(slot.replica.number)}
        self.replica = slot.replica
        self._prompt = Prompt(transcript.ids)
        self._slot = slot
        self._cacheable = self._kept_tokens(slot.shared, 1)
        self.options = {
            **NEUTRAL,
            **sampling(role),
            "structured_outputs": msgspec.Raw(msgspec.json.encode({"structural_tag": self.tag})),
            # The grammar allows any of the model's end tokens, but only one of them ends a turn.
            "logit_bias": {str(id_): -100 for id_ in transcript.other_ends},
        }

    async def ready(self) -> float:
        """See `Conversation`."""
        return await self._slot.enter(len(self.transcript.ids))

    def rest(self) -> None:
        """See `Conversation`."""
        self._slot.rest()

    async def request_answer(self) -> Completion:
        """See `Conversation`."""
        try:
            return await self._request_answer()
        finally:
            self._slot.pause()

    async def _request_answer(self) -> Completion:
        room = self._context - len(self._prompt)
        if room < 1:
            raise ContextOverflow(
                f"the conversation has {len(self._prompt)} tokens; the model's context is {self._context}"
            )
        reply = await self._engine.complete(
            self._prompt,
            max_tokens=min(room, self.transcript.answer_tokens),
            labels=self._labels,
            replica=self.replica.address,
            cacheable=self._cacheable,
            **self.seed,
            **self.options,
        )
        ids = reply.answer.choices[0].token_ids or []
        self._cacheable = self._kept_tokens(reply.usage.prompt, len(ids))
        answer = self.transcript.answer(ids)
        usage = msgspec.structs.replace(reply.usage, reasoning=answer.reasoning_tokens)
        problem = answer.problem
        overflows = isinstance(problem, TruncatedCall) and len(ids) >= room
        if overflows:
            message = f"the answer did not fit the {room} tokens left of the context of {self._context}"
            problem = TruncatedCall(message, answer.text)
        status = "overflow" if overflows else status_of(problem)
        reply.record(status, usage, thought_cut=answer.thought_cut)
        return Completion(
            text=answer.text,
            reasoning=answer.reasoning,
            call=answer.call,
            problem=problem,
            usage=usage,
            seconds=reply.seconds,
            request=reply.request,
            token_ids=ids,
            overflows=overflows,
        )

    def _kept_tokens(self, prompt: int, answer: int) -> int | None:
        """Return what the replica's cache keeps of a request for the next one; `None` if it is not known."""
        return None if self.replica.cache is None else self.replica.cache.kept_tokens(prompt, answer)

    def recall(self, answer: Completion) -> None:
        """See `Conversation`."""
        self.transcript.answer(answer.token_ids)

    def tell(self, text: str) -> None:
        """See `Conversation`."""
        self.transcript.tell(text)

    def close(self) -> None:
        """See `Conversation`."""
        self._slot.leave()
