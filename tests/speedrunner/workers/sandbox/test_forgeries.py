"""What a child says that it must not say, or not now: each forgery ends its process, or does nothing.

The world outside is as if it had not been said: no primitive runs that was not called by its name.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import AsyncIterator, Iterator
from contextlib import closing

import pytest
import pytest_asyncio

from speedrunner.config.schema import SandboxConfig
from speedrunner.store.records import Module
from speedrunner.workers.sandbox.child_process import ChildPool
from speedrunner.workers.sandbox.code_session import CodeSession
from speedrunner.workers.sandbox.skill_process import Skills
from tests.processes import HANGS_S
from tests.speedrunner.workers.sandbox.attacks import GONE, KILLED, PRELUDE, TIME
from tests.speedrunner.workers.sandbox.still_world import StillWorld

pytestmark = pytest.mark.process

END = """
def end(value):
    return b'["end",0,' + value + b',null]'
"""

SHORT_S = 0.3

NO_MESSAGE = {
    "no bytes": "raw(frame(body=b''))",
    "no JSON": "raw(frame(body=b'{{{'))",
    "a number": "raw(frame(body=b'1'))",
    "nothing": "raw(frame(body=b'null'))",
    "a text": "raw(frame('end'))",
    "an object": 'raw(frame(body=b\'{"type": "end"}\'))',
    "an empty list": "raw(frame())",
    "two messages in one": "raw(frame(body=end(b'1') + end(b'1')))",
    "something behind a message": "raw(frame(body=end(b'1') + b' x'))",
    "bytes that are no UTF-8": "raw(frame(body=end(b'\"\\xff\"')))",
    "a lone surrogate": "raw(frame(body=end(b'\"\\\\ud800\"')))",
    "a byte order mark": "raw(frame(body=b'\\xef\\xbb\\xbf' + end(b'1')))",
    "a number that is none": "raw(frame(body=end(b'NaN')))",
    "a number beyond all": "raw(frame(body=end(b'1e999')))",
    "an integer of a million digits": "raw(frame(body=end(b'9' * 10**6)))",
    "an unknown word": "say('bribe', 1)",
    "a word that is no text": "say(1, 2, 3, 4)",
    "what was said at the start": "raw(frame('confined', None))",
    "a number of another call": "raw(frame('end', 0, 'won', None, piece=mine() ^ 1))",
    "a megabyte of brackets": "raw(frame(body=b'[' * 10**6))",
    "levels below levels": "raw(frame(body=end(b'[' * 500 + b']' * 500)))",
    "objects below objects": "raw(frame(body=end(b'{\"a\":' * 500 + b'1' + b'}' * 500)))",
    "values that take long to decode": "raw(frame(body=end(b'[' + b'{},' * 500_000 + b'1]')))",
    "strings that take long to decode": "raw(frame(body=end(b'[' + b'\"\",' * 500_000 + b'1]')))",
    "a length beyond the limit": "raw(struct.pack('>II', 2**21 + 1, mine()))",
    "the greatest length": "raw(b'\\xff' * 8)",
}
"""Statements, for skills and code sessions alike: each ends the process."""

UNTIMELY = {
    "half a length": "raw(b'\\0\\0')\nwhile True: pass",
    "half a message": "raw(frame(body=b'[' * 100)[:9])\nwhile True: pass",
    "a byte now and then": "import time\nwhile True: raw(b'\\0'); time.sleep(0.05)",
}
"""The same, of what never becomes a message."""


TO_SKILLS = {
    "too little in a message": ("say('end', 0)\nlook()", KILLED),
    "too much in a message": ("say('end', 0, 1, None, 2)\nlook()", KILLED),
    "a negative count": ("say('end', -1, 1, None)\nlook()", KILLED),
    "a count beyond all": ("say('end', 2**60, 1, None)\nlook()", KILLED),
    "an error that is no text": ("say('end', 0, 1, 2)\nlook()", KILLED),
    "a depth that is the tool call's": ("say('leave', 0, 0, 1, None)\nlook()", KILLED),
    "a skill that is none": ("say('enter', 'solve', {})\nlook()", KILLED),
    "a skill that is a primitive": ("say('enter', 'look', {})\nlook()", KILLED),
    "arguments that are a list": ("say('enter', 'helper', [])\nlook()", KILLED),
    "too many arguments": ("say('enter', 'helper', {str(i): i for i in range(256)})\nlook()", KILLED),
    "an argument of a very long name": ("say('enter', 'helper', {'x' * 1_001: 1})\nlook()", KILLED),
    "a primitive that is none": ("say('call', 'win', [], {})\nlook()", KILLED),
    "an attribute of the environment": ("say('call', '__init__', [], {})\nlook()", KILLED),
    "a primitive without a name": ("say('call', '', [], {})\nlook()", KILLED),
    "a primitive whose name is no text": ("say('call', None, [], {})\nlook()", KILLED),
    "arguments by position that are none": ("say('call', 'look', {}, {})\nlook()", KILLED),
    "what a code session says": ("say('done', '', None)\nlook()", KILLED),
    "an answer for itself": ("say('return', 'won')\nlook()", KILLED),
    "an end that is not the last word": ("say('end', 0, 'early', None)\nsay('end', 0, 'late', None)", None),
    "the end of a skill that never began": ("say('leave', 7, 0, 1, None)\nreturn 'early'", None),
    "a skill that never ends": ("say('enter', 'helper', {})\nreturn 'early'", None),
    "messages that are split": (
        "for byte in frame('end', 0, 'early', None): raw(bytes([byte]))\nwhile True: pass",
        None,
    ),
    "a closed pipe": ("os.close(of_its_worker('Wire')._out)\nlook()", GONE),
}
"""A skill's body, and how the call ends; `None`: it returns `early`."""

TO_SESSIONS = {
    "output that is no text": ("say('done', 1, None)", KILLED),
    "an end without an error": ("say('done', '')", KILLED),
    "what a skill says": ("say('call', 'look', [], {})", KILLED),
    "an end that is not the last word": ("say('done', 'early', None)", None),
}
"""A piece of code, and how it ends; `None`: it prints `early`."""


BOTH = {name: (body, KILLED) for name, body in NO_MESSAGE.items()}
BOTH |= {name: (body, f"{TIME}|{KILLED}") for name, body in UNTIMELY.items()}
BY_SKILLS = {name: (f"{body}\nlook()", end) for name, (body, end) in BOTH.items()} | TO_SKILLS
BY_SESSIONS = {name: (f"{body}\nprint()", end) for name, (body, end) in BOTH.items()} | TO_SESSIONS

SKILLS = """
def helper(x):
    return x

def honest():
    return look()

"""


@pytest.fixture(scope="module")
def children() -> Iterator[ChildPool]:
    pool = ChildPool(SandboxConfig())
    yield pool
    pool.close()


def limit_s(expected: str | None) -> float:
    return SHORT_S if (expected or "").startswith(TIME) else HANGS_S


@pytest.mark.parametrize("name", BY_SKILLS)
def test_what_a_skill_forges_does_nothing(children: ChildPool, name: str) -> None:
    body, expected = BY_SKILLS[name]
    source = f"{PRELUDE}{END}{SKILLS}def attack():\n{textwrap.indent(body, '    ')}"
    module, world = Module(source, ("helper", "honest", "attack")), StillWorld()
    with closing(Skills(children, module, ["look"], "", world.call)) as skills:
        ended = skills.run("attack", {}, limit_s(expected), world.tree)
        assert world.calls == []
        if expected is None:
            assert (ended.error, ended.result) == (None, "early")
        else:
            assert re.search(expected, ended.error or ""), ended
        honest = skills.run("honest", {}, SHORT_S, world.tree)
        if honest.error is not None:  # the rest of what it does is found now, and once
            assert re.search(f"{KILLED}|{TIME}", honest.error)
            honest = skills.run("honest", {}, HANGS_S, world.tree)
        assert (honest.result, world.calls) == ("a wall", ["look"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def session() -> AsyncIterator[CodeSession]:
    async with CodeSession(SandboxConfig(), bootstrap=PRELUDE + END) as started:
        yield started


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", BY_SESSIONS)
async def test_what_a_session_forges_is_no_answer_of_another_piece(session: CodeSession, name: str) -> None:
    body, expected = BY_SESSIONS[name]
    executed = await session.execute(body, limit_s(expected))
    if expected is None:
        assert executed.error is None
        assert executed.text.endswith("early")
    else:
        assert re.search(expected, executed.error or ""), executed
        assert executed.lost or name in TO_SESSIONS
    honest = await session.execute("'honest'", SHORT_S)
    if honest.error is not None:  # the rest of what it does is found now, and once
        assert re.search(f"{KILLED}|{TIME}", honest.error)
        honest = await session.execute("'honest'", HANGS_S)
    assert honest.text.endswith("'honest'")
    assert "early" not in honest.text
