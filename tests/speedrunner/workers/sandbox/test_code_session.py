"""A Python session in the sandbox: what is printed, what lasts, and what does not."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from speedrunner.config.schema import SandboxConfig
from speedrunner.library.rules import ALLOWED_MODULES
from speedrunner.workers.sandbox.code_session import CodeSession
from tests.processes import GROWING_S, HANGS_S

pytestmark = [pytest.mark.process, pytest.mark.asyncio(loop_scope="module")]

CHARS = 400
KINDS = ("isolated", pytest.param("rlimits", marks=pytest.mark.slow))


async def told(session: CodeSession, code: str, limit_s: float = HANGS_S) -> str:
    return (await session.execute(code, limit_s)).text


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mounted")
    (path / "a.txt").write_text("hello")
    (path / "drafted.py").write_text("def double(x):\n    return 2 * x\n")
    return path


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=KINDS)
async def session(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[CodeSession]:
    bootstrap = """if True:
        import sys
        sys.path.insert(0, MOUNTS['draft'])
        def load(): return open(MOUNTS['draft'] + '/a.txt').read()
    """
    async with CodeSession(
        SandboxConfig(request.param), mounts={"draft": folder}, bootstrap=bootstrap, output_chars=CHARS
    ) as started:
        yield started


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("1 + 1", "2"),
        ("None", ""),
        ("x = 5", ""),
        ("print('a')\n'b'", "a\n'b'"),
        ("import sys\nprint('a', file=sys.stderr)", "a"),
        ("load()", "'hello'"),
        ("import drafted\ndrafted.double(4)", "8"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("def f():\n    raise ValueError('no')\nf()", '  File "<execute'),
        ("1 +", "SyntaxError: invalid syntax"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("print('\\ud800')", "\\ud800"),
        ("input()", "EOFError"),
        ("from dataclasses import dataclass\n@dataclass\nclass A:\n    x: int\nA(3)", "A(x=3)"),
    ],
)
async def test_code_answers_as_at_a_prompt(session: CodeSession, code: str, output: str) -> None:
    answer = await told(session, code)
    assert answer == output if output in ("", "2", "a") else output in answer
    assert "/child/" not in answer  # none of our frames


async def test_confined_code_can_import_what_skills_may_import(session: CodeSession) -> None:
    assert await told(session, f"import {', '.join(ALLOWED_MODULES)}\nstatistics.mean([1, 2])") == "1.5"


async def test_long_output_is_cut_in_its_middle_and_says_so(session: CodeSession) -> None:
    answer = await told(session, "print('a' * 5_000 + 'b' * 5_000)\nraise ValueError('the end')")
    assert answer.startswith("a" * (CHARS // 2) + "\n[cut here: ")
    assert "characters are not shown]" in answer
    assert answer.endswith("ValueError: the end")
    assert len(answer) < CHARS + 100


async def test_code_that_stops_in_time_costs_no_variable(
    session: CodeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("speedrunner.workers.sandbox.code_session.STOP_S", HANGS_S)
    await session.execute("kept = 3", HANGS_S)
    for limit_s in GROWING_S:
        answer = await told(session, "print('begun')\nwhile True:\n    len('')", limit_s)
        if answer.startswith("begun\n"):
            break
    assert answer.startswith("begun\n")
    assert answer.endswith(f"TimeLimitReached: stopped at the time limit of {limit_s:g} s")
    assert await told(session, "kept") == "3"


@pytest.mark.parametrize(
    ("code", "limit_s", "reason"),
    [
        ("sum(iter(int, 1))", 0.1, "stopped at the time limit of "),
        ("import os\nos._exit(3)", HANGS_S, "the process ended: exit status 3"),
        (
            "import gc, os\nos.write(next(o for o in gc.get_objects()"
            " if type(o).__name__ == 'Wire')._out, b'x' * 100)",
            HANGS_S,
            "the process sent a message of",
        ),
    ],
)
async def test_a_lost_process_is_replaced_and_the_answer_says_so(
    session: CodeSession, code: str, limit_s: float, reason: str
) -> None:
    await session.execute("lost = 3", HANGS_S)
    answer = await session.execute(code, limit_s)
    assert answer.text.startswith(f"[{reason}")
    assert answer.text.endswith("; the session was restarted and all its variables are lost]")
    assert answer.lost is not None
    assert answer.lost.startswith(str(answer.error))
    assert "NameError" in await told(session, "lost")
    assert await told(session, "load()") == "'hello'"  # the bootstrap code ran again


async def test_what_an_earlier_piece_left_behind_is_told_instead_of_running_the_code(
    session: CodeSession,
) -> None:
    assert await told(session, "kept = 3") == ""
    assert session._child is not None
    session._child.strike()
    session._child.channel.drain(time.monotonic() + HANGS_S)  # until it is gone
    answer = await session.execute("'kept' in globals()", HANGS_S)
    assert answer.text == f"[{answer.lost}]"
    assert answer.lost == (
        "the process ended: killed by SIGKILL; the session was restarted and all its variables are lost"
    )
    assert await told(session, "'kept' in globals()") == "False"


async def test_a_socket_in_a_mounted_folder_is_seen_and_cannot_be_called(tmp_path: Path) -> None:
    """The mount shows it; what keeps the code from it is the filter of system calls."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        listener.setblocking(False)
        code = "import os, socket\npath = MOUNTS['draft'] + '/s'\nprint(os.path.exists(path))\n"
        async with CodeSession(SandboxConfig(), mounts={"draft": tmp_path}) as session:
            answer = await told(session, code + "socket.socket(socket.AF_UNIX).connect(path)")
        assert answer.startswith("True\n")
        assert answer.endswith("PermissionError: [Errno 1] Operation not permitted")
        with pytest.raises(BlockingIOError):
            listener.accept()


async def test_signals_to_the_whole_group_change_nothing(session: CodeSession) -> None:
    """A terminal, or a batch system before it takes the node back; what it ends is for us to decide."""
    await session.execute("kept = 2", HANGS_S)
    assert session._child is not None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        os.killpg(session._child._process.pid, number)
    assert await told(session, "kept") == "2"


async def test_cancelling_leaves_no_process() -> None:
    session = CodeSession(SandboxConfig())
    await session.__aenter__()
    child = session._child
    assert child is not None
    running = asyncio.create_task(session.execute("while True: pass", HANGS_S))
    await asyncio.sleep(0.05)  # into its thread; what is tested holds before and after that
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert child._process.returncode is not None


async def test_without_namespaces_code_reads_files_and_the_filter_refuses_the_rest(folder: Path) -> None:
    bootstrap = f"import os, socket\nPATH = {str(folder / 'a.txt')!r}"
    async with CodeSession(SandboxConfig("rlimits"), bootstrap=bootstrap) as session:
        assert await told(session, "open(PATH).read()") == "'hello'"
        for code in ("open(PATH, 'w')", "socket.socket()", "os.fork()", "os.kill(os.getppid(), 0)"):
            answer = await session.execute(code, HANGS_S)
            assert (answer.error or "").startswith("PermissionError: [Errno 1]"), code
