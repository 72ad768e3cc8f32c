from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest

from speedrunner.store import run_lock as lock_module
from speedrunner.store.run_lock import STALE_S, LockHeld, LockLost, Owner, OwnerSilent, RunLock
from tests.processes import HANGS_S

HOLD = """
import sys, time
from pathlib import Path
from speedrunner.store.run_lock import RunLock
with RunLock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "lock"


@pytest.fixture
def other(path):
    """Another process that holds the lock until its stdin is closed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "SLURM_JOB_ID": "4711"},
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


@pytest.fixture
def left(path, monkeypatch):
    """The lock of a process of job 4711 that gives no more signs of life."""
    with monkeypatch.context() as patch:
        patch.setenv("SLURM_JOB_ID", "4711")
        lock = RunLock(path)
        lock.__enter__()
    lock._stop.set()
    return lock


def owner_file(path: Path) -> Path:
    (file,) = path.iterdir()
    return file


def move_to_another_machine(path: Path, silent_for: float) -> Owner:
    """Make the lock look as if its owner ran elsewhere and gave its last sign of life then."""
    file = owner_file(path)
    owner = msgspec.structs.replace(
        msgspec.json.decode(file.read_bytes(), type=Owner), host="node7", machine="another boot"
    )
    file.write_bytes(msgspec.json.encode(owner))
    last = time.time() - silent_for
    os.utime(file, (last, last))
    return owner


class TestOwnership:
    def test_it_leaves_nothing_behind(self, path):
        with RunLock(path):
            assert owner_file(path).exists()
        assert list(path.parent.iterdir()) == []

    def test_a_second_lock_of_the_same_process_is_refused(self, path):
        with RunLock(path), pytest.raises(LockHeld, match=f"process {os.getpid()} "), RunLock(path):
            pass

    @pytest.mark.process
    def test_a_second_process_is_refused_with_the_first_ones_name(self, path, other):
        with pytest.raises(LockHeld) as error, RunLock(path):
            pass
        message = str(error.value)
        assert message.startswith(f"{path.parent} is in use by process {other.pid} of ")
        assert "Slurm job 4711" in message
        assert "since 20" in message
        assert "\n" not in message
        assert [file.name for file in path.parent.iterdir()] == ["lock"]

    @pytest.mark.process
    def test_a_forked_child_that_unwinds_does_not_release_it(self, path):
        with RunLock(path) as lock:
            child = os.fork()
            if child == 0:
                lock.__exit__(None, None, None)
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            lock.refresh()
            lock.check()


class TestStaleLocks:
    @pytest.mark.process
    def test_a_killed_owner_on_this_machine_is_recognised_at_once(self, path, other):
        other.kill()
        other.wait()
        with RunLock(path) as lock:
            lock.check()

    @pytest.mark.process
    def test_a_stopped_owner_on_this_machine_still_owns_it_however_silent(self, path, other):
        other.send_signal(signal.SIGSTOP)
        os.utime(owner_file(path), (0, 0))
        with pytest.raises(LockHeld), RunLock(path):
            pass

    @pytest.mark.process
    def test_an_owner_on_another_machine_is_believed_while_it_gives_signs_of_life(self, path, left):
        move_to_another_machine(path, silent_for=30)
        with pytest.raises(LockHeld, match=r"on node7 .*expires 120 s .* 3\d s ago"), RunLock(path):
            pass

    def test_an_owner_on_another_machine_that_fell_silent_is_gone(self, path, left):
        move_to_another_machine(path, silent_for=STALE_S + 5)
        with RunLock(path) as lock:
            lock.check()

    def test_a_sign_of_life_in_the_future_counts_from_the_next_claim(self, path, left):
        move_to_another_machine(path, silent_for=-1e6)
        with pytest.raises(LockHeld, match=r"on node7 .*expires 120 s .* [01] s ago"), RunLock(path):
            pass
        assert abs(owner_file(path).stat().st_mtime - time.time()) < STALE_S

    def test_an_owner_that_missed_two_signs_of_life_is_silent(self, path, left):
        move_to_another_machine(path, silent_for=45)
        with pytest.raises(OwnerSilent, match=r"on node7 .*expires 120 s .* 4\d s ago"), RunLock(path):
            pass

    def test_a_patient_claimant_waits_for_the_release(self, path):
        with RunLock(path) as lock:
            waiting = threading.Thread(
                target=lambda: RunLock(path, HANGS_S).__enter__().__exit__(*[None] * 3)
            )
            waiting.start()
            lock.check()
        waiting.join(HANGS_S)
        assert not waiting.is_alive()
        assert not path.exists()

    @pytest.mark.parametrize(
        "field", [None, {"since": 1e300}, {"since": -1e18}, {"pid": 10**30}, {"pid": -1}]
    )
    def test_a_lock_whose_owner_cannot_be_read_expires_by_silence(self, path, left, field):
        owner = json.loads(owner_file(path).read_bytes())
        owner_file(path).write_text(json.dumps(owner | field) if field else "")
        with pytest.raises(LockHeld, match=str(os.getpid())), RunLock(path):
            pass
        os.utime(owner_file(path), (0, 0))
        with RunLock(path) as lock:
            lock.check()


class TestLostLocks:
    def test_a_lock_taken_over_is_noticed_and_the_new_owner_stays(self, path):
        with RunLock(path) as slept:
            move_to_another_machine(path, silent_for=STALE_S + 5)
            with RunLock(path) as taker:
                slept.refresh()
                with pytest.raises(LockLost, match=f"taken over by process {os.getpid()}"):
                    slept.check()
                slept.__exit__(None, None, None)
                taker.refresh()
                taker.check()

    def test_a_link_in_the_place_of_the_locked_folder_is_noticed_before_the_next_write(self, tmp_path):
        run, other = tmp_path / "run", tmp_path / "other"
        run.mkdir()
        other.mkdir()
        with RunLock(run / "lock") as lock:
            lock.check()
            run.rename(tmp_path / "away")
            run.symlink_to(other)
            with pytest.raises(LockLost, match="run was replaced by another folder"):
                lock.check()

    def test_a_file_that_nfs_calls_stale_is_gone(self, path, monkeypatch):
        def stale(*args):
            raise OSError(errno.ESTALE, "Stale file handle")

        with RunLock(path) as lock, monkeypatch.context() as patch:
            patch.setattr(os, "utime", stale)
            patch.setattr(lock_module, "_find_holder", stale)
            lock.refresh()
            with pytest.raises(LockLost, match="it was removed while"):
                lock.check()

    def test_after_a_long_sleep_the_disk_is_asked_before_anything_is_written(self, path, monkeypatch):
        with RunLock(path) as lock:
            owner_file(path).unlink()
            lock.check()  # as far as is known, seconds ago it was ours
            awake = time.clock_gettime(lock_module._CLOCK) + STALE_S
            monkeypatch.setattr(time, "clock_gettime", lambda clock: awake)
            with pytest.raises(LockLost):
                lock.check()

    def test_signs_of_life_are_given_by_themselves(self, path, monkeypatch):
        monkeypatch.setattr(lock_module, "BEAT_S", 0.01)
        with RunLock(path):
            os.utime(owner_file(path), (0, 0))
            deadline = time.monotonic() + HANGS_S
            while owner_file(path).stat().st_mtime == 0:
                assert time.monotonic() < deadline
                time.sleep(0.01)


RACE = """
import os, sys, time
from pathlib import Path
import msgspec
from speedrunner.store.run_lock import Owner
from speedrunner.store.run_lock import LockHeld, RunLock
path, wins, leave_stale = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "stale"
witness = path.with_name("witness")
sys.stdin.readline()
won = 0
while won < wins:
    try:
        lock = RunLock(path)
        lock.__enter__()
    except LockHeld:
        continue
    os.close(os.open(witness, os.O_CREAT | os.O_EXCL))  # fails if another one is in here
    won += 1
    time.sleep(0)
    witness.unlink()
    if leave_stale:
        lock._stop.set()
        file = lock._file
        owner = msgspec.json.decode(file.read_bytes(), type=Owner)
        file.write_bytes(msgspec.json.encode(msgspec.structs.replace(owner, started=owner.started - 1)))
    else:
        lock.__exit__(None, None, None)
"""


@pytest.mark.process
class TestRaces:
    @pytest.mark.parametrize("how", ["released", "stale"])
    def test_of_many_processes_only_one_ever_holds_it(self, path, how):
        """Three processes win 30 times each, either from each other's release or as takers."""
        racers = [
            subprocess.Popen(
                [sys.executable, "-c", RACE, str(path), "30", how],
                stdin=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for _ in range(3)
        ]
        try:
            for racer in racers:
                racer.stdin.write("go\n")
                racer.stdin.flush()
            for racer in racers:
                _, errors = racer.communicate(timeout=HANGS_S)
                assert racer.returncode == 0, errors
        finally:
            for racer in racers:
                racer.kill()
                racer.wait()
        assert not [file for file in path.parent.iterdir() if file.name != "lock"]
