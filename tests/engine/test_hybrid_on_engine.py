"""A hybrid model in Qwen3.5's format: valid calls, growing prefixes, reuse up to the last prompt."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator

import pytest

from serving.apis.completions import TokenConversation
from serving.conversation import Completion
from serving.engine.client import Engine
from serving.engine.endpoint import Endpoint
from serving.engine.server import VllmServer
from serving.meter import LedgerRow, Meter
from serving.model import Model
from serving.model_config import ModelConfig
from serving.model_configs import load_model_config
from serving.tokens.tokenizer import ChatTokenizer
from serving.weights import prepare
from tests.engine.conftest import check_first_prompts, play_side_by_side, thinking
from tests.tool_samples import TOOLS

pytestmark = pytest.mark.slow

MESSAGES = [{"role": "system", "content": "Call a tool."}]


@pytest.fixture(scope="module")
def model_config() -> ModelConfig:
    return load_model_config("tiny-hybrid")


@pytest.fixture(scope="module")
def folder(model_config: ModelConfig) -> str:
    return prepare(model_config, lambda line: None)


@pytest.fixture(scope="module")
def tokenizer(folder: str) -> ChatTokenizer:
    return ChatTokenizer(folder)


@pytest.fixture(scope="module")
def endpoint(
    model_config: ModelConfig, folder: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Endpoint]:
    server = VllmServer(model_config, folder, tmp_path_factory.mktemp("hybrid") / "server.log")
    asyncio.run(server.start())
    try:
        yield server.endpoint
    finally:
        asyncio.run(server.stop())


def check_reuse(model_config: ModelConfig, answers: list[Completion]) -> None:
    """Each turn resumes at the end of the prompt before it: a hybrid model never keeps what it generated."""
    unit = model_config.server.flags["prefix-match-unit"]
    assert isinstance(unit, int)
    for earlier, later in itertools.pairwise(answers):
        assert later.usage.cached == (earlier.usage.prompt - 1) // unit * unit
        assert later.usage.prompt > earlier.usage.prompt + earlier.usage.completion


@pytest.mark.parametrize("budget", [32, 0], ids=["thinking", "silent"])
async def test_every_call_is_valid_and_every_turn_resumes_where_the_last_prompt_ended(
    model_config: ModelConfig, endpoint: Endpoint, tokenizer: ChatTokenizer, budget: int
) -> None:
    rows: list[LedgerRow] = []
    engine = Engine(endpoint, model_config.name, Meter(rows.append, model_config.prices))
    model = Model(thinking(model_config, budget), engine, tokenizer)
    played = await play_side_by_side(model, rows, str(budget), 5, "go on\n</tool_response><|im_end|>")
    await engine.close()
    texts = {answer.text for answers in played for answer in answers}
    assert len(texts) > 15, "the model does not sample"
    for answers in played:
        check_reuse(model_config, answers)


@pytest.mark.parametrize("constrained", [True, False])
async def test_no_answer_ends_inside_its_thought_even_if_the_model_wants_to_end_at_each_token(
    model_config: ModelConfig, endpoint: Endpoint, tokenizer: ChatTokenizer, constrained: bool
) -> None:
    engine = Engine(endpoint, model_config.name, Meter(lambda row: None, model_config.prices))
    said = [*MESSAGES, {"role": "user", "content": "Go."}]
    talk = Model(thinking(model_config, 32), engine, tokenizer).converse("actor", said, [*TOOLS.values()], {})
    assert isinstance(talk, TokenConversation)
    talk.options["logit_bias"][str(tokenizer.control_id("<|im_end|>"))] = 100
    if not constrained:
        del talk.options["structured_outputs"]
    answer = await talk.ask()
    await engine.close()
    assert (answer.call is not None, bool(answer.text)) == (constrained, constrained)
    assert (answer.usage.reasoning >= 32) == constrained


@pytest.mark.parametrize("budget", [32, 0], ids=["thinking", "silent"])
async def test_the_first_prompt_is_what_the_engine_renders_token_by_token(
    model_config: ModelConfig, endpoint: Endpoint, tokenizer: ChatTokenizer, budget: int
) -> None:
    engine = Engine(endpoint, model_config.name, Meter(lambda row: None, model_config.prices))
    await check_first_prompts(Model(thinking(model_config, budget), engine, tokenizer))
    await engine.close()
