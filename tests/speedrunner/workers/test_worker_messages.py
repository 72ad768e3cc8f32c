"""What passes between the main process and a worker: whole messages."""

from __future__ import annotations

import asyncio

from envs import Outcome
from speedrunner.store.records import CallNode
from speedrunner.workers.worker_messages import Executed, Fault, pack, read_reply


async def test_what_the_environment_makes_unwritable_is_a_fault() -> None:
    node, outcome = CallNode("look", "primitive", {}), Outcome(0.5, False, {"map": object()})
    reader = asyncio.StreamReader()
    sent = Executed(
        node=node, observation=None, free_observation=None, outcome=outcome, actions=0, termination=None
    )
    reader.feed_data(pack(sent))
    reader.feed_eof()
    reply = await read_reply(reader)
    assert isinstance(reply, Fault)
    assert "cannot be written" in reply.message
