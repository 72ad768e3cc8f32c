"""A hybrid model in Qwen3.5's format: valid calls, growing prefixes, reuse up to the last prompt."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterator

import pytest

from serving.apis.completions import TokenConversation
from serving.conversation import Completion
from serving.engine.client import Engine
from serving.engine.endpoint import Endpoint
from serving.engine.metrics import read_counters
from serving.engine.server import VllmServer
from serving.meter import LedgerRow, Meter
from serving.model import Model
from serving.model_config import ModelConfig
from serving.model_configs import load_model_config
from serving.tokens.tokenizer import ChatTokenizer
from serving.usage import Counters, Usage
from serving.weights import prepare
from tests.engine.conftest import play, thinking
from tests.rendered import FIRST_PROMPTS, rendered, without_control_tokens
from tests.shared_prompts import shared_prompts
from tests.tool_samples import TOOLS

pytestmark = pytest.mark.slow

LABELS = {"episode": "test"}
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
    counted = await read_counters(endpoint)
    rng = random.Random(budget)
    talks = []
    for number in range(6):
        said = [*MESSAGES, {"role": "user", "content": f"{budget} {number}"}]
        talk = model.converse("actor", said, rng.sample(list(TOOLS.values()), 4), LABELS)
        assert isinstance(talk, TokenConversation)
        talks.append(talk)
    played = await asyncio.gather(*(play(talk, 5, "go on\n</tool_response><|im_end|>") for talk in talks))
    await engine.close()
    answers = [answer for each in played for answer in each]
    assert len(answers) == 30
    assert [str(answer.problem) for answer in answers if answer.problem] == []
    assert [row.status for row in rows] == ["ok"] * 30
    assert len({answer.text for answer in answers}) > 15, "the model does not sample"
    assert all((answer.usage.reasoning > 0) == (budget > 0) for answer in answers)
    for each in played:
        check_reuse(model_config, each)
    ledger = Counters.of(sum((answer.usage for answer in answers), Usage()))
    assert await read_counters(endpoint) - counted == ledger


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


async def test_prompts_that_share_prefixes_get_no_more_than_an_ideal_cache_could_give(
    model_config: ModelConfig, endpoint: Endpoint
) -> None:
    for _ in range(10):  # few random prompts begin with a stored state, and sometimes none does
        rows = await shared_prompts(endpoint, model_config, longest=1500, in_flight=8)
        assert [row for row in rows if row.usage is None or row.usage.cached > (row.cacheable or 0)] == []
        if any(row.usage and row.usage.cached for row in rows):
            return
    pytest.fail("no prompt was cached")


@pytest.mark.parametrize("budget", [32, 0], ids=["thinking", "silent"])
@pytest.mark.parametrize("beginning", FIRST_PROMPTS)
async def test_the_first_prompt_is_what_the_engine_renders_token_by_token(
    model_config: ModelConfig, endpoint: Endpoint, tokenizer: ChatTokenizer, beginning: str, budget: int
) -> None:
    engine = Engine(endpoint, model_config.name, Meter(lambda row: None, model_config.prices))
    tools = without_control_tokens(TOOLS.values())
    assert len(tools) > 3
    talk = Model(thinking(model_config, budget), engine, tokenizer).converse(
        "actor", FIRST_PROMPTS[beginning], tools, LABELS
    )
    await engine.close()
    assert isinstance(talk, TokenConversation)
    assert talk.transcript.ids == await rendered(
        endpoint, model_config.name, FIRST_PROMPTS[beginning], tools, budget > 0
    )
