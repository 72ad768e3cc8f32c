"""A hybrid model in Qwen3.5's format: valid calls, growing prefixes, reuse up to the last prompt."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from msgspec import to_builtins

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
from tests.engine.conftest import check_first_prompts, measure, play_side_by_side, thinking
from tests.scripted_runs import in_process
from tests.tool_samples import TOOLS

pytestmark = pytest.mark.slow

MESSAGES = [{"role": "system", "content": "Call a tool."}]


@pytest.fixture(scope="module", params=[16, 1], ids=["unit 16", "unit 1"])
def model_config(request: pytest.FixtureRequest) -> ModelConfig:
    """The hybrid model, whose turns begin together, with each match unit that a GPU may get."""
    model_config = load_model_config("tiny-hybrid").with_flags({"prefix-match-unit": request.param})
    assert model_config.convoys == 12
    return model_config


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
    server = VllmServer(model_config, tmp_path_factory.mktemp("hybrid") / "server.log")
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


def test_the_benches_find_no_shift_no_invalid_call_and_all_that_the_cache_can_give(
    model_config: ModelConfig, endpoint: Endpoint, tmp_path: Path
) -> None:
    file, run = tmp_path / "hybrid.yaml", tmp_path / "run"
    file.write_text(yaml.safe_dump(to_builtins(model_config)))
    served = (f"model.name={file}", f"serving.url={endpoint}")
    episodes = ("run.rollouts=0", "run.test_episodes=3", "run.in_flight=3", f"run.dir={run}")
    played = in_process("run", "env=tests.odd_envs:Ring", "env.words=60", "method=react", *served, *episodes)
    assert (played.returncode, played.stderr) == (0, "")
    trust = ("--trust", "tests.odd_envs:Ring", "--trust", str(file))
    replayed = measure("replay", str(run), served[1], "--tokens", "40", *trust)
    assert (replayed["same"], replayed["tokens"] >= 20, replayed["reused"] > 0) == (True, True, True)
    assert measure("probe", "tools", *served, "--count", "26", "--in-flight", "26")["met"] is True
    probed = measure("probe", "cache", *served)
    assert probed["cache"]["match_unit"] == model_config.server.flags["prefix-match-unit"]
    assert probed["requests"][-1]["expected"] == probed["requests"][-1]["reported"] > 0
