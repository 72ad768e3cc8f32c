"""The cache study with a real engine: a short run, played again with and without the cache."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from serving.engine.endpoint import Endpoint
from speedrunner.bench.cache_truth import Probe, compare, probe_engine, shift_figures
from speedrunner.cli.replay_command import replay
from speedrunner.store.run_data import load
from tests import tool_samples
from tests.scripted_runs import in_process

pytestmark = pytest.mark.slow

app = typer.Typer()
app.command()(replay)


def test_with_the_cache_next_to_nothing_is_computed_again(vllm_endpoint: Endpoint, tmp_path: Path) -> None:
    where = f"serving.url={vllm_endpoint}"
    run = tmp_path / "run"
    played = in_process(
        *(
            "run",
            "env=tests.odd_envs:Ring",
            "env.words=60",
            "method=react",
            "model=tiny-random",
            where,
            f"run.dir={run}",
        ),
        *("run.rollouts=0", "run.test_episodes=3", "run.in_flight=2"),
    )
    assert (played.returncode, played.stderr) == (0, "")
    recorded = [turn.usage for each in load(run).evaluations() for turn in each.turns]

    options = ("--tokens", "40", "--trust", "tests.odd_envs:Ring", "--json")
    found = json.loads(CliRunner().invoke(app, [str(run), where, *options]).stdout)
    (method,) = found["methods"]
    cached, fresh = method["passes"]
    assert cached["requests"] == fresh["requests"] == len(recorded) == cached["compared"]
    assert cached["unforced"] == fresh["unforced"] == 0
    assert fresh["cached"] == 0
    assert cached["cached_share"] > 0.7
    assert cached["computed"] < fresh["computed"] / 3
    assert not cached["foreign"]
    found = method["logprobs"]
    assert found["same"] is True
    assert found["reused"] > 0
    for one in (cached, fresh):
        assert one["first_token_s"] > 0
        assert one["inference_s"] > 0
        assert one["usd_at_1"] > one["usd_at_0"] or not one["cached"]


SALT = "recorded"


class WrongState:
    """Gets cached prefixes whose state is that of another prompt: one block differs, the length does not."""

    def __init__(self, honest: Probe, seed: int) -> None:
        self._honest = honest
        self._seed = seed

    async def probe(self, prompt: Sequence[int], token: int, salt: str) -> tuple[float, int]:
        if salt != SALT:
            return await self._honest(prompt, token, salt)
        rng = random.Random(self._seed)
        wrong, block = list(prompt), 32 * rng.randrange(len(prompt) // 32 - 1)
        wrong[block : block + 32] = rng.choices(range(100, 2000), k=32)
        await self._honest(wrong, token, f"wrong {self._seed}")
        return await self._honest(wrong, token, f"wrong {self._seed}")


class Remembered:
    """Asks for each prompt without the cache only once."""

    def __init__(self, probe: Probe, known: dict[tuple[int, ...], tuple[float, int]]) -> None:
        self._probe = probe
        self._known = known

    async def probe(self, prompt: Sequence[int], token: int, salt: str) -> tuple[float, int]:
        if salt == SALT:
            return await self._probe(prompt, token, salt)
        key = (*prompt, token)
        if key not in self._known:
            self._known[key] = await self._probe(prompt, token, salt)
        return self._known[key]


async def test_a_prefix_with_a_wrong_state_is_caught_100_times_of_100(engine_server: Any) -> None:
    model, dtype = engine_server.model, engine_server.model_config.dtype
    messages = [{"role": "system", "content": "Play."}, {"role": "user", "content": "Begin."}]
    talk = model.converse("actor", messages, list(tool_samples.TOOLS.values()), {})
    talk.options |= {"cache_salt": SALT, "temperature": 0.0}  # the same answers each time
    turns: list[tuple[list[int], list[int]]] = []
    for number in range(4):
        prompt = list(talk.transcript.ids)
        turns.append((prompt, (await talk.ask()).token_ids))
        talk.tell(f"a long reply {number} " * 30)
    honest = partial(probe_engine, model.engine, None)
    true = [token for turn in turns for token in await compare(honest, *turn, {0, 2, 5}, SALT)]
    assert shift_figures(true, dtype)["same"] is True
    assert all(token.reused for token in true[3:])
    known: dict[tuple[int, ...], tuple[float, int]] = {}
    verdicts = []
    for seed in range(100):
        prober = Remembered(WrongState(honest, seed).probe, known)
        # One answer may hardly depend on the wrong block.
        asked = turns[seed % len(turns)], turns[(seed + 1) % len(turns)]
        wrong = [token for turn in asked for token in await compare(prober.probe, *turn, {0, 2, 5}, SALT)]
        assert all(token.reused for token in wrong)
        verdicts.append(shift_figures(wrong, dtype)["same"])
    assert verdicts == [False] * 100
