"""One probe of the battery, sent."""

from __future__ import annotations

import msgspec

from serving.cards import ModelCard
from serving.probes.tool_battery import battery
from serving.probes.tool_calls import LABELS, OpenProbe
from serving.tokens.tokenizer import ChatTokenizer
from tests.probe_engines import sample_call
from tests.scripted_runs import scripted_model


async def test_thinking_has_the_budget_of_the_role(
    tiny_card: ModelCard, tiny_tokenizer: ChatTokenizer
) -> None:
    thinking = msgspec.structs.replace(tiny_card.roles.actor, thinking_tokens=21)
    async with scripted_model(sample_call, tiny_card, tiny_tokenizer) as scripted:
        await OpenProbe(scripted.model, thinking, battery()[0], LABELS).answer()
        tag = scripted.server.requests[0].body["structured_outputs"]["structural_tag"]
        assert '"max_tokens": 21' in tag
        assert scripted.model.card is tiny_card
