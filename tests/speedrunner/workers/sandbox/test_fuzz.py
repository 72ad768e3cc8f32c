"""The boundary between workers and sandboxed processes, fuzzed by a number of messages from real pipes."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs import Task
from serving.tokens.tools import ToolCall
from speedrunner.config.schema import SandboxConfig
from speedrunner.store.records import Module
from speedrunner.workers.sandbox.channel import Channel
from speedrunner.workers.sandbox.child.values import ERROR_CHARS
from speedrunner.workers.sandbox.child.wire import frame_body
from speedrunner.workers.sandbox.child_process import Child, ChildPool
from speedrunner.workers.sandbox.code_session import CodeResult, CodeSession
from speedrunner.workers.worker_episode import WorkerEpisode
from speedrunner.workers.worker_messages import LENGTH, Execute, Executed, Reset, pack
from tests.speedrunner.workers.sandbox.mutants import (
    FROM_SESSIONS,
    FROM_SKILLS,
    RUNNING_SKILLS,
    mutant,
)
from tests.toy_env import Corridor

pytestmark = [pytest.mark.process, pytest.mark.slow]

EPISODES, SESSIONS = 6_000, 5_000
"""Messages that each test reads at least."""

BATCH = 50
"""Messages of one example of Hypothesis."""

CHARS = 1_000
MODULE = Module("", ("attack",), ("helper",))
ATTACK = Execute(ToolCall("attack", {}), 60.0)


def fuzz(messages: int, batch: Callable[[Random], int]) -> None:
    """Play examples of about `BATCH` messages, with random numbers that Hypothesis seeds and prints.

    Args:
        batch: returns how many messages were read.
    """
    read = 0

    @settings(max_examples=4 * messages // BATCH, database=None)
    @given(st.randoms(use_true_random=True))
    def play(random: Random) -> None:
        nonlocal read
        if read < messages:
            read += batch(random)

    play()
    assert read >= messages


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


@contextmanager
def recorded(*rest: bytes, first: bytes = b"") -> Iterator[RecordedChild]:
    child = RecordedChild(first, b"".join(rest))
    try:
        yield child
    finally:
        child.kill()
        os.close(child.hearing)


class OneChild:
    """A pool of a single recorded child."""

    def __init__(self, child: RecordedChild) -> None:
        self._child = child

    def refill(self) -> None: ...

    def take(self) -> RecordedChild:
        return self._child


def reset(env: Corridor, module: Module = MODULE) -> Reset:
    """A request for an episode of ten actions."""
    return Reset(Task(env.name, "default", 50), module, 10)


@contextmanager
def episode(env: Corridor, *rest: bytes) -> Iterator[tuple[WorkerEpisode, RecordedChild]]:
    """Begin an episode in which the skills will say `rest`."""
    with recorded(*rest, first=framed(b'["loaded"]')) as child:
        yield WorkerEpisode(env, cast(ChildPool, OneChild(child)), reset(env)), child


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Grows with each message that is read."""
    found: list[None] = []
    receive = Channel.receive

    def counted(self: Channel, *arguments: Any) -> Any:
        found.append(None)
        return receive(self, *arguments)

    monkeypatch.setattr(Channel, "receive", counted)
    return found


def framed(body: bytes, piece: int = 1) -> bytes:
    """Return a message about the first piece of work, or about the second: a skill's call after the load."""
    return frame_body(body, piece)


def mostly_valid(corpus: Sequence[bytes], random: Random, piece: int = 1) -> bytes:
    """Return a frame that seldom ends what reads it."""
    body = random.choice(corpus) if random.random() < 0.95 else mutant(corpus, random)
    return framed(body, piece)


def test_an_episode_survives_whatever_its_skills_say(reads: list[None]) -> None:
    """Only primitives move the world, the record is a bounded tree of known names, and the reply is valid."""

    def batch(random: Random) -> int:
        before, env = len(reads), Corridor()
        said = [mostly_valid(RUNNING_SKILLS, random, 2) for _ in range(BATCH)]
        with episode(env, *said, framed(mutant(FROM_SKILLS, random), 2)) as (one, _):
            reply = msgspec.json.decode(pack(one.execute(ATTACK))[LENGTH.size :], type=Executed)
        below = [*reply.node.below()]
        walked = sum(each.name == "walk" and each.error is None for each in below)
        assert walked == reply.actions == reply.node.actions <= 10
        assert {each.name for each in below} <= {"walk", "look", "attack", "helper"}
        assert reply.outcome == env.outcome()
        return len(reads) - before - 1  # the first one is that the module was loaded

    fuzz(EPISODES, batch)


def test_whatever_a_session_says_its_answer_is_bounded(reads: list[None]) -> None:
    session = CodeSession(SandboxConfig(), output_chars=CHARS)

    def batch(random: Random) -> int:
        before = len(reads)
        for _ in range(BATCH // 5):
            said = [mostly_valid(FROM_SESSIONS[:1], random) for _ in range(random.randrange(30))]
            with recorded(*said, mostly_valid(FROM_SESSIONS, random)) as child:
                answer = session._run(cast(Child, child), "code", 60.0)
            if not isinstance(answer, CodeResult):
                answer = CodeResult(*answer)
            assert len(answer.text) < CHARS + 200
            assert len(answer.error or "") <= ERROR_CHARS
            assert "\n" not in (answer.error or "")
        return len(reads) - before

    fuzz(SESSIONS, batch)
