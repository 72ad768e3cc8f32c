"""What the contract of a method carries, in whole runs of methods that ask for all of it."""

from __future__ import annotations

from collections import Counter

import pytest

from serving.model_config import Role, Roles
from speedrunner.methods.method_base import MethodBroke
from speedrunner.store.records import Labels, Termination, Trajectory
from tests.scripted_engine import Answer, Request, call, say
from tests.scripted_runs import PLANNED, Runs, ScriptedRun, check_files, keys
from tests.speedrunner.run_samples import usage_of

PROGRAMMING, REPLAYING = "method=tests.odd_methods:Programming", "method=tests.odd_methods:Replaying"
ONE_STEP = 'def one_step() -> str:\n    """Walk one field."""\n    return walk(1)'
TO_FLAG = 'def to_flag() -> str:\n    """Walk on."""\n    one_step()\n    return walk(9)'
UNLOADABLE = '''import enum


class Odd(enum.Enum):
    A = 1
    A = 2


def odd() -> str:
    """Name it."""
    return Odd.A.name'''
LOST = 'def lost() -> str:\n    """Look for nothing."""\n    return look()'


def programmer(request: Request) -> Answer:
    """Curriculum, actor and critic: the second program is built on the first, and a third one is refused."""
    if not request.tools:
        return say("")
    if "propose" in request.tools:
        return call("propose", aim="the flag")
    if "judge" in request.tools:
        return call("judge", success="pit" not in request.messages[-1][1])
    answers = [
        call("program", source=ONE_STEP),
        call("rerun", name="one_step"),
        call("program", source=TO_FLAG),
    ]
    return answers[request.turn]


def roles(played: Trajectory) -> list[tuple[str, int]]:
    return [(turn.role, turn.conversation) for turn in played.turns]


@pytest.fixture(scope="module")
def programmed(shared_corridor: Runs) -> ScriptedRun:
    """A finished run of one training rollout with programs, and held-out episodes of the ordinary actor."""

    def both(request: Request) -> Answer:
        return call("walk", steps=9) if "walk" in request.tools else programmer(request)

    settings = ("run.rollouts=1", "run.sleep_every=1", "run.test_episodes=1")
    return shared_corridor(both, PROGRAMMING, *settings).finish()


class TestAnEpisodeOfSeveralConversations:
    def test_programs_that_are_accepted_can_be_called_at_once(self, programmed: ScriptedRun) -> None:
        (played,) = programmed.data.trajectories()
        assert played.termination is Termination.SUCCESS
        assert roles(played) == [
            ("curriculum", 0), ("critic", 2), ("actor", 1), ("actor", 1), ("actor", 1),
        ]  # fmt: skip
        assert played.method_state == {"aim": "the flag", "accepted": [ONE_STEP]}
        _, again, both = (turn.executed for turn in played.turns if turn.role == "actor" and turn.executed)
        # The world went on: the second field, then the flag, through the first program.
        assert [each.name for each in again.calls] == ["one_step"]
        assert again.calls[0].actions == again.actions == 1
        assert [each.name for each in both.calls[0].calls] == ["one_step"]
        assert [each.name for each in both.calls[0].calls[0].calls] == ["walk"]

    def test_what_a_sleep_makes_of_them_reaches_the_next_episodes(self, programmed: ScriptedRun) -> None:
        assert {turn.role for each in programmed.data.evaluations() for turn in each.turns} == {"actor"}
        policy = programmed.data.policies.load(1)
        assert [skill.name for skill in policy.skills] == ["one_step"]
        assert policy.method == {"aims": ["the flag"]}

    async def test_all_roles_draw_on_the_episodes_budget_and_are_its_cost(self, corridor: Runs) -> None:
        def waster(request: Request) -> Answer:
            if "program" not in request.tools:
                return programmer(request)
            return call("program", source=LOST)

        run = corridor(waster, PROGRAMMING, "run.rollouts=1", "run.sleep_every=1")
        await run.play("run.test_episodes=0")
        (row,) = run.data.episodes
        assert (row.termination, row.llm_calls) == (Termination.CALL_LIMIT, 20)
        (played,) = run.data.trajectories()
        assert Counter(turn.role for turn in played.turns)["critic"] > 0
        rows = [each for each in run.data.requests if Labels.of(each.labels).episode == "train/0000"]
        assert {Labels.of(each.labels).role for each in rows} == {"curriculum", "actor", "critic"}
        assert sum(each.usage.completion for each in rows if each.usage) == row.usage.completion

    async def test_a_program_that_cannot_be_loaded_is_refused_and_the_others_stay(
        self, corridor: Runs
    ) -> None:
        def careless(request: Request) -> Answer:
            if "program" not in request.tools:
                return programmer(request)
            answers = [
                call("program", source=ONE_STEP),
                call("program", source=UNLOADABLE),
                call("rerun", name="one_step"),
                call("give_up"),
            ]
            return answers[request.turn]

        run = corridor(careless, PROGRAMMING, "run.rollouts=1", "run.sleep_every=1")
        await run.play("run.test_episodes=0")
        (played,) = run.data.trajectories()
        acted = [turn.executed for turn in played.turns if turn.role == "actor" and turn.executed]
        assert "the library cannot be loaded: TypeError" in str(acted[1].error)
        assert acted[2].calls[0].error is None
        assert [skill.name for skill in run.data.policies.load(1).skills] == ["one_step"]

    @pytest.mark.parametrize("most", [None, 1])
    async def test_an_unfinished_role_ends_as_the_method_or_the_model_config_says(
        self, corridor: Runs, most: int | None
    ) -> None:
        def silent(request: Request) -> Answer:
            return say("Hm.") if "propose" in request.tools else programmer(request)

        roles = Roles(actor=Role(string_tokens=80), inducer=Role(string_tokens=80, max_calls=most))
        run = corridor(silent, PROGRAMMING, "run.rollouts=1", "run.test_episodes=0", roles=roles)
        await run.play()
        (row,) = run.data.episodes
        assert (row.termination, row.llm_calls, row.score) == (Termination.CALL_LIMIT, most or 2, 0.0)


@pytest.fixture(scope="module")
def replayed(shared_corridor: Runs) -> ScriptedRun:
    """A finished run whose two sleeps played their tasks again."""
    return shared_corridor(lambda request: call("walk", steps=2), REPLAYING).finish()


class TestReplay:
    def test_a_task_played_again_is_the_sleeps_and_no_episode(self, replayed: ScriptedRun) -> None:
        sleep, later = replayed.data.sleeps
        again = sorted(each.episode for each in sleep.attempts)  # they were played side by side
        assert again == ["sleep/0001/again/0000", "sleep/0001/again/0001"]
        assert {each.termination for each in sleep.attempts} == {Termination.SUCCESS}
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


@pytest.mark.parametrize(
    ("call_", "kind"),
    [("initial", "Policy"), ("agent", "ActorSpec"), ("play", "Termination"), ("sleep", "Policy")],
)
async def test_what_a_method_forgets_to_return_is_told_in_one_line(
    corridor: Runs, call_: str, kind: str
) -> None:
    run = corridor(lambda request: call("walk", steps=9), "method=tests.odd_methods:Forgetful")
    with pytest.raises(MethodBroke) as broke:
        await run.play(f"method.call={call_}", "run.rollouts=1", "run.test_episodes=0")
    name = "tests.odd_methods:Forgetful"
    assert str(broke.value) == f"method {name}: {call_} must return {kind}, but returned None"


def test_each_prefix_that_several_episodes_share_is_sent_once(replayed: ScriptedRun) -> None:
    warmed = Counter(
        Labels.of(row.labels).policy
        for row in replayed.data.requests
        if row.labels["role"] == "prefix_warm_up"
    )
    assert warmed == {0: 1, 1: 1, 2: 1}
