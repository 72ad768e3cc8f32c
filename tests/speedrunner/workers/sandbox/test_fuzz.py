"""The boundary between workers and sandboxed processes, fuzzed by a number of messages from real pipes."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import cast

import msgspec
import pytest

from envs import Task
from serving.tokens.tools import ToolCall
from speedrunner.store.records import Module
from speedrunner.workers.sandbox.channel import Channel
from speedrunner.workers.sandbox.child.wire import frame_body
from speedrunner.workers.sandbox.child_process import ChildPool
from speedrunner.workers.worker_episode import WorkerEpisode
from speedrunner.workers.worker_messages import LENGTH, Execute, Executed, Reset, pack
from tests.toy_env import Corridor

pytestmark = [pytest.mark.process, pytest.mark.slow]

EPISODES, BATCH = 400, 50
"""Random seeds, and the messages of one."""

MODULE = Module("", ("attack",), ("helper",))
ATTACK = Execute(ToolCall("attack", {}), 60.0)


RUNNING_SKILLS = (
    b'["call","walk",[],{}]',
    b'["call","walk",[1],{"direction":"left"}]',
    b'["call","look",[],{}]',
    b'["call","walk",["far",null,1.5,{"a":[true]}],{"steps":"x"}]',
    b'["call","look",[],{},12]',
    b'["enter","helper",{"x":[1,2,{"y":null}]}]',
    b'["enter","helper",{},1]',
    b'["leave",1,0,"done",null]',
    b'["leave",3,2,null,"ValueError: no"]',
)
"""Messages of a skill's process in the middle of a call."""

FROM_SKILLS = (
    *RUNNING_SKILLS,
    b'["call","win",[],{}]',
    b'["end",0,{"a":1},null]',
    b'["end",3,null,"E: no\\nTraceback"]',
    b'["loaded"]',
    b'["confined",null]',
)
"""Its messages at any time."""

FRAGMENTS = (
    *(b"", b" ", b"[", b"]", b"{", b"}", b",", b":", b'"', b"\\", b"null", b"true", b"0", b"-1", b"7"),
    *(b"1e999", b"NaN", b"Infinity", b"-0.0", b"9" * 40, b"9" * 5_000, b"18446744073709551616"),
    *(b"1.7976931348623159e308", b'"\\ud800"', b'"\\u0000"', b"\xff", b"\xc3", b"\xed\xa0\x80"),
    *(b"\xef\xbb\xbf", b"\x00", b"\\u", b"\\uD83D", b"[" * 200, b"[" * 200 + b"]" * 200, b'{"a":' * 200),
    *(b'"' + b"x" * 2_000 + b'"', b"[]," * 3_000),
    *(b'"call"', b'"enter"', b'"leave"', b'"end"', b'"walk"', b'"helper"', b'{"x":1}'),
    *(b'"__init__"', b'"' + b"k" * 1_500 + b'":1', b'{"x":1,"x":2}', b"[7,7]", b'"\xe2\x9c\x93"'),
)  # fmt: skip
"""Bytes to put into a message."""


def mutant(corpus: Sequence[bytes], random: Random) -> bytes:
    """Return a message of the corpus after none to a few changes."""
    body = random.choice(corpus)
    for _ in range(random.choice((0, 1, 1, 1, 2, 3, 8))):
        start = random.randint(0, len(body))
        end = min(len(body), start + random.choice((0, 1, 1, 2, 5, 20)))
        match random.randrange(5):
            case 0:
                body = body[:start] + random.choice(FRAGMENTS) + body[end:]
            case 1:
                body = body[:start] + body[end:]
            case 2:
                body = body[:start] + body[start:end] * random.choice((2, 3, 50)) + body[end:]
            case 3:
                body = body[:start] + random.randbytes(end - start) + body[end:]
            case _:
                other = random.choice(corpus)
                body = body[:start] + other[random.randint(0, len(other)) :]
    return body


class RecordedChild:
    """A process as bytes: resumed, it sends them and ends. It keeps the bytes that it gets."""

    def __init__(self, first: bytes, rest: bytes) -> None:
        reading, self._saying = os.pipe()
        self.hearing, writing = os.pipe()
        self._fds = [reading, writing, self._saying]
        for fd in (reading, writing):
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, 2**20)
        os.set_blocking(self._saying, False)
        os.write(self._saying, first)
        self._rest = rest
        self.channel = Channel(reading, writing)

    def resume(self) -> None:
        os.write(self._saying, self._rest)
        os.close(self._fds.pop())

    def pause(self) -> None: ...

    def death(self) -> str:
        return "exit status 0"

    def kill(self) -> None:
        while self._fds:
            os.close(self._fds.pop())


class OneChild:
    """A pool of a single recorded child."""

    def __init__(self, child: RecordedChild) -> None:
        self._child = child

    def refill(self) -> None: ...

    def take(self) -> RecordedChild:
        return self._child


@contextmanager
def episode(env: Corridor, *messages: bytes) -> Iterator[WorkerEpisode]:
    """Begin an episode of ten actions in which the skills will send the messages."""
    child = RecordedChild(framed(b'["loaded"]'), b"".join(messages))
    try:
        request = Reset(Task(env.name, "default", 50), MODULE, 10)
        yield WorkerEpisode(env, cast(ChildPool, OneChild(child)), request)
    finally:
        child.kill()
        os.close(child.hearing)


def framed(body: bytes, piece: int = 1) -> bytes:
    """Return a message about the first piece of work, or about the second: a skill's call after the load."""
    return frame_body(body, piece)


def mostly_valid(corpus: Sequence[bytes], random: Random, piece: int = 1) -> bytes:
    """Return a frame that seldom ends what reads it."""
    body = random.choice(corpus) if random.random() < 0.95 else mutant(corpus, random)
    return framed(body, piece)


@pytest.mark.parametrize("seed", range(EPISODES))
def test_an_episode_survives_whatever_its_skills_say(seed: int) -> None:
    """Only primitives move the world, the record is a bounded tree of known names, and the reply is valid."""
    random, env = Random(seed), Corridor()
    messages = [mostly_valid(RUNNING_SKILLS, random, 2) for _ in range(BATCH)]
    with episode(env, *messages, framed(mutant(FROM_SKILLS, random), 2)) as one:
        reply = msgspec.json.decode(pack(one.execute(ATTACK))[LENGTH.size :], type=Executed)
    below = [*reply.node.below()]
    walked = sum(node.name == "walk" and node.error is None for node in below)
    assert walked == reply.actions == reply.node.actions <= 10
    assert {node.name for node in below} <= {"walk", "look", "attack", "helper"}
    assert reply.outcome == env.outcome()
