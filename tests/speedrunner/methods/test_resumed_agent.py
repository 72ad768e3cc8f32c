"""An agent that repeats a sleep's journal. `tests/speedrunner/runs/test_resumed_sleep.py` plays sleeps."""

from __future__ import annotations

import pytest

from serving.conversation import Completion
from serving.usage import Usage
from speedrunner.methods.resumed_agent import ChangedSleep, ResumedAgent
from speedrunner.runs.fake_model import FakeModel
from speedrunner.store.records import Turn
from speedrunner.store.sleep_journal import SleepStep


async def test_a_conversation_that_cannot_continue_elsewhere_makes_the_sleep_start_over() -> None:
    conversation = FakeModel().converse("inducer", [{"role": "user", "content": "Work."}], [], {})
    answer = Completion(text="", reasoning="", call=None, problem=None, usage=Usage(), seconds=0.0)
    turn = Turn([], "", Usage(), 0.0, error="no call")
    step = SleepStep(sleep=1, attempt=1, seconds=1.0, number=0, turn=turn, completion=answer)
    agent = ResumedAgent(conversation, [step], (), lambda turn, completion, overflowed: None)
    with pytest.raises(ChangedSleep, match="cannot continue in another process"):
        await agent.ask()
