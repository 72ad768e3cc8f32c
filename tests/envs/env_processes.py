"""The same plays in several processes, each with another hash seed and in another order."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from serving.model_configs import CHECKOUT

PROCESSES = 4


def check_plays(program: str, plays: int) -> None:
    """Run a program in several processes and compare what it prints.

    Args:
        program: Python code. It shuffles its plays by its argument and prints a line for each, a digest last.
        plays: how many different digests each process prints.
    """

    def lines(number: int) -> list[str]:
        run = subprocess.run(
            [sys.executable, "-c", program, str(number)],
            env=os.environ | {"PYTHONHASHSEED": str(number), "PYTHONPATH": str(CHECKOUT)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert run.stderr == ""
        return run.stdout.splitlines()

    with ThreadPoolExecutor(2) as pool:
        outputs = list(pool.map(lines, range(PROCESSES)))
    assert len({tuple(output) for output in outputs}) == PROCESSES, "the orders differ"
    assert len({tuple(sorted(output)) for output in outputs}) == 1
    assert len({line.split()[-1] for line in outputs[0]}) == plays
