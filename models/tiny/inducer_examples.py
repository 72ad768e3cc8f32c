"""The inducer's training data: sleeps of recorded runs, as the token ids that serving produces."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from envs.babyai import BabyAI
from models.tiny.actor_examples import Example, Written
from models.tiny.teachers.recorded_sleeps import UNFINISHED
from serving.tokens.tokenizer import ChatTokenizer
from speedrunner.methods.speedrunner.speedrunner_method import inducer_tools
from speedrunner.results import load


def sessions(tokenizer: ChatTokenizer, runs: Path) -> Iterator[Example]:
    """Yield every sleep of the finished runs in `runs`, which has one folder per run."""
    for folder in sorted(each for each in runs.iterdir() if each.suffix != UNFINISHED):
        data = load(folder)
        options = data.settings.method.options
        tools = inducer_tools(BabyAI.primitives, interpreter=options.get("interpreter") != "off")
        for sleep in data.sleeps:
            (agent,) = sleep.agents
            written = Written(tokenizer, agent.turns[0].messages, tools, bounds=(256, 8192))
            for number, turn in enumerate(agent.turns):
                if number:
                    (message,) = turn.messages
                    written.tell(message.content)
                assert turn.call is not None
                refused = turn.executed is None or turn.executed.error is not None
                written.answer(turn.reasoning, turn.call, learnt=not refused)
            yield written.example()
