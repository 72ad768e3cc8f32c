"""The bare load generator: what it sends, and when."""

from __future__ import annotations

from collections import defaultdict

import pytest

from serving.cards import ModelCard
from serving.deployment import Deployment, ServiceOptions
from serving.errors import RequestFailed
from serving.tokens.tokenizer import ChatTokenizer
from speedrunner.measure.replay import BareClient, TokenStream
from tests.scripted_engine import ScriptedEngine, refuse, say


async def test_each_request_waits_for_the_answer_before_it(
    tiny_card: ModelCard, tiny_tokenizer: ChatTokenizer
) -> None:
    episodes = [
        TokenStream(
            prompt=[number] * 40,
            answers=[],
            replies=[[7, number], [7, number], []],
            most_tokens=30,
            options={"temperature": 1.0},
            replica=None,
        )
        for number in (3, 4, 5)
    ]
    with ScriptedEngine(tiny_tokenizer, lambda request: say("")) as engine:
        deployment = Deployment(tiny_card, ServiceOptions(), engine.endpoint)
        async with engine.endpoint.client(30.0) as http:
            client = BareClient(deployment, http, "salt")
            await client.warm(episodes, [1, 2, 3])
            assert await client.play(episodes) == 9  # each answer is the end of its turn alone
        sent: dict[int, list[tuple[int, ...]]] = defaultdict(list)
        for request in engine.requests:
            sent[request.prompt[0]].append(request.prompt)
    end = tiny_tokenizer.control_id("<|im_end|>")
    for number in (3, 4, 5):
        first = (number,) * 40
        assert sent[number] == [first, (*first, end, 7, number), (*first, *(end, 7, number) * 2)]


async def test_a_refused_request_is_told(tiny_card: ModelCard, tiny_tokenizer: ChatTokenizer) -> None:
    with ScriptedEngine(tiny_tokenizer, lambda request: refuse(400, "no such tag")) as engine:
        deployment = Deployment(tiny_card, ServiceOptions(), engine.endpoint)
        episode = TokenStream([1, 2], [], [[]], 5, {}, None)
        async with engine.endpoint.client(30.0) as http:
            with pytest.raises(RequestFailed, match=r"answered with 400: .*no such tag"):
                await BareClient(deployment, http, "salt").play([episode])
