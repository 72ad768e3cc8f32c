"""Agent Skill Induction: functions from successful episodes, append-only, with and without verification."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from envs import Outcome
from speedrunner.library.definition import read_text
from speedrunner.library.library import Library
from speedrunner.methods.asi import TAKEN, append_skills, find_excess, select_successful
from speedrunner.runs.verification.record_checks import check_policies
from speedrunner.store.records import Labels, Termination
from tests.scripted_engine import Answer, Request, Script, call, say
from tests.scripted_runs import Runs, check_whole, flag
from tests.speedrunner.run_samples import trajectory
from tests.tampered_runs import open_checked
from tests.toy_env import Corridor

STRIDE = '''def stride(steps: int) -> str:
    """Walk and look.

    Returns what is seen."""
    walk(steps)
    return look()'''
HURRY = 'def hurry(steps: int) -> str:\n    """Stride twice."""\n    stride(steps)\n    return stride(steps)'
OTHER_STRIDE = STRIDE.replace("look()", "walk(1)")
ONCE = 'def once() -> str:\n    """Walk."""\n    return walk(1)'
BROKEN = "def broken(steps):\n    return fly(steps)"


def inducer(*sources: str, actor: Callable[[Request], Answer] | None = None) -> Script:
    """A script: each successful episode is answered with the next source."""
    left = list(sources)

    def answer(request: Request) -> Answer:
        if "propose_functions" in request.tools:
            return call("propose_functions", source=left.pop(0) if left else "")
        if not request.tools:
            return say("")
        return actor(request) if actor else call("walk", steps=9)

    return answer


async def test_the_library_after_three_sleeps_is_exactly_what_was_proposed_first(corridor: Runs) -> None:
    run = corridor(inducer(STRIDE, f"{OTHER_STRIDE}\n\n{HURRY}", f"{HURRY}\n\n{BROKEN}"))
    plan = ("run.rollouts=3", "run.sleep_every=1", "run.eval_every=3")
    await run.play("method=asi", "method.style=free", *plan)
    policy = run.data.policies.load(3)
    assert policy.module == f"from __future__ import annotations\n\n\n{STRIDE}\n\n\n{HURRY}\n"
    assert [(each.name, each.public, each.created) for each in policy.skills] == [
        ("stride", True, 1),
        ("hurry", True, 3),
    ]
    first, second, third = ({each.name: each.error for each in sleep.edits} for sleep in run.data.sleeps)
    assert first == {"stride": None}
    assert second == {"stride": TAKEN, "hurry": f"hurry needs stride: {TAKEN}"}
    assert third["hurry"] is None
    assert "steps" in str(third["broken"])
    assert check_policies(open_checked(run.dir)).level == "ok"


async def test_the_inducer_reads_one_success_at_a_time_and_its_skills_are_the_actors_tools(
    corridor: Runs,
) -> None:
    run = corridor(inducer(STRIDE, "", HURRY, ""))
    await run.play("method=asi")
    held_out = [each for each in run.server.requests if flag(each) == 7 and "walk" in each.tools]
    late = max(held_out, key=lambda each: len(each.tools))  # checkpoints are played side by side
    assert list(late.tools) == ["walk", "look", "stride", "hurry"]
    assert "Walk and look.\\n\\nReturns what is seen." in late.system
    check_whole(run)
    first, second, *_ = (each for each in run.server.requests if "propose_functions" in each.tools)
    assert "The library is empty." in first.task
    assert "train/0000: " in first.task
    assert "train/0001" not in first.task
    assert first.task.endswith("Its successful calls:\n\n```python\nwalk(steps=9)\n```")
    assert "# stride(steps: int): Walk and look." in second.task


async def test_what_does_not_fit_costs_the_whole_sleep_as_in_the_paper(corridor: Runs) -> None:
    def wanderer(request: Request) -> Answer:
        first = flag(request) == 3
        return call("walk", steps=9) if first or request.turn == 2 else call("walk", steps=1)

    run = corridor(inducer(STRIDE, actor=wanderer), context=12_000)
    await run.play(
        *("method=asi", "method.style=free", "env.numbers=4000"),
        *("run.rollouts=2", "run.test_episodes=0"),
    )
    (sleep,) = run.data.sleeps
    assert run.data.policies.load(1).skills == ()
    assert str(sleep.error).startswith("the context of the inducer overflowed")
    assert [edit.error is None for edit in sleep.edits] == [False]
    assert check_policies(open_checked(run.dir)).level == "ok"


@pytest.mark.parametrize(
    ("scores", "chosen"),
    [
        ([0.1, 0.2, 0.3, 0.0], [0.2, 0.3]),
        ([0.2, 0.2, 0.2], [0.2, 0.2, 0.2]),
        ([0.0, 0.0, 0.0, 0.5], [0.5]),
        ([0.0, 0.0], []),
        ([], []),
    ],
)
def test_where_scores_are_graded_the_better_half_succeeded(scores: list[float], chosen: list[float]) -> None:
    batch = [trajectory(outcome=Outcome(score, False, {})) for score in scores]
    found = select_successful(batch)
    assert [each.outcome.score for each in found if each.outcome] == chosen


class TestTheOriginalsBounds:
    @pytest.mark.parametrize(
        ("body", "why"),
        [
            ("    walk(1)\n    # a comment\n\n    return walk(\n        2\n    )", None),
            ("    for _ in range(9):\n        walk(1)\n    return stride(1)", None),
            ("    for _ in range(9):\n        walk(1)", None),
            ("    return walk(1)", "f has 1 calls (at least 2)"),
            ("    walk(1)\n" * 6, "f has 6 calls of primitives or skills (at most 5)"),
            ("    x = 1\n" * 9 + "    walk(x)\n    return walk(x)", "f has 11 lines of code (at most 10)"),
        ],
    )
    def test_count_lines_after_the_docstring_and_calls_as_they_are_written(
        self, body: str, why: str | None
    ) -> None:
        (function,) = read_text(f'def f() -> str:\n    """One.\n\n    Two.\n    """\n{body}')
        assert find_excess(function, {"walk", "look", "stride"}) == (why or "")

    async def test_refuse_a_function_that_breaks_them_and_those_that_need_it(self, corridor: Runs) -> None:
        twice = 'def twice() -> str:\n    """Walk."""\n    once()\n    return once()'
        run = corridor(inducer(f"{STRIDE}\n\n{ONCE}\n\n{twice}"))
        await run.play("method=asi", "run.rollouts=1", "run.sleep_every=1", "run.test_episodes=0")
        (sleep,) = run.data.sleeps
        why = "once has 1 calls (at least 2)"
        assert {each.name: each.error for each in sleep.edits} == {"stride": None, "once": why, "twice": why}
        assert [each.name for each in run.data.policies.load(1).skills] == ["stride"]


class TestVerification:
    """`asi_replay`: the agent plays the task again with the new skills."""

    @staticmethod
    def actor(again: Answer) -> Callable[[Request], Answer]:
        """Walks; with new skills it answers `again` first."""
        return lambda request: (
            again if "stride" in request.tools and request.turn == 0 else call("walk", steps=9)
        )

    async def test_what_helped_to_solve_it_again_stays_and_the_rest_goes(self, corridor: Runs) -> None:
        again = self.actor(call("stride", steps=1))
        run = corridor(inducer(f"{STRIDE}\n\n{HURRY}", actor=again))
        await run.play("method=asi_replay", "run.rollouts=1", "run.test_episodes=0")
        (sleep,) = run.data.sleeps
        assert [each.name for each in run.data.policies.load(1).skills] == ["stride"]
        assert [(each.name, each.error is None) for each in sleep.edits] == [
            ("stride", True),
            ("hurry", False),
        ]
        assert check_policies(open_checked(run.dir)).level == "ok"
        (attempt,) = sleep.episodes
        assert (attempt.task, attempt.termination) == (run.data.trajectories()[0].task, Termination.SUCCESS)
        tokens = (
            sum(turn.usage.prompt for agent in sleep.agents for turn in agent.turns) + attempt.usage.prompt
        )
        rows = [row for row in run.data.requests if Labels.of(row.labels).phase == "sleep"]
        assert sum(row.usage.prompt for row in rows if row.usage) == tokens

    async def test_a_skill_that_another_one_calls_stays_with_it(self, corridor: Runs) -> None:
        again = self.actor(call("hurry", steps=1))
        run = corridor(inducer(f"{STRIDE}\n\n{HURRY}", actor=again))
        await run.play("method=asi_replay", "run.rollouts=1", "run.test_episodes=0")
        assert [each.name for each in run.data.policies.load(1).skills] == ["stride", "hurry"]

    async def test_a_skill_that_solves_it_in_the_middle_of_a_loop_stays(self, corridor: Runs) -> None:
        loop = STRIDE.replace("    walk(steps)\n", "    for _ in range(20):\n        walk(steps)\n")
        run = corridor(inducer(loop, actor=self.actor(call("stride", steps=1))))
        await run.play("method=asi_replay", "run.rollouts=1", "run.test_episodes=0")
        (sleep,) = run.data.sleeps
        executed = sleep.episodes[0].turns[0].executed
        assert executed is not None
        assert str(executed.error).startswith("EpisodeEnded: ")
        assert [each.name for each in run.data.policies.load(1).skills] == ["stride"]

    async def test_nothing_stays_where_the_task_is_not_solved_again(self, corridor: Runs) -> None:
        def failing(request: Request) -> Answer:
            if "stride" in request.tools:
                return (
                    call("stride", steps=1) if request.turn == 0 else call("walk", steps=9, direction="left")
                )
            return call("walk", steps=9)

        run = corridor(inducer(STRIDE, actor=failing))
        await run.play("method=asi_replay", "run.rollouts=1", "run.test_episodes=0")
        (sleep,) = run.data.sleeps
        assert run.data.policies.load(1).skills == ()
        (edit,) = sleep.edits
        assert edit.error == "the task was not solved again (failure) when train/0000 was played again"


EVEN = 'def even(n: int) -> bool:\n    """Even?"""\n    return n == 0 or odd(n - 1)'
ODD = 'def odd(n: int) -> bool:\n    """Odd?"""\n    return n > 0 and even(n - 1)'
STEP = 'def step() -> str:\n    """Walk."""\n    return walk(1)'
BAD = "def bad(x):\n    return fly(x)"
ON_BAD = 'def on_bad() -> str:\n    """Fly."""\n    return bad(1)'


async def grown(*texts: str) -> tuple[Library, list[tuple[str, bool]]]:
    library = Library(Corridor().primitives)
    told: list[tuple[str, bool]] = []
    for number, text in enumerate(texts, start=1):
        library, edits = append_skills(library, text, number)
        told += [(edit.name, edit.error is None) for edit in edits]
    return library, told


async def test_functions_that_need_each_other_go_in_together_whatever_else_is_bad() -> None:
    library, told = await grown(f"{EVEN}\n\n{BAD}\n\n{ODD}\n\n{STEP}\n\n{ON_BAD}")
    assert {skill.name for skill in library.skills} == {"even", "odd", "step"}
    assert sorted(told) == [
        ("bad", False), ("even, odd", True), ("on_bad", False), ("step", True),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "names"),
    [("def f(", ["f"]), ("f = 3", ["(none)"]), ("# nothing", ["(none)"]), ("?!", ["(none)"])],
)
async def test_what_holds_no_function_is_told(text: str, names: list[str]) -> None:
    library, edits = append_skills(Library(Corridor().primitives), text, 1)
    assert [edit.name for edit in edits] == names
    assert all(edit.error for edit in edits)
    assert library.skills == ()


async def test_a_function_that_needs_another_one_than_the_library_has_is_refused() -> None:
    mine = STEP.replace("step()", "step(far: int)").replace("walk(1)", "walk(far)")
    jump = 'def jump() -> str:\n    """Step far."""\n    return step(5)'
    library, told = await grown(STEP, f"{mine}\n\n{jump}")
    assert told == [("step", True), ("step", False), ("jump", False)]
    assert [skill.name for skill in library.skills] == ["step"]


async def test_what_stands_beside_functions_concerns_those_alone_that_use_it() -> None:
    use = 'def use() -> str:\n    """Go."""\n    return Walker().go()'
    last = 'def last_step() -> str:\n    """Walk."""\n    return walk(FAR)'
    walker = "class Walker:\n    go = None"
    library, told = await grown(
        f"FAR = 2\n\n{use}\n\n{walker}\n\n{last}\n\n{EVEN}\n\n{ODD}\n\nprint(even(2))"
    )
    assert sorted(told) == [("even, odd", True), ("last_step", True), ("use", False)]
    library, edits = append_skills(
        library, f"FAR = 3\n\n{STEP}\n\n{last.replace('last_step', 'far_step')}", 2
    )
    assert [(edit.name, edit.error is None) for edit in edits] == [("step", True), ("far_step", False)]
