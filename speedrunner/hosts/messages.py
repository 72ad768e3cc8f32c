"""What the main process and a host say to each other: a request, its reply, as length-prefixed JSON."""

from __future__ import annotations

import struct
from typing import Any

import msgspec

from envs import Opening, Outcome, Task
from speedrunner.records import CallNode, Ending, ToolCall
from speedrunner.sandbox.limits import Sandbox


class Start(msgspec.Struct, tag=True, frozen=True):
    """Make the environment; the first request, once."""

    env: str
    options: dict[str, Any]
    sandbox: Sandbox


class Reset(msgspec.Struct, tag=True, frozen=True):
    """Begin an episode.

    Attributes:
        task: the world.
        module: the library as one Python module.
        public: skills that `Execute` may name.
        private: skills that only other skills may call.
        action_limit: primitive calls that advance the world; `None` for no limit.
    """

    task: Task
    module: str
    public: tuple[str, ...]
    private: tuple[str, ...]
    action_limit: int | None


class Execute(msgspec.Struct, tag=True, frozen=True):
    """Run one primitive or public skill, for `time_limit_s` seconds at most."""

    call: ToolCall
    time_limit_s: float


class Finish(msgspec.Struct, tag=True, frozen=True):
    """The episode is over: end what its skills left behind. There is no reply."""


class Ready(msgspec.Struct, tag=True, frozen=True):
    """The environment is made."""


class Opened(msgspec.Struct, tag=True, frozen=True):
    """The episode has begun."""

    opening: Opening
    outcome: Outcome


class Executed(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """A tool call has been run, or refused as `node.error` says.

    Attributes:
        node: the call and all calls that it made.
        observation: what the last primitive in it returned.
        surroundings: the environment's text for each reply that the actor sees.
        outcome: how the episode stands now.
        actions: primitive calls of the whole episode that advanced the world.
        ending: set when the environment has ended the episode, or its actions are used up.
        timed_out: whether the call was stopped at its time limit.
    """

    node: CallNode
    observation: str | None
    surroundings: str | None
    outcome: Outcome
    actions: int
    ending: Ending | None
    timed_out: bool = False


class Fault(msgspec.Struct, tag=True, frozen=True):
    """The environment broke, or could not be made or reset: no mistake of the agent's."""

    message: str
    traceback: str


Request = Start | Reset | Execute | Finish
Reply = Ready | Opened | Executed | Fault

REQUESTS: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)
REPLIES: msgspec.json.Decoder[Reply] = msgspec.json.Decoder(Reply)

HEADER = struct.Struct(">I")
"""Each message is preceded by the number of its bytes."""

FRAME_LIMIT = 256 * 2**20
"""Bytes that one message may have."""


def pack(message: Request | Reply) -> bytes:
    """Return the message as it goes over the wire."""
    body = msgspec.json.encode(message)
    return HEADER.pack(len(body)) + body
