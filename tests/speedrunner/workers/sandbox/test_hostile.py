"""Hostile code: each attack is contained and reported, and neither the episode nor the next one is harmed.

It reaches its worker as it is, past the library's own checks of what a skill may import; or it is run in a
code session, as the inducer's code is.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import textwrap
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Literal

import pytest
import pytest_asyncio

from envs import Task
from serving.tokens.tools import ToolCall
from speedrunner.config.schema import SandboxConfig
from speedrunner.store.records import CallNode, Module, Termination
from speedrunner.workers.env_worker import EnvWorker
from speedrunner.workers.sandbox.child_process import MIB
from speedrunner.workers.sandbox.code_session import CodeSession
from speedrunner.workers.worker_messages import Executed
from speedrunner.workers.worker_pool import WorkerPool
from tests.processes import HANGS_S, marked, states, until
from tests.speedrunner.workers.sandbox.attacks import (
    ATTACKS,
    ATTACKS_OF_SKILLS,
    PRELUDE,
    SOCKET,
    TIME,
    VICTIM,
    Attack,
)

pytestmark = [pytest.mark.process, pytest.mark.asyncio(loop_scope="module")]

ENV = "tests.toy_env:Corridor"
MEMORY_MB = 300 + os.getpid() % 200
"""Stands in the command line of every process of these skills, and of no other's."""

SESSION_MB = MEMORY_MB + 200
"""The same, of the code sessions."""

SHORT_S = 0.4
"""For those that never end."""

KINDS = ("isolated", "rlimits")
EACH_KIND = ("isolated", pytest.param("rlimits", marks=pytest.mark.slow))
"""The same where every attack is tried: the slow tier tries the other one."""


def unchecked(body: str) -> Module:
    """Skills that nobody has validated."""
    source = "\n\n".join(
        [
            PRELUDE,
            "def helper(x):\n    return 1",
            "def honest():\n    walk(1)\n    return helper(2)",
            function(body),
        ]
    )
    return Module(source, ("helper", "honest", "attack"))


def function(body: str) -> str:
    return f"def attack():\n{textwrap.indent(textwrap.dedent(body), '    ')}"


@pytest.fixture(scope="module")
def neighbour() -> Iterator[None]:
    """Somebody else on the machine: a secret in the environment, a file, a Unix socket that would answer."""
    os.environ["SPEEDRUNNER_TEST_SECRET"] = "SECRET"
    SOCKET.parent.mkdir(mode=0o755)
    try:
        VICTIM.write_text("theirs")
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(SOCKET))
            listening.listen()
            listening.setblocking(False)
            yield
            with pytest.raises(BlockingIOError):  # nobody has called
                listening.accept()
        assert VICTIM.read_text() == "theirs"
    finally:
        shutil.rmtree(SOCKET.parent)
        del os.environ["SPEEDRUNNER_TEST_SECRET"]


def ours(memory_mb: int = MEMORY_MB) -> dict[int, tuple[str, int]]:
    """The processes of this file's sandboxes: see `marked`."""
    return marked(f'"AS": {memory_mb * MIB},')


def left_behind() -> list[Path]:
    """Files that an attack has made outside."""
    return [path for folder in ("/tmp", "/var/tmp", Path.home()) for path in Path(folder).glob("hostile*")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool(request: pytest.FixtureRequest, neighbour: None) -> AsyncIterator[WorkerPool]:
    """One worker, whose skills are in the kind of sandbox that is asked for."""
    kind: Literal["isolated", "rlimits"] = getattr(request, "param", "isolated")
    async with WorkerPool(1, ENV, sandbox=SandboxConfig(kind, MEMORY_MB)) as started:
        async with started.worker() as worker:
            pid = worker.pid
        yield started
        async with started.worker() as worker:
            assert worker.pid == pid
            assert_honest(await play(worker, "pass", "honest"))
    await until(lambda: not ours())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def session(request: pytest.FixtureRequest, neighbour: None) -> AsyncIterator[CodeSession]:
    """A code session in the kind of sandbox that is asked for."""
    kind: Literal["isolated", "rlimits"] = getattr(request, "param", "isolated")
    async with CodeSession(SandboxConfig(kind, SESSION_MB), bootstrap=PRELUDE) as started:
        yield started
        assert (await started.execute("1 + 1", HANGS_S)).text.endswith("2")
    await until(lambda: not ours(SESSION_MB))


async def play(worker: EnvWorker, body: str, name: str = "attack", limit_s: float = HANGS_S) -> Executed:
    await worker.reset(Task(ENV, "default", 50), unchecked(body), None)
    return await worker.execute(ToolCall(name, {}), limit_s)


def assert_honest(executed: Executed) -> None:
    assert (executed.node.error, executed.node.result, executed.node.actions) == (None, 1, 1)
    assert [node.name for node in executed.node.calls] == ["walk", "helper"]


def assert_contained(attack: Attack, error: str | None, result: object) -> None:
    if attack.error is None:
        assert error is None
        assert re.search(attack.result or "", str(result)), result
    else:
        assert re.search(attack.error, error or "", re.DOTALL), (error, result)
    assert not left_behind()


def chosen(name: str, sandbox: SandboxConfig) -> Attack:
    attack = (ATTACKS | ATTACKS_OF_SKILLS)[name]
    if sandbox.kind == "rlimits" and not attack.files:
        pytest.skip("files and other processes can be seen there")
    return attack


def limit_s(attack: Attack) -> float:
    return SHORT_S if (attack.error or "").startswith(TIME) else HANGS_S


@pytest.mark.parametrize("name", ATTACKS | ATTACKS_OF_SKILLS)
@pytest.mark.parametrize("pool", EACH_KIND, indirect=True)
async def test_an_attack_by_a_skill_is_contained(pool: WorkerPool, name: str) -> None:
    """What an attack leaves behind is found by the next one, which begins with an honest call."""
    attack = chosen(name, pool._sandbox)
    async with pool.worker() as worker:
        assert_honest(await play(worker, attack.body, "honest"))
        executed = await worker.execute(ToolCall("attack", {}), limit_s(attack))
        assert_contained(attack, executed.node.error, executed.node.result)
        assert executed.outcome.score == (1.0 if executed.termination else 0.02)
        if executed.termination is None:  # the same episode goes on
            walked = await worker.execute(ToolCall("honest", {}), HANGS_S)
            if walked.node.error is not None:  # what the attack left behind is found now, and once
                assert re.match("InvalidMessage|SkillProcessEnded", walked.node.error)
                walked = await worker.execute(ToolCall("honest", {}), HANGS_S)
            assert_honest(walked)
    assert len(ours()) <= 1 + 2 * 3  # the worker, and three processes of a sandbox: in use and spare


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("session", EACH_KIND, indirect=True)
async def test_an_attack_by_a_code_session_is_contained(session: CodeSession, name: str) -> None:
    attack = chosen(name, session._sandbox)
    executed = await session.execute(f"{function(attack.body)}\nattack()", limit_s(attack))
    assert_contained(attack, executed.error, executed.text)


def names(node: CallNode) -> list[str]:
    return [child.name for child in node.calls]


KNOWN = """
import inspect
texts, places = set(), [sys.argv, dict(os.environ), *gc.get_objects()]
places += [frame.frame.f_locals for frame in inspect.stack()]
for each in places:
    if isinstance(each, dict):
        each = [*each.keys(), *each.values()]
    if isinstance(each, (list, tuple, set, frozenset)):
        texts.update(str(one) for one in each if type(one) in (str, bytes))
return len(texts), hash(frozenset(texts))
"""
"""The number of texts that a skill's process knows, and a digest of them."""


async def test_a_process_of_skills_knows_nothing_of_its_task(pool: WorkerPool) -> None:
    found = []
    for index, doc in ((50, "a text"), (987_654, "a text"), (50, "another")):
        async with pool.worker() as worker:
            module = unchecked(f"{doc!r}\n{KNOWN}")
            await worker.reset(Task(ENV, "default", index), module, None, "a seed")
            executed = await worker.execute(ToolCall("attack", {}), HANGS_S)
            assert executed.node.error is None
            found.append(executed.node.result)
    assert found[0] == found[1]
    assert found[1] != found[2]  # a text that differs is found


async def test_its_namespaces_are_its_own_and_its_network_has_no_way_out(pool: WorkerPool) -> None:
    async with pool.worker() as worker:
        await play(worker, "return 1")
        # The first process of each sandbox is outside, and so is one that is about to start.
        inside = [pid for pid in ours() if namespace(pid, "pid") != namespace(os.getpid(), "pid")]
        assert inside
        for pid in inside:
            for name in ("cgroup", "ipc", "mnt", "net", "user", "uts"):
                assert namespace(pid, name) != namespace(os.getpid(), name), name
            assert devices(pid) == ["lo"]


def namespace(pid: int, name: str) -> Path:
    return Path(f"/proc/{pid}/ns/{name}").readlink()


def devices(pid: int) -> list[str]:
    _, _, *lines = Path(f"/proc/{pid}/net/dev").read_text().strip().splitlines()
    return [line.split(":")[0].strip() for line in lines]


class TestWhatIsRecorded:
    async def test_replaced_primitives_move_nothing(self, pool: WorkerPool) -> None:
        async with pool.worker() as worker:
            executed = await play(worker, "global walk\nwalk = lambda *a: 'won'\nreturn walk(50)")
        assert (executed.node.result, executed.outcome.score) == ("won", 0)
        assert (executed.actions, executed.node.calls, executed.termination) == (0, [], None)

    async def test_a_silenced_tracer_hides_no_primitive(self, pool: WorkerPool) -> None:
        body = (
            "type(of_its_worker('Tracer'))._report = lambda *a: None\nhelper(1); walk(2); helper(2); walk(3)"
        )
        async with pool.worker() as worker:
            executed = await play(worker, body)
        assert names(executed.node) == ["walk", "walk"]
        assert (executed.actions, executed.node.actions) == (2, 2)

    async def test_forged_calls_of_primitives_are_calls_of_primitives(self, pool: WorkerPool) -> None:
        body = "for _ in range(3): say('call', 'walk', [1], {})\nreturn walk(1)"
        async with pool.worker() as worker:
            executed = await play(worker, body)
        assert names(executed.node) == ["walk"] * 4
        assert executed.outcome.score == 4 / 50

    async def test_the_last_action_before_a_death_is_scored(self, pool: WorkerPool) -> None:
        async with pool.worker() as worker:
            executed = await play(worker, "walk(5)\nhelper(1)\nimport os\nos._exit(0)")
            assert (executed.outcome.score, executed.actions) == (0.1, 1)
            assert names(executed.node) == ["walk", "helper"]
            assert (
                await worker.execute(ToolCall("walk", {"steps": 45}), HANGS_S)
            ).termination is Termination.SUCCESS


@pytest.mark.parametrize("pool", KINDS, indirect=True)
async def test_skills_stand_still_between_tool_calls(pool: WorkerPool) -> None:
    async with pool.worker() as worker:
        assert (await play(worker, "say('end', 0, 'forged', None)\nwhile True: pass")).node.result == "forged"
        await until(lambda: any(state == "T" for state, _ in ours().values()))
        stopped = next(group for state, group in ours().values() if state == "T")
        await until(lambda: states(stopped) == {"T"})
    await until(lambda: not states(stopped))  # nothing after the episode


@pytest.mark.parametrize("session", KINDS, indirect=True)
async def test_a_code_session_stands_still_between_pieces(session: CodeSession) -> None:
    forged = "say('done', '', None)\nwhile True: pass"
    assert (await session.execute(forged, HANGS_S)).error is None
    await until(lambda: states(session._child._process.pid) == {"T"})
    assert (await session.execute("1 + 1", SHORT_S)).lost  # it goes on where it was, and is killed
    await until(lambda: states(session._child._process.pid) == {"T"})
    assert (await session.execute("1 + 1", HANGS_S)).text == "2"


async def test_an_episode_gets_a_process_that_no_other_had(pool: WorkerPool) -> None:
    async with pool.worker() as worker:
        assert (await play(worker, "import sys\nsys.modules['left'] = 1")).node.error is None
    async with pool.worker() as worker:
        after = await play(worker, "import sys\nreturn 'left' in sys.modules")
    assert after.node.result is False


async def test_held_out_episodes_are_out_of_sight_of_a_session_that_reads_the_others(tmp_path: Path) -> None:
    for folder in ("trajectories", "evaluations"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "0000.jsonl").write_text(folder)
    (tmp_path / "trajectories" / "link-0000").symlink_to(tmp_path / "evaluations" / "0000.jsonl")
    (tmp_path / "trajectories" / "up").symlink_to("../evaluations")
    code = f"""if True:
        import os
        found = set()
        for top in ('/', MOUNTS['run'], MOUNTS['run'] + '/..', MOUNTS['run'] + '/up', {str(tmp_path)!r}):
            for folder, _, files in os.walk(top, followlinks=top != '/'):
                for path in (os.path.join(folder, name) for name in files):
                    if os.path.basename(path) in ('0000.jsonl', 'link-0000'):
                        try:
                            found.add(open(path, errors='replace').read())
                        except OSError:
                            pass
        print(found)
    """
    async with CodeSession(SandboxConfig(), mounts={"run": tmp_path / "trajectories"}) as reading:
        assert (await reading.execute(code, HANGS_S)).text == "{'trajectories'}"
