"""Hostile skills: each is contained and reported, and neither the episode nor the next one is harmed.

The skills here reach their host as they are, past the library's own checks of what a skill may import.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
import tempfile
import textwrap
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec
import pytest
import pytest_asyncio

from envs import Task
from speedrunner.hosts.host import Host
from speedrunner.hosts.host_pool import HostPool
from speedrunner.hosts.messages import Executed
from speedrunner.sandbox.child.bounds import DEPTH_LIMIT, NODE_LIMIT, TEXT_LIMIT
from speedrunner.sandbox.settings import MIB, Sandbox
from speedrunner.store.records import CallNode, Ending, Module, ToolCall

pytestmark = pytest.mark.asyncio(loop_scope="module")

ENV = "tests.toy_env:Corridor"
MEMORY_MB = 500 + os.getpid() % 400
"""Stands in the command line of every process of these tests, and of no other's."""

SOCKET = Path(tempfile.gettempdir(), f"speedrunner-{os.getpid()}", "socket")
"""Where somebody else listens while these tests run."""

SHORT_S = 0.5
"""For those that never end."""

PLENTY_S = 30.0
"""For all others: how long they take is no matter here."""

TIME = "TimeLimitReached: stopped at the time limit"
KILLED = "InvalidMessage: the process of the skills sent .*it was killed"
GONE = "SkillProcessEnded: the process of the skills ended"
REFUSED = "PermissionError: .*Operation not permitted"


@dataclass
class Attack:
    """A skill's body, and what comes of it.

    Attributes:
        body: of the function `attack`; `helper` is another skill.
        error: what the tool call's error begins with, as a pattern; `None` where it returns.
        result: what the returned value must be, as a pattern.
        rlimits: whether limits on resources alone contain it.
    """

    body: str
    error: str | None = None
    result: str | None = None
    rlimits: bool = False


FORGE = """
import gc, json, os, struct

WIRES = []

def raw(data):
    if not WIRES:
        WIRES.extend(each for each in gc.get_objects() if type(each).__name__ == "Wire")
    os.write(WIRES[0]._out, data)

def frame(*message, body=None):
    body = json.dumps(message).encode() if body is None else body
    return struct.pack(">I", len(body)) + body

def say(*message, body=None):
    raw(frame(*message, body=body))
"""

ATTACKS = {
    # Time
    "endless loop": Attack("while True: pass", error=TIME, rlimits=True),
    "endless loop that swallows every exception": Attack(
        """
        while True:
            try:
                while True: len("")
            except BaseException:
                pass
        """,
        error=TIME,
        rlimits=True,
    ),
    "no alarm, endless sleep": Attack(
        "import signal, time\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\ntime.sleep(1e6)",
        error=TIME,
        rlimits=True,
    ),
    "one endless operation in C": Attack("sum(iter(int, 1))", error=TIME, rlimits=True),
    "a pattern that backtracks for ever": Attack(
        "import re\nre.match(r'(a+)+$', 'a' * 60 + 'b')", error=TIME, rlimits=True
    ),
    "stopping itself": Attack(
        "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", error=TIME, rlimits=True
    ),
    "endless loop around primitives": Attack(
        """
        while True:
            try:
                look()
            except BaseException:
                pass
        """,
        error=TIME,
        rlimits=True,
    ),
    "primitives that are refused, for ever": Attack(
        """
        while True:
            try:
                walk('far')
            except Exception:
                pass
        """,
        error=TIME,
        rlimits=True,
    ),
    "actions for ever": Attack("while True: walk(0)", error=TIME, rlimits=True),
    "forged errors for ever": Attack(
        """
        error = 'x' * 20_000
        while True:
            say('enter', 'helper', {})
            say('leave', 1, 0, None, error)
        """,
        error=TIME,
        rlimits=True,
    ),
    "going on after the end, swallowing every exception": Attack(
        """
        while True:
            try:
                walk(100)
            except BaseException:
                pass
        """,
        error="EpisodeEnded: stopped, because the environment had already ended the episode",
        rlimits=True,
    ),
    "a trace function that never returns": Attack(
        "import sys\ndef f(*a):\n    while True: pass\nsys.settrace(f)\nhelper(1)", error=TIME, rlimits=True
    ),
    # Memory and output
    "10 GB at once": Attack("return len(bytearray(10 * 2**30))", error="MemoryError", rlimits=True),
    "memory bit by bit": Attack(
        "kept = []\nwhile True: kept.append(bytearray(2**24))", error="MemoryError", rlimits=True
    ),
    "10 GB of a mapped file": Attack("import mmap\nmmap.mmap(-1, 10 * 2**30)", error="OSError", rlimits=True),
    "1 GB printed": Attack(
        "for _ in range(1024): print('x' * 2**20)\nreturn 'printed'", result="printed", rlimits=True
    ),
    "1 GB to every file descriptor": Attack(
        """
        import os
        for fd in range(3):
            for _ in range(1024): os.write(fd, b'x' * 2**20)
        return 'written'
        """,
        result="written",
        rlimits=True,
    ),
    "1 GB into the pipe": Attack(
        "for _ in range(1024): raw(b'x' * 2**20)", error=f"{KILLED}|{GONE}", rlimits=True
    ),
    # Recursion and crashes
    "deep recursion": Attack("return attack()", error="RecursionError", rlimits=True),
    "deep recursion without a limit": Attack(
        """
        import sys
        sys.setrecursionlimit(10**9)
        class Odd:
            def __getattr__(self, name): return getattr(self, name)
        Odd().x
        """,
        error=f"{GONE}|MemoryError",
        rlimits=True,
    ),
    "a segmentation fault": Attack(
        "import ctypes\nctypes.string_at(0)", error=rf"{GONE} \(killed by SIGSEGV\)", rlimits=True
    ),
    "os._exit": Attack("import os\nos._exit(3)", error=rf"{GONE} \(exit status 3\)", rlimits=True),
    "killing itself": Attack(
        "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
        error=rf"{GONE} \(killed by SIGKILL\)",
        rlimits=True,
    ),
    "abort": Attack("import os\nos.abort()", error=rf"{GONE} \(killed by SIGABRT\)", rlimits=True),
    "another program": Attack(
        "import os\nos.execv('/bin/sh', ['sh', '-c', 'exit 7'])", error=GONE, rlimits=True
    ),
    # Processes
    "fork bomb": Attack("import os\nwhile True: os.fork()", error="PermissionError"),
    "a fork that goes on": Attack(
        """
        import os
        for call in (os.fork, lambda: os.posix_spawn("/bin/sleep", ["sleep", "1000"], {}), os.forkpty):
            try:
                call()
            except OSError:
                continue
            return 'forked'
        return 'refused'
        """,
        result="refused",
    ),
    "a subprocess": Attack("import subprocess\nsubprocess.run(['sleep', '1000'])", error="PermissionError"),
    "a thread left behind": Attack(
        "import threading\ndef f():\n    while True: pass\nthreading.Thread(target=f).start()",
        error="RuntimeError",
    ),
    "signals to the parent": Attack(
        """
        import os, signal
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGSTOP, signal.SIGKILL):
            os.kill(os.getppid(), number)
            try:
                os.kill(-1, number)
            except ProcessLookupError:  # there is nobody else
                pass
        return sorted(each for each in os.listdir('/proc') if each.isdigit())
        """,
        result=r"\['1', '2'\]",
    ),
    # Files
    "writing files anywhere": Attack(
        """
        import os
        written = []
        for folder in ('/', '/usr', '/usr/lib', '/etc', '/root', '/home', '/dev', '/dev/shm', '/sandbox',
                       '/sandbox/child', '/proc/self', '/var/tmp', '/run', HOME, CHECKOUT, FOLDER):
            try:
                with open(folder + '/hostile', 'w'):
                    written.append(folder)
            except OSError:
                pass
        return written
        """,
        result=r"\[\]",
    ),
    "writing the kernel's settings": Attack(
        """
        import os
        opened = []
        for root, folders, files in os.walk('/proc'):
            folders[:] = [each for each in folders if each != 'fd']  # its own
            for path in (os.path.join(root, name) for name in files):
                try:
                    os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
                    opened.append(path)
                except OSError:
                    pass
        return opened
        """,
        result=r"\[\]",
    ),
    "deleting files": Attack(
        """
        import os, shutil, sys
        try:
            os.remove(sys.executable)
        except OSError as error:
            reason = str(error)
        for folder in ('/usr/bin', '/sandbox', CHECKOUT, FOLDER):
            shutil.rmtree(folder, ignore_errors=True)
        return reason
        """,
        result="Read-only file system",
    ),
    "reading the home directory": Attack(
        """
        import os
        seen = []
        for folder in ('/root', '/home', HOME, CHECKOUT, FOLDER, os.path.expanduser('~')):
            try:
                seen += os.listdir(folder)
            except OSError:
                pass
        return seen
        """,
        result=r"\[\]",
    ),
    "reading /etc": Attack("return open('/etc/passwd').read()", error="FileNotFoundError"),
    "filling the disk": Attack(
        """
        for number in range(1024):
            with open(f'/tmp/{number}', 'wb') as file: file.write(b'x' * 2**20)
        """,
        error="OSError: .*No space left",
    ),
    "one huge file": Attack("open('/tmp/big', 'wb').write(b'x' * 2**25)", error="OSError"),
    "a huge sparse file": Attack("open('/tmp/big', 'wb').truncate(2**40)", error="OSError"),
    "exhausting file descriptors": Attack(
        "kept = []\nwhile True: kept.append(open('/dev/null'))",
        error="OSError: .*Too many open files",
        rlimits=True,
    ),
    "installed packages": Attack(
        """
        import os, sys
        found = []
        for folder, folders, files in os.walk('/'):
            if folder == '/':
                folders.remove('proc')
            if os.path.basename(folder) in ('site-packages', 'dist-packages'):
                found += folders + files
                sys.path.append(folder)
        for name in ('envs', 'minigrid', 'crafter', 'scienceworld', 'speedrunner', 'msgspec', 'pip'):
            try:
                __import__(name)
                found.append(name)
            except ImportError:
                pass
        return found
        """,
        result=r"\[\]",
    ),
    # What others know
    "environment variables": Attack(
        """
        import os
        texts = [str(dict(os.environ))]
        for pid in ('self', '1', '2'):
            try:
                texts.append(open(f'/proc/{pid}/environ').read())
            except OSError:
                pass
        return [each for each in texts if 'SECRET' in each or 'PATH=' in each.replace('LD_LIBRARY_PATH=', '')]
        """,
        result=r"\[\]",
    ),
    "processes of others": Attack(
        """
        import os
        names = [open(f'/proc/{pid}/comm').read().strip() for pid in os.listdir('/proc') if pid.isdigit()]
        others = []
        for what in ('mem', 'fd/0', 'fd/1', 'fd/2'):
            try:
                os.close(os.open(f'/proc/1/{what}', os.O_RDWR | os.O_NONBLOCK))
                if what == 'mem': others.append(what)
            except OSError:
                pass
        return names + others
        """,
        result=r"\['bwrap', 'python3?[.\d]*'\]",
    ),
    "the environment and the task": Attack(
        """
        import gc, sys
        known = {'envs', 'tests.toy_env', 'speedrunner.hosts.host_process'} & set(sys.modules)
        names = {type(each).__name__ for each in gc.get_objects()}
        return sorted(known) + sorted(names & {'Corridor', 'Task', 'TextEnv'})
        """,
        result=r"\[\]",
        rlimits=True,
    ),
    # The network
    "the Internet": Attack("import socket\nsocket.create_connection(('1.1.1.1', 53), 1)", error=REFUSED),
    "loopback": Attack("import socket\nsocket.socket().connect(('127.0.0.1', 22))", error=REFUSED),
    "an abstract Unix socket": Attack(
        "import socket\nsocket.socket(socket.AF_UNIX).connect('\\0hostile')", error=REFUSED
    ),
    "a Unix socket in a folder": Attack(
        "import socket\nsocket.socket(socket.AF_UNIX).connect(SOCKET)", error=REFUSED
    ),
    "seeing a Unix socket in a folder": Attack(
        "import os\nreturn os.path.exists(SOCKET), os.path.exists(os.path.dirname(SOCKET))",
        result=r"\[False, False\]",
    ),
    "a netlink socket": Attack(
        "import socket\nsocket.socket(socket.AF_NETLINK, socket.SOCK_RAW)", error=REFUSED
    ),
    # The kernel
    "system calls through ctypes": Attack(
        """
        import ctypes, platform
        numbers = {'fork': 57, 'unshare': 272, 'ptrace': 101, 'memfd_create': 319, 'shmget': 29, 'mount': 165,
                   'keyctl': 250, 'bpf': 321, 'x32 fork': 0x40000000 + 57}
        if platform.machine() != 'x86_64':
            numbers = {'clone': 220, 'unshare': 97, 'ptrace': 117, 'memfd_create': 279, 'shmget': 194}
        libc = ctypes.CDLL(None, use_errno=True)
        allowed = []
        for name, number in numbers.items():
            ctypes.set_errno(0)
            if libc.syscall(number, b'x', 0, 0, 0, 0) != -1 or ctypes.get_errno() != 1:
                allowed.append(name)
        return allowed
        """,
        result=r"\[\]",
    ),
    # The protocol
    "no JSON": Attack("say(body=b'{{{')\nlook()", error=KILLED, rlimits=True),
    "no message": Attack("say('bribe', 1)\nlook()", error=KILLED, rlimits=True),
    "too much in a message": Attack("say('end', 0, 1, None, 2)\nlook()", error=KILLED, rlimits=True),
    "a negative count": Attack("say('end', -1, 1, None)\nlook()", error=KILLED, rlimits=True),
    "a depth that is the tool call's": Attack(
        "say('leave', 0, 0, 1, None)\nlook()", error=KILLED, rlimits=True
    ),
    "a message announced as huge": Attack("raw(b'\\xff' * 8)\nlook()", error=KILLED, rlimits=True),
    "half a message": Attack(
        "raw(b'\\0\\0\\0\\x64[')\nwhile True: pass", error=f"{TIME}|{KILLED}", rlimits=True
    ),
    "nested brackets": Attack("say(body=b'[' * 10**6)\nlook()", error=KILLED, rlimits=True),
    "a lone surrogate": Attack(
        """say(body=b'["end",0,"\\\\ud800",null]')\nlook()""", error=KILLED, rlimits=True
    ),
    "a skill that is none": Attack("say('enter', 'solve', {})\nlook()", error=KILLED, rlimits=True),
    "a primitive that is none": Attack("say('call', 'win', [], {})\nlook()", error=KILLED, rlimits=True),
    "an attribute of the environment": Attack(
        "say('call', '__init__', [], {})\nlook()", error=KILLED, rlimits=True
    ),
    "closing all file descriptors": Attack(
        "import os\nos.closerange(0, 1000)\nlook()", error=f"{GONE}|OSError"
    ),
    # Values
    "an endless repr": Attack(
        "class Odd:\n    def __repr__(self):\n        while True: pass\nreturn Odd()",
        error=TIME,
        rlimits=True,
    ),
    "an exception whose text is endless": Attack(
        "class Odd(Exception):\n    def __str__(self):\n        while True: pass\nraise Odd",
        error=TIME,
        rlimits=True,
    ),
    "an endless argument": Attack(
        """
        class Odd(str):
            def __len__(self): return 10**18
        class Endless(list):
            def __iter__(self):
                while True: yield 1
        return helper(Endless([1])), helper(Odd('x'))
        """,
        result=r"\[1, 1\]",
        rlimits=True,
    ),
    "an argument that is no JSON": Attack("walk(object())", error="TypeError", rlimits=True),
    "an unbounded result": Attack("return 'x' * 10**8", result="x", rlimits=True),
    "a result within itself": Attack("a = []\na.append(a)\nreturn a", result=r"\[\[", rlimits=True),
    "a pickle": Attack(
        """
        import os, pickle
        class Bomb:
            def __reduce__(self): return os.system, ('touch /tmp/hostile-pickle',)
        return pickle.dumps(Bomb())
        """,
        result=r"^b'",
        rlimits=True,
    ),
    "a result of bytes and numbers": Attack(
        "return {'a': float('inf'), 'b': 10**400, 'c': {1, 2}, 'd': b'\\xff'}", result="inf", rlimits=True
    ),
    "a finalizer that never returns": Attack(
        "class Odd:\n    def __del__(self):\n        while True: pass\nOdd()\nlook()",
        error=TIME,
        rlimits=True,
    ),
}


def unchecked(body: str) -> Module:
    """Skills that nobody has validated."""
    known = {
        "HOME": str(Path.home()),
        "CHECKOUT": str(Path.cwd()),
        "FOLDER": str(Path(__file__).parent),
        "SOCKET": str(SOCKET),
    }
    source = "\n\n".join(
        [
            *(f"{name} = {value!r}" for name, value in known.items()),
            FORGE,
            "def helper(x):\n    return 1",
            "def honest():\n    walk(1)\n    return helper(2)",
            f"def attack():\n{textwrap.indent(textwrap.dedent(body), '    ')}",
        ]
    )
    return Module(source, ("helper", "honest", "attack"))


@pytest.fixture(scope="module")
def listener() -> Iterator[socket.socket]:
    """A Unix socket of somebody else, who would answer."""
    SOCKET.parent.mkdir()
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(SOCKET))
            listening.listen()
            listening.setblocking(False)
            yield listening
    finally:
        shutil.rmtree(SOCKET.parent)


def ours() -> set[int]:
    """The running processes of this file's sandboxes."""
    mark = f'"AS": {MEMORY_MB * MIB},'.encode()
    found = set()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (path / "cmdline").read_bytes() and "\nState:\tZ" not in (path / "status").read_text():
                found.add(int(path.name))
        except OSError:
            continue
    return found


def left_behind() -> list[Path]:
    """Files that an attack has made outside."""
    return [path for folder in ("/tmp", "/var/tmp", Path.home()) for path in Path(folder).glob("hostile*")]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - another process tells no event
            await asyncio.sleep(0.01)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["bubblewrap", "rlimits"])
async def pool(request: pytest.FixtureRequest, listener: socket.socket) -> AsyncIterator[HostPool]:
    kind: Literal["bubblewrap", "rlimits"] = request.param
    os.environ["SPEEDRUNNER_TEST_SECRET"] = "SECRET"
    try:
        async with HostPool(1, ENV, sandbox=Sandbox(kind, MEMORY_MB)) as started:
            started.kind = kind  # type: ignore[attr-defined]
            yield started
            with pytest.raises(BlockingIOError):  # nobody has called
                listener.accept()
    finally:
        del os.environ["SPEEDRUNNER_TEST_SECRET"]
    await until(lambda: not ours())


async def play(host: Host, body: str, name: str = "attack", limit_s: float = PLENTY_S) -> Executed:
    await host.reset(Task(ENV, "default", 50), unchecked(body), None)
    return await host.execute(ToolCall(name, {}), limit_s)


async def assert_well(pool: HostPool, pid: int) -> None:
    """The next episode is played in the same host, by a process of its own, as if nothing had happened."""
    async with pool.host() as host:
        assert host.pid == pid
        executed = await play(host, "pass", "honest")
        assert (executed.node.error, executed.node.result, executed.actions) == (None, 1, 1)
        assert [each.name for each in executed.node.calls] == ["walk", "helper"]


@pytest.mark.parametrize("name", ATTACKS)
async def test_an_attack_is_contained(pool: HostPool, name: str) -> None:
    attack = ATTACKS[name]
    if pool.kind == "rlimits" and not attack.rlimits:  # type: ignore[attr-defined]
        pytest.skip("limits on resources alone do not contain it")
    async with pool.host() as host:
        pid = host.pid
        endless = (attack.error or "").startswith(TIME)
        executed = await play(host, attack.body, limit_s=SHORT_S if endless else PLENTY_S)
        if attack.error is None:
            assert executed.node.error is None
            assert re.search(attack.result or "", str(executed.node.result)), executed.node.result
        else:
            assert re.search(attack.error, executed.node.error or ""), (
                executed.node.error,
                executed.node.result,
            )
        assert executed.outcome.score == (1.0 if executed.ending else 0.0)
        if executed.ending is None:  # the same episode goes on
            walked = await host.execute(ToolCall("honest", {}), SHORT_S)
            if walked.node.error is not None:  # what the attack left behind is found now, and once
                assert re.match("InvalidMessage|SkillProcessEnded|TimeLimitReached", walked.node.error)
                walked = await host.execute(ToolCall("honest", {}), PLENTY_S)
            assert (walked.node.error, walked.node.result) == (None, 1)
    await assert_well(pool, pid)
    assert len(ours()) <= 1 + 2 * 3  # the host, and bubblewrap's three processes: in use and spare
    assert not left_behind()


def names(node: CallNode) -> list[str]:
    return [each.name for each in node.calls]


@pytest.mark.parametrize("name", ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"])
async def test_each_kind_of_namespace_is_its_own(pool: HostPool, name: str) -> None:
    if pool.kind == "rlimits":  # type: ignore[attr-defined]
        pytest.skip("limits on resources isolate nothing")
    path = f"/proc/self/ns/{name}"
    async with pool.host() as host:
        executed = await play(host, f"import os\nreturn os.readlink({path!r})")
    inside, outside = executed.node.result, os.readlink(path)  # noqa: PTH115
    assert inside.partition("[")[0] == outside.partition("[")[0] == f"{name}:"
    assert inside != outside


async def test_its_network_has_no_way_out(pool: HostPool) -> None:
    if pool.kind == "rlimits":  # type: ignore[attr-defined]
        pytest.skip("limits on resources isolate nothing")
    async with pool.host() as host:
        executed = await play(host, "return open('/proc/net/dev').read()")
    _, _, *devices = executed.node.result.strip().splitlines()
    assert [line.split(":")[0].strip() for line in devices] == ["lo"]


class TestWhatIsRecorded:
    async def test_replaced_primitives_move_nothing(self, pool: HostPool) -> None:
        body = "global walk\nwalk = lambda *a: 'You are at the flag.'\nreturn walk(50)"
        async with pool.host() as host:
            executed = await play(host, body)
        assert (executed.node.result, executed.actions, executed.ending) == ("You are at the flag.", 0, None)
        assert executed.outcome.score == 0
        assert executed.node.calls == []

    async def test_a_silenced_tracer_hides_no_primitive(self, pool: HostPool) -> None:
        body = """
            import gc
            tracer = next(o for o in gc.get_objects() if type(o).__name__ == "Tracer")
            type(tracer)._tell = lambda *a: None
            helper(1)
            walk(2)
            walk(3)
            return helper(2)
        """
        async with pool.host() as host:
            executed = await play(host, body)
        assert names(executed.node) == ["walk", "walk"]
        assert (executed.actions, executed.node.actions) == (2, 2)

    async def test_forged_calls_of_primitives_are_calls_of_primitives(self, pool: HostPool) -> None:
        body = "for _ in range(3): say('call', 'walk', [1], {})\nreturn walk(1)"
        async with pool.host() as host:
            executed = await play(host, body)
        assert names(executed.node) == ["walk"] * 4
        assert executed.outcome.score == 4 / 50

    async def test_a_forged_tree_is_a_bounded_tree_of_skills(self, pool: HostPool) -> None:
        body = f"for _ in range(3 * {NODE_LIMIT}): say('enter', 'helper', {{'x': 'y' * 300}})\nwalk(1)"
        async with pool.host() as host:
            executed = await play(host, body)
        depth, node = 0, executed.node
        while node.calls:
            depth, node = depth + 1, node.calls[-1]
        assert depth <= DEPTH_LIMIT
        assert node.name == "walk"

    async def test_a_flood_of_refused_calls_is_counted(self, pool: HostPool) -> None:
        n = NODE_LIMIT + 500
        body = f"""
            for _ in range({n}):
                try:
                    walk('far')
                except Exception:
                    pass
        """
        async with pool.host() as host:
            executed = await play(host, body)
        node = executed.node
        assert (node.error, executed.actions) == (None, 0)
        assert (len(node.calls), node.omitted) == (NODE_LIMIT - 1, 501)

    async def test_a_flood_of_errors_is_kept_as_far_as_there_is_room(self, pool: HostPool) -> None:
        body = """
            error = 'x' * 20_000
            for _ in range(1_000):
                say('enter', 'helper', {})
                say('leave', 1, 0, None, error)
        """
        async with pool.host() as host:
            executed = await play(host, body)
        assert len(executed.node.calls) == 1_000
        assert len(msgspec.json.encode(executed)) < 2 * TEXT_LIMIT

    async def test_a_forged_end_ends_the_call_and_what_follows_is_found(self, pool: HostPool) -> None:
        body = "raw(frame('end', 0, 'won', None) + frame('call', 'walk', [50], {}))\nwhile True: pass"
        async with pool.host() as host:
            executed = await play(host, body)
            assert (executed.node.result, executed.outcome.score) == ("won", 0)
            after = await host.execute(ToolCall("honest", {}), SHORT_S)
            assert re.match(KILLED, after.node.error or "")
            assert (after.actions, after.outcome.score) == (0, 0)

    async def test_the_last_action_before_a_death_is_scored(self, pool: HostPool) -> None:
        async with pool.host() as host:
            executed = await play(host, "walk(5)\nhelper(1)\nimport os\nos._exit(0)")
            assert (executed.outcome.score, executed.actions) == (0.1, 1)
            assert names(executed.node) == ["walk", "helper"]
            assert (await host.execute(ToolCall("walk", {"steps": 45}), PLENTY_S)).ending is Ending.SUCCESS


async def test_nothing_runs_between_episodes(pool: HostPool) -> None:
    body = "say('end', 0, 1, None)\nwhile True: pass"
    async with pool.host() as host:
        await play(host, body)
        busy = ours()
    await until(lambda: not busy & ours() or len(ours()) <= 3)


async def test_an_episode_gets_a_process_that_no_other_had(pool: HostPool) -> None:
    body = (
        "import sys\nsys.modules['left'] = 1\nopen('/tmp/hostile-left', 'w').close()"
        if (
            pool.kind == "bubblewrap"  # type: ignore[attr-defined]
        )
        else "import sys\nsys.modules['left'] = 1"
    )
    async with pool.host() as host:
        assert (await play(host, body)).node.error is None
    async with pool.host() as host:
        after = await play(
            host, "import os, sys\nreturn 'left' in sys.modules or os.path.exists('/tmp/hostile-left')"
        )
    assert after.node.result is False
