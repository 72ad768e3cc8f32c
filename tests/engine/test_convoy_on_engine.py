"""Schedulers on the real CPU engine: with convoys and match unit 1 the same work takes steps that mostly only
decode, and a scheduler that vLLM refuses is named."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from serving.deployment import ServiceOptions, deploy
from serving.engine.client import Prompt, run_together
from serving.engine.metrics import read_counters
from serving.engine.step_log import LoggedStep, read_steps
from serving.errors import ServerFailed
from serving.meter import LedgerRow
from serving.model import Model
from serving.model_config import ModelConfig
from serving.model_configs import load_model_config
from serving.usage import Counters, Usage

pytestmark = pytest.mark.slow

IN_FLIGHT, TURNS = 32, 5


def scheduled(unit: int, convoy_steps: int) -> ModelConfig:
    """The hybrid model with this match unit and these convoys."""
    model_config = load_model_config("tiny-hybrid").with_flags({"prefix-match-unit": unit})
    return replace(model_config, convoy_steps=convoy_steps)


async def converse(model: Model, number: int) -> list[Usage]:
    """Play one conversation. Its answers and replies have drawn lengths, so the work is always the same."""
    draw, usages = random.Random(number), list[Usage]()
    ids = [draw.randrange(300, 1300) for _ in range(300 + draw.randrange(300))]
    for _ in range(TURNS):
        length = min(400, max(20, int(draw.lognormvariate(4.9, 0.35))))
        reply = await model.engine.complete(
            Prompt(ids), max_tokens=length, labels={"role": "actor"}, ignore_eos=True, temperature=1.0
        )
        reply.record("ok", reply.usage)
        usages.append(reply.usage)
        assert reply.usage.completion == length
        ids += [*reply.answer.choices[0].token_ids]
        ids += [draw.randrange(300, 1300) for _ in range(30 + draw.randrange(30))]
    return usages


async def play(model_config: ModelConfig, folder: Path) -> tuple[list[LoggedStep], list[list[Usage]]]:
    """Play all conversations with two clients of one server. Return its steps and what each turn used."""
    rows = list[LedgerRow]()
    async with deploy(
        model_config, ServiceOptions(), log=folder / "server.log", logs_steps=True
    ) as deployment:
        assert deployment.server is not None
        assert deployment.server.step_log is not None
        began = len(read_steps(deployment.server.step_log))
        async with deployment.client(rows.append) as first, deployment.client(rows.append) as second:
            clients = [first, second]
            seen = len(rows)

            async def talk(number: int) -> list[Usage]:
                return await converse(clients[number % 2], number)

            before = await read_counters(deployment.endpoint)
            usages = await run_together(talk, range(IN_FLIGHT), IN_FLIGHT)
        used = Counters.of(sum((row.usage for row in rows[seen:] if row.usage), Usage()))
        assert await read_counters(deployment.endpoint) - before == used
        steps = read_steps(deployment.server.step_log, began)
    return steps, usages


def decode_only(steps: Sequence[LoggedStep]) -> float:
    """The share of steps that only decode."""
    return sum(step.only_decodes for step in steps) / len(steps)


def running(steps: Sequence[LoggedStep]) -> float:
    """The share of the engine's requests that run, in steps with at least three quarters of all."""
    busy = [step for step in steps if step.requests + step.waiting >= 0.75 * IN_FLIGHT]
    return sum(step.requests / (step.requests + step.waiting) for step in busy) / len(busy)


@pytest.mark.parametrize(("unit", "convoy_steps", "least", "most"), [(16, 0, 0.0, 0.8), (1, 12, 0.9, 1.0)])
async def test_with_convoys_and_unit_1_nine_in_ten_steps_only_decode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unit: int, convoy_steps: int, least: float, most: float
) -> None:
    monkeypatch.setattr("serving.engine.server.COMPUTE_NICENESS", 0)  # as for the session's server
    steps, usages = await play(scheduled(unit, convoy_steps), tmp_path)
    assert least <= decode_only(steps) <= most
    assert running(steps) >= 0.95
    assert {step.graph_mode for step in steps} == {"none"}
    for turns in usages:
        for earlier, later in itertools.pairwise(turns):
            assert later.cached == (earlier.prompt - 1) // unit * unit


@pytest.mark.parametrize("scheduler", ["nowhere.Scheduler", "serving.engine.convoy.Missing"])
async def test_a_scheduler_that_vllm_refuses_is_named_in_one_line(tmp_path: Path, scheduler: str) -> None:
    refused = load_model_config("tiny-hybrid").with_flags({"scheduler-cls": scheduler})
    said: list[str] = []
    with pytest.raises(ServerFailed) as caught:
        async with deploy(refused, ServiceOptions(), log=tmp_path / "log", say=said.append):
            pass
    assert f"{scheduler} (server.flags.scheduler-cls) schedules: requests start as it decides" in said
    assert (
        scheduler.split(".")[-2 if scheduler.startswith("nowhere") else -1]
        in str(caught.value).splitlines()[0]
    )
    assert "Traceback" not in str(caught.value)
