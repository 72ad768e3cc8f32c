"""The messages between the main process and a worker: a request, then its reply, as length-prefixed JSON."""

from __future__ import annotations

import struct
from typing import Any, BinaryIO

import msgspec

from envs import Opening, Outcome, Task
from serving.tokens.tools import ToolCall
from speedrunner.config.schema import SandboxConfig
from speedrunner.store.records import CallNode, Module, Termination

PID = struct.Struct("i")
"""A fork server's messages: first 0, when it is ready; then the id of each forked process, in order, or a
negative errno if the fork failed."""


class Start(msgspec.Struct, tag=True, frozen=True):
    """Create the environment. This is the first request, and sent once."""

    env: str
    options: dict[str, Any]
    sandbox: SandboxConfig


class Reset(msgspec.Struct, tag=True, frozen=True):
    """Start an episode; see `EnvWorker.reset`. Skills can read the `seed`, so it must not reveal the task."""

    task: Task
    module: Module
    action_limit: int | None
    seed: str = ""


class Load(msgspec.Struct, tag=True, frozen=True):
    """Continue the episode with other skills."""

    module: Module


class Execute(msgspec.Struct, tag=True, frozen=True):
    """Run one primitive or public skill; see `EnvWorker.execute`."""

    call: ToolCall
    time_limit_s: float
    action_limit: int | None = None


class Finish(msgspec.Struct, tag=True, frozen=True):
    """End what the episode's skills left behind: the episode is over. There is no reply."""


class Ready(msgspec.Struct, tag=True, frozen=True):
    """The request is done."""


class Opened(msgspec.Struct, tag=True, frozen=True):
    """The episode has started."""

    opening: Opening
    outcome: Outcome


class Executed(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """A tool call was run, or refused as `node.error` says.

    Attributes:
        node: the call and all calls that it made.
        observation: the last text that a primitive in it returned.
        free_observation: the environment's text for each reply that the actor reads.
        outcome: the episode's current outcome.
        actions: primitive calls of the whole episode that advanced the world.
        termination: set when the environment has ended the episode, or its actions are used up.
    """

    node: CallNode
    observation: str | None
    free_observation: str | None
    outcome: Outcome
    actions: int
    termination: Termination | None


class Fault(msgspec.Struct, tag=True, frozen=True):
    """The environment broke, or could not be created or reset. This is never the agent's mistake."""

    message: str
    traceback: str


LENGTH = struct.Struct(">I")
"""The length of a message in bytes, which precedes it."""

Request = Start | Reset | Load | Execute | Finish
Reply = Ready | Opened | Executed | Fault

_REQUESTS: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)
REPLIES: msgspec.json.Decoder[Reply] = msgspec.json.Decoder(Reply)


def pack(message: Request | Reply) -> bytes:
    """Return a message in its wire format. A reply that cannot be written, because of an environment's
    outcome, becomes a `Fault`; a request that cannot be written raises."""
    try:
        body = msgspec.json.encode(message)
    except Exception as error:
        if isinstance(message, Request):
            raise
        why = f"the reply cannot be written as JSON: {type(error).__name__}: {error}"
        body = msgspec.json.encode(Fault(why, ""))
    return LENGTH.pack(len(body)) + body


def read_request(stream: BinaryIO) -> Request | None:
    """Wait for the next request; `None` if the owner has closed the socket or is gone."""
    header = stream.read(LENGTH.size)
    if len(header) < LENGTH.size:
        return None
    return _REQUESTS.decode(stream.read(*LENGTH.unpack(header)))
