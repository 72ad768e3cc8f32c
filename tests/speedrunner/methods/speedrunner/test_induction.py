"""The method at work on BabyAI: an inducer finds in past episodes what the actor did wrong, and mends it.

The models' sides are scripted, as a good programmer would act; environment, workers, sandbox, code
interpreter, library and records are real.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving.errors import RequestRefused
from serving.model_config import ModelConfig
from serving.tokens.tokenizer import ChatTokenizer
from speedrunner.store.records import CallNode, Termination, Trajectory
from tests.babyai_player import APPROACH, NEXT_STEP, next_step
from tests.scripted_engine import Answer, Request, ScriptedEngine, call, refuse
from tests.scripted_runs import TO_FLAG, Runs, ScriptedRun, check_whole, roomy, script

pytestmark = pytest.mark.process

PARSE_MISSION = '''import re

def _parse_mission(mission: str) -> list:
    """Read the goals of a mission in the order in which they have to be done: pairs of verb and thing."""
    goals = re.findall(r"(pick up|go to) (?:the|a) (\\w+ \\w+)", mission)
    return goals[::-1] if " after you " in mission else goals'''

SOLVE_MISSION = '''def solve_mission(mission: str) -> str:
    """Fulfil a whole mission, given word for word. Returns the last observation."""
    observation = ""
    for verb, thing in _parse_mission(mission):
        observation = approach(thing)
        if verb == "pick up":
            observation = pick_up()
    return observation'''

COUNT_FAILURES = """import re
from collections import Counter
tally = Counter()
for t in load_trajectories():
    wording = "after" if " after you " in opening(t) else "then"
    tally[wording, t["outcome"]["success"]] += 1
sorted(tally.items())"""

FIND_ORDER = r"""goals = r"go to (?:the|a) (\w+ \w+) after you pick up (?:the|a) (\w+ \w+)"
for t in load_trajectories():
    if not t["outcome"]["success"]:
        x, y = re.search(goals, opening(t)).groups()
        seen = [call["result"] for _, _, call in calls(t)]
        reached = next(n for n, text in enumerate(seen) if f"{x} 1 step forward" in text)
        carried = next(n for n, text in enumerate(seen) if f"You carry a {y}" in text)
        print(t["episode"], "went before it picked up" if reached < carried else "was in order")"""

TRY_PARSER = (
    "from library import _parse_mission\nfor t in load_trajectories(): print(_parse_mission(opening(t)))"
)

SESSION = (
    call("execute_code", code=COUNT_FAILURES),
    call("execute_code", code=FIND_ORDER),
    call("write_skill", source=PARSE_MISSION, public=False),
    call("execute_code", code=TRY_PARSER),
    call("write_skill", source=NEXT_STEP, public=False),
    call("write_skill", source=APPROACH, public=False),
    call("write_skill", source=SOLVE_MISSION, public=True),
    call("execute_code", code="library.solve_mission('go to the red ball after you pick up the blue box')"),
    call("finish", summary="Missions with 'after you' were done in the order of their words."),
)


def left_to_right(request: Request) -> Answer:
    """An actor that reads missions as they are written, and calls `solve_mission` where it is there."""
    mission = request.task.partition("\n")[0].removeprefix("Your task: ")
    if "solve_mission" in request.tools:
        return call("solve_mission", mission=mission)
    goals = re.findall(r"(pick up|go to) (?:the|a) (\w+ \w+)", mission)
    texts = [text.partition("\n\n")[2] if n == 0 else text for n, text in enumerate(replies(request))]
    for text in texts:
        verb, thing = goals[0]
        if (verb == "go to" and next_step(thing, text) == "") or f"You carry a {thing}" in text:
            goals.pop(0)
        if not goals:
            return call("turn_left")  # it thinks that it is done
    verb, thing = goals[0]
    step = next_step(thing, texts[-1])
    return call(step or "pick_up")


def replies(request: Request) -> list[str]:
    return [text for role, text in request.messages if role in ("user", "tool")]


def inducer(request: Request) -> Answer:
    """Goes through `SESSION` in the first sleep, and leaves a library that is there alone."""
    return SESSION[request.turn] if "The library is empty." in request.task else SESSION[-1]


def play(request: Request) -> Answer:
    if "write_skill" in request.tools:
        return inducer(request)
    return left_to_right(request) if request.tools else Answer()


@pytest.fixture(scope="module")
def run(
    tiny_model_config: ModelConfig,
    tiny_folder: str,
    tiny_tokenizer: ChatTokenizer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ScriptedRun]:
    """Two batches of six missions, a sleep after each."""
    with ScriptedEngine(tiny_tokenizer, play) as engine:
        settings = ["env=babyai", "run.rollouts=12", "run.sleep_every=6", "run.eval_every=12"]
        settings += ["run.test_episodes=0", "run.in_flight=2"]
        model_config = roomy(tiny_model_config, path=tiny_folder)
        run = ScriptedRun(tmp_path_factory.mktemp("induction"), model_config, engine, settings)
        asyncio.run(run.play())
        yield run


def told(run: ScriptedRun) -> list[str]:
    """What the inducer was told in its first sleep after each call, without the line on what is left."""
    (agent,) = run.data.sleeps[0].agents
    return [turn.messages[-1].content.rpartition("\n\n")[0] for turn in agent.turns[1:]]


def batch(run: ScriptedRun, number: int) -> list[Trajectory]:
    return sorted(run.data.trajectories(number), key=lambda each: each.episode)


class TestTheFirstSleep:
    def test_it_counts_failures_by_code(self, run: ScriptedRun) -> None:
        assert told(run)[0] == "[(('after', False), 3), (('after', True), 1), (('then', True), 2)]"
        assert [played.termination for played in batch(run, 0)].count(Termination.CALL_LIMIT) == 3

    def test_it_finds_that_the_order_was_wrong(self, run: ScriptedRun) -> None:
        assert told(run)[1].splitlines() == [
            f"train/{number:04d} went before it picked up" for number in (0, 4, 5)
        ]

    def test_it_tries_its_parser_on_the_recorded_missions(self, run: ScriptedRun) -> None:
        parsed = told(run)[3].splitlines()
        assert len(parsed) == 6
        assert parsed[0] == "[('pick up', 'green box'), ('go to', 'blue box')]"
        assert all(line.startswith("[('pick up'") for line in parsed)

    def test_there_is_no_environment_to_try_it_in(self, run: ScriptedRun) -> None:
        assert "NotAvailable: turn_right is not available here" in told(run)[7]

    def test_the_main_function_is_public_and_its_helpers_are_private(self, run: ScriptedRun) -> None:
        public = {skill.name: skill.public for skill in run.data.policies.load(1).skills}
        assert public == {
            "_parse_mission": False,
            "next_step": False,
            "approach": False,
            "solve_mission": True,
        }


class TestTheNextBatch:
    def test_it_succeeds_with_far_fewer_calls(self, run: ScriptedRun) -> None:
        before, after = batch(run, 0), batch(run, 1)
        assert {played.policy for played in after} == {1}
        assert [played.termination for played in before].count(Termination.SUCCESS) == 3
        solved = [played for played in after if played.termination is Termination.SUCCESS]
        assert len(solved) >= 5
        assert [len(played.turns) for played in solved] == [1] * len(solved)
        assert sum(len(played.turns) for played in before) > 100

    def test_the_tree_shows_every_primitive(self, run: ScriptedRun) -> None:
        for played in batch(run, 1):
            trees = [turn.executed for turn in played.turns if turn.executed is not None]
            nodes = [node for tree in trees for node in flat(tree)]
            primitives = [node for node in nodes if node.kind == "primitive"]
            assert played.outcome is not None
            steps = played.outcome.detail["steps"]
            assert sum(node.error is None for node in primitives) == steps
            assert sum(tree.actions for tree in trees) == steps
            assert [node.name for node in trees[0].calls][:2] == ["_parse_mission", "approach"]
            assert sum(node.omitted for node in nodes) == 0

    def test_every_episode_of_a_version_begins_with_the_same_tokens(self, run: ScriptedRun) -> None:
        requests = [each for each in run.server.requests if "solve_mission" in each.tools and each.turn == 0]
        requests = [each for each in requests if "write_skill" not in each.tools]
        assert len(requests) == 6
        start = requests[0].prompt[0]  # of a turn
        systems = {each.prompt[: each.prompt.index(start, 1)] for each in requests}
        assert len(systems) == 1
        assert len({each.task for each in requests}) == 6

    def test_a_sleep_that_changes_nothing_leaves_the_library(self, run: ScriptedRun) -> None:
        assert run.data.policies.load(2).skills == run.data.policies.load(1).skills


def flat(node: CallNode) -> Iterator[CallNode]:
    yield node
    for below in node.calls:
        yield from flat(below)


async def test_a_run_that_stops_in_the_middle_of_a_sleep_continues_it(corridor: Runs, tmp_path: Path) -> None:
    written = call("write_skill", source=TO_FLAG, public=True)
    run = corridor(script(inducer=(written, refuse(404, "the model is gone"))))
    with pytest.raises(RequestRefused, match="the model is gone"):
        await run.play()
    played = {each.episode: each.started for each in run.data.trajectories()}
    assert sorted(played) == ["train/0000", "train/0001"]
    assert run.data.sleeps == []
    assert run.data.policies.versions() == [0]

    run.server.script = script(inducer=(written,))
    await run.play()
    check_whole(run)
    first, second = run.data.sleeps
    assert (first.attempt, second.attempt) == (1, 1)
    assert [edit.action for edit in first.edits] == ["write"]
    again = {each.episode: each.started for each in run.data.trajectories() if each.episode in played}
    assert again == played
    # An evaluation that was going on beside it was cut off too.
    wasted = [row for row in run.data.requests if row.wasted and row.labels["phase"] != "test"]
    assert {(row.labels["episode"], row.labels["attempt"]) for row in wasted} == {("sleep/0001", "1")}
