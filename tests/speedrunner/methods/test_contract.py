"""What the contract of a method carries, in whole runs of methods that ask for all of it."""

from __future__ import annotations

import pytest

from speedrunner.methods.method_base import MethodBroke
from speedrunner.store.records import Labels, Termination
from tests.scripted_engine import Answer, Request, call
from tests.scripted_runs import PLANNED, Runs, ScriptedRun, check_files, keys
from tests.speedrunner.methods.voyager.test_sessions import roles
from tests.speedrunner.run_samples import usage_of

REPLAYING = "method=tests.odd_methods:Replaying"
LOST = 'def lost() -> str:\n    """Look for nothing."""\n    return look()'
SHORT = ("run.rollouts=1", "run.sleep_every=1", "run.test_episodes=0")


async def test_all_roles_draw_on_the_episodes_budget_and_are_its_cost(corridor: Runs) -> None:
    def refuse(request: Request) -> Answer:
        return call("judge", reasoning="Look.", success=False, critique="Walk.")

    programs = roles(lambda request: call("run_program", source=LOST), ["look"] * 9, refuse)
    run = corridor(programs, "env=tests.toy_env:Racetrack", "method=voyager", *SHORT)
    await run.play()
    (row,) = run.data.episodes
    assert (row.termination, row.llm_calls) == (Termination.CALL_LIMIT, 20)
    (played,) = run.data.trajectories()
    asked = {"curriculum", "programmer", "critic"}
    assert {turn.role for turn in played.turns} == asked
    rows = [request for request in run.data.requests if Labels.of(request.labels).episode == "train/0000"]
    assert {Labels.of(request.labels).role for request in rows} == asked
    assert sum(request.usage.completion for request in rows if request.usage) == row.usage.completion


@pytest.fixture(scope="module")
def replayed(shared_corridor: Runs) -> ScriptedRun:
    """A finished run whose two sleeps played their tasks again."""
    return shared_corridor(lambda request: call("walk", steps=2), REPLAYING).finish()


class TestReplay:
    def test_a_task_played_again_is_the_sleeps_and_no_episode(self, replayed: ScriptedRun) -> None:
        sleep, later = replayed.data.sleeps
        again = sorted(each.episode for each in sleep.episodes)  # they were played side by side
        assert again == ["sleep/0001/again/0000", "sleep/0001/again/0001"]
        assert {each.termination for each in sleep.episodes} == {Termination.SUCCESS}
        assert keys(replayed.data) == PLANNED
        assert replayed.data.policies.load(1).notes == "Task 3: success.\nTask 4: success.\n"
        rows = [each for each in replayed.data.requests if Labels.of(each.labels).phase == "sleep"]
        paid = sum(each.usage.prompt for each in rows if each.usage)
        assert paid == usage_of(sleep).prompt + usage_of(later).prompt > 0
        check_files(replayed.dir)

    @pytest.mark.parametrize("index", [7, 100])
    async def test_is_of_tasks_that_were_trained_on(self, corridor: Runs, index: int) -> None:
        """Neither held-out worlds nor ones that nobody has drawn."""
        run = corridor(lambda request: call("walk", steps=2), "method=tests.odd_methods:Cheating")
        with pytest.raises(MethodBroke, match=rf"asked for Task\(.*index={index}\), which it may not play"):
            await run.play(f"method.index={index}", "run.rollouts=2")
