"""Plays a model by hand: a run with recorded answers, and after the last one with answers of a person.

    python -m tests.played.play_by_hand babyai FOLDER

FOLDER/requests.txt gets what is new in each request that has no recorded answer, under its role. Append its
answer to FOLDER/actor.jsonl or FOLDER/inducer.jsonl as one line: {"thought": "...", "name": "...",
"arguments": {...}}. Answers written ahead are used in order. Each answer joins the recording, so an
interrupted play continues where it was. A sleep and the test episodes before it are played side by side, so
each role has its own order.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from serving.meter import Prices
from serving.model_config import ModelConfig, Role, Roles
from serving.tokens.tokenizer import ChatTokenizer
from speedrunner.store.run_data import RunData
from tests.bundled_models import bundled_folder
from tests.scripted_engine import Answer, Request, ScriptedEngine
from tests.scripted_runs import ScriptedRun

HERE = Path(__file__).parent

MODEL_CONFIG = ModelConfig(
    name="by-hand",
    tried="A person or a strong model answers.",
    context=400_000,
    api="chat",
    base_url="http://127.0.0.1",
    roles=Roles(Role(string_tokens=4_096), Role(string_tokens=16_384)),
    prices=Prices(0.75, 0.075, 4.5),
)

COMMON = (
    "method=speedrunner",
    "run.in_flight=1",
    "run.sleep_wall_s=86400",
    "serving.request_timeout_s=86400",
)
RUNS = {
    "babyai": (
        "env=babyai",
        "run.rollouts=3",
        "run.sleep_every=3",
        "run.eval_every=3",
        "run.test_episodes=3",
    ),
    "scienceworld": (
        *("env=scienceworld", "env.family=4", "run.rollouts=2", "run.sleep_every=2", "run.eval_every=2"),
        "run.test_episodes=2",
    ),
}
"""The settings of each recorded run."""


class PlayedAnswer(msgspec.Struct, frozen=True):
    """One answer of a role: a thought, and a call."""

    role: str
    thought: str
    name: str
    arguments: dict[str, object]


class Play:
    """Answers requests from a list, each role in its order, and writes down what was read.

    Attributes:
        read: for each request of a role what is new in it since the previous request of its conversation. A
            message that an earlier request of the role has had is not repeated.
    """

    def __init__(self, answers: list[PlayedAnswer], further: Callable[[str, str], PlayedAnswer]) -> None:
        self.read: dict[str, list[str]] = {"actor": [], "inducer": []}
        self._answers = {role: [one for one in answers if one.role == role] for role in self.read}
        self._further = further
        self._seen: set[tuple[str, str]] = set()

    def __call__(self, request: Request) -> Answer:
        """Answer a request by the next recorded answer, or by `further` from what is new in the request."""
        tools = "\n".join(json.dumps(tool["function"]) for tool in request.tools.values())
        roles = [role for role, _ in request.messages]
        answered = max((place for place, role in enumerate(roles) if role == "assistant"), default=-1)
        parts = [("tools", tools)] * (answered < 0) + [*request.messages[answered + 1 :]]
        player = "inducer" if "finish" in request.tools else "actor"
        shown = [
            f"--- {role}\n{'(as before)' if (player, text) in self._seen else text}" for role, text in parts
        ]
        self._seen |= {(player, text) for _, text in parts}
        read, answers = self.read[player], self._answers[player]
        read.append("\n".join(shown))
        if len(read) > len(answers):
            answers.append(self._further(player, read[-1]))
        answer = answers[len(read) - 1]
        call = (answer.name, json.dumps(answer.arguments, ensure_ascii=False))
        return Answer(calls=(call,), thinking=answer.thought or None)


def read_answers(name: str) -> list[PlayedAnswer]:
    """Return the recorded answers of a run, in order."""
    file = HERE / f"{name}.jsonl"
    lines = file.read_text("utf-8").splitlines() if file.is_file() else []
    return [msgspec.json.decode(line, type=PlayedAnswer) for line in lines]


async def play(
    name: str, further: Callable[[str, str], PlayedAnswer], folder: Path
) -> tuple[RunData, dict[str, list[str]]]:
    """Play a run from its recorded answers. Return the finished run, and what each request of a role read.

    Args:
        further: returns the answer to a request that has no recorded one, from its role and what it read.
        folder: an empty folder.
    """
    script = Play(read_answers(name), further)
    tokenizer = ChatTokenizer(Path(bundled_folder("tiny-random")))
    with ScriptedEngine(tokenizer, script, model="by-hand") as server:
        run = ScriptedRun(folder, MODEL_CONFIG, server, [*COMMON, *RUNS[name]])
        await run.play()
    return run.data, script.read


def main() -> None:
    """Run the command line."""
    name, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    used = {"actor": 0, "inducer": 0}

    def ask(role: str, read: str) -> PlayedAnswer:
        with (folder / "requests.txt").open("a", encoding="utf-8") as file:
            file.write(f"=== {role} {used[role]}\n{read}\n")
        answers = folder / f"{role}.jsonl"
        answers.touch()
        while len(lines := answers.read_text("utf-8").splitlines()) <= used[role]:
            time.sleep(0.1)
        answer = PlayedAnswer(role=role, **json.loads(lines[used[role]]))
        used[role] += 1
        with (HERE / f"{name}.jsonl").open("a", encoding="utf-8") as file:
            file.write(f"{msgspec.json.encode(answer).decode()}\n")
        return answer

    with TemporaryDirectory() as place:
        asyncio.run(play(name, ask, Path(place)))
    print("The run is finished.")


if __name__ == "__main__":
    main()
