"""Whole runs in the corridor, against scripted engines."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from serving.model_config import ModelConfig
from serving.tokens.tokenizer import ChatTokenizer
from tests.scripted_engine import Script, ScriptedEngine
from tests.scripted_runs import LEARN, SCHEDULE, Runs, ScriptedRun, roomy, script, walker


@pytest.fixture
def corridor(
    tiny_model_config: ModelConfig, tiny_folder: str, tiny_tokenizer: ChatTokenizer, tmp_path: Path
) -> Iterator[Runs]:
    """Runs in the corridor: four rollouts, a sleep after each two, two test episodes at 0, 2 and 4."""
    engines: list[ScriptedEngine] = []

    def corridor(script: Script, *settings: str, **model_config: Any) -> ScriptedRun:
        engine = ScriptedEngine(tiny_tokenizer, script)
        engines.append(engine.__enter__())
        model = roomy(tiny_model_config, path=tiny_folder, **model_config)
        return ScriptedRun(tmp_path, model, engine, [*SCHEDULE, *settings])

    yield corridor
    for engine in engines:
        engine.__exit__(None, None, None)


@pytest.fixture(scope="session")
def learnt(
    tiny_model_config: ModelConfig,
    tiny_folder: str,
    tiny_tokenizer: ChatTokenizer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ScriptedRun]:
    """A finished run of SpeedRunner that learnt a skill in its first sleep."""
    with ScriptedEngine(tiny_tokenizer, script(walker, LEARN)) as engine:
        model_config = roomy(tiny_model_config, path=tiny_folder)
        run = ScriptedRun(tmp_path_factory.mktemp("learnt"), model_config, engine, [*SCHEDULE])
        asyncio.run(run.play())
        yield run
