"""The inducer's code interpreter, in a real sandbox over a real run's files."""

from __future__ import annotations

import ast
import inspect
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

import envs
from envs import Primitive
from serving.tokens.tools import ToolCall
from serving.usage import Usage
from speedrunner.config.schema import SandboxConfig
from speedrunner.library.library import Library
from speedrunner.methods.speedrunner import interpreter, workspace
from speedrunner.methods.speedrunner.interpreter import Interpreter, _list_defaults
from speedrunner.store.history import History
from speedrunner.store.records import AgentRecord, Edit, Policy, SleepRecord, Termination, Turn
from speedrunner.store.rundir import RunDirectory
from tests.golden_tables import Golden, table
from tests.processes import HANGS_S
from tests.speedrunner.run_samples import trajectory

pytestmark = pytest.mark.process

ENV = envs.make("babyai")
AIM = 'def aim(at: Literal["left", "right"]) -> None:\n    """Turn."""\n    turn_left()'
STEP = 'def _step() -> str:\n    """Go."""\n    return go_forward()'


SANDBOX, SMALL = SandboxConfig(), SandboxConfig(memory_mb=64)


class Bench:
    """An interpreter and the draft that it imports."""

    def __init__(self, folders: dict[str, Path], sandbox: SandboxConfig = SANDBOX) -> None:
        self.draft = Library(ENV.primitives)
        self.interpreter = Interpreter(sandbox, folders, ENV.primitives, lambda: self.draft)

    async def __call__(self, code: str) -> str:
        return await self.interpreter.execute_code(code)


def learnt(number: int) -> SleepRecord:
    said = Turn([], "", Usage(), 0.1, call=ToolCall("finish", {"summary": "Aim first."}))
    edits = [Edit("write", "aim"), Edit("delete", "fly", error="there is no skill 'fly'")]
    agents = [AgentRecord("inducer", [said], Termination.SUBMITTED)]
    return SleepRecord(sleep=number, rollouts=2, attempt=1, agents=agents, edits=edits, seconds=1.0)


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, limit in (("DRAFT_WALL_S", HANGS_S), ("CODE_WALL_S", HANGS_S), ("OUTPUT_CHARS", 400)):
        monkeypatch.setattr(interpreter, name, limit)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    with RunDirectory.open_for_writing(tmp_path_factory.mktemp("interpreter") / "run") as run:
        library = Library(ENV.primitives).write(STEP, public=False, sleep=1)
        library = library.write(AIM, public=True, sleep=1)
        run.write_policy(Policy(version=0))
        run.write_policy(library.policy(Policy(version=1)))
        for batch, number in ((0, 1), (0, 0), (1, 2)):
            run.append_trajectory("train", batch, trajectory(f"train/{number:04d}", policy=batch))
        run.append_trajectory("test", 0, trajectory("test/0000/0000", text="held out"))
        for number in (1, 2):  # of the second there is no policy: it was killed
            run.write_sleep(learnt(number))
        return History(run.read()).files()


@pytest.fixture
async def bench(folders: dict[str, Path]) -> AsyncIterator[Bench]:
    bench = Bench(folders)
    async with bench.interpreter:
        yield bench


NAMES = "[each['episode'] for each in load_trajectories({})]"
READING = (
    "batches(), versions()",
    *map(NAMES.format, ("", "batch=0", "policy=1")),
    "t = load_trajectories(); t",
    "t[-1]['episode'], t[:2], t[0:2][1]['episode']",
    "len(t + t), [each['policy'] for each in reversed(t)]",
    "sleeps()",
    "skill_stats()",
    "for turn, depth, call in calls(t[0]): print(turn, depth, call['name'])",
    "[(call['ended'], call['seen']) for _, _, call in calls(t[0])]",
    "opening(t[0])",
    "show(t[0])",
    "show(t[0], 2)",
    "x = 'y' * 1000",
    "print(x)",
    "print(library_source(1))",
    "old = load_library(1); old._step.__doc__, old.skills_index[0]['public']",
    "old.aim.__doc__",
)
"""Code that reads what the run has recorded."""


async def test_code_reads_the_recorded_episodes_sleeps_and_libraries(bench: Bench, golden: Golden) -> None:
    golden("interpreter.txt", table([(code, await bench(code)) for code in READING]))


async def test_a_history_larger_than_the_session_s_memory_is_read_one_episode_at_a_time(
    tmp_path: Path,
) -> None:
    with RunDirectory.open_for_writing(tmp_path / "run") as run:
        run.write_policy(Policy(version=0))
        short = trajectory("train/0000")
        long = msgspec.structs.replace(short, turns=short.turns * 2_000)
        for number in range(15):
            run.append_trajectory("train", 0, msgspec.structs.replace(long, episode=f"train/{number:04d}"))
        size = (tmp_path / "run" / "trajectories" / "batch_0000.jsonl").stat().st_size
        assert size > SMALL.memory_mb * 2**18  # decoded, it is several times as large as its text
        bench = Bench(History(run.read()).files(), sandbox=SMALL)
        async with bench.interpreter:
            (row,) = ast.literal_eval(await bench("skill_stats()"))
            assert "MemoryError" in await bench("[*load_trajectories()]")
    assert (row["episodes"], row["calls"]) == (15, 15 * 2_000)


async def test_the_draft_is_imported_as_it_stands(bench: Bench) -> None:
    assert "AttributeError" in await bench("library._step")
    bench.draft = bench.draft.write(STEP, public=False, sleep=2)
    assert await bench("from library import _step\n_step is library._step") == "True"
    bench.draft = bench.draft.edit("_step", '"""Go."""', '"""Go on."""', sleep=2)
    assert await bench("library._step.__doc__") == "'Go on.'"


async def test_what_code_puts_into_the_draft_stays_until_the_next_edit(bench: Bench) -> None:
    bench.draft = bench.draft.write(STEP, public=False, sleep=2)
    assert await bench("library.go_forward = lambda: 'a wall'; library._step()") == "'a wall'"
    assert await bench("library._step()") == "'a wall'"
    bench.draft = bench.draft.edit("_step", "Go.", "Go on.", sleep=2)
    assert "NotAvailable" in await bench("library._step()")


async def test_a_session_that_begins_anew_has_the_draft_again(folders: dict[str, Path]) -> None:
    bench = Bench(folders)
    async with bench.interpreter:
        bench.draft = bench.draft.write(STEP, public=False, sleep=2)
        assert await bench("library._step.__doc__") == "'Go.'"
        assert "the session was restarted" in await bench("import os; os._exit(1)")
        assert await bench("library._step.__doc__, len(load_trajectories())") == "('Go.', 3)"


async def test_a_draft_that_cannot_be_imported_is_reported_and_the_code_runs(bench: Bench) -> None:
    await bench("import workspace; module = workspace._module; workspace._module = None")
    bench.draft = bench.draft.write(STEP, public=False, sleep=2)
    code = "workspace._module = module"
    told = "[the draft cannot be imported: TypeError: 'NoneType' object is not callable]\n(no output)"
    assert await bench(code) == told
    assert await bench("library._step.__doc__") == "'Go.'"


async def test_primitives_are_not_available_but_can_be_put_in_place(bench: Bench) -> None:
    bench.draft = bench.draft.write(STEP, public=False, sleep=2)
    text = await bench("library._step()")
    assert text.splitlines()[-1] == (
        "NotAvailable: go_forward is not available here: there is no environment, only recorded data"
    )
    assert await bench("library.go_forward = lambda: 'a wall'; library._step()") == "'a wall'"
    assert "NotAvailable" in await bench("load_library(1)._step()")


async def test_a_draft_is_fed_the_recorded_results_of_an_episode_in_order(bench: Bench) -> None:
    bench.draft = bench.draft.write(STEP, public=False, sleep=2)
    steps = "[library._step() for _ in range(3)]"
    assert await bench(f"play = load_trajectories()[0]; feed(play); {steps}") == str(["a wall"] * 3)
    assert (await bench("library._step()")).endswith(
        "NotAvailable: go_forward: the episode has no further call"
    )
    told = await bench("feed(play); library.turn_left()")
    assert told.endswith("turn_left() was called, and the episode's next call is go_forward()")
    assert "no further call" in await bench("feed(play, first=2); library._step()")


async def test_recorded_arguments_are_the_same_however_they_are_passed() -> None:
    signature = inspect.signature(lambda obj, target="": None)
    workspace._primitives = {"use": _list_defaults(Primitive("use", signature, ""))}
    recorded = {"obj": "axe"}
    assert workspace._is_same("use", {"target": "", "obj": "axe"}, recorded)
    assert not workspace._is_same("use", {"obj": "axe", "target": "tree"}, recorded)


async def test_help_prints_the_source_of_the_session_s_functions_and_of_a_library(bench: Bench) -> None:
    text = await bench("help(batches)")
    assert text.startswith("def batches() -> list[int]:\n")
    assert await bench("help(load_library(1)._step)") == STEP


async def test_held_out_episodes_and_everything_else_of_the_run_are_out_of_sight(bench: Bench) -> None:
    code = (
        "from pathlib import Path\n"
        "seen = [str(path) for name in MOUNTS for path in Path(MOUNTS[name]).parent.rglob('*')]\n"
        "[path for path in seen if 'eval' in path or 'jsonl' in path and 'batch' not in path]"
    )
    assert await bench(code) == "[]"
    read = "text = ''.join(p.read_text() for m in MOUNTS.values() for p in Path(m).rglob('*') if p.is_file())"
    assert await bench(f"{read}\n'train/0000' in text, 'held out' in text") == "(True, False)"
    assert "Operation not permitted" in await bench("Path(MOUNTS['policies'], 'x').write_text('')")


async def test_code_that_takes_too_long_is_stopped_and_the_next_runs(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interpreter, "CODE_WALL_S", 0.3)
    assert "time limit of 0.3 s" in await bench("while True: pass")
    assert (await bench.interpreter.execute("1 + 1", HANGS_S)).text == "2"
