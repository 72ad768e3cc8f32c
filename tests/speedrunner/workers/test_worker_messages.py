"""What passes between the main process and a worker: whole messages."""

from __future__ import annotations

import asyncio
import io

from envs import Outcome
from serving.tokens.tools import ToolCall
from speedrunner.store.records import CallNode
from speedrunner.workers.worker_messages import (
    Execute,
    Executed,
    Fault,
    pack,
    read_reply,
    read_request,
)


def test_requests_are_read_one_by_one_until_the_owner_is_gone() -> None:
    calls = [Execute(ToolCall("walk", {"steps": number}), 1.5) for number in range(2)]
    whole = b"".join(map(pack, calls))
    stream = io.BytesIO(whole + pack(calls[0])[:-1])
    assert [read_request(stream) for _ in range(3)] == [*calls, None]
    assert read_request(stream) is None


async def test_what_the_environment_makes_unwritable_is_a_fault() -> None:
    reader = asyncio.StreamReader()
    for detail in ({"map": "a wall"}, {"map": object()}):
        reader.feed_data(
            pack(
                Executed(
                    node=CallNode("look", "primitive", {}, result="a wall"),
                    observation="a wall",
                    free_observation=None,
                    outcome=Outcome(0.5, False, detail),
                    actions=3,
                    termination=None,
                )
            )
        )
    assert isinstance(await read_reply(reader), Executed)
    reply = await read_reply(reader)
    assert isinstance(reply, Fault)
    assert "cannot be written" in reply.message
