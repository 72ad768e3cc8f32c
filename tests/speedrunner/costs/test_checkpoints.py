"""The table of checkpoints, from a run on disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from envs import Outcome
from serving.balance import Balance
from serving.engine.metrics import Counters
from serving.usage import Prices, Usage
from speedrunner.costs.checkpoint_table import account_line, checkpoint_table, notes
from speedrunner.costs.checkpoints import CheckpointRow, checkpoint_rows
from speedrunner.costs.rollout_costs import RolePrices
from speedrunner.store.data import load
from speedrunner.store.records import AgentRecord, Ending, Policy, Skill, SleepRecord, Turn
from speedrunner.store.rundir import RunDirectory
from speedrunner.store.summary import summarise
from tests.speedrunner.run_samples import trajectory

LIST = Prices(uncached=1.0, cached=0.5, output=10.0)
PRICES = RolePrices(actor=LIST, others=LIST)


def turn(usage: Usage) -> Turn:
    return Turn(messages=[], text="", usage=usage, seconds=0.0)


def skill(name: str, public: bool) -> Skill:
    return Skill(
        name=name,
        source=f'def {name}() -> str:\n    """Do it."""\n    return ""',
        doc="Do it.",
        public=public,
        created=1,
        edited=1,
    )


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunDirectory]:
    """Two checkpoints of two test episodes, with two rollouts and a sleep between them."""
    with RunDirectory.open_for_writing(tmp_path / "run") as run:
        run.write_config("run: {}\n")
        run.write_policy(Policy(version=0))
        lost = trajectory("test/0000/0000", outcome=Outcome(0.5, False, {}), ending=Ending.FAILURE)
        broken = trajectory("test/0000/0001", outcome=None, ending=Ending.ENGINE_ERROR, turns=[])
        for played in (lost, broken):
            run.append_evaluation(0, played)
            run.append_episode(summarise(played, "test", 0))
        for number in range(2):
            played = trajectory(f"train/{number:04d}", turns=[turn(Usage(1000, 0, 0))])
            run.append_trajectory(0, played)
            run.append_episode(summarise(played, "train", 0))
        run.write_sleep(
            SleepRecord(
                sleep=1,
                rollouts=2,
                attempt=1,
                agents=[AgentRecord("inducer", [turn(Usage(0, 0, 400))], Ending.SUBMITTED)],
                edits=[],
                seconds=1.0,
            )
        )
        run.write_policy(Policy(version=1, skills=(skill("go", True), skill("helper", False))))
        for number in range(2):
            played = trajectory(
                f"test/0002/{number:04d}", policy=1, turns=[turn(Usage(1000, 800, 10, 4 * number))]
            )
            run.append_evaluation(2, played)
            run.append_episode(summarise(played, "test", 2))
        yield run


def rows(run: RunDirectory) -> list[CheckpointRow]:
    return checkpoint_rows(load(run.path), PRICES)


def test_a_checkpoint_is_the_means_of_its_test_episodes(run: RunDirectory) -> None:
    assert rows(run)[1] == CheckpointRow(
        rollouts=2,
        episodes=2,
        unscored=0,
        score=1.0,
        llm_calls=1.0,
        uncached=200.0,
        cached=800.0,
        output=10.0,
        cost=pytest.approx(200e-6 + 400e-6 + 100e-6),
        rollout_cost=pytest.approx(1000e-6 + 2000e-6),
        public=1,
        skills=2,
    )


def test_what_is_unscored_is_left_out_of_the_score_and_counted(run: RunDirectory) -> None:
    first = rows(run)[0]
    assert (first.episodes, first.unscored, first.score) == (2, 1, 0.5)
    assert first.llm_calls == 1.0  # two and none


def test_a_score_of_nothing_is_none(run: RunDirectory) -> None:
    (run.path / "evaluations" / "0000.jsonl").unlink()
    lines = (run.path / "episodes.jsonl").read_text().splitlines()
    (run.path / "episodes.jsonl").write_text(lines[1] + "\n")
    assert rows(run)[0].score is None


def test_before_the_first_rollout_none_has_a_cost(run: RunDirectory) -> None:
    assert rows(run)[0].rollout_cost is None


def test_rollouts_are_counted_at_the_next_checkpoint_only(run: RunDirectory) -> None:
    late = trajectory("test/0004/0000", policy=1)
    run.append_evaluation(4, late)
    assert rows(run)[2].rollout_cost is None


def shown(what: object) -> str:
    console = Console(width=80, color_system=None)
    with console.capture() as capture:
        console.print(what)
    return capture.get()


def test_the_table_fits_into_eighty_columns_and_shows_every_number(run: RunDirectory) -> None:
    lines = shown(checkpoint_table(rows(run))).splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split() for line in lines if line.strip()][-2:] == [
        ["0", "0.500", "2", "(-1)", "1.0", "25", "90", "15", "0.000220", "-", "0/0"],
        ["2", "1.000", "2", "1.0", "200", "800", "10", "0.000700", "0.003000", "1/2"],
    ]


def test_the_notes_tell_what_is_left_out_and_the_prices(run: RunDirectory) -> None:
    text = notes(rows(run), PRICES)
    assert "1 test episodes (-n) ended by a fault of ours and have no score" in text
    assert "1 uncached, 0.5 cached, 10 output" in text
    assert "fault" not in notes(rows(run)[1:], PRICES)


CUT_OFF = (
    "2 requests were cut off before their tokens were told; the engine counted for them 1 prompt and 0"
    " generated tokens, at most 9 and 4 being possible"
)


@pytest.mark.parametrize(
    ("engine", "at_most", "ours", "verdict"),
    [
        (Counters(30, 20, 5), Counters(), True, "they agree to the token"),
        (Counters(30, 20, 5), Counters(9, 9, 9), False, "they agree to the token"),
        (Counters(31, 20, 5), Counters(), True, "they DIFFER, which is a defect: please report it"),
        (Counters(31, 20, 5), Counters(9, 9, 4), True, CUT_OFF),
        (Counters(40, 20, 5), Counters(9, 9, 4), True, "they DIFFER"),
        (Counters(29, 20, 5), Counters(9, 9, 4), True, "they DIFFER"),
        (Counters(31, 20, 5), Counters(), False, "they differ, as can be: the engine is not ours"),
    ],
)
def test_the_account_says_whether_ledger_and_engine_agree(
    engine: Counters, at_most: Counters, ours: bool, verdict: str
) -> None:
    unreported = 2 if at_most != Counters() else 0
    balance = Balance(
        model="tiny",
        since=0.0,
        ledger=Counters(30, 20, 5),
        engine=engine,
        unreported=unreported,
        at_most=at_most,
        ours=ours,
        time=0.0,
    )
    line = account_line(balance)
    assert line.startswith(
        f"Tokens of tiny by ledger / by engine: prompt 30 / {engine.prompt}, cached 20 / 20,"
        " generated 5 / 5: "
    )
    assert verdict in line
