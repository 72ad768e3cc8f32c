"""`run.budget_tokens`: training ends when its tokens are spent, and goes on from there as any run does."""

from __future__ import annotations

import pytest

from serving.meter import LedgerRow
from serving.usage import Prices, Usage
from speedrunner.config.schema import RunConfig
from speedrunner.runs.budget import TokenBudget, spent_usd
from speedrunner.runs.plan import Evaluate, Sleep, Wake, plan_run
from speedrunner.store.records import Termination, TrainingEnd
from tests.scripted_engine import Answer, Request, call, refuse, say
from tests.scripted_runs import Runs, ScriptedRun, check_ledger, flag, keys
from tests.speedrunner.runs.test_plan import SPLIT


def row(
    phase: str | None, usage: Usage | None, at_most: Usage | None = None, *, wasted: bool = False
) -> LedgerRow:
    labels = {"phase": phase} if phase else {}
    return LedgerRow(
        request="1", retry=0, time=0.0, labels=labels, model="tiny-random", status="ok", wasted=wasted,
        usage=usage, seconds=0.1, at_most=at_most,
    )  # fmt: skip


class TestWhatCounts:
    def test_is_all_of_training_and_nothing_else(self) -> None:
        budget = TokenBudget(100)
        for phase in ("train", "sleep", "test", None):
            budget.record(row(phase, Usage(prompt=10, cached=5, completion=2)))
        assert budget.spent == 24

    def test_is_what_was_wasted_too_and_at_most_what_is_not_known(self) -> None:
        rows = [
            row("train", Usage(prompt=3), wasted=True),
            row("sleep", None, Usage(prompt=20, completion=7)),
        ]
        assert TokenBudget(30, rows).spent == 30
        assert TokenBudget(30, rows).is_spent
        assert not TokenBudget(31, rows).is_spent
        assert not TokenBudget(None, rows).is_spent


def outline(end: TrainingEnd) -> list[str]:
    lines = []
    for step in plan_run(SPLIT, RunConfig("runs/one"), trains=True, ended=end):
        match step:
            case Wake():
                lines.append(f"wake {step.first}+{len(step.tasks)}")
            case Sleep():
                lines.append(f"sleep v{step.number}")
            case Evaluate():
                lines.append(f"test@{step.checkpoint} v{step.policy}")
    return lines


class TestThePlanUpToAnEnd:
    @pytest.mark.parametrize(
        ("end", "last"),
        [
            (TrainingEnd(13, 1), ["sleep v1", "wake 10+3", "test@13 v1"]),
            (TrainingEnd(20, 1), ["sleep v1", "wake 10+10", "test@20 v1"]),
            (TrainingEnd(20, 2), ["wake 10+10", "sleep v2", "test@20 v2"]),
            (TrainingEnd(50, 5), ["wake 40+10", "sleep v5", "test@50 v5"]),
            (TrainingEnd(50, 4), ["sleep v4", "wake 40+10", "test@50 v4"]),
            (TrainingEnd(0, 0), ["test@0 v0"]),
        ],
    )
    def test_ends_with_an_evaluation_of_the_newest_policy(self, end: TrainingEnd, last: list[str]) -> None:
        assert outline(end)[-3:] == last


def stroller(request: Request) -> Answer:
    if "write_notes" in request.tools:
        return call("write_notes", text="Walk.")
    return call("walk", steps=1) if request.tools else say("")


BUDGETED = ("method=opo", "run.in_flight=1", "run.eval_every=4")


@pytest.fixture(scope="module")
def whole(shared_corridor: Runs) -> ScriptedRun:
    """A finished run without a budget."""
    return shared_corridor(stroller, *BUDGETED).finish()


class TestARun:
    async def test_ends_within_a_batch_and_evaluates_the_newest_policy(
        self, corridor: Runs, whole: ScriptedRun
    ) -> None:
        spent = TokenBudget(None, whole.data.requests).spent
        run = corridor(stroller, *BUDGETED)
        await run.play(f"run.budget_tokens={spent // 2}")
        assert keys(run.data) == [
            *(f"test/000{point}/000{number}" for point in (0, 3) for number in (0, 1)),
            *(f"train/000{number}" for number in range(3)),
        ]
        assert "training ends after 3 rollouts and 1 sleeps: " in run.printed
        assert run.data.policies.versions() == [0, 1]
        tested = {row.policy for row in run.data.episodes if (row.phase, row.checkpoint) == ("test", 3)}
        assert tested == {1}
        assert {row.termination for row in run.data.episodes} == {Termination.SUCCESS}
        check_ledger(run.data)

    async def test_that_has_ended_so_is_finished(self, corridor: Runs) -> None:
        run = corridor(stroller, *BUDGETED, "run.budget_tokens=1")
        await run.play()
        before = len(run.server.requests)
        await run.play()
        assert "is finished: nothing to play" in run.printed
        assert len(run.server.requests) == before

    async def test_that_was_stopped_at_its_end_goes_on_with_its_evaluation(self, corridor: Runs) -> None:
        def broken(request: Request) -> Answer:
            late = flag(request) == 7 and "Walk." in request.system
            return refuse(400, "no") if late else stroller(request)

        run = corridor(broken, *BUDGETED, "run.budget_tokens=2000", "run.sleep_every=1")
        run.server.script = broken
        await run.play()
        faults = [row.episode for row in run.data.episodes if row.termination.is_fault]
        assert len(faults) == 1
        run.server.script = stroller
        await run.play("run.retry_faults=true")
        assert {row.termination for row in run.data.episodes} == {Termination.SUCCESS}
        assert {row.checkpoint for row in run.data.episodes if row.episode in faults} != {0}


def test_usd_of_unknown_tokens_and_models_are_the_maximum() -> None:
    prices = {"tiny-random": Prices(uncached=1.0, cached=0.1, output=10.0)}
    rows = [row("train", Usage(100, 50, 1)), row("train", None, Usage(100, 0, 9)), row("train", None)]
    assert spent_usd(rows, prices) == pytest.approx((50 + 5 + 10 + 100 + 90) / 1e6)
    renamed = {"tiny": prices["tiny-random"], "large": Prices(100.0, 100.0, 100.0)}
    assert spent_usd([row("train", Usage(1, 0, 0))], renamed) == pytest.approx(100 / 1e6)
