"""The boundary between workers and sandboxed processes, fuzzed in both directions by a number of messages.

This process reads most of them, from real pipes; some come from a real child.
"""

from __future__ import annotations

import fcntl
import os
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs import Opening, Outcome, Task
from serving.tokens.tools import ToolCall
from speedrunner.store.records import CallNode, Module, Termination
from speedrunner.workers.call_tree import EPISODE_LIMIT, EpisodeRoom
from speedrunner.workers.local_worker import LocalWorker
from speedrunner.workers.sandbox import code_session, skill_process
from speedrunner.workers.sandbox.channel import Channel, ChannelError
from speedrunner.workers.sandbox.child.bounds import ERROR_CHARS, VALUE_LIMIT, excess
from speedrunner.workers.sandbox.child.values import to_json
from speedrunner.workers.sandbox.child.wire import Wire, encode, frame_body
from speedrunner.workers.sandbox.child_pool import ChildPool
from speedrunner.workers.sandbox.child_process import Child
from speedrunner.workers.sandbox.code_session import CodeResult, CodeSession
from speedrunner.workers.sandbox.settings import Sandbox
from speedrunner.workers.worker_episode import WorkerEpisode
from speedrunner.workers.worker_messages import (
    Execute,
    Executed,
    Fault,
    InvalidReply,
    Opened,
    Ready,
    Reset,
    decode_reply,
    encode_reply,
)
from tests.speedrunner.workers.sandbox.attacks import GONE, KILLED, PRELUDE, TIME
from tests.speedrunner.workers.sandbox.mutants import (
    FROM_SESSIONS,
    FROM_SKILLS,
    NUMBER,
    RUNNING_SKILLS,
    mutant,
)
from tests.toy_env import Corridor

pytestmark = [pytest.mark.process, pytest.mark.slow]

DECODED, REPLIES, EPISODES, SESSIONS, TOLD, VALUES = 30_000, 10_000, 20_000, 15_000, 10_000, 300
"""Messages that each test reads at least; `DECODED` counts for two tests."""

REAL = 150
"""Messages of the real child."""

assert 2 * DECODED + REPLIES + EPISODES + SESSIONS + TOLD >= 100_000

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

    def take(self, deadline: float) -> RecordedChild:
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


def test_bytes_of_a_worker_are_a_reply_or_one_kind_of_error() -> None:
    node = CallNode(
        "go", "skill", {"x": [1, None]}, result={"a": 1.5}, calls=[CallNode("walk", "primitive", {})]
    )
    outcome = Outcome(0.5, False, {"position": 1})
    executed = Executed(
        node=node,
        observation="o",
        free_observation=None,
        outcome=outcome,
        actions=1,
        termination=Termination.SUCCESS,
    )
    corpus = [
        encode_reply(each)
        for each in (executed, Ready(), Fault("a", "b"), Opened(Opening("a", "b"), outcome))
    ]

    def batch(random: Random) -> int:
        for _ in range(BATCH):
            try:
                reply = decode_reply(mutant(corpus, random))
            except InvalidReply:
                continue
            decode_reply(encode_reply(reply))
        return BATCH

    fuzz(REPLIES, batch)


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


@pytest.mark.parametrize("room", [0, 500, 10_000, EPISODE_LIMIT])
@pytest.mark.parametrize("length", [10, 1_000, 100_000])
def test_a_call_stays_within_the_record_of_its_episode(room: int, length: int) -> None:
    text = encode("\x01" * length)
    said = [b'["enter",7,"helper",{"x":%s}]', b'["leave",7,1,0,%s,null]', b'["end",7,0,%s,null]']
    with episode(Corridor(), *(frame_body(each % text) for each in said)) as (one, _):
        one._room = EpisodeRoom(room)
        reply = one.execute(ATTACK)
    assert isinstance(reply, Executed)
    assert len(msgspec.json.encode(reply.node)) < 6 * (room + 10_000)


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


class Talking(Corridor):
    """A corridor with any text as its views."""

    text = ""

    def _view(self) -> str:
        return self.text


def test_a_child_reads_what_an_environment_says_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(status: int) -> None:
        raise AssertionError("the worker said less than it should")

    monkeypatch.setattr(os, "_exit", ended)  # which the child's end of the wire calls at the end of a pipe
    pieces = [
        "a",
        "\n",
        '"',
        "\\",
        "\x00",
        "\x1f",
        "\x7f",
        "\u2028",
        "\ue000",
        "\U0001f600",
        "]",
        "[" * 200,
        "x" * 999,
    ]

    def batch(random: Random) -> int:
        env = Talking()
        some = random.choices(pieces, k=BATCH)
        calls = [frame_body(b'["call",7,"look",[],{}]'), frame_body(b'["call",7,"walk",["x"],{}]')] * (
            BATCH // 4
        )
        with episode(env, *calls, frame_body(b'["end",7,0,1,null]')) as (one, child):
            env.text = "".join(some)
            reply = decode_reply(encode_reply(one.execute(ATTACK)))
            assert isinstance(reply, Executed)
            assert reply.node.calls[0].result == env.text == reply.observation
            wire = Wire.__new__(Wire)
            wire._in = child.hearing
            assert wire.receive()[0] == "load"
            assert wire.receive()[:3] == ["run", NUMBER, "attack"]
            for _ in range(BATCH // 4):
                assert wire.receive() == ["return", env.text]
                refused, kind, _ = wire.receive()
                assert (refused, kind) == ("refuse", "InvalidPrimitiveCall")
        return BATCH // 2 + 2

    fuzz(TOLD, batch)


@pytest.mark.parametrize("text", ["\ud800", "a\udcff"])
def test_a_text_that_is_no_utf_8_is_the_environment_s_fault(text: str) -> None:
    env = Talking()
    worker = LocalWorker(env)
    with recorded(frame_body(b'["call",7,"look",[],{}]'), first=frame_body(b'["loaded",7]')) as child:
        worker._pool = cast(ChildPool, OneChild(child))
        worker.answer(reset(env))
        env.text = text
        reply = decode_reply(encode_reply(worker.answer(ATTACK)))
        assert isinstance(reply, Fault)
        worker.finish()


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


def test_messages_of_a_real_child_end_its_process_or_do_what_they_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()  # real numbers, which no one guesses
    attack = """
        body = bytes.fromhex(body).replace(b'",7', b'",%d' % mine())
        raw(frame(body=body))
        return look()
    """
    source = f"{PRELUDE}\ndef helper(x):\n    return x\n\ndef honest():\n    return helper(2)\n\n"
    source += f"def attack(body):\n{textwrap.indent(textwrap.dedent(attack), '    ')}"
    worker, random = LocalWorker(Corridor()), Random(27)
    honest = Execute(ToolCall("honest", {}), 60.0)
    try:
        worker.answer(reset(Corridor(), Module(source, ("attack", "honest"), ("helper",))))
        for _ in range(REAL):
            worker.prepare()
            body = mutant(FROM_SKILLS, random)
            reply = worker.answer(Execute(ToolCall("attack", {"body": body.hex()}), 60.0))
            assert isinstance(reply, Executed), body
            assert {each.name for each in reply.node.below()} <= {
                "walk",
                "look",
                "helper",
                "attack",
                "honest",
            }
            again = worker.answer(honest)
            assert isinstance(again, Executed)
            if again.node.error is not None:  # what the message left behind is found now, and once
                assert re.search(f"{KILLED}|{TIME}|{GONE}", again.node.error)
                again = worker.answer(honest)
                assert isinstance(again, Executed)
            assert again.node.result == 2
    finally:
        worker.end()
