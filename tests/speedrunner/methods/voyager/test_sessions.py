"""Voyager's roles in whole runs: objectives, programs, verdicts, and the library that comes of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from serving.model_config import Role, Roles
from speedrunner.library.library import Library
from speedrunner.methods.method_base import UnfitEnvironment
from speedrunner.methods.method_registry import make
from speedrunner.methods.voyager.programs import add_program
from speedrunner.methods.voyager.rollout import programming
from speedrunner.runs.verification.record_checks import check_policies
from speedrunner.store.records import Edit, Termination
from tests.scripted_engine import Answer, Request, Script, call, say
from tests.scripted_runs import Runs, ScriptedRun, flag
from tests.tampered_runs import open_checked
from tests.toy_env import Corridor, Racetrack

RACETRACK = "env=tests.toy_env:Racetrack"
SHORT = ("run.rollouts=1", "run.sleep_every=1", "run.test_episodes=0")

STEP = 'def leave_start() -> str:\n    """Walk one field."""\n    return walk(1)'
ON = 'def go_on() -> str:\n    """Leave the start, and look."""\n    leave_start()\n    return look()'
HELPED = '''def far(steps: int) -> str:
    """Walk far."""
    return walk(steps)


def to_flag(steps: int = 9) -> str:
    """Walk to the flag."""
    return far(steps)'''
FAILING = 'def leave_start() -> str:\n    """Divide."""\n    return str(1 // 0)'


def roles(
    programs: Callable[[Request], Answer],
    objectives: Sequence[str] = ("leave the start", "go on", "reach the flag"),
    verdict: Callable[[Request], Answer] = lambda request: call(
        "judge", reasoning="It moved.", success=True, critique=""
    ),
) -> Script:
    """A script: the curriculum goes through `objectives` in each episode, by what was reached in it."""

    def answer(request: Request) -> Answer:
        if not request.tools:
            return say("")
        if "propose_objective" in request.tools:
            done = request.task.partition("Reached in this episode: ")[2].partition("\n")[0]
            number = 0 if done == "nothing yet" else len(done.split("; "))
            return call("propose_objective", reasoning="Next.", objective=objectives[number])
        if "judge" in request.tools:
            return verdict(request)
        return programs(request)

    return answer


def pupil(request: Request) -> Answer:
    """Writes a program for each objective; held out, it is the ordinary actor."""
    if "run_program" not in request.tools:
        return call("to_flag") if "to_flag" in request.tools else call("walk", steps=9)
    for objective, source in (("leave the start", STEP), ("go on", ON)):
        if f"Your task: {objective}" in request.task:
            known = f"def {source.split()[1].partition('(')[0]}(" in request.task
            return call("run_program", source=source if not known else source.replace("def ", "def again_"))
    return call(
        "run_program",
        source=HELPED if "def to_flag(" not in request.system else HELPED.replace("def ", "def re"),
    )


@pytest.fixture(scope="module")
def session(shared_corridor: Runs) -> ScriptedRun:
    """A finished run with three rollouts and a sleep after each."""
    settings = ("method=voyager", "run.rollouts=3", "run.sleep_every=1", "run.eval_every=3")
    return shared_corridor(roles(pupil), RACETRACK, *settings).finish()


class TestASession:
    def test_a_rollout_ends_with_the_world_and_its_accepted_programs_join_the_library(
        self, session: ScriptedRun
    ) -> None:
        played = session.data.trajectories()[0]
        assert played.termination is Termination.SUCCESS
        assert [turn.role for turn in played.turns] == [
            *("curriculum", "critic", "programmer") * 2, "curriculum", "programmer",
        ]  # fmt: skip
        assert played.method_state == {
            "completed": ["leave the start", "go on"],
            "failed": ["reach the flag"],
            "programs": [
                {"objective": "leave the start", "source": STEP},
                {"objective": "go on", "source": ON},
            ],
        }
        policy = session.data.policies.load(1)
        assert policy.module == f"from __future__ import annotations\n\n\n{STEP}\n\n\n{ON}\n"
        assert [(each.name, each.public) for each in policy.skills] == [
            ("leave_start", True),
            ("go_on", True),
        ]
        assert policy.method == {"completed": ["leave the start", "go on"], "failed": ["reach the flag"]}
        assert session.data.sleeps[0].edits == [
            Edit("write", "leave_start", source=STEP, public=("leave_start",)),
            Edit("write", "go_on", source=ON, public=("go_on",)),
        ]
        assert check_policies(open_checked(session.dir)).level == "ok"
        assert session.data.sleeps[0].agents == []

    def test_three_sleeps_lead_to_a_library_that_is_known_in_advance(self, session: ScriptedRun) -> None:
        versions = [[each.name for each in session.data.policies.load(number).skills] for number in range(4)]
        assert versions == [
            [],
            ["leave_start", "go_on"],
            ["leave_start", "go_on", "again_leave_start", "again_go_on"],
            ["leave_start", "go_on", "again_leave_start", "again_go_on"],
        ]

    def test_programs_can_be_called_at_once_and_are_listed_in_the_prompt(self, session: ScriptedRun) -> None:
        asked = [each for each in session.server.requests if "run_program" in each.tools]
        left = "Left in this episode: 19 answers of all roles together and 2000 actions."
        assert asked[0].task.startswith(f"The library is empty.\n{left}\n\nYour task: leave the start")
        assert f"```python\n{STEP}\n```\n\nThe library has 1 program.\nLeft" in asked[1].task
        assert f"```python\n{STEP}\n\n\n{ON}\n```\n\nThe library has 2 programs." in asked[2].task
        assert len({each.system for each in asked}) == 1  # what the prefix warm-up sends
        played = session.data.trajectories()[0]
        second = [turn.executed for turn in played.turns if turn.role == "programmer" and turn.executed][1]
        assert [each.name for each in second.calls[0].calls] == ["leave_start", "look"]

    def test_held_out_episodes_are_played_by_the_ordinary_actor_with_all_skills_as_tools(
        self, session: ScriptedRun
    ) -> None:
        held_out = [each for each in session.server.requests if flag(each) == 7 and "walk" in each.tools]
        late = max(held_out, key=lambda each: len(each.tools))  # checkpoints are played side by side
        skills = ["go_on", "leave_start", "again_go_on", "again_leave_start"]
        assert list(late.tools) == ["walk", "look", *skills]
        assert {turn.role for each in session.data.evaluations() for turn in each.turns} == {"actor"}

    def test_the_next_rollouts_curriculum_knows_what_was_reached_and_what_was_not(
        self, session: ScriptedRun
    ) -> None:
        asked = [each for each in session.server.requests if "propose_objective" in each.tools][-1]
        assert "Reached in earlier episodes: leave the start; go on\n" in asked.task
        assert "Failed in earlier episodes and never reached: reach the flag" in asked.task
        assert "- Leave the start\n- Reach the flag" in asked.system


def helped(count: int) -> Library:
    """Programs that share `count` helpers, of which each calls the one before."""
    chain = ['def helper_0() -> str:\n    """Look (0)."""\n    return look()']
    for number in range(1, count):
        chain.append(
            f'def helper_{number}() -> str:\n    """Look ({number})."""\n    return helper_{number - 1}()'
        )
    library = Library(Racetrack().primitives)
    for name in ("left", "right", "back"):
        main = f'def go_{name}() -> str:\n    """Go {name}."""\n    return helper_{count - 1}()'
        library, _ = add_program(library, "\n\n\n".join([*chain, main]))
    return library


class TestThePromptOfTheProgrammer:
    def test_has_the_code_of_each_function_once_in_the_order_of_the_library(self) -> None:
        library, env = helped(14), Racetrack()
        left, right = (programming(library, env, 2, 4, f"go {name}") for name in ("left", "right"))
        assert [left.reference.count(f"def helper_{number}(") for number in range(14)] == [1] * 14
        assert left.instructions == right.instructions
        first, _, _ = left.reference.partition("def go_")
        assert right.reference.startswith(first)
        assert "def helper_13(" in first


class TestAProgramThatDoesNotDo:
    async def test_is_tried_again_with_what_the_critic_says(self, corridor: Runs) -> None:
        def programs(request: Request) -> Answer:
            return call("run_program", source=STEP)

        def verdict(request: Request) -> Answer:
            moved = "You are at field 2" in request.task
            return call("judge", reasoning="Look.", success=moved, critique="" if moved else "Walk farther.")

        run = corridor(roles(programs, ["leave the start"] * 9, verdict), RACETRACK, *SHORT)
        await run.play("method=voyager", "run.rollouts=1")
        first, second = [each for each in run.server.requests if "run_program" in each.tools][:2]
        assert second.messages[: len(first.messages)] == first.messages
        reply = second.messages[-1][1]
        assert reply.count("You are at field 1.") == 1
        assert "The critic says: Walk farther." in reply
        assert "The program was not added to the library." in reply

    async def test_costs_no_critic_where_it_raises_and_fails_its_objective_after_four_tries(
        self, corridor: Runs
    ) -> None:
        run = corridor(roles(lambda request: call("run_program", source=FAILING)), RACETRACK, *SHORT)
        await run.play("method=voyager")
        (played,) = run.data.trajectories()
        assert {turn.role for turn in played.turns} == {"curriculum", "programmer"}
        reply = next(turn for turn in played.turns if turn.role == "programmer" and turn.conversation == 1)
        assert "ZeroDivisionError" in str(reply.executed and reply.executed.result)
        assert (played.termination, len(played.turns)) == (Termination.CALL_LIMIT, 20)
        assert [turn.role for turn in played.turns[:6]] == ["curriculum", *["programmer"] * 4, "curriculum"]
        assert played.method_state["failed"] == ["leave the start"] * 4
        assert run.data.policies.load(1).method == {"completed": [], "failed": ["leave the start"]}

    async def test_or_is_none_is_told_so(self, corridor: Runs) -> None:
        problems = {
            "x = 1": "the source must define a function at the top level",
            'def go(steps: int) -> str:\n    """Go."""\n    return walk(steps)': "steps must have defaults",
            "def go() -> str:\n    return walk(1)": "docstring",
            "def go(": "line 1",
        }
        sources = list(problems)
        tries = roles(lambda request: call("run_program", source=sources[request.turn]))
        run = corridor(tries, RACETRACK, *SHORT)
        await run.play("method=voyager")
        (played,) = run.data.trajectories()
        for turn, problem in zip(played.turns[1:5], problems.values(), strict=True):
            assert problem in str(turn.executed and turn.executed.error)
        assert played.method_state.get("programs", []) == []


@pytest.mark.parametrize(("most", "tries"), [(None, 3), (1, 1)])
async def test_a_curriculum_that_names_nothing_leaves_the_task_as_the_objective_after_its_tries(
    corridor: Runs, most: int | None, tries: int
) -> None:
    def mute(request: Request) -> Answer:
        return say("Hm.") if "propose_objective" in request.tools else roles(pupil)(request)

    settings = Roles(Role(string_tokens=400), Role(string_tokens=400, max_calls=most))
    run = corridor(mute, RACETRACK, *SHORT, roles=settings)
    await run.play("method=voyager")
    (played,) = run.data.trajectories()
    asked = [each for each in run.server.requests if "run_program" in each.tools]
    assert "Your task: Walk to the flag." in asked[0].task
    assert [turn.role for turn in played.turns[: tries + 1]] == ["curriculum"] * tries + ["programmer"]
    assert played.termination is Termination.SUCCESS


async def test_what_does_not_fit_ends_the_rollout(corridor: Runs) -> None:
    wordy = " ".join(map(str, range(600)))

    def programs(request: Request) -> Answer:
        number = request.task.partition("Your task: step ")[2].partition("\n")[0]
        source = f'def step_{number}() -> str:\n    """Look. {wordy}"""\n    return look()'
        return call("run_program", source=source)

    steps = [f"step {number}" for number in range(20)]
    run = corridor(roles(programs, steps), RACETRACK, context=9_000)
    await run.play("method=voyager", "method.retrieve=all", "method.tries=1", *SHORT)
    (played,) = run.data.trajectories()
    programs_learnt = len(run.data.policies.load(1).skills)
    assert programs_learnt == 0  # the paper: no changes in such a sleep
    assert played.termination is Termination.CONTEXT_OVERFLOW
    assert played.method_state["failed"] == []  # what no program was tried for


def test_an_environment_whose_tasks_differ_is_refused_in_one_line() -> None:
    with pytest.raises(UnfitEnvironment, match=r"those of tests\.toy_env:Corridor differ"):
        make("voyager").check(Corridor())
