"""A Python session in the sandbox: what is printed, what lasts, and what does not."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from speedrunner.sandbox.limits import Sandbox, SandboxError
from speedrunner.sandbox.session import CodeSession

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLENTY_S = 30.0
CHARS = 400


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mounted")
    (path / "a.txt").write_text("hello")
    (path / "drafted.py").write_text("def double(x):\n    return 2 * x\n")
    return path


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["bubblewrap", "rlimits"])
async def session(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[CodeSession]:
    bootstrap = """if True:
        import sys
        sys.path.insert(0, MOUNTS['draft'])
        def load(): return open(MOUNTS['draft'] + '/a.txt').read()
    """
    async with CodeSession(
        Sandbox(request.param), mounts={"draft": folder}, bootstrap=bootstrap, output_chars=CHARS
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
    answer = await session.execute(code, PLENTY_S)
    assert answer == output if output in ("", "2", "a") else output in answer
    assert "/child/" not in answer  # none of our frames


async def test_variables_last(session: CodeSession) -> None:
    await session.execute("kept = [1]", PLENTY_S)
    assert await session.execute("kept", PLENTY_S) == "[1]"


async def test_long_output_is_cut_in_its_middle_and_says_so(session: CodeSession) -> None:
    answer = await session.execute("print('a' * 5_000 + 'b' * 5_000)\nraise ValueError('the end')", PLENTY_S)
    assert answer.startswith("a" * (CHARS // 2) + "\n[cut here: ")
    assert "characters are not shown]" in answer
    assert answer.endswith("ValueError: the end")
    assert len(answer) < CHARS + 100


async def test_output_that_fits_is_whole(session: CodeSession) -> None:
    assert await session.execute(f"print('x' * {CHARS - 1})", PLENTY_S) == "x" * (CHARS - 1)


async def test_code_that_stops_in_time_costs_no_variable(session: CodeSession) -> None:
    await session.execute("kept = 3", PLENTY_S)
    answer = await session.execute("print('begun')\nwhile True:\n    len('')", 0.3)
    assert answer.startswith("begun\n")
    assert answer.endswith("TimeLimitReached: stopped at the time limit of 0.3 s")
    assert await session.execute("kept", PLENTY_S) == "3"


@pytest.mark.parametrize(
    ("code", "limit_s", "reason"),
    [
        ("print('begun')\nsum(iter(int, 1))", 0.3, "stopped at the time limit of 0.3 s"),
        ("print('begun')\nimport os\nos._exit(3)", PLENTY_S, "the process ended: exit status 3"),
        (
            "print('begun')\nimport os\nos.kill(os.getpid(), 9)",
            PLENTY_S,
            "the process ended: killed by SIGKILL",
        ),
        (
            "print('begun')\nimport gc, os\nos.write(next(o for o in gc.get_objects()"
            " if type(o).__name__ == 'Wire')._out, b'x' * 100)",
            PLENTY_S,
            "the process sent a message of",
        ),
    ],
)
async def test_a_lost_process_is_replaced_and_the_answer_says_so(
    session: CodeSession, code: str, limit_s: float, reason: str
) -> None:
    await session.execute("lost = 3", PLENTY_S)
    answer = await session.execute(code, limit_s)
    assert answer.startswith(f"begun\n\n[{reason}")
    assert answer.endswith("the session was started anew: all variables are gone]")
    assert "NameError" in await session.execute("lost", PLENTY_S)
    assert await session.execute("load()", PLENTY_S) == "'hello'"  # the bootstrap code ran again


async def test_files_that_change_outside_are_seen(session: CodeSession, folder: Path) -> None:
    (folder / "new.txt").write_text("new")
    assert await session.execute("open(MOUNTS['draft'] + '/new.txt').read()", PLENTY_S) == "'new'"


async def test_mounted_folders_cannot_be_written_to(folder: Path) -> None:
    async with CodeSession(Sandbox(), mounts={"draft": folder}) as session:
        answer = await session.execute("open(MOUNTS['draft'] + '/b.txt', 'w')", PLENTY_S)
    assert "Read-only file system" in answer
    assert not (folder / "b.txt").exists()


async def test_a_socket_in_a_mounted_folder_is_seen_and_cannot_be_called(tmp_path: Path) -> None:
    """The mount shows it; what keeps the code from it is the filter of system calls."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        listener.setblocking(False)
        code = "import os, socket\npath = MOUNTS['draft'] + '/s'\nprint(os.path.exists(path))\n"
        async with CodeSession(Sandbox(), mounts={"draft": tmp_path}) as session:
            answer = await session.execute(code + "socket.socket(socket.AF_UNIX).connect(path)", PLENTY_S)
        assert answer.startswith("True\n")
        assert answer.endswith("PermissionError: [Errno 1] Operation not permitted")
        with pytest.raises(BlockingIOError):
            listener.accept()


async def test_a_time_limit_may_be_as_long_as_it_likes(session: CodeSession) -> None:
    assert await session.execute("import time\ntime.sleep(0.01)\n5", 3e6) == "5"


async def test_bootstrap_code_that_fails_is_our_mistake() -> None:
    with pytest.raises(SandboxError, match="ZeroDivisionError"):
        async with CodeSession(Sandbox(), bootstrap="1 / 0"):
            pass


async def test_cancelling_leaves_no_process() -> None:
    session = CodeSession(Sandbox())
    await session.__aenter__()
    child = session._child
    assert child is not None
    running = asyncio.create_task(session.execute("while True: pass", PLENTY_S))
    await asyncio.sleep(0.05)  # into its thread; what is tested holds before and after that
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert child._process.returncode is not None
