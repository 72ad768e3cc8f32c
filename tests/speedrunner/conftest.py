"""Whole runs in the corridor, against scripted engines."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from serving.model_config import ModelConfig
from serving.tokens.tokenizer import ChatTokenizer
from tests.scripted_engine import Script, ScriptedEngine
from tests.scripted_runs import LEARN, SCHEDULE, Runs, ScriptedRun, roomy, script, walker


@contextmanager
def open_corridor(
    model_config: ModelConfig, model_folder: str, tokenizer: ChatTokenizer, make_folder: Callable[[], Path]
) -> Iterator[Runs]:
    """Make runs with four rollouts, a sleep after each two, and two test episodes at 0, 2 and 4."""
    with ExitStack() as engines:

        def make_run(script: Script, *settings: str, **changes: Any) -> ScriptedRun:
            engine = engines.enter_context(ScriptedEngine(tokenizer, script))
            model = roomy(model_config, path=model_folder, **changes)
            return ScriptedRun(make_folder(), model, engine, [*SCHEDULE, *settings])

        yield make_run


@pytest.fixture
def corridor(
    tiny_model_config: ModelConfig, tiny_folder: str, tiny_tokenizer: ChatTokenizer, tmp_path: Path
) -> Iterator[Runs]:
    """Runs of one test, all in its folder."""
    with open_corridor(tiny_model_config, tiny_folder, tiny_tokenizer, lambda: tmp_path) as runs:
        yield runs


@pytest.fixture(scope="session")
def shared_corridor(
    tiny_model_config: ModelConfig,
    tiny_folder: str,
    tiny_tokenizer: ChatTokenizer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Runs]:
    """Runs that several tests read, or copy to play on. Each is in its own folder."""
    make_folder = partial(tmp_path_factory.mktemp, "shared")
    with open_corridor(tiny_model_config, tiny_folder, tiny_tokenizer, make_folder) as runs:
        yield runs


@pytest.fixture(scope="session")
def learnt(shared_corridor: Runs) -> ScriptedRun:
    """A finished run of SpeedRunner that learnt a skill in its first sleep."""
    return shared_corridor(script(walker, LEARN)).finish()


@pytest.fixture
def learnt_copy(learnt: ScriptedRun, corridor: Runs) -> ScriptedRun:
    """A copy of that run with its own engine, for tests that change it or play on."""
    run = corridor(script(walker, LEARN))
    shutil.copytree(learnt.dir, run.dir)
    return run
