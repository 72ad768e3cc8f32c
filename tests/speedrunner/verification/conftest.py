"""A run whose method loads programs and acts itself in mid-episode."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from serving.model_card import ModelCard
from serving.tokens.tokenizer import ChatTokenizer
from tests.scripted_engine import ScriptedEngine
from tests.scripted_runs import SCHEDULE, ScriptedRun, roomy
from tests.speedrunner.methods.test_every_method import RACETRACK, school


@pytest.fixture(scope="session")
def programmed(
    tiny_card: ModelCard,
    tiny_folder: str,
    tiny_tokenizer: ChatTokenizer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ScriptedRun]:
    """A finished run of Voyager."""
    with ScriptedEngine(tiny_tokenizer, school) as engine:
        folder, card = tmp_path_factory.mktemp("programmed"), roomy(tiny_card, path=tiny_folder)
        run = ScriptedRun(folder, card, engine, [*SCHEDULE, RACETRACK, "method=voyager", "run.rollouts=2"])
        asyncio.run(run.play())
        yield run
