"""What every method must bear: batches that teach nothing, sleeps that are cut off or killed, overflow."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from serving.errors import EngineDead
from serving.model_config import Role, Roles
from speedrunner.library.library import Library
from speedrunner.methods.method_registry import METHODS
from speedrunner.store.records import Policy, Termination
from speedrunner.store.rundir import RunDirectory
from tests.scripted_engine import HANG, Answer, Request, call, refuse, say
from tests.scripted_runs import TO_FLAG, Runs, ScriptedRun, check_whole, script
from tests.speedrunner.methods.test_asi import STRIDE
from tests.speedrunner.methods.voyager.test_sessions import HELPED, STEP
from tests.toy_env import Racetrack

RACETRACK = "env=tests.toy_env:Racetrack"
LEARNING = sorted(METHODS.keys() - {"react"})
INDUCING = ("prose", "speedrunner")
"""Those whose inducer may edit whenever it likes, or have nothing to change."""
LLM_SLEEPS = sorted(METHODS.keys() - {"react", "voyager"})
"""Those whose sleeps ask a model."""


def school(request: Request) -> Answer:
    """Answers every role of every method, always in the same way."""
    tools = request.tools
    if "edit_notes" in tools and request.turn:
        return call("finish", summary="Walk on.")
    if "write_notes" in tools:
        return call("write_notes", text="Walk on.")
    if "report_lessons" in tools:
        return call("report_lessons", lessons="It walked on.", helpful=[], harmful=[])
    if "change_playbook" in tools:
        return call("change_playbook", remove=[], add=[{"section": "strategy", "text": "Walk on."}])
    if "propose_functions" in tools:
        return call("propose_functions", source=STRIDE)
    if "propose_objective" in tools:
        nothing = "Reached in this episode: nothing yet" in request.task
        objective = "leave the start" if nothing else "reach the flag"
        return call("propose_objective", reasoning="Next.", objective=objective)
    if "judge" in tools:
        return call("judge", reasoning="Look.", success=True, critique="")
    if "run_program" in tools:
        known = "def leave_start(" in request.system
        return call("run_program", source=HELPED if known else STEP)
    if "write_skill" in tools:
        return script(school, (call("write_skill", source=TO_FLAG, public=True),))(request)
    if "stride" in tools and request.turn == 0:
        return call("stride", steps=1)
    return call("walk", steps=9) if tools else say("")


def asks(request: Request) -> bool:
    """Whether a sleep asks, for something that it has not got yet."""
    asking = {"write_notes", "report_lessons", "propose_functions", "write_skill"}
    return not asking.isdisjoint(request.tools)


def policies(run: ScriptedRun) -> list[Policy]:
    return [run.data.policies.load(version) for version in run.data.policies.versions()]


@pytest.fixture(scope="module")
def finished(shared_corridor: Runs) -> Callable[[str], ScriptedRun]:
    """Return the finished run of a method, which is played once."""

    @cache
    def finish(method: str) -> ScriptedRun:
        train = ["method.train=true"] if method == "react" else []
        return shared_corridor(school, RACETRACK, f"method={method}", *train).finish()

    return finish


@pytest.fixture
def whole(finished: Callable[[str], ScriptedRun], request: pytest.FixtureRequest) -> ScriptedRun:
    """The finished run of the method in the test's parameter."""
    return finished(request.param)


@pytest.mark.parametrize("whole", sorted(METHODS), indirect=True)
def test_a_whole_run(whole: ScriptedRun) -> None:
    check_whole(whole)
    first, *_, last = policies(whole)
    learnt = (last.module, last.notes) != (first.module, first.notes)
    assert learnt == (whole.data.settings.method.name != "react")


@pytest.mark.parametrize("whole", ["ace", "opo", "voyager"], indirect=True)
async def test_a_run_may_start_with_what_another_one_has_learnt(corridor: Runs, whole: ScriptedRun) -> None:
    """As in the distribution shift: the library, the notes, the objectives."""
    method = whole.data.settings.method.name
    run = corridor(school, RACETRACK, f"method={method}")
    await run.play(f"run.start_from={whole.dir}", "run.rollouts=0")
    old, new = policies(whole)[-1], policies(run)[0]
    assert (new.module, new.notes, new.method) == (old.module, old.notes, old.method)
    asked = [each for each in run.server.requests if "walk" in each.tools][-1]
    assert "Walk on." in asked.system if method in ("ace", "opo") else len(asked.tools) > 2


@pytest.mark.parametrize("method", LEARNING)
async def test_a_batch_in_which_every_episode_ends_by_a_fault(corridor: Runs, method: str) -> None:
    def broken(request: Request) -> Answer:
        own = "walk" in request.tools or "propose_objective" in request.tools
        return refuse(400, "no") if own else school(request)

    run = corridor(broken, RACETRACK, f"method={method}")
    await run.play("run.rollouts=2", "run.test_episodes=0")
    (sleep,) = run.data.sleeps
    assert {row.termination for row in run.data.episodes} == {Termination.ENGINE_ERROR}
    assert (sleep.agents, sleep.episodes, sleep.edits) == ([], [], [])
    assert sleep.error == "no episode of the batch has a score, so there is nothing to learn from"
    assert "nothing changed" in run.printed
    assert sleep.error in run.printed
    before, after = policies(run)
    assert (after.module, after.notes, after.method) == (before.module, before.notes, before.method)


@pytest.mark.parametrize("method", ["asi", "asi_replay"])
async def test_a_batch_without_a_success(corridor: Runs, method: str) -> None:
    def lost(request: Request) -> Answer:
        return call("walk", steps=9, direction="left") if "walk" in request.tools else school(request)

    run = corridor(lost, RACETRACK, f"method={method}")
    await run.play("run.rollouts=2", "run.test_episodes=0")
    assert run.data.policies.load(1).skills == ()
    (sleep,) = run.data.sleeps
    assert (sleep.error, sleep.agents, sleep.edits) == ("no successful episode to learn from", [], [])


@pytest.mark.parametrize("method", LLM_SLEEPS)
async def test_a_sleep_that_is_cut_off_by_its_call_limit(corridor: Runs, method: str) -> None:
    def mute(request: Request) -> Answer:
        return say("Hm.") if asks(request) else school(request)

    roles = Roles(actor=Role(string_tokens=80), inducer=Role(string_tokens=3000, max_calls=2))
    run = corridor(mute, RACETRACK, f"method={method}", roles=roles)
    await run.play("run.rollouts=2", "run.test_episodes=0")
    (sleep,) = run.data.sleeps
    assert {(agent.termination, len(agent.turns)) for agent in sleep.agents} == {(Termination.CALL_LIMIT, 2)}
    before, after = policies(run)
    assert (after.module, after.notes) == (before.module, before.notes)
    silent = "made no valid call of" in str(sleep.error)
    assert silent == (method not in INDUCING)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("whole", "here"),
    [
        ("ace", lambda request: "change_playbook" in request.tools and "Walk on." in request.task),
        ("opo", asks),
        ("asi_replay", lambda request: "stride" in request.tools and request.turn == 0),
        ("voyager", lambda request: "run_program" in request.tools and "def leave_start(" in request.task),
    ],
    indirect=["whole"],
)
async def test_a_run_that_is_killed_there_goes_on_to_the_same_policies(
    corridor: Runs, whole: ScriptedRun, here: Callable[[Request], bool]
) -> None:
    run = corridor(school, RACETRACK, f"method={whole.data.settings.method.name}")
    died: list[Request] = []

    def mortal(request: Request) -> Answer:
        if not died and here(request):
            died.append(request)
            threading.Thread(target=run.server.stop).start()
        return HANG if died else school(request)

    run.server.script = mortal
    with pytest.raises(EngineDead):
        await run.play("serving.outage_timeout_s=0.1")
    run.server.script = school
    run.server.restart()
    await run.play()
    assert died
    check_whole(run)
    assert policies(run) == policies(whole)


def large_library(folder: Path, count: int) -> str:
    """A run whose newest policy has many skills."""
    library = Library(Racetrack().primitives)
    sources = [f'def skill_{n}() -> str:\n    """Look ({n})."""\n    return look()' for n in range(count)]
    for start in range(0, count, 50):  # one edit has a limited length
        library = library.write("\n\n\n".join(sources[start : start + 50]), sleep=1)
    policy = library.policy(Policy(version=0))
    with RunDirectory.open_for_writing(folder) as run:
        run.write_config("{}")
        run.write_policy(policy)
    return str(folder)


async def test_tools_that_alone_overflow_the_actor_end_its_episode_scored_as_it_stands(
    corridor: Runs, tmp_path: Path
) -> None:
    source = large_library(tmp_path / "large", 300)
    run = corridor(school, RACETRACK, "method=voyager", f"run.start_from={source}", context=9000)
    await run.play("run.rollouts=0", "run.test_episodes=1")
    (row,) = run.data.episodes
    assert (row.termination, row.score, row.llm_calls) == (Termination.CONTEXT_OVERFLOW, 0.0, 0)
