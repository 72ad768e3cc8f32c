"""What an isolated process sees and may do before its system calls are filtered, and what a lack says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from speedrunner.config.schema import SandboxConfig
from speedrunner.workers.sandbox import isolation
from speedrunner.workers.sandbox.child_process import Child, require
from speedrunner.workers.sandbox.isolation import SandboxError, bubblewrap_command, interpreter
from tests.processes import HANGS_S

pytestmark = pytest.mark.process


def command(code: str, **mounts: Path) -> list[str]:
    places = {f"/data/{name}": path for name, path in mounts.items()}
    return [*bubblewrap_command(places), interpreter(), "-I", "-S", "-c", code]


def printed(code: str, **mounts: Path) -> list[str]:
    done = subprocess.run(command(code, **mounts), cwd="/", capture_output=True, text=True, timeout=HANGS_S)
    assert not done.stderr
    return done.stdout.splitlines()


LOOK = """
import glob, importlib, os, sys
library = os.path.dirname(os.__file__)
failed = []
for file in glob.glob(library + '/lib-dynload/*.so'):
    name = os.path.basename(file).partition('.')[0]
    if name != '_tkinter':
        try:
            importlib.import_module(name)
        except ImportError as error:
            failed.append(str(error))
files = [os.path.join(folder, name) for folder, _, names in os.walk('/') for name in names
         if not folder.startswith(library) and '.so' not in name]
print(failed, sorted(files), [path for path in sys.path if 'packages' in path], os.getpid(), sep='\\n')
"""


def test_it_sees_this_python_with_its_whole_library_the_folders_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "inside").write_text("")
    files = ["/data/draft/inside", "/dev/null", interpreter()]
    assert printed(LOOK, draft=tmp_path) == ["[]", str(files), "[]", "2"]


def test_packages_in_the_folder_of_the_library_are_hidden(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    library = tmp_path / "conda/lib/python3.11"
    (library / "dist-packages").mkdir(parents=True)
    (library / "site-packages").symlink_to(tmp_path)
    program = tmp_path / "conda/bin/python3.11"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path / "conda"))
    monkeypatch.setattr(sys, "_base_executable", str(program))
    with pytest.raises(SandboxError, match=r"outside of Python's prefix .*conda"):
        isolation.show_python.__wrapped__()
    monkeypatch.setattr(os, "__file__", str(library / "os.py"))
    hidden = "/python/lib/python3.11/dist-packages"
    assert isolation.show_python.__wrapped__()[:10] == (
        *("--ro-bind", str(program), "/python/bin/python3.11"),
        *("--ro-bind", str(library), "/python/lib/python3.11"),
        *("--tmpfs", hidden, "--remount-ro", hidden),
    )


EVERY_WAY = """
import ctypes, errno, os, socket
done = []
def attempt(what, function, *arguments):
    try:
        function(*arguments)
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EPERM):
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
attempt('name', libc, 'sethostname', socket.gethostname().encode(), len(socket.gethostname()))
print(done)
"""
"""Harmless where it is not contained: modes and a name that are there already, a place that only this has."""


def test_nothing_can_be_written_mounted_or_left(tmp_path: Path) -> None:
    assert printed(EVERY_WAY, draft=tmp_path) == ["[]"]


def test_its_processes_have_no_capability_and_end_with_their_parent() -> None:
    code = command("import time; print('ready', flush=True); time.sleep(90)")
    parent = f"import subprocess; subprocess.run({code!r}, stdin=subprocess.DEVNULL)"
    with subprocess.Popen(
        [sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            below = psutil.Process(process.pid).children(recursive=True)
            assert len(below) == 3
            for inside in below:
                lines = Path(f"/proc/{inside.pid}/status").read_text().splitlines()
                status = dict(line.split(":\t", 1) for line in lines)
                assert {int(status[name], 16) for name in ("CapPrm", "CapEff", "CapInh", "CapAmb")} == {0}
                assert status["NoNewPrivs"] == "1"
            process.kill()
            assert process.communicate(timeout=HANGS_S) == ("", None)  # no process holds the pipe any more
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def test_a_missing_bubblewrap_is_reported_with_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxError, match=r"not installed; install it .* sandbox.kind=rlimits"):
        Child(SandboxConfig(), "skills")


REQUIRE = """
from speedrunner.config.schema import SandboxConfig
from speedrunner.workers.sandbox import child_process
try:
    child_process.require(SandboxConfig())
except child_process.SandboxError as error:
    print(error)
"""


def test_a_machine_without_user_namespaces_is_reported_with_what_to_ask_for() -> None:
    """In a user namespace that is limited to no further ones, which limits no one else."""
    limit = "echo 0 > /proc/sys/user/max_user_namespaces"
    shell = ("sh", "-c", f'{limit}; exec "$0" -c "$1"', sys.executable, REQUIRE)
    tried = subprocess.run(("unshare", "--user", "--map-root-user", *shell), capture_output=True, text=True)
    (line,) = tried.stdout.splitlines()
    assert line.startswith("skills cannot be isolated here: a sandboxed process did not start: bwrap: ")
    assert "ask the administrators to allow user namespaces" in line
    assert "set sandbox.kind=rlimits to run skills without isolation" in line
    require.cache_clear()
