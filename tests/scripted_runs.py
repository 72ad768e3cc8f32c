"""The real serving and run machinery over a scripted engine: single conversations, and whole runs."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, chdir, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from tempfile import TemporaryFile, mkdtemp
from unittest.mock import patch

import msgspec
import yaml
from rich.console import Console

from serving.engine.client import Engine, RetryPolicy
from serving.meter import LedgerRow, Meter, Reconciliation
from serving.model import Model
from serving.model_config import ModelConfig, Role, Roles
from serving.model_configs import CHECKOUT
from serving.tokens.tokenizer import ChatTokenizer
from serving.usage import Usage
from speedrunner.cli import output
from speedrunner.cli.app import main
from speedrunner.config.compose import compose
from speedrunner.results import Run, load
from speedrunner.runs.planned_runs import PlannedRun
from speedrunner.runs.player import play_runs
from speedrunner.runs.setup import set_up
from speedrunner.runs.shutdown import Shutdown
from tests.processes import HANGS_S
from tests.scripted_engine import Answer, Request, Script, ScriptedEngine, call, say

CORRIDOR = "tests.toy_env:Corridor"


def roomy(model_config: ModelConfig, **changes: object) -> ModelConfig:
    """A model config whose inducer may write whole skills; `changes` to any of its fields."""
    roles = Roles(
        actor=Role(string_tokens=80, temperature=1.0), inducer=Role(string_tokens=3000, temperature=1.0)
    )
    return msgspec.structs.replace(model_config, **{"recipe": None, "roles": roles, **changes})  # type: ignore[arg-type]


@dataclass
class ScriptedModel:
    """A model whose engine is scripted, and the ledger of what it was asked."""

    model: Model
    server: ScriptedEngine
    rows: list[LedgerRow]


@asynccontextmanager
async def scripted_model(
    script: Script,
    model_config: ModelConfig,
    tokenizer: ChatTokenizer,
) -> AsyncIterator[ScriptedModel]:
    """A scripted engine with the real client, conversations included."""
    rows: list[LedgerRow] = []
    with ScriptedEngine(tokenizer, script, model=model_config.name) as server:
        server.answers_probes = False
        retry = RetryPolicy(tries=2, first_wait_s=0.001, outage_s=0.0015)  # two tries, whatever fails
        engine = Engine(server.endpoint, model_config.name, Meter(rows.append, model_config.prices), retry)
        try:
            yield ScriptedModel(Model(model_config, engine, tokenizer), server, rows)
        finally:
            await engine.close()


@dataclass
class ScriptedRun:
    """One run's directory, model config and scripted engine; plays it in this process or as a user would."""

    folder: Path
    model_config: ModelConfig
    server: ScriptedEngine
    settings: list[str] = field(default_factory=list)
    name: str = "run"
    printed: str = ""
    """What the run played last in this process printed."""

    @property
    def dir(self) -> Path:
        """The run's directory."""
        return self.folder / self.name

    @property
    def data(self) -> Run:
        """The run as it is on the disk now."""
        return load(self.dir)

    @property
    def arguments(self) -> list[str]:
        """How to reach the model."""
        file = self.folder / "scripted.yaml"
        file.write_text(yaml.safe_dump(msgspec.to_builtins(self.model_config)))
        return [f"model.name={file}", f"serving.url={self.server.endpoint}"]

    def overrides(self, *more: str) -> list[str]:
        """Its configuration on a command line; of two values of a key the later one counts."""
        all_ = [*self.settings, f"run.dir={self.dir}", *self.arguments, *more]
        return list({each.partition("=")[0]: each for each in all_}.values())

    async def play(self, *more: str, shutdown: Shutdown | None = None) -> list[Reconciliation]:
        """Begin it or go on with it, in this process."""
        output = io.StringIO()
        setup = set_up(compose(self.overrides(*more)))
        shutdown = shutdown or Shutdown(lambda line: None, 60.0)
        try:
            playing = play_runs([PlannedRun(setup)], Console(file=output, width=200), shutdown)
            return (await shutdown.run(playing)).reconciliations
        finally:
            self.printed = output.getvalue()

    def finish(self) -> ScriptedRun:
        """Play it to its end where no event loop runs, as in fixtures."""
        asyncio.run(self.play())
        return self

    def cli(self, *more: str, command: str = "run") -> subprocess.CompletedProcess[str]:
        """Begin it or go on with it, as a command within this process."""
        return in_process(command, *self.overrides(*more))

    def sweep(self, text: str) -> Path:
        """Play a list of runs to their ends as a command within this process, and return their folder."""
        file, runs = self.folder / "list.yaml", self.folder / "runs"
        file.write_text(text)
        done = in_process("sweep", str(file), *self.settings, *self.arguments, f"--dir={runs}")
        assert done.returncode == 0, done.stderr
        return runs

    def copy(self) -> ScriptedRun:
        """The run as it is now, in a directory of its own."""
        copy = replace(self, name=f"{Path(mkdtemp(dir=self.folder)).name}/run")
        shutil.copytree(self.dir, copy.dir)
        return copy


def in_process(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command line within this process, to its end: what it prints, without the time of a start.

    It shows no progress, which depends on the machine's speed.

    Args:
        cwd: the current directory of the command. The process forgets the modules that it imports from there.
    """
    path, modules = list(sys.path), set(sys.modules)
    # Files, as processes below may write to them as well.
    with TemporaryFile("w+", buffering=1) as out, TemporaryFile("w+", buffering=1) as err:
        silent = patch.object(output, "SILENT_S", inf)
        with chdir(cwd) if cwd else nullcontext(), redirect_stdout(out), redirect_stderr(err), silent:
            try:
                main(arguments)
                status = 0
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else 0
            finally:
                sys.path[:] = path
                if cwd:
                    for name in set(sys.modules) - modules:
                        if Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(cwd):
                            del sys.modules[name]
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(arguments, status, out.read(), err.read())


def speedrunner(
    *arguments: str, cwd: Path = CHECKOUT, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The command line as a process of its own, to its end."""
    return subprocess.run(
        command(*arguments), cwd=cwd, env={**os.environ, **(env or {})}, capture_output=True, text=True,
        timeout=HANGS_S,
    )  # fmt: skip


def command(*arguments: str) -> list[str]:
    """The command line as a list."""
    return [sys.executable, "-m", "speedrunner.cli", *arguments]


def complaint(done: subprocess.CompletedProcess[str]) -> str:
    """The one line with which a command failed."""
    assert done.returncode == 1, (done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    assert done.stderr.count("\n") == 1, done.stderr
    line = done.stderr.rstrip("\n")
    assert line.startswith("error: "), line
    return line.removeprefix("error: ")


TO_FLAG = '''import re

def to_flag() -> str:
    """Walk to the flag, wherever it stands. Returns what is seen there."""
    field, flag = (int(number) for number in re.findall(r"-?\\d+", look())[:2])
    return walk(steps=flag - field)'''


def walker(request: Request) -> Answer:
    """An actor that walks field by field, or calls the skill where it has it."""
    return call("to_flag") if "to_flag" in request.tools else call("walk", steps=1)


def flag(request: Request) -> int:
    """Where the flag is, which tells episodes apart: training tasks have it at 3 to 6, test tasks at 7, 8."""
    found = re.search(r"flag is at field (\d+)", request.task)
    return int(found[1]) if found else 0


def script(
    actor: Callable[[Request], Answer] = walker, inducer: tuple[Answer, ...] = ()
) -> Callable[[Request], Answer]:
    """A run's script: `actor` plays, and each sleep goes through `inducer` and finishes."""

    def answer(request: Request) -> Answer:
        if not request.tools:  # requests that show the engine to be ready, or warm up a prefix
            return say("")
        if "write_skill" not in request.tools:
            return actor(request)
        return [*inducer, call("finish", summary="Done.")][min(request.turn, len(inducer))]

    return answer


Runs = Callable[..., ScriptedRun]
"""Makes runs: of a script, settings, and changes to the model config."""

LEARN = (call("write_skill", source=TO_FLAG, public=True),)

SCHEDULE = (
    f"env={CORRIDOR}",
    *("run.rollouts=4", "run.sleep_every=2", "run.eval_every=2", "run.test_episodes=2"),
    "run.in_flight=2",
)

PLANNED = [
    *(f"test/{checkpoint:04d}/{number:04d}" for checkpoint in (0, 2, 4) for number in (0, 1)),
    *(f"train/{number:04d}" for number in range(4)),
]


def keys(data: Run) -> list[str]:
    """Every finished episode, from its own file."""
    return sorted(each.episode for each in (*data.trajectories(), *data.evaluations()))


def check_whole(run: ScriptedRun) -> None:
    """What every finished run of the corridor must be, however often it was stopped."""
    check_finished(run.dir, PLANNED, sleeps=2)


def check_finished(folder: Path, planned: list[str], sleeps: int) -> None:
    """Each planned episode and each sleep once, with its rows of the ledger, and nothing half-written."""
    data = load(folder)
    assert keys(data) == sorted(row.episode for row in data.episodes) == sorted(planned)
    assert data.policies.versions() == list(range(sleeps + 1))
    assert [record.sleep for record in data.sleeps] == list(range(1, sleeps + 1))
    check_ledger(data)
    check_files(folder)


def check_ledger(data: Run) -> None:
    """Each turn of each finished episode and sleep has its row, with the same tokens, and none is wasted."""
    kept: dict[tuple[str, str], list[Usage]] = {}
    for row in data.requests:
        if row.usage is not None and not row.wasted and "episode" in row.labels:
            kept.setdefault((row.labels["episode"], row.labels["attempt"]), []).append(row.usage)
    for played in (*data.trajectories(), *data.evaluations()):
        usages = [turn.usage for turn in played.turns]
        # Not in their order: where a role works within another's call, its turns come first.
        found = kept.pop((played.episode, str(played.attempt)), [])
        assert Counter(found) == Counter(usages), played.episode
    for record in data.sleeps:
        turns = [turn for part in (*record.agents, *record.episodes) for turn in part.turns]
        found = kept.pop((f"sleep/{record.sleep:04d}", str(record.attempt)), [])
        assert Counter(found) == Counter(turn.usage for turn in turns)  # attempts are played side by side
    assert kept == {}


def check_files(folder: Path) -> None:
    """No half-written file, no lock, nothing in preparation."""
    for file in folder.rglob("*.jsonl"):
        content = file.read_text()
        assert not content or content.endswith("\n"), file  # a kill may leave a file without its first line
        for line in content.split("\n")[:-1]:  # what models write may hold other ends of lines
            json.loads(line)
    assert not (folder / "lock").exists()
    assert [path for path in folder.rglob("*") if path.name.endswith(".tmp")] == []
