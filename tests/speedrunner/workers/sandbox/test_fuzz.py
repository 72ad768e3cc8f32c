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
from speedrunner.store.records import Module
from speedrunner.workers.sandbox import code_session, skill_process
from speedrunner.workers.sandbox.channel import Channel, ChannelError
from speedrunner.workers.sandbox.child.bounds import ERROR_CHARS, VALUE_LIMIT, excess
from speedrunner.workers.sandbox.child.values import to_json
from speedrunner.workers.sandbox.child.wire import encode, frame_body
from speedrunner.workers.sandbox.child_process import Child, ChildPool
from speedrunner.workers.sandbox.code_session import CodeResult, CodeSession
from speedrunner.workers.sandbox.settings import Sandbox
from speedrunner.workers.worker_episode import WorkerEpisode
from speedrunner.workers.worker_messages import (
    Execute,
    Executed,
    Reset,
    decode_reply,
    encode_reply,
)
from tests.speedrunner.workers.sandbox.mutants import (
    FROM_SESSIONS,
    FROM_SKILLS,
    NUMBER,
    RUNNING_SKILLS,
    mutant,
)
from tests.toy_env import Corridor

pytestmark = [pytest.mark.process, pytest.mark.slow]

DECODED, EPISODES, SESSIONS, VALUES = 30_000, 20_000, 15_000, 300
"""Messages that each test reads at least; `DECODED` counts for two tests."""

BATCH = 50
"""Messages of one example of Hypothesis."""

CHARS = 1_000
MODULE = Module("", ("attack",), ("helper",))
ATTACK = Execute(ToolCall("attack", {}), 60.0)
NEVER = float("inf")


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
    with recorded(*rest, first=frame_body(b'["loaded",%d]' % NUMBER)) as child:
        yield WorkerEpisode(env, cast(ChildPool, OneChild(child)), reset(env)), child


@pytest.fixture(autouse=True)
def known_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each piece of work the number that the corpus has."""
    for module in (skill_process, code_session):
        monkeypatch.setattr(module, "new_number", lambda: NUMBER)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Grows with each message that is read."""
    found: list[None] = []
    receive = Channel.receive_about

    def counted(self: Channel, *arguments: Any) -> Any:
        found.append(None)
        return receive(self, *arguments)

    monkeypatch.setattr(Channel, "receive_about", counted)
    return found


def is_plain(value: Any) -> bool:
    """Whether JSON can say a value."""
    if isinstance(value, list):
        return all(map(is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and is_plain(each) for key, each in value.items())
    return value is None or isinstance(value, bool | int | float | str)


def mostly_valid(corpus: Sequence[bytes], random: Random) -> bytes:
    """Return a frame that seldom ends what reads it."""
    body = random.choice(corpus) if random.random() < 0.95 else mutant(corpus, random)
    return frame_body(body)


@pytest.mark.parametrize(
    ("corpus", "decoder"),
    [(FROM_SKILLS, skill_process._SAID), (FROM_SESSIONS, code_session._SAID)],
    ids=["skills", "sessions"],
)
def test_bytes_of_a_child_are_a_message_or_one_kind_of_error(
    corpus: Sequence[bytes], decoder: msgspec.json.Decoder[Any]
) -> None:
    def batch(random: Random) -> int:
        for _ in range(BATCH):
            frame = frame_body(mutant(corpus, random))
            if not random.randrange(20):  # a length that is not the body's
                frame = random.randbytes(4) + frame[4:]
            with recorded(frame) as child:
                child.resume()
                try:
                    said = child.channel.receive_about(NUMBER, decoder, NEVER)
                except ChannelError:
                    continue
                else:
                    assert said.number == NUMBER
                    assert all(map(is_plain, msgspec.structs.astuple(said)))
        return BATCH

    fuzz(DECODED, batch)


def test_an_episode_survives_whatever_its_skills_say(reads: list[None]) -> None:
    """Only primitives move the world, the record is a bounded tree of known names, and the reply is valid."""

    def batch(random: Random) -> int:
        before, env = len(reads), Corridor()
        said = [mostly_valid(RUNNING_SKILLS, random) for _ in range(BATCH)]
        with episode(env, *said, frame_body(mutant(FROM_SKILLS, random))) as (one, _):
            reply = decode_reply(encode_reply(one.execute(ATTACK)))
        assert isinstance(reply, Executed), reply
        below = [*reply.node.below()]
        walked = sum(each.name == "walk" and each.error is None for each in below)
        assert walked == reply.actions == reply.node.actions <= 10
        assert {each.name for each in below} <= {"walk", "look", "attack", "helper"}
        assert reply.outcome == env.outcome()
        return len(reads) - before - 1  # the first one is that the module was loaded

    fuzz(EPISODES, batch)


def test_whatever_a_session_says_its_answer_is_bounded(reads: list[None]) -> None:
    session = CodeSession(Sandbox(), output_chars=CHARS)

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


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.complex_numbers(),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers(), inner)
        | st.sets(st.integers())
    ),
)


@settings(max_examples=VALUES)
@given(ANY)
def test_what_an_honest_child_says_of_any_value_is_accepted(value: Any) -> None:
    plain, _ = to_json(value, VALUE_LIMIT)
    body = encode(["end", NUMBER, 0, plain, None])
    assert excess(body) is None
    with recorded(frame_body(body)) as child:
        child.resume()
        assert child.channel.receive_about(NUMBER, skill_process._SAID, NEVER).result == plain
