"""Hostile code, and what must come of it: in a skill or in a code session, under each kind of sandbox.

What could harm the machine if it were not contained stays harmless then: modes and times that a file already
has, signal 0, folders that are not empty, bounded numbers of processes and bytes.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from speedrunner.workers.sandbox.child.confinement import allowed_calls

SOCKET = Path(tempfile.gettempdir(), f"speedrunner-{os.getpid()}", "socket")
"""Where somebody else listens while these tests run."""

VICTIM = SOCKET.with_name("victim")
"""A file of somebody else, which everybody may change."""

TIME = "stopped at the time limit"
KILLED = "the process (of the skills )?sent .*was killed"
GONE = "the process (of the skills )?ended"
REFUSED = "PermissionError: .*Operation not permitted"


@dataclass
class Attack:
    """A function's body, and what comes of it.

    Attributes:
        body: of the function `attack`; in a skill, `helper` is another one.
        error: what its error says, as a pattern; `None` where it returns.
        result: what the returned value must be, as a pattern.
        files: whether it is contained where files and other processes can be seen (`sandbox.kind=rlimits`).
    """

    body: str
    error: str | None = None
    result: str | None = None
    files: bool = True


def refused(preparation: str, *tries: str, files: bool = True) -> Attack:
    """Each of these expressions is refused by the filter of system calls."""
    lines = "\n".join(f"    lambda: {trial}," for trial in tries)
    body = f"""\
import ctypes, errno, fcntl, os, random, signal, socket, sys, time
{preparation}
tries = [
{lines}
]
done = []
for number, each in enumerate(tries):
    try:
        each()
    except OSError as error:
        if error.errno != errno.EPERM: done.append((number, str(error)))
    except RuntimeError:
        pass
    else:
        done.append(number)
return done
"""
    return Attack(body, result=r"\[\]", files=files)


CONSTANTS = {
    "HOME": str(Path.home()),
    "CHECKOUT": str(Path.cwd()),
    "FOLDER": str(Path(__file__).parent),
    "SOCKET": str(SOCKET),
    "VICTIM": str(VICTIM),
    "ALLOWED": [call.number for call in allowed_calls().values()],
}

PRELUDE = (
    "\n".join(f"{name} = {value!r}" for name, value in CONSTANTS.items())
    + """

import ctypes, gc, json, os, struct, sys

FOUND = {}

def of_its_worker(kind):
    # The object of this class that serves the worker.
    if kind not in FOUND:
        FOUND[kind] = next((thing for thing in gc.get_objects() if type(thing).__name__ == kind), None)
    return FOUND[kind]

def raw(data):
    os.write(of_its_worker("Wire")._out, data)

def mine():
    # The number of the tool call, or the piece of code, that is being run.
    return of_its_worker("Wire")._piece

def frame(*message, body=None, piece=None):
    body = json.dumps(message).encode() if body is None else body
    return struct.pack(">II", len(body), mine() if piece is None else piece) + body

def say(*message):
    raw(frame(*message))

LIBC = ctypes.CDLL(None, use_errno=True)

def call(number, *arguments):
    if LIBC.syscall(number, *map(ctypes.c_long, arguments)) == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
"""
)
"""What the code has for its work: names of places, the pipe to its worker, raw system calls."""

TIMES = {
    "endless loop": Attack("while True: pass", error=TIME),
    "endless loop that swallows every exception": Attack(
        """
        while True:
            try:
                while True: len("")
            except BaseException:
                pass
        """,
        error=TIME,
    ),
    "no alarm, endless sleep": Attack(
        "import signal, time\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\ntime.sleep(1e6)", error=TIME
    ),
    "one endless operation in C": Attack("sum(iter(int, 1))", error=TIME),
    "stopping itself": Attack("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", error=TIME),
    "an endless repr": Attack(
        "class Odd:\n    def __repr__(self):\n        while True: pass\nreturn Odd()", error=TIME
    ),
}
"""What never ends."""

MEMORY_AND_OUTPUT = {
    "memory bit by bit": Attack(
        "kept = []\nfor _ in range(64): kept.append(bytearray(2**24))", error="MemoryError"
    ),
    "10 GB of a mapped file": Attack("import mmap\nmmap.mmap(-1, 10 * 2**30)", error="OSError"),
    "100 MB to every file descriptor": Attack(
        """
        import os
        for fd in range(3):
            for _ in range(100): os.write(fd, b'x' * 2**20)
        return 'written'
        """,
        result="written",
    ),
    "1 GB into the pipe": Attack("for _ in range(1024): raw(b'x' * 2**20)", error=f"{KILLED}|{GONE}"),
    "an unbounded result": Attack("return 'x' * 10**7", result="x"),
}

CRASHES = {
    "deep recursion without a limit": Attack(
        """
        import sys
        sys.setrecursionlimit(10**9)
        class Odd:
            def __getattr__(self, name): return getattr(self, name)
        Odd().x
        """,
        error=f"{GONE}|MemoryError",
    ),
    "a segmentation fault": Attack(
        "import ctypes\nctypes.string_at(0)", error=rf"{GONE}.*killed by SIGSEGV"
    ),
    "os._exit": Attack("import os\nos._exit(3)", error=rf"{GONE}.*exit status 3"),
    "killing itself": Attack(
        "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", error=rf"{GONE}.*killed by SIGKILL"
    ),
    "closing all file descriptors": Attack(
        "import os\nos.closerange(0, 1000)\nreturn 1", error=f"{GONE}|OSError"
    ),
}  # fmt: skip

PROCESSES = {
    "a fork bomb": refused(
        "",
        "os.fork()",
        "os.forkpty()",
        "os.posix_spawn('/bin/true', ['true'], {})",
        "__import__('subprocess').run(['true'])",
        "__import__('threading').Thread(target=len).start()",
    ),
    "another program": Attack("import os\nos.execv('/bin/true', ['true'])", error=REFUSED),
    "signals to others": refused("", *(f"os.kill({pid}, 0)" for pid in (0, 1, 3, -1, -2)), "os.killpg(0, 0)"),
}

FILES = {
    "writing files anywhere": refused(
        """def tried(use):
    left = [place for place in PLACES if not refuses(use, place)]
    if left: raise OSError(0, str(left))
    raise PermissionError(errno.EPERM, '')
def refuses(use, place):
    try:
        use(place + '/hostile')
    except PermissionError as error:
        return error.errno == errno.EPERM
PLACES = ['/', '/usr', '/usr/lib', '/etc', '/root', '/home', '/dev', '/dev/shm', '/tmp', '/var/tmp',
                  '/run', '/data', '/sandbox', '/sandbox/child', HOME, CHECKOUT, FOLDER]
""",
        "tried(lambda path: open(path, 'w'))",
        "tried(lambda path: open(path, 'a'))",
        "tried(os.mkdir)",
        "tried(lambda path: os.mkfifo(path))",
        "tried(lambda path: os.symlink('x', path))",
        "tried(lambda path: os.link('/dev/null', path))",
        "tried(lambda path: os.rename(path, path))",
    ),
    "somebody's file": refused(
        "path = VICTIM",
        "open(path, 'r+')",
        "os.truncate(path, 0)",
        "os.remove(path)",
        "os.rename(path, path)",
        "os.open(path, os.O_RDONLY | os.O_TRUNC)",
        "os.rmdir('/usr')",
    ),
    "the kernel's settings": refused(
        "", "open('/proc/sys/kernel/core_pattern', 'r+')", "open('/proc/self/mem', 'r+b')"
    ),
    "leases and locks on files that others use": refused(
        """fd = os.open(sys.modules['child.main'].__file__, os.O_RDONLY)
lock = __import__('struct').pack('hhqqi', fcntl.F_RDLCK, 0, 0, 0, 0)
""",
        "fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)",
        "fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)",
        "fcntl.fcntl(fd, fcntl.F_SETLK, lock)",
        "fcntl.fcntl(fd, 37, lock)",
        "fcntl.fcntl(fd, fcntl.F_NOTIFY, fcntl.DN_ACCESS)",
        "fcntl.fcntl(fd, fcntl.F_SETOWN, 1)",
        "fcntl.flock(fd, fcntl.LOCK_SH)",
        "fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "fcntl.lockf(fd, fcntl.LOCK_SH)",
    ),
    "devices": Attack("import os\nreturn os.listdir('/dev')", result=r"^\['null'\]$", files=False),
    "reading folders of the machine": Attack(
        """
        import os
        seen = []
        for folder in ('/etc', '/root', '/home', '/proc', '/sys', '/tmp', HOME, CHECKOUT, FOLDER):
            try:
                seen += os.listdir(folder)
            except OSError:
                pass
        return seen
        """,
        result=r"^\[\]$",
        files=False,
    ),
    "exhausting file descriptors": Attack(
        "kept = []\nwhile True: kept.append(open('/dev/null'))", error="OSError: .*Too many open files"
    ),
    "installed packages": Attack(
        """
        import glob, os, sys
        found = []
        for root in ('/usr', '/python', ''):
            found += glob.glob(f'{root}/lib*/py*/*-packages/*')
        for folder, _, _ in os.walk('/'):
            if os.path.basename(folder) in ('site-packages', 'dist-packages'):
                sys.path.append(folder)
        for name in ('envs', 'minigrid', 'crafter', 'scienceworld', 'speedrunner', 'msgspec', 'yaml'):
            try:
                __import__(name)
                found.append(name)
            except ImportError:
                pass
        return found
        """,
        result=r"^\[\]$",
        files=False,
    ),
    "environment variables": Attack(
        """
        import os
        LIBC.getenv.restype = ctypes.c_char_p
        known = [str(dict(os.environ)), str(LIBC.getenv(b'SPEEDRUNNER_TEST_SECRET'))]
        for pid in ('self', '1', '2', os.getpid(), os.getppid()):
            for name in ('environ', 'cmdline', 'mountinfo', 'mem'):
                try:
                    known.append(open(f'/proc/{pid}/{name}').read())
                except OSError:
                    pass
        return [each for each in known if each not in ('{}', 'None')]
        """,
        result=r"^\[\]$",
        files=False,
    ),
    "the environment and the task": Attack(
        """
        import gc, sys
        known = {'envs', 'tests.toy_env', 'speedrunner.workers.env_worker'} & set(sys.modules)
        names = {type(each).__name__ for each in gc.get_objects()}
        return sorted(known) + sorted(names & {'Corridor', 'Task', 'TextEnv'})
        """,
        result=r"^\[\]$",
    ),
    "seeing a Unix socket in a folder": Attack(
        "import os\nreturn os.path.exists(SOCKET), os.path.exists(os.path.dirname(SOCKET))",
        result=r"^.False, False.$",
        files=False,
    ),
}

NETWORK_AND_KERNEL = {
    "sockets": refused(
        "",
        "socket.create_connection(('1.1.1.1', 53), 1)",
        "socket.socket().connect(('127.0.0.1', 22))",
        "socket.socket(socket.AF_UNIX).connect('\\0hostile')",
        "socket.socket(socket.AF_UNIX).connect(SOCKET)",
        "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
        "socket.socketpair()",
    ),
    "every system call that is not allowed": Attack(
        """
        allowed = []
        own = (335, 336)  # uretprobe and uprobe, which the kernel answers itself, by a signal
        for base in (0, 0x40000000):
            for number in range(base, base + 480):
                if number not in ALLOWED and number - base not in own:
                    try:
                        call(number, -1, -1, -1, -1, -1, -1)
                    except PermissionError as error:
                        if error.errno == 1: continue
                    except OSError:
                        pass
                    allowed.append(number)
        return allowed
        """,
        result=r"^\[\]$",
        files=False,
    ),
}  # fmt: skip

ATTACKS = TIMES | MEMORY_AND_OUTPUT | CRASHES | PROCESSES | FILES | NETWORK_AND_KERNEL
"""For skills and for code sessions."""

ATTACKS_OF_SKILLS = {
    "endless loop around primitives": Attack(
        """
        while True:
            try:
                look()
            except BaseException:
                pass
        """,
        error=TIME,
    ),
    "forged errors for ever": Attack(
        """
        error = 'x' * 20_000
        while True:
            say('enter', 'helper', {})
            say('leave', 1, 0, None, error)
        """,
        error=TIME,
    ),
    "going on after the end, swallowing every exception": Attack(
        """
        while True:
            try:
                walk(100)
            except BaseException:
                pass
        """,
        error="EpisodeEnded: stopped because the environment has ended the episode",
    ),
    "a trace function that never returns": Attack(
        "import sys\ndef f(*a):\n    while True: pass\nsys.settrace(f)\nhelper(1)", error=TIME
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
    ),
    "an argument that is no JSON": Attack("walk(object())", error="TypeError"),
    "an argument of many values": Attack(
        "walk([[]] * 200_000)", error="ValueError: the arguments of walk are more than 250000 strings"
    ),
    "an argument of many levels": Attack(
        "x = []\nfor _ in range(950): x = [x]\nwalk(x)",
        error="ValueError: the arguments of walk are values within",
    ),
    "many values between skills, for ever": Attack(
        "values = [{}] * 1_990_000\nwhile True: helper(values)", error=TIME
    ),
    "a finalizer that never returns": Attack(
        "class Odd:\n    def __del__(self):\n        while True: pass\nOdd()\nlook()", error=TIME
    ),
}  # fmt: skip
"""For those that have primitives and other skills to call."""
