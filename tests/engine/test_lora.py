"""A model with a LoRA adapter, as a real vLLM serves it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from serving.deployment import ServiceOptions, deploy
from serving.meter import LedgerRow
from serving.model_config import ModelConfig
from serving.model_configs import load_model_config
from tests.bundled_models import bundled_folder
from tests.engine.conftest import play_side_by_side, thinking
from tests.lora_adapters import write_adapter

pytestmark = pytest.mark.slow


async def greedy_tokens(model_config: ModelConfig, log: Path) -> list[int]:
    """Return the tokens of greedy answers, whose ledger equals the engine's counters."""
    rows: list[LedgerRow] = []
    async with (
        deploy(model_config, ServiceOptions(), log=log) as deployment,
        deployment.client(rows.append) as model,
    ):
        answers = await play_side_by_side(model, rows, "lora", turns=2, reply="Go on.")
    return [token for conversation in answers for answer in conversation for token in answer.token_ids]


async def test_its_answers_are_the_adapter_s_and_the_ledger_is_the_engine_s(tmp_path: Path) -> None:
    base = thinking(load_model_config("tiny"), 0)
    actor = msgspec.structs.replace(base.roles.actor, temperature=0.0)
    base = msgspec.structs.replace(base, roles=msgspec.structs.replace(base.roles, actor=actor))
    adapter = write_adapter(tmp_path / "adapter", Path(bundled_folder("tiny")))
    adapted = msgspec.structs.replace(base, lora=str(adapter))
    answers = [await greedy_tokens(served, tmp_path / "server.log") for served in (base, adapted)]
    assert answers[0] != answers[1]
