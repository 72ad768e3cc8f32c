"""A lock that one process holds on a folder, for local disks, NFS and Lustre. It names its owner.

The lock is a folder with one file, the owner's, with a name that is never reused. A process claims the lock
by renaming a prepared folder onto it. The rename succeeds only if nothing or an empty folder is there. This
works without `fcntl`, which is unreliable on network file systems:

- Only one of several claimants wins, because the folder is not empty after the first rename. The owner's file
  arrives with the rename, so a lock always names its owner.
- To take over a stale lock, a process removes the dead owner's file and claims the lock like any other. Two
  processes cannot both win, because the rename decides. A slow one removes a name that no longer exists,
  never the new owner's file, because that name differs.

For an owner on this machine, the process table shows whether it is alive. Any other owner shows that it is
alive by touching its file. The file's age is measured with the file system's clock, since clocks of nodes
differ. A date in the future says nothing, so a claimant sets it to now, and the silence counts from there. A
claimant waits while an owner has missed two signs of life and is not stale yet, such as a job's former start.
"""

from __future__ import annotations

import errno
import getpass
import os
import shutil
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Annotated

import msgspec

from speedrunner.plain.slurm import own_job
from speedrunner.store.files import (
    FOLDER_MODE,
    StorageError,
    explain_errors,
    read_content,
    sync_folder,
    temporary_name,
    write_new,
)

BEAT_S = 20.0
"""Seconds between two signs of life."""
STALE_S = 120.0
"""Seconds without a sign of life after which an owner on another machine counts as dead."""

_TRIES = 100
_PAUSE_S = 0.05
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # keeps counting while the machine sleeps

GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)
"""Errors of a file that another process removed; NFS says ESTALE for one that this process has seen."""

TAKEN = (errno.ENOTEMPTY, errno.EEXIST)
"""Errors of a folder with another owner's file."""


class LockHeld(StorageError):
    """Another process holds the lock."""


class OwnerSilent(LockHeld):
    """The owner, on another machine, misses signs of life. Its lock expires unless one comes."""


class LockLost(StorageError):
    """This process has lost the lock; it must not write any more."""


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """A process that holds the lock.

    Attributes:
        machine: the scope of its process id: this boot of the kernel, and the container.
        started: start of the process in clock ticks since boot, to detect a reused id.
        job: Slurm job id.
        since: Unix seconds on the owner's clock.
    """

    host: str
    machine: str
    pid: Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
    started: int | None
    user: str
    job: str | None
    since: Annotated[float, msgspec.Meta(ge=0, le=2**40)]

    def __str__(self) -> str:
        job = f" (Slurm job {self.job})" if self.job else ""
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"process {self.pid} of {self.user} on {self.host}{job}, since {since}"


def this_process() -> Owner:
    """Return this process as the owner of a lock."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # the account has no name, as in containers
        user = f"user {os.getuid()}"
    pid = os.getpid()
    return Owner(
        host=socket.gethostname(),
        machine=_machine(),
        pid=pid,
        started=_start(pid),
        user=user,
        job=own_job(),
        since=time.time(),
    )


def _machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return uuid.uuid4().hex  # not Linux: process ids cannot be checked, signs of life decide


def _start(pid: int) -> int | None:
    """Return the start of a process in clock ticks since boot; 0 for a zombie.

    Return `None` if it is unknown: no such process, or the system hides those of other users. The value comes
    from /proc because psutil's start times change when the wall clock is set.
    """
    try:
        # The second field, the command's name in brackets, may contain any characters.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return 0 if fields[0] in "ZX" else int(fields[19])


def is_alive(owner: Owner | None) -> bool | None:
    """Return whether the owner's process runs; `None` if this machine's process table does not show it."""
    if owner is None or owner.machine != _machine():
        return None
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it exists, but belongs to another user
    started = _start(owner.pid)
    return None if started is None else started == owner.started


class RunLock:
    """Context manager that holds the lock at `path`; the parent folder must exist.

    Args:
        patience_s: seconds to wait for another process to release it.

    Raises on entering:
        LockHeld: another process holds it.
        StorageError: it cannot be written.
    """

    def __init__(self, path: Path, patience_s: float = 0.0) -> None:
        self.path = path
        self._patience_s = patience_s
        self._token = uuid.uuid4().hex
        self._pid = os.getpid()
        self._file = path / f"{socket.gethostname()}-{self._pid}-{self._token}.json"
        self._lost = False
        self._last_beat = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="run-lock", daemon=True)

    def __enter__(self) -> RunLock:
        patience, tries = round(self._patience_s / _PAUSE_S), _TRIES
        while not self._claim():
            holder = self._holder()
            if holder is not None and not _holds(_read_owner(holder), self._silence(holder)):
                with explain_errors(self.path, "taken over from a process that no longer exists"):
                    holder.unlink(missing_ok=True)
                continue
            if holder is not None and not patience:
                raise self._held_by(holder)
            # Without a holder, the lock was released between the two checks, or removed during a read: NFS
            # then keeps a file with a dotted name until the reader closes it.
            patience -= holder is not None
            tries -= holder is None
            if not tries:
                raise LockHeld(f"many processes are trying to use {self.path.parent}: try again")
            time.sleep(_PAUSE_S)
        with explain_errors(self.path, "read"):
            self._folder = self.path.parent.stat()
        self._last_beat = time.clock_gettime(_CLOCK)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if os.getpid() != self._pid:
            return  # a forked child exits; the lock stays with its parent
        self._stop.set()
        self._thread.join()
        with explain_errors(self.path, "released"):
            self._file.unlink(missing_ok=True)
            with _ignore(*TAKEN, *GONE):  # remaining files belong to the next owner or to a reader
                self.path.rmdir()

    def check(self) -> None:
        """Raise `LockLost` if another process took over the lock while this one seemed dead, or if another
        folder is in the place of the locked one.

        This is cheap: it looks for the lock only if the last sign of life is old, for example after the
        machine slept.
        """
        if time.clock_gettime(_CLOCK) - self._last_beat > STALE_S / 2:
            self.refresh()
        with suppress(OSError):  # the write says what is wrong with the file system
            if not os.path.samestat(self.path.parent.stat(), self._folder):
                raise LockLost(f"{self.path.parent} was replaced by another folder: nothing more is written")
        if self._lost:
            holder = self._holder()
            by = f"taken over by {_describe(holder)}" if holder else "removed"
            raise LockLost(
                f"the lock on {self.path.parent} is no longer held by this process, it was {by} while"
                " this process did not respond: nothing more is written"
            )

    def refresh(self) -> None:
        """Give a sign of life, or notice that the lock is lost."""
        try:
            os.utime(self._file)
        except OSError as error:
            if error.errno not in GONE:
                return  # the file system is unavailable; the next beat tries again
            self._lost = True
        self._last_beat = time.clock_gettime(_CLOCK)

    def _beat(self) -> None:
        while not self._stop.wait(BEAT_S):
            self.refresh()

    def _claim(self) -> bool:
        """Try to become the owner; return whether that worked."""
        claim = temporary_name(self.path.with_name(self._token))
        owner = msgspec.json.encode(this_process())
        with explain_errors(self.path, "written"):
            claim.mkdir(mode=FOLDER_MODE)
            try:
                with _ignore(*TAKEN, *GONE):  # a new owner removes claims
                    # A lock whose owner cannot be read after a power cut would block the run until it is
                    # stale.
                    write_new(claim / self._file.name, owner)
                    sync_folder(claim)
                    claim.rename(self.path)
            finally:
                shutil.rmtree(claim, ignore_errors=True)
            # The rename's result is not reliable: NFS may repeat a rename after losing its first answer.
            return self._file.exists()

    def _holder(self) -> Path | None:
        with explain_errors(self.path, "read"), _ignore(*GONE):
            return _find_holder(self.path)
        return None

    def _silence(self, holder: Path) -> float:
        """Return the seconds since the last sign of life, on the file system's clock."""
        probe = temporary_name(self.path.with_name(f"{self._token}-probe"))
        with explain_errors(self.path, "checked"):
            probe.touch()
            try:
                with _ignore(*GONE):
                    silence_s = probe.stat().st_mtime - holder.stat().st_mtime
                    if silence_s < -BEAT_S:
                        with suppress(PermissionError):  # another user's
                            os.utime(holder)
                    return silence_s
                return 0.0  # the next try reads the new state
            finally:
                probe.unlink(missing_ok=True)

    def _held_by(self, holder: Path) -> LockHeld:
        line = f"{self.path.parent} is in use by {_describe(holder)}: wait for it or stop it"
        if is_alive(_read_owner(holder)) is not None:
            return LockHeld(line)
        silence_s = self._silence(holder)
        kind = OwnerSilent if silence_s > 2 * BEAT_S else LockHeld
        return kind(
            f"{line} (if it no longer runs, the lock expires {STALE_S:.0f} s after its last sign of life,"
            f" which was {max(silence_s, 0.0):.0f} s ago)"
        )


@contextmanager
def _ignore(*errors: int) -> Iterator[None]:
    """Ignore these errors of the file system."""
    try:
        yield
    except OSError as error:
        if error.errno not in errors:
            raise


def _find_holder(path: Path) -> Path | None:
    """Return the owner's file of a lock. Raises `OSError`."""
    return next((file for file in path.iterdir() if not file.name.startswith(".")), None)


def _describe(holder: Path) -> str:
    return str(_read_owner(holder) or holder.name.removesuffix(".json"))


def _read_owner(holder: Path) -> Owner | None:
    """Return the lock's owner; `None` if it cannot be read (gone, no permission, lost in a crash)."""
    try:
        return msgspec.json.decode(read_content(holder), type=Owner)
    except (StorageError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _holds(owner: Owner | None, silence_s: float) -> bool:
    """Return whether an owner still holds its lock, this many seconds after its last sign of life."""
    alive = is_alive(owner)
    return silence_s <= STALE_S if alive is None else alive


def owner_of(path: Path) -> str | None:
    """Return the process that holds the lock at `path`, if a reader can see one; `None` if it is free.

    The silence of a process on another machine is measured with this machine's clock.
    """
    with suppress(OSError):
        holder = _find_holder(path)
        if holder and _holds(_read_owner(holder), time.time() - holder.stat().st_mtime):
            return _describe(holder)
    return None
