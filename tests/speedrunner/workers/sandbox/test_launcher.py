"""Namespaces of our own hold by themselves, before any filter of system calls, just as bubblewrap's do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from speedrunner.workers.sandbox.isolation import ISOLATING
from speedrunner.workers.sandbox.settings import Level
from speedrunner.workers.sandbox.view import interpreter
from tests.processes import HANGS_S

pytestmark = pytest.mark.process

PRIVATE = ("unshare", "--user", "--map-root-user")
"""A user namespace of the test's own."""

levels = pytest.mark.parametrize("level", ISOLATING)


def command(level: Level, code: str, **mounts: Path) -> list[str]:
    places = {f"/data/{name}": path for name, path in mounts.items()}
    return [*ISOLATING[level](places), interpreter(), "-I", "-S", "-c", code]


def printed(level: Level, code: str, **mounts: Path) -> str:
    done = subprocess.run(
        command(level, code, **mounts), cwd="/", capture_output=True, text=True, timeout=HANGS_S
    )
    assert not done.stderr
    return done.stdout.strip()


@contextmanager
def waiting(level: Level) -> Iterator[subprocess.Popen[str]]:
    """A command that says `ready` and waits until its input ends."""
    with subprocess.Popen(
        command(level, "print('ready', flush=True); input()"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


ABOUT_ITSELF = """
import os, socket
found = [folder for folder, _, _ in os.walk('/') if folder.count('/') < 4]
print(sorted(found), os.getpid(), os.getppid(), os.getuid(), os.getgid(), socket.gethostname(), os.getcwd())
print({name: os.environ[name] for name in ('PYTHONHASHSEED', 'LD_LIBRARY_PATH')})
print([name for _, name in socket.if_nameindex()], open('/dev/null', 'r+b').write(b'x'), os.listdir('/dev'))
"""


def test_a_command_sees_the_same_as_in_bubblewrap(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    seen = printed("namespaces", ABOUT_ITSELF, draft=tmp_path)
    assert seen == printed("bubblewrap", ABOUT_ITSELF, draft=tmp_path)
    assert "'/data/draft/inside'" in seen
    assert "'/home'" not in seen
    assert "2 1" in seen  # its process, and the first one
    assert "['lo'] 1 ['null']" in seen


EVERY_WAY = """
import ctypes, errno, os, socket
done = []
def attempt(what, function, *arguments):
    try:
        function(*arguments)
    except OSError as error:
        if error.errno in (errno.EROFS, errno.EPERM):
            return
        done.append((what, str(error)))
    else:
        done.append(what)
def libc(name, *arguments):
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) == -1:
        raise OSError(ctypes.get_errno(), name)
for folder, _, _ in os.walk('/'):
    if folder.count('/') < 4:
        attempt(folder, os.chmod, folder, os.stat(folder).st_mode & 0o7777)
attempt('remount', libc, 'mount', None, b'/data/draft', None, 0x1020, None)
attempt('mount', libc, 'mount', b'tmpfs', b'/data/draft', b'tmpfs', 0, None)
attempt('uncover', libc, 'umount2', b'/data/draft', 2)
attempt('chroot', os.chroot, '/data')
attempt('groups', os.setgroups, [])
name = socket.gethostname().encode()
attempt('name', libc, 'sethostname', name, len(name))
print(done)
"""
"""Harmless where it is not contained: modes and a name that are there already, a place that only this has."""


@levels
def test_nothing_can_be_written_mounted_or_left(level: Level, tmp_path: Path) -> None:
    assert printed(level, EVERY_WAY, draft=tmp_path) == "[]"


@levels
def test_none_of_its_processes_that_are_inside_has_a_right(level: Level) -> None:
    with waiting(level) as process:
        outside = psutil.Process(process.pid)
        for each in (outside, *outside.children(recursive=True)):
            status = dict(
                line.split(":\t", 1) for line in Path(f"/proc/{each.pid}/status").read_text().splitlines()
            )
            assert {int(status[name], 16) for name in ("CapPrm", "CapEff", "CapInh", "CapAmb")} == {0}
            assert status["NoNewPrivs"] == "1"
            assert each is outside or int(status["CapBnd"], 16) == 0


SHOW_A_MOUNT = """
import subprocess, sys
from pathlib import Path
from tests.speedrunner.workers.sandbox.test_launcher import LOOK_AT_A_MOUNT, command
print(subprocess.run(command(sys.argv[1], LOOK_AT_A_MOUNT, draft=Path(sys.argv[2])), cwd="/").returncode)
"""

LOOK_AT_A_MOUNT = """
import os
flags = os.statvfs('/data/draft/a mount').f_flag
names = ('RDONLY', 'NOSUID', 'NODEV', 'NOEXEC', 'NOATIME')
print([name for name in names if flags & getattr(os, 'ST_' + name)])
print(os.listdir('/data/draft/a mount'))
try:
    os.mkdir('/data/draft/a mount/made')
except OSError as error:
    print(error.strerror)
"""


@levels
def test_what_is_mounted_below_a_folder_is_seen_read_only_and_keeps_its_flags(
    level: Level, tmp_path: Path
) -> None:
    """Mounted in a namespace of the test's; inside, nobody may take such flags away."""
    (tmp_path / "a mount").mkdir()
    mount = 'mount -t tmpfs -o noexec,noatime none "$2/a mount" && mkdir "$2/a mount/there"'
    arguments = (SHOW_A_MOUNT, level, str(tmp_path), sys.executable)
    done = subprocess.run(
        (*PRIVATE, "--mount", "sh", "-c", f'{mount} && exec "$3" -c "$0" "$1" "$2"', *arguments),
        capture_output=True,
        text=True,
        timeout=HANGS_S,
    )
    assert done.stdout.splitlines() == [
        "['RDONLY', 'NOSUID', 'NODEV', 'NOEXEC', 'NOATIME']",
        "['there']",
        "Read-only file system",
        "0",
    ]


@levels
def test_it_ends_with_its_parent(level: Level) -> None:
    code = command(level, "import time; print('ready', flush=True); time.sleep(90)")
    parent = f"import subprocess; subprocess.run({code!r}, stdin=subprocess.DEVNULL)"
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.kill()
        assert process.communicate(timeout=HANGS_S) == ("", None)  # nobody holds the pipe any more


def test_what_cannot_be_shown_is_told_in_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        command("namespaces", "", draft=tmp_path / "gone"), capture_output=True, text=True, timeout=HANGS_S
    )
    assert done.returncode == 1
    assert done.stderr == "mount: No such file or directory (/data/draft)\n"
