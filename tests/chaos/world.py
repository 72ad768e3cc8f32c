"""A world in which a worker, or the process that runs its skills, is killed in the middle of a primitive."""

from __future__ import annotations

import os
import random
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.toy_env import Corridor

DOOM = "CHAOS_DOOM"
"""Variable with the number of a worker's primitive call, what is killed then, and a file to create first."""


class DoomedCorridor(Corridor):
    """A corridor that obeys `DOOM`, in the first worker that gets to that call."""

    calls = 0

    def call(self, name: str, **arguments: Any) -> str:
        DoomedCorridor.calls += 1
        number, victim, struck = os.environ.get(DOOM, "0::").split(":")
        if self.calls == int(number):
            with suppress(FileExistsError):
                os.close(os.open(struck, os.O_CREAT | os.O_EXCL))
                self._kill(victim)
        return super().call(name, **arguments)

    def _kill(self, victim: str) -> None:
        if victim == "worker":
            os.kill(os.getpid(), signal.SIGKILL)
        os.kill(random.Random(self.calls).choice(_list_below(os.getpid())), signal.SIGKILL)


def _list_below(pid: int) -> list[int]:
    """Return the processes below one. This module is loaded in each trial, so it imports little."""
    children = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return children + [each for child in children for each in _list_below(child)]
