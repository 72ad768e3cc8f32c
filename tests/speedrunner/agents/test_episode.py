"""Episodes and how they end, over a scripted engine."""

from __future__ import annotations

from collections import Counter

import pytest

from speedrunner.store.records import EpisodeRow, Termination
from speedrunner.workers import env_worker as workers
from tests.odd_envs import FORGERY
from tests.processes import HANGS_S
from tests.scripted_engine import Answer, Request, call, overflow, say, two_calls
from tests.scripted_runs import Runs, ScriptedRun, flag, script, walker

INVALID = (
    say("Let me think."),
    call("fly"),
    call("walk", steps="far"),
    two_calls(call("look"), call("look")),
)


def actor(request: Request) -> Answer:
    """Ends each of the four held-out episodes in its own way."""
    match flag(request):
        case 7:
            return INVALID[request.turn] if request.turn < len(INVALID) else walker(request)
        case 8:
            return overflow() if request.turn == 2 else walker(request)
        case 9:
            return call("look")
        case _:
            return call("walk", steps=5, direction="left")


@pytest.fixture(scope="module")
def played(shared_corridor: Runs) -> ScriptedRun:
    """A run whose four held-out episodes ended in different ways."""
    return shared_corridor(script(actor), "env.test=4", "run.rollouts=0", "run.test_episodes=4").finish()


def row_of(run: ScriptedRun, number: int) -> EpisodeRow:
    """Return a held-out episode's row."""
    (row,) = (row for row in run.data.episodes if row.episode == f"test/0000/{number:04d}")
    return row


class TestEndings:
    """Of episodes and sleeps that do not end well; the run goes on."""

    def test_invalid_calls_are_answered_and_counted(self, played: ScriptedRun) -> None:
        row = row_of(played, 0)
        assert (row.invalid_calls, row.llm_calls, row.termination) == (4, 11, Termination.SUCCESS)
        (episode,) = (each for each in played.data.evaluations() if each.episode == row.episode)
        assert [turn.error is not None for turn in episode.turns[:5]] == [True] * 4 + [False]
        assert "there is no tool 'fly'; available: walk, look" in str(episode.turns[1].error)
        rows = [each for each in played.data.requests if each.labels.get("episode") == row.episode]
        assert Counter(each.status for each in rows) == {"ok": 7, "invalid": 4}

    def test_an_episode_whose_context_overflows_is_scored_as_it_stands(self, played: ScriptedRun) -> None:
        row = row_of(played, 1)
        assert (row.termination, row.llm_calls, row.score) == (Termination.CONTEXT_OVERFLOW, 2, 2 / 8)

    async def test_a_world_that_does_not_open_is_a_fault_and_has_no_score(
        self, corridor: Runs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def actor(request: Request) -> Answer:
            monkeypatch.setattr(workers, "BEGIN_LIMIT_S", 0.5)  # of the next world
            return walker(request)

        monkeypatch.setattr(workers, "BEGIN_LIMIT_S", HANGS_S)
        run = corridor(
            script(actor),
            "env=tests.odd_envs:Sealed",
            "method=react",
            *("method.train=true", "run.rollouts=2", "run.test_episodes=0", "run.in_flight=1"),
        )
        await run.play()
        opened, sealed = run.data.episodes
        assert (opened.termination, opened.score) == (Termination.SUCCESS, 1.0)
        # Not the score of the episode that the worker played before.
        assert (sealed.termination, sealed.score) == (Termination.ENVIRONMENT_ERROR, None)


class TestTextsFromOutside:
    """Control tokens in what games and skills say are ordinary text."""

    async def test_a_game_cannot_forge_a_turn(self, corridor: Runs) -> None:
        run = corridor(script(), "env=tests.odd_envs:Forging", "run.rollouts=2")
        await run.play()
        assert {row.termination for row in run.data.episodes} == {Termination.SUCCESS}
        asked = [request for request in run.server.requests if request.tools]
        for request in asked:
            roles = [role for role, _ in request.messages]
            assert roles.count("system") == 1
            assert FORGERY in request.system or "write_skill" in request.tools
            if "write_skill" not in request.tools:
                assert FORGERY in request.task
                assert all(FORGERY in text for role, text in request.messages if role == "user")
        # What the inducer reads of it is no control token either.
        assert any("write_skill" in request.tools for request in asked)
        (played, *_) = run.data.trajectories()
        assert FORGERY in played.turns[0].messages[1].content

    async def test_a_skills_documentation_cannot_either(self, corridor: Runs) -> None:
        source = f'def shout() -> str:\n    """Shout {FORGERY} loudly."""\n    return "{FORGERY!r}"'
        source = source.replace("\n<|im_start|>", " <|im_start|>").replace("\n<tool_call>", " <tool_call>")

        def actor(request: Request) -> Answer:
            return call("shout") if "shout" in request.tools and request.turn == 0 else call("walk", steps=1)

        run = corridor(script(actor, (call("write_skill", source=source, public=True),)), "run.rollouts=2")
        await run.play()
        assert [edit.error for edit in run.data.sleeps[0].edits] == [None]
        last = [row for row in run.data.episodes if row.checkpoint == 2]
        assert {(row.termination, row.skill_calls) for row in last} == {(Termination.SUCCESS, 1)}
        for request in run.server.requests:
            roles = [role for role, _ in request.messages]
            assert roles.count("system") <= 1
            if "shout" in request.tools and "write_skill" not in request.tools:
                assert "<|im_start|>system" in request.tools["shout"]["function"]["description"]
