"""The episodes of one client, without a protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from speedrunner.skill_server.game import Game
from speedrunner.skill_server.player import Player, Reply
from tests.golden_tables import Golden, table
from tests.speedrunner.skill_server.samples import Lender, SlowWorker, make_game
from tests.toy_env import Corridor


@pytest.fixture(scope="module")
def game() -> Game:
    return make_game()


async def play(game: Game, calls: Sequence[tuple[str, dict[str, object]]]) -> list[Reply]:
    """The replies to these calls in a new episode."""
    async with Player(game, Lender().lend) as player:
        await player.start({})
        return [await player.call(name, arguments) for name, arguments in calls]


START = "start_episode"
EPISODES: dict[str, list[tuple[str, dict[str, object]]]] = {
    "to the flag": [(START, {"index": 2}), ("walk", {"steps": 1}), ("walk", {})],
    "a call before the start": [("walk", {})],
    "a call after the end": [(START, {"index": 1}), ("walk", {}), ("walk", {})],
    "invalid calls": [
        (START, {}),
        ("fly", {}),
        ("walk", {"steps": "one"}),
        ("walk", {"steps": float("nan")}),
        ("walk", {"speed": 1}),
    ],
    "an index that records cannot have": [(START, {}), (START, {"index": 2**53 + 1}), ("walk", {})],
    "an environment that breaks": [(START, {"task": "broken_step", "index": 9}), ("walk", {"steps": 3})],
}


async def test_what_a_client_is_answered(game: Game, golden: Golden) -> None:
    answers = {}
    for name, calls in EPISODES.items():
        lines = []
        async with Player(game, Lender().lend) as player:
            for tool, given in calls:
                reply = await (player.start(given) if tool == START else player.call(tool, given))
                kind = "error" if reply.is_error else "text"
                lines += [
                    f"{tool} {given}",
                    f"  {kind}: {reply.text}",
                    f"  end: {reply.end}",
                    f"  {reply.status}",
                ]
        answers[name] = "\n".join(lines)
    golden("played_episodes.txt", table(answers))


async def test_after_the_end_a_call_says_so_and_another_episode_can_start(game: Game) -> None:
    lender = Lender()
    async with Player(game, lender.lend) as player:
        for _ in range(2):
            await player.start({"index": 1})
            await player.call("walk", {})
            assert lender.returned == lender.lent  # nothing of an ended episode remains
            late = await player.call("walk", {})
            assert late.is_error


@pytest.mark.parametrize(
    ("settings", "llm_calls", "why"),
    [
        ([], 2, "call_limit"),
        (["run.max_actions=2"], 20, "action_limit"),
        (["run.wall_clock_s=0.000001"], 20, "wall_clock"),
    ],
)
async def test_the_limits_of_a_run_end_an_episode(settings: list[str], llm_calls: int, why: str) -> None:
    game = make_game(*settings, llm_calls=llm_calls)
    *_, last = await play(game, [("walk", {})] * 2)
    assert last.status is not None
    assert last.status["termination"] == why


async def test_the_client_s_own_time_does_not_count() -> None:
    game = make_game("run.wall_clock_s=3600")
    async with Player(game, Lender().lend) as player:
        await player.start({})
        assert player._episode is not None
        player._episode.replied -= 10_000  # as if the client had thought for hours
        assert player._episode.limits.deadline is not None
        player._episode.limits.deadline -= 10_000
        reply = await player.call("look", {})
    assert (reply.is_error, reply.end) == (False, None)


async def test_two_calls_at_once_the_second_is_refused(game: Game) -> None:
    lender = Lender(slow=True)
    async with Player(game, lender.lend) as player:
        await player.start({})
        worker = lender.worker
        assert isinstance(worker, SlowWorker)
        first = asyncio.create_task(player.call("walk", {}))
        await worker.called.wait()
        second = await player.call("look", {})
        worker.may_run.set()
        assert (await first).text == "You are at field 1. The flag is at field 3."
    assert second.is_error
    assert second.text == (
        "Error: walk is still running, and an episode runs one call at a time. Wait for its result, then call"
        " look again."
    )


async def test_a_call_that_its_client_cancels_runs_to_its_end(game: Game) -> None:
    lender = Lender(slow=True)
    async with Player(game, lender.lend) as player:
        await player.start({})
        worker = lender.worker
        assert isinstance(worker, SlowWorker)
        cancelled = asyncio.create_task(player.call("walk", {}))
        await worker.called.wait()
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert (await player.call("look", {})).text.startswith("Error: walk is still running")
        worker.may_run.set()
        assert player._running is not None
        await player._running
        assert (await player.call("look", {})).text == "You are at field 1. The flag is at field 3."


async def test_a_client_that_leaves_during_a_call_ends_it(game: Game) -> None:
    lender = Lender(slow=True)
    async with Player(game, lender.lend) as player:
        await player.start({})
        assert isinstance(lender.worker, SlowWorker)
        call = asyncio.create_task(player.call("walk", {}))
        await lender.worker.called.wait()
    assert (lender.lent, lender.returned) == (1, 1)
    with pytest.raises(asyncio.CancelledError):
        await call


@pytest.mark.parametrize("task", [{"task": "nowhere"}, {"index": -1}, {"task": "broken_reset"}])
async def test_an_episode_that_cannot_start_is_an_error(game: Game, task: dict[str, object]) -> None:
    lender = Lender()
    async with Player(game, lender.lend) as player:
        reply = await player.start(task)
        assert reply.is_error
        assert "could not be started" in reply.text
        assert lender.returned == lender.lent
        assert not (await player.start({})).is_error


async def test_an_environment_that_wants_an_answer_has_the_tool_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Corridor, "submits", True)
    *_, last = await play(make_game(), [("walk", {}), ("submit_answer", {})])
    assert last.text == "The answer is submitted."
    assert last.status is not None
    assert (last.status["termination"], last.status["score"]) == ("submitted", 1 / 3)


def test_the_tool_that_starts_an_episode_has_the_default_task(game: Game) -> None:
    assert game.start_tool.parameters["properties"] == {
        "task": {"type": "string", "default": "default"},
        "index": {"type": "integer", "default": 3},
    }
    assert list(game.tools) == ["walk", "look"]
