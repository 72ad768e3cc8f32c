"""What passes between the main process and a worker: whole messages."""

from __future__ import annotations

import asyncio
import io
from typing import Any

from envs import Outcome
from serving.tokens.tools import ToolCall
from speedrunner.store.records import CallNode
from speedrunner.workers.worker_messages import (
    Execute,
    Executed,
    Fault,
    Reply,
    pack,
    read_reply,
    read_request,
)


async def received(data: bytes) -> Reply:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    return await read_reply(reader)


def executed(node: CallNode, detail: dict[str, Any] | None = None) -> Executed:
    outcome = Outcome(0.5, False, detail or {})
    return Executed(
        node=node, observation="a wall", free_observation=None, outcome=outcome, actions=3, termination=None
    )


def test_requests_are_read_one_by_one_until_the_owner_is_gone() -> None:
    calls = [Execute(ToolCall("walk", {"steps": number}), 1.5) for number in range(2)]
    whole = b"".join(map(pack, calls))
    stream = io.BytesIO(whole + pack(calls[0])[:-1])
    assert [read_request(stream) for _ in range(3)] == [*calls, None]
    assert read_request(stream) is None


async def test_a_reply_is_read_as_it_was_packed() -> None:
    reply = executed(CallNode("look", "primitive", {}, result="a wall"))
    assert await received(pack(reply)) == reply


async def test_what_the_environment_makes_unwritable_is_a_fault() -> None:
    reply = await received(pack(executed(CallNode("look", "primitive", {}), {"map": object()})))
    assert isinstance(reply, Fault)
    assert "cannot be written" in reply.message
