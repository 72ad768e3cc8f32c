"""A run whose method loads programs and acts itself in mid-episode."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from serving.model_config import ModelConfig
from serving.tokens.tokenizer import ChatTokenizer
from tests.scripted_engine import ScriptedEngine
from tests.scripted_runs import SCHEDULE, ScriptedRun, roomy
from tests.speedrunner.methods.test_every_method import RACETRACK, school


@pytest.fixture(scope="session")
def programmed(
    tiny_model_config: ModelConfig,
    tiny_folder: str,
    tiny_tokenizer: ChatTokenizer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ScriptedRun]:
    """A finished run of Voyager."""
    with ScriptedEngine(tiny_tokenizer, school) as engine:
        folder, model_config = (
            tmp_path_factory.mktemp("programmed"),
            roomy(tiny_model_config, path=tiny_folder),
        )
        run = ScriptedRun(
            folder, model_config, engine, [*SCHEDULE, RACETRACK, "method=voyager", "run.rollouts=2"]
        )
        asyncio.run(run.play())
        yield run
