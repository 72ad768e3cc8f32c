"""Several runs on one engine: each whole and its own, none waiting for another."""

from __future__ import annotations

import asyncio
import io
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console

from serving.cards import ModelCard
from serving.tokens.tokenizer import ChatTokenizer
from speedrunner.config.schema import InvalidConfig
from speedrunner.runs.drain import Drain, Interrupted
from speedrunner.runs.sweep import SweepResult, read_runs, sweep
from speedrunner.store.data import load
from tests.scripted_engine import Answer, Request, ScriptedEngine, refuse
from tests.scripted_runs import (
    LEARN,
    PLANNED,
    SCHEDULE,
    ScriptedRun,
    check_finished,
    complaint,
    in_process,
    roomy,
    script,
    walker,
)


class Sweep:
    """A list of runs on one scripted engine."""

    def __init__(self, folder: Path, card: ModelCard, server: ScriptedEngine) -> None:
        self.folder = folder
        self.server = server
        self.shared = [*SCHEDULE, *ScriptedRun(folder, card, server).arguments]
        self.printed = ""

    def file(self, *runs: str) -> Path:
        """The list; each run gets its own directory unless it names one."""
        named = (
            run if "run.dir" in run else f"{run} run.dir={self.folder}/{number}"
            for number, run in enumerate(runs)
        )
        path = self.folder / "runs.yaml"
        path.write_text("".join(f"- {run}\n" for run in named))
        return path

    async def play(self, *runs: str, drain: Drain | None = None) -> SweepResult:
        """Play them in this process."""
        output = io.StringIO()
        drain = drain or Drain(lambda line: None, 60.0)
        setups = read_runs(self.file(*runs), self.shared)
        try:
            return await drain.run(sweep(setups, Console(file=output, width=200), drain))
        finally:
            self.printed = output.getvalue()


@pytest.fixture(scope="module")
def both(
    tmp_path_factory: pytest.TempPathFactory, tiny_card: ModelCard, tiny_tokenizer: ChatTokenizer
) -> Iterator[tuple[Sweep, SweepResult]]:
    """Two runs that were played side by side to their ends."""
    with ScriptedEngine(tiny_tokenizer, script(walker, LEARN)) as engine:
        both = Sweep(tmp_path_factory.mktemp("both"), roomy(tiny_card), engine)
        yield both, asyncio.run(both.play("method=speedrunner", "method=react method.train=true run.seed=1"))


@pytest.fixture
def sweep_of(tmp_path: Path, tiny_card: ModelCard, tiny_tokenizer: ChatTokenizer) -> Callable[..., Sweep]:
    engines: list[ScriptedEngine] = []

    def make(policy: Callable[[Request], Answer]) -> Sweep:
        engine = ScriptedEngine(tiny_tokenizer, policy)
        engines.append(engine.__enter__())
        return Sweep(tmp_path, roomy(tiny_card), engine)

    yield make
    for engine in engines:
        engine.__exit__(None, None, None)


def test_each_run_is_whole_and_has_its_own_ledger_and_the_accounts_hold_over_all(
    both: tuple[Sweep, SweepResult],
) -> None:
    played, result = both
    assert result.failures == {}
    (balance,) = result.balances
    assert balance.agrees
    first, second = (played.folder / number for number in ("0", "1"))
    for folder in (first, second):
        check_finished(folder, PLANNED, sleeps=2)
    usages = [row.usage for folder in (first, second) for row in load(folder).requests]
    assert sum(usage.prompt for usage in usages if usage) == balance.ledger.prompt
    assert load(first).accounts == load(second).accounts == [balance]
    assert [len(load(folder).policies.load(2).skills) for folder in (first, second)] == [1, 0]
    assert re.search(r"^0: sleep/0001", played.printed, re.MULTILINE)
    assert re.search(r"^1: wake/0000 2/2", played.printed, re.MULTILINE)


def test_the_runs_are_played_side_by_side(both: tuple[Sweep, SweepResult]) -> None:
    times = [
        [row.time for row in load(both[0].folder / number).requests if row.labels["role"] == "actor"]
        for number in ("0", "1")
    ]
    assert min(times[0]) < max(times[1])
    assert min(times[1]) < max(times[0])


async def test_a_run_that_stops_leaves_the_others_alone_and_goes_on_later(
    sweep_of: Callable[..., Sweep], tmp_path: Path
) -> None:
    broken = True

    def policy(request: Request) -> Answer:
        if broken and "write_skill" in request.tools:
            return refuse(401, "no")
        return script(walker, LEARN)(request)

    both = sweep_of(policy)
    result = await both.play("method=speedrunner", "method=react")
    assert list(result.failures) == [f"{tmp_path}/0"]
    assert "status 401: no" in result.failures[f"{tmp_path}/0"]
    assert "0: stopped: status 401" in both.printed
    broken = False
    assert (await both.play("method=speedrunner", "method=react")).failures == {}
    assert f"{tmp_path}/1 is finished: nothing is left to play" in both.printed
    check_finished(tmp_path / "0", PLANNED, sleeps=2)


async def test_a_drain_ends_all_of_them_in_good_order(sweep_of: Callable[..., Sweep], tmp_path: Path) -> None:
    drain = Drain(lambda line: None, 60.0)
    seen = 0

    def policy(request: Request) -> Answer:
        nonlocal seen
        seen += 1
        if seen == 9:
            loop.call_soon_threadsafe(drain._on_signal, 15)
        return script(walker, LEARN)(request)

    loop = asyncio.get_running_loop()
    both = sweep_of(policy)
    with pytest.raises(Interrupted):
        await both.play("method=speedrunner", "method=react", drain=drain)
    assert (await both.play("method=speedrunner", "method=react")).failures == {}
    check_finished(tmp_path / "0", PLANNED, sleeps=2)


class TestTheList:
    @pytest.mark.parametrize(
        ("runs", "words"),
        [
            (
                ("method=react run.dir=a", "method=speedrunner run.dir=a"),
                "run 2: another run has the directory a",
            ),
            (("method=react", "method=react run.seed=1 serving.port=9"), "run 2: runs share one server"),
            (
                ("method=react", "method=nope"),
                r"runs\.yaml, run 2 \(method=nope .*\): method=nope is not among",
            ),
        ],
    )
    def test_what_does_not_go_together_is_told(
        self, sweep_of: Callable[..., Sweep], runs: tuple[str, ...], words: str
    ) -> None:
        one = sweep_of(script())
        shared = [each for each in one.shared if not each.startswith("serving")]
        with pytest.raises(Exception, match=words) as error:
            read_runs(one.file(*runs), shared)
        assert "\n" not in str(error.value)

    def test_a_fifo_is_not_waited_for(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "runs.yaml")
        with pytest.raises(InvalidConfig, match=r"runs\.yaml cannot be read"):
            read_runs(tmp_path / "runs.yaml", [])

    @pytest.mark.parametrize("text", ["", "a: b", "- 3", "- [1, 2]", "{", "[]", "- " + "[" * 3000])
    def test_what_is_no_list_of_runs_is_refused(self, tmp_path: Path, text: str) -> None:
        file = tmp_path / "runs.yaml"
        file.write_text(text)
        with pytest.raises(InvalidConfig, match=r"runs\.yaml"):
            read_runs(file, [])

    def test_an_entry_takes_precedence_over_what_holds_for_all(self, tmp_path: Path) -> None:
        file = tmp_path / "runs.yaml"
        file.write_text("- method=react run.rollouts=7\n- [method=speedrunner]\n")
        one, two = read_runs(file, ["run.rollouts=3", "method=react"])
        assert (one.config.run.rollouts, two.config.run.rollouts) == (7, 3)
        assert two.config.method.name == "speedrunner"


def test_the_command_prints_each_run_and_says_which_stopped(
    sweep_of: Callable[..., Sweep], tmp_path: Path
) -> None:
    both = sweep_of(script(walker, LEARN))
    file = both.file("method=speedrunner", "method=react")
    done = in_process("sweep", str(file), *both.shared)
    assert done.returncode == 0, done.stderr
    assert "2 runs with tiny" in done.stdout
    rows = [line.split() for line in done.stdout.splitlines() if re.search(r" \d\.\d{3} +0% ", line)]
    assert [row[:3] for row in rows[:3]] == [["0", "0", "1.000"], ["2", "1.000", "0%"], ["4", "1.000", "0%"]]
    assert [row[:3] for row in rows[3:4]] == [["1", "0", "1.000"]]
    assert f"react on tests.toy_env:Corridor: its files are in {tmp_path}/1" in done.stdout
    assert done.stdout.count("they agree to the token") == 1
    assert complaint(in_process("sweep", str(tmp_path / "none.yaml"))).endswith("No such file or directory: "
        f"'{tmp_path}/none.yaml'")  # fmt: skip
