"""What the main process and a worker say to each other: a request, its reply, as length-prefixed JSON."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from envs import Opening, Outcome, Task
from serving.tokens.tools import ToolCall
from speedrunner.sandbox.child.wire import HEADER, framed
from speedrunner.sandbox.settings import Sandbox
from speedrunner.store.records import CallNode, Module, Termination

if TYPE_CHECKING:
    import asyncio  # which workers do without

PID = struct.Struct("i")
"""What a template says: the numbers of the processes that it has forked, in turn; 0 when it is ready for the
first, and a negative system error instead of one that could not be forked."""

SILENT = "silent"
"""The argument of a template that says nothing of what loading raises, as a check will find it."""


class Start(msgspec.Struct, tag=True, frozen=True):
    """Make the environment; the first request, once."""

    env: str
    options: dict[str, Any]
    sandbox: Sandbox


class Reset(msgspec.Struct, tag=True, frozen=True):
    """Begin an episode.

    Attributes:
        task: the world.
        module: the skills that may be called.
        action_limit: primitive calls that advance the world; `None` for no limit.
        seed: of the skills' random numbers. Skills can read it, so it must not reveal the task.
    """

    task: Task
    module: Module
    action_limit: int | None
    seed: str = ""


class Load(msgspec.Struct, tag=True, frozen=True):
    """Let the episode go on with other skills."""

    module: Module


class Execute(msgspec.Struct, tag=True, frozen=True):
    """Run one primitive or public skill, for `time_limit_s` seconds at most."""

    call: ToolCall
    time_limit_s: float


class Finish(msgspec.Struct, tag=True, frozen=True):
    """The episode is over: end what its skills left behind. There is no reply."""


class Check(msgspec.Struct, tag=True, frozen=True):
    """Check an environment; the first and only request. `Checking`, `Broken`, `Played` follow, then `Ready`.

    Attributes:
        env: name of the environment, as for `envs.make`.
        options: the environment's.
        task: the one to play; `None` for two of the split's.
        calls: primitive calls of each play.
        number: of the process: the first one checks all promises before it plays the tasks, and every second
            one plays them in the other order.
    """

    env: str
    options: dict[str, Any]
    task: Task | None
    calls: int
    number: int = 0


class Ready(msgspec.Struct, tag=True, frozen=True):
    """What was asked for is done."""


class Opened(msgspec.Struct, tag=True, frozen=True):
    """The episode has begun."""

    opening: Opening
    outcome: Outcome


class Executed(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """A tool call has been run, or refused as `node.error` says.

    Attributes:
        node: the call and all calls that it made.
        observation: what the last primitive in it returned.
        free observation: the environment's text for each reply that the actor sees.
        outcome: how the episode stands now.
        actions: primitive calls of the whole episode that advanced the world.
        ending: set when the environment has ended the episode, or its actions are used up.
    """

    node: CallNode
    observation: str | None
    free_observation: str | None
    outcome: Outcome
    actions: int
    termination: Termination | None


class Fault(msgspec.Struct, tag=True, frozen=True):
    """The environment broke, or could not be made or reset: no mistake of the agent's."""

    message: str
    traceback: str


class Checking(msgspec.Struct, tag=True, frozen=True):
    """What a check does from now on: a call of the environment, or what goes before the first one."""

    what: str
    is_call: bool = True


class Broken(msgspec.Struct, tag=True, frozen=True):
    """A promise that the environment does not keep."""

    text: str


class Played(msgspec.Struct, tag=True, frozen=True):
    """The trace of one task that a check has played."""

    task: Task
    trace: list[dict[str, str]]


Request = Start | Reset | Load | Execute | Finish | Check
Reply = Ready | Opened | Executed | Fault | Checking | Broken | Played

_REQUESTS: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)
_REPLIES: msgspec.json.Decoder[Reply] = msgspec.json.Decoder(Reply)

REPLY_LIMIT = 256 * 2**20
"""Bytes that one reply may have. The bounds on what is recorded keep it far below."""


class InvalidReply(Exception):
    """A worker said something that is no reply."""


def pack(message: Request) -> bytes:
    """Return a request as it goes over the wire."""
    return framed(msgspec.json.encode(message))


def encoded(reply: Reply) -> bytes:
    """Return a reply's body, which its reader takes whatever the environment says.

    A record that is too large loses the calls below the tool call, and says how many. What cannot be written
    at all, an environment's text or outcome, becomes a `Fault`.
    """
    encode = msgspec.json.encode
    try:
        body = encode(reply)
        if len(body) > REPLY_LIMIT and isinstance(reply, Executed):
            body = encode(msgspec.structs.replace(reply, node=_pruned(reply.node)))
    except Exception as error:
        return encode(Fault(f"the reply cannot be written as JSON: {type(error).__name__}: {error}", ""))
    if len(body) > REPLY_LIMIT:
        return encode(Fault(f"the reply takes {len(body):,} bytes; {REPLY_LIMIT:,} are allowed", ""))
    return body


def read_request(stream: BinaryIO) -> Request | None:
    """Wait for the next request; `None` when the owner has closed the socket or is gone."""
    header = stream.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    (size,) = HEADER.unpack(header)
    body = stream.read(size)
    return _REQUESTS.decode(body) if len(body) == size else None


async def read_reply(reader: asyncio.StreamReader) -> Reply:
    """Wait for the next reply.

    Raises:
        InvalidReply: it is none.
        OSError, EOFError: the worker is gone.
    """
    (size,) = HEADER.unpack(await reader.readexactly(HEADER.size))
    if size > REPLY_LIMIT:
        raise InvalidReply(f"a reply of {size} bytes was announced")
    return decoded(await reader.readexactly(size))


def decoded(body: bytes) -> Reply:
    """Return the reply that a message's body is. Raises `InvalidReply`."""
    try:
        return _REPLIES.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidReply(str(error)) from error


def _pruned(node: CallNode) -> CallNode:
    """The call alone; those below it are counted."""
    below, open_nodes = 0, [node]
    while open_nodes:
        calls = open_nodes.pop().calls
        below += len(calls)
        open_nodes += calls
    return msgspec.structs.replace(node, calls=[], omitted=node.omitted + below)
