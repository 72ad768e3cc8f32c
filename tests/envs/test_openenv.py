"""OpenEnv servers as environments: play, seeds, and servers that fail. The servers speak the protocol."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import gymnasium
import pytest

from envs import (
    EnvironmentFault,
    EpisodeOver,
    GameStep,
    IgnoresSeed,
    InvalidOption,
    SeededGame,
    Task,
    make,
    splits,
)
from envs.conformance import check_env
from envs.openenv_connection import NoServer, OpenEnvFailed
from tests.openenv_server import Server, guessing
from tests.processes import HANGS_S

SEVEN = Task("openenv", "default", 7)


@pytest.fixture
def server() -> Iterator[Server]:
    started = Server(guessing)
    yield started
    started.stop()


@pytest.fixture
def env(server: Server) -> Iterator[Any]:
    made = make("openenv", url=server.url, observation="text", timeout_s=HANGS_S)
    yield made
    made.close()


class TestPlay:
    def test_a_server_is_an_environment_like_any_other(self, env: Any, server: Server) -> None:
        assert list(check_env(env, splits("openenv"), calls=20)) == []

    def test_rewards_are_the_score_and_the_server_ends_the_episode(self, env: Any) -> None:
        opening = env.reset(SEVEN)
        assert (opening.instruction, opening.observation) == (
            "Get as much reward as you can.",
            "Guess, seed 7.",
        )
        assert env.call("act", text="3") == "No."
        assert (env.outcome().score, env.done) == (0.0, False)
        assert env.call("act", text="7") == "Yes."
        assert (env.outcome().score, env.outcome().success, env.done) == (1.0, True, True)
        with pytest.raises(EpisodeOver):
            env.call("act", text="7")

    def test_without_a_field_the_whole_observation_is_shown(self, server: Server) -> None:
        env = make("openenv", url=server.url)
        assert env.reset(SEVEN).observation == '{"text": "Guess, seed 7."}'
        env.close()

    def test_one_connection_serves_many_episodes(self, env: Any, server: Server) -> None:
        for seed in range(5):
            env.reset(Task("openenv", "default", seed))
        assert server.connections == 1

    def test_pings_are_answered_while_the_agent_thinks(self, env: Any, server: Server) -> None:
        env.reset(SEVEN)
        server.is_pinging = True
        env.call("act", text="3")
        assert server.ponged.wait(HANGS_S)

    def test_an_episode_begins_although_the_server_ended_the_connection_after_the_last_one(
        self, env: Any, server: Server
    ) -> None:
        env.reset(SEVEN)
        env._connection._socket.close()
        assert env.reset(SEVEN).observation == "Guess, seed 7."
        assert server.connections == 2


class TestFaults:
    def test_a_server_that_ignores_its_seed_is_refused_with_both_hashes(
        self, env: Any, server: Server
    ) -> None:
        numbers = itertools.count()
        server.behaviour = lambda message, state: {"observation": {"text": f"Room {next(numbers)}."}}
        with pytest.raises(IgnoresSeed, match=r"seed 7 have the hashes [0-9a-f]{12} and [0-9a-f]{12};"):
            env.reset(SEVEN)
        assert issubclass(IgnoresSeed, EnvironmentFault)

    @pytest.mark.parametrize(
        ("answer", "said"),
        [
            (None, "did not answer step within 0.1 s"),
            ("die", "ended the connection"),
            ("{", "sent an invalid answer"),
            ('{"type": "observation", "data": 3}', "sent an invalid answer"),
            ({"message": "the game broke", "code": "EXECUTION_ERROR"}, "refused step: the game broke"),
            ({"observation": {"view": "x"}}, "without a usable observation .*its fields: view"),
        ],
    )
    def test_a_failure_within_an_episode_is_no_score_and_the_next_episode_works(
        self, server: Server, answer: Any, said: str
    ) -> None:
        env = make("openenv", url=server.url, observation="text", timeout_s=HANGS_S)
        opening = env.reset(SEVEN)
        env.call("act", text="3")
        before = env.outcome()
        server.behaviour = lambda message, state: answer
        if answer is None:
            env._connection._timeout_s = 0.1
        with pytest.raises(OpenEnvFailed, match=said):
            env.call("act", text="7")
        assert not issubclass(OpenEnvFailed, EnvironmentFault)
        assert env.outcome() == before
        server.behaviour = guessing
        assert env.reset(SEVEN) == opening
        env.close()
        assert env.outcome().score == 0.0

    def test_a_message_without_a_request_is_not_taken_for_the_next_answer(
        self, env: Any, server: Server
    ) -> None:
        opening = env.reset(SEVEN)
        server.behaviour = lambda message, state: [guessing(message, state)] * 2
        server.is_pinging = True
        env.call("act", text="3")
        assert server.ponged.wait(HANGS_S)  # the client has received both
        with pytest.raises(OpenEnvFailed, match="sent a message without a request"):
            env.call("act", text="7")
        server.behaviour = guessing
        assert env.reset(SEVEN) == opening

    def test_no_server_is_an_error_for_people(self) -> None:
        server = Server(guessing)
        server.stop()
        env = make("openenv", url=server.url)
        with pytest.raises(NoServer, match=r"no OpenEnv server at http://127.* correct env\.url"):
            env.reset(SEVEN)

    @pytest.mark.parametrize("options", [{"url": "localhost:8000"}, {"timeout_s": 0.0}])
    def test_options_are_checked(self, options: dict[str, Any]) -> None:
        with pytest.raises(InvalidOption, match=f"option '{next(iter(options))}' of openenv must be "):
            make("openenv", **options)


class GuessGame(gymnasium.Env[str, str]):
    """A Gymnasium environment with text actions and observations."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.secret = str(self.np_random.integers(10))
        return "Guess a digit.", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        right = action == self.secret
        return ("Yes." if right else "No."), float(right), right, False, {}


class GuessDigit(SeededGame):
    """The adapter of docs/interchange.md."""

    description = "A digit is drawn. act(text) guesses it."

    def __init__(self) -> None:
        self.game = GuessGame()

    def start(self, seed: int) -> GameStep:
        text, _ = self.game.reset(seed=seed)
        return GameStep(text)

    def act(self, text: str) -> GameStep:
        observation, reward, terminated, truncated, _ = self.game.step(text)
        return GameStep(observation, float(reward), terminated or truncated)


def test_a_gymnasium_environment_needs_ten_lines() -> None:
    assert list(check_env(GuessDigit(), splits(GuessDigit.name), calls=30)) == []
    env = GuessDigit()
    env.reset(Task(GuessDigit.name, "default", 5))
    texts = [env.call("act", text=str(digit)) for digit in range(10) if not env.done]
    assert texts[-1] == "Yes."
    assert env.outcome().success
