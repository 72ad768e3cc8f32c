"""Runs for the viewer's tests."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from envs import Outcome, Task
from serving.model_configs import load_model_config
from serving.tokens.tools import ToolCall
from serving.usage import Usage
from speedrunner.config.compose import compose
from speedrunner.config.schema import to_yaml
from speedrunner.store.episode_summary import summarize_episode
from speedrunner.store.records import (
    AgentRecord,
    CallNode,
    Edit,
    Message,
    Policy,
    Skill,
    SleepRecord,
    Termination,
    Trajectory,
    Turn,
)
from speedrunner.store.rundir import RunDirectory
from tests.page_elements import HOSTILE
from tests.speedrunner.run_samples import process, request, trajectory

CONFIG = to_yaml(compose(["env=babyai", "method=react", "model=tiny-random", "run.dir=somewhere"]))


def append(run: RunDirectory, played: Trajectory, number: int = 0) -> None:
    """A finished training episode of a batch."""
    run.append_trajectory("train", number, played)
    run.append_episode(summarize_episode(played, "train", 10 * number))


def long_run(folder: Path, turns: int) -> Path:
    """A run with one episode of so many turns; the last one says "needle"."""
    said = [
        Turn(
            [Message("tool", f"seen {n}")],
            "",
            Usage(9, 4, 3, 1),
            0.1,
            reasoning=f"thought {n}",
            error="no call",
        )
        for n in range(1, turns + 1)
    ]
    said[-1].reasoning += " needle"
    with RunDirectory.open_for_writing(folder) as run:
        run.write_config(CONFIG)
        run.write_policy(Policy(version=0))
        append(
            run, trajectory(turns=said, termination=Termination.CALL_LIMIT, outcome=Outcome(0.0, False, {}))
        )
    return folder


def hostile_turns() -> list[Turn]:
    """A turn with a call and one without, all of whose texts are `HOSTILE`."""
    call = CallNode(HOSTILE, "skill", {HOSTILE: HOSTILE, "code": f"{HOSTILE}\n"}, HOSTILE, calls=[
        CallNode(HOSTILE, "primitive", {}, error=HOSTILE)
    ])  # fmt: skip
    return [
        Turn(
            [Message("system", HOSTILE), Message("user", HOSTILE)],
            HOSTILE,
            Usage(9, 4, 3, 1),
            0.1,
            reasoning=HOSTILE,
            call=ToolCall(HOSTILE, {HOSTILE: HOSTILE}),
            executed=call,
            role=HOSTILE,
        ),
        Turn([], HOSTILE, Usage(), 0.1, error=HOSTILE),
    ]


def hostile_run(folder: Path) -> Path:
    """A run all of whose texts are `HOSTILE`."""
    turns = hostile_turns()
    played = trajectory(
        task=Task(HOSTILE, HOSTILE, 7),
        turns=turns,
        outcome=Outcome(1.0, True, {HOSTILE: HOSTILE}),
        error=HOSTILE,
    )
    record = SleepRecord(
        sleep=1, rollouts=1, attempt=1, seconds=1.0, error=HOSTILE,
        agents=[AgentRecord(HOSTILE, turns, Termination.SUBMITTED)],
        edits=[Edit("write", HOSTILE, HOSTILE, HOSTILE)],
    )  # fmt: skip
    skill = Skill(name="walk", public=True, created=1, edited=1)
    source = (
        f"def walk() -> str:\n    {HOSTILE!r}\n    return go_forward()  # </pre><script>alert(3)</script>"
    )
    with RunDirectory.open_for_writing(folder) as run:
        run.write_config(CONFIG)
        run.append_process(
            replace(
                process(replace(load_model_config("tiny-random"), caveat=HOSTILE)),
                host=HOSTILE, versions={HOSTILE: HOSTILE}, changes=[HOSTILE],
            )
        )  # fmt: skip
        run.append_request(replace(request(), model=HOSTILE, error=HOSTILE, labels={HOSTILE: HOSTILE}))
        run.write_policy(Policy(version=0))
        append(run, played)
        run.write_sleep(record)
        run.write_policy(Policy(version=1, module=source, skills=(skill,), notes=HOSTILE))
    return folder


def break_line(file: Path) -> None:
    """Cut off the second half of a file's first record, or of the second line of a whole file."""
    first, *rest = file.read_bytes().splitlines(keepends=True)
    if file.suffix == ".json":
        rest = [rest[0][: len(rest[0]) // 2] + b"\n", *rest[1:]]
    else:
        first = first[: len(first) // 2] + b"\n"
    file.write_bytes(first + b"".join(rest))
