"""Probes of the battery as an engine answers them: valid, invalid or cut."""

from __future__ import annotations

import copy
from typing import Any, Literal

import msgspec

from serving.cards import Role, Roles
from serving.conversation import TokenConversation
from serving.errors import ContextOverflow, RequestRefused, TruncatedCall
from serving.model import Model
from serving.probes.tool_battery import ToolProbe
from serving.tokens.tools import ToolSpec
from serving.usage import Usage

LABELS = {"role": "probe"}

Validity = Literal["valid", "invalid", "truncated"]


class ProbeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one probe.

    Attributes:
        validity: `truncated` when the answer was cut at `max_tokens` or by the context.
        problem: why it is not valid.
        prompt: token ids that were sent (tokens route).
        token_ids: what was generated (tokens route).
    """

    probe: ToolProbe
    validity: Validity = "valid"
    problem: str | None = None
    usage: Usage = Usage()
    prompt: list[int] = []
    token_ids: list[int] = []


class OpenProbe:
    """A probe whose conversation is open: its prompt is rendered and not yet sent.

    Args:
        role: sampling and budgets.
        labels: stand in its ledger row.
    """

    def __init__(self, model: Model, role: Role, probe: ToolProbe, labels: dict[str, str]) -> None:
        # Hosted models have rules of their own for what may be strict.
        built_in = model.card.route == "chat" and not model.card.hosted
        tools = [_strict(tool) for tool in probe.tools] if built_in else list(probe.tools)
        self._probe = probe
        self._talk = as_role(model, role).converse("actor", probe.messages, tools, labels)

    async def answer(self) -> ProbeAnswer:
        """Send it, and close the conversation.

        Raises:
            ServingError: the engine failed. On the chat route also where it refuses the probe.
        """
        probe, talk = self._probe, self._talk
        prompt = list(talk.transcript.ids) if isinstance(talk, TokenConversation) else []
        try:
            answer = await talk.ask()
        except ContextOverflow as error:
            return ProbeAnswer(probe=probe, validity="truncated", problem=str(error), prompt=prompt)
        except RequestRefused as error:
            if not prompt:
                raise
            return ProbeAnswer(probe=probe, validity="invalid", problem=str(error), prompt=prompt)
        finally:
            talk.close()
        found = ProbeAnswer(probe=probe, usage=answer.usage, prompt=prompt, token_ids=answer.token_ids)
        if answer.problem is None:
            return found
        validity: Validity = "truncated" if isinstance(answer.problem, TruncatedCall) else "invalid"
        return msgspec.structs.replace(found, validity=validity, problem=str(answer.problem))


def as_role(model: Model, role: Role) -> Model:
    """The same model and engine, with other sampling and budgets."""
    other = copy.copy(model)
    other.card = msgspec.structs.replace(model.card, roles=Roles(actor=role, inducer=role))
    return other


class _StrictTool(ToolSpec, frozen=True):
    """A tool that asks vLLM's built-in tool calls to follow its schema, which they else do not."""

    @property
    def openai(self) -> dict[str, Any]:
        function = super().openai["function"]
        return {"type": "function", "function": {**function, "strict": True}}


def _strict(tool: ToolSpec) -> ToolSpec:
    return _StrictTool(tool.name, tool.doc, tool.parameters)
