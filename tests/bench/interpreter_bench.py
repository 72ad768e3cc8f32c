"""Time the functions of the interpreter over a long history: `python -m tests.bench interpreter`."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

import envs
from envs import Outcome, Task
from serving.tokens.tools import ToolCall
from serving.usage import Usage
from speedrunner.bench.measurement import Figure, Measurement, Table, columns
from speedrunner.config.console import Status
from speedrunner.library.library import Library
from speedrunner.methods.speedrunner.interpreter import Interpreter
from speedrunner.store.records import CallNode, Message, Termination, Trajectory, Turn
from speedrunner.workers.sandbox.child_process import require
from speedrunner.workers.sandbox.settings import Sandbox, SandboxError

MEMORY_MB = 256
"""Address space of the session in MiB; a function that needs more fails."""

SECONDS_TARGET = 20.0
"""Maximum CPU seconds of each function over all episodes. It uses one core."""

BATCH = 10
"""Episodes between two sleeps."""

FUNCTIONS = {
    "load_trajectories()": "len(load_trajectories())",
    "skill_stats()": "len(skill_stats())",
    "each episode's headline": "sum(len(headline(each)) for each in load_trajectories())",
    "each episode's calls": "sum(1 for each in load_trajectories() for _ in calls(each))",
}

CODE = """\
import time
began = time.process_time()
found = {}
time.process_time() - began
"""


@dataclass(frozen=True)
class Timed:
    """Seconds that a function took for all episodes: CPU time of its process, and wall clock."""

    function: str
    cpu_s: float
    seconds: float


def make_episode(size: int) -> Trajectory:
    """Return a made-up episode of about `size` bytes: turns with texts, and skills that call primitives."""
    env = envs.make("crafter")
    steps = [
        CallNode(each.name, "primitive", {}, actions=1, seconds=0.001, line=number + 4)
        for number, each in enumerate(env.primitives[:12])
    ]
    observation = "You see grass, a tree two steps to the left, a cow and water. " * 16
    turn = Turn(
        [Message("tool", f"True\n\nLast observation:\n{observation}")],
        "I collect wood first.",
        Usage(20_000, 19_000, 300, 250),
        2.5,
        reasoning="The table needs wood, and the tree is close, so I walk to it. " * 10,
        call=ToolCall("gather", {"what": "wood", "most": 5}),
        executed=CallNode(
            "gather", "skill", {"what": "wood", "most": 5}, result=True, actions=12, calls=steps
        ),
    )
    own = len(msgspec.json.encode(turn)) + 1
    return Trajectory(
        episode="train/0000",
        task=Task(env.name, "play", 0),
        policy=0,
        attempt=1,
        turns=[turn] * round(size / own),
        termination=Termination.CALL_LIMIT,
        outcome=Outcome(0.5, False, {}),
    )


def write_history(folder: Path, episodes: int, size: int) -> dict[str, Path]:
    """Write the files of training episodes, as a code session reads them, and return their folders."""
    found = {name: folder / name for name in ("trajectories", "policies", "sleeps")}
    for each in found.values():
        each.mkdir()
    line = msgspec.json.encode(make_episode(size))
    for number in range(episodes):
        batch = number // BATCH
        own = line.replace(b'"train/0000"', b'"train/%04d"' % number, 1)
        own = own.replace(b'"policy":0', b'"policy":%d' % batch, 1)
        with (found["trajectories"] / f"batch_{batch:04d}.jsonl").open("ab") as file:
            file.write(own + b"\n")
    return found


async def measure_interpreter(status: Status, episodes: int, size: int) -> Measurement:
    """Time each function in a session over `episodes` episodes of `size` bytes.

    Raises:
        SandboxError: no process is isolated here, or a function failed.
    """
    sandbox = Sandbox(memory_mb=MEMORY_MB)
    require(sandbox)
    primitives = envs.make("crafter").primitives
    timed = []
    with tempfile.TemporaryDirectory() as folder:
        status(f"writing {episodes} episodes of {size / 1e6:g} MB")
        mounts = write_history(Path(folder), episodes, size)
        interpreter = Interpreter(
            sandbox, mounts, primitives, lambda: Library(primitives), output_chars=1000, wall_s=600.0
        )
        async with interpreter:
            for name, code in FUNCTIONS.items():
                status(f"timing {name}")
                began = time.perf_counter()
                said = await interpreter.execute_code(CODE.format(code))
                try:
                    timed.append(Timed(name, float(said), time.perf_counter() - began))
                except ValueError:
                    raise SandboxError(f"{name} failed: {said}") from None
    return Measurement(
        f"Functions of the interpreter over {episodes} episodes of {size / 1e6:g} MB, in {MEMORY_MB} MiB",
        figures=[
            Figure(f"{each.function}, CPU s", each.cpu_s, at_most=SECONDS_TARGET, form=".1f")
            for each in timed
        ],
        tables=[Table("functions", timed, columns("function", "cpu_s:.2f", "seconds:.2f"))],
    )
