"""Recorded runs, played again: the same prompts, and log-probabilities with the cache and without."""

from __future__ import annotations

import asyncio
import json
import math
import random
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from serving.tokens.tokenizer import ChatTokenizer
from speedrunner.cli.replay_command import replay
from speedrunner.store.stored_run import RunDirectoryError
from tests.scripted_engine import Answer, Request, ScriptedEngine, cut, say
from tests.scripted_runs import LEARN, Runs, ScriptedRun, script, walker
from tests.tampered_runs import trusting

app = typer.Typer()
app.command()(replay)


def forced(request: Request) -> Answer:
    """What the request's tag leaves as the only answer."""
    if not request.tools or "structured_outputs" not in request.body:
        return say("")
    tag = json.loads(request.body["structured_outputs"]["structural_tag"])["format"]
    parts = tag["elements"] if tag["type"] == "sequence" else [tag]
    assert {part["type"] for part in parts} == {"const_string"}
    return say("".join(part["value"] for part in parts))


def asked(engine: ScriptedEngine, *arguments: str, tokens: int = 20) -> str:
    trust = [word for run in arguments if Path(run, "config.yaml").exists() for word in trusting(Path(run))]
    options = [f"serving.url={engine.endpoint}", *trust, "--tokens", str(tokens)]
    result = CliRunner().invoke(app, [*arguments, *options])
    if result.exception is not None:
        raise result.exception
    return result.stdout


def studied(engine: ScriptedEngine, *arguments: str, tokens: int = 20) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(asked(engine, *arguments, "--json", tokens=tokens))
    return found


def prompts(requests: list[Request]) -> list[tuple[int, ...]]:
    """Prompts of the actor's requests."""
    return sorted(
        each.prompt for each in requests if "walk" in each.tools and "write_skill" not in each.tools
    )


def test_a_run_s_prompts_come_again_id_by_id(learnt: ScriptedRun, tiny_tokenizer: ChatTokenizer) -> None:
    with ScriptedEngine(tiny_tokenizer, forced) as engine:
        studied(engine, str(learnt.dir), tokens=10_000)
    assert prompts(engine.requests) == prompts(learnt.server.requests)


def test_answers_without_a_call_come_again_too(corridor: Runs, tiny_tokenizer: ChatTokenizer) -> None:
    def actor(request: Request) -> Answer:
        answers = {0: say("Let me see."), 1: cut(walker(request), 5)}
        return answers.get(request.turn, walker(request))

    run = corridor(script(actor, LEARN))
    asyncio.run(run.play("run.rollouts=2", "run.test_episodes=1"))
    with ScriptedEngine(tiny_tokenizer, forced) as engine:
        studied(engine, str(run.dir), tokens=10_000)
    assert prompts(engine.requests) == prompts(run.server.requests)


def test_a_template_that_has_changed_since_is_noticed(
    learnt: ScriptedRun, tiny_tokenizer: ChatTokenizer, tmp_path: Path
) -> None:
    changed = tmp_path / "changed"
    shutil.copytree(learnt.dir, changed)
    for file in changed.glob("*/*.jsonl"):
        file.write_text(file.read_text().replace("corridor", "long corridor"))
    with (
        ScriptedEngine(tiny_tokenizer, forced) as engine,
        pytest.raises(RunDirectoryError, match="have changed"),
    ):
        studied(engine, str(changed))


def likely(prompt: tuple[int, ...], cached: int) -> dict[int, float]:
    """A model's distribution, which depends on the prompt alone."""
    rng = random.Random(hash(prompt))
    return {token: math.log(rng.uniform(0.5, 0.99) / 2048) for token in range(2048)}


def test_the_log_probabilities_of_recorded_tokens_are_compared(
    learnt: ScriptedRun, tiny_tokenizer: ChatTokenizer
) -> None:
    with ScriptedEngine(tiny_tokenizer, forced) as engine:
        engine.likely = likely
        found = studied(engine, str(learnt.dir), tokens=60)
    assert found["same"] is True
    assert 30 <= found["tokens"] <= 60  # short prompts have no whole block in the cache
    assert found["reused"] > 0
    assert found["cached"] == found["control"] == {"median": 0, "p95": 0, "max": 0}


def test_a_cache_that_answers_from_a_wrong_state_is_caught(
    learnt: ScriptedRun, tiny_tokenizer: ChatTokenizer
) -> None:
    with ScriptedEngine(tiny_tokenizer, forced) as engine:
        engine.likely = lambda prompt, cached: likely(prompt[cached:] if cached else prompt, cached)
        shown = asked(engine, str(learnt.dir), tokens=20)
    assert "DIFFERENT distributions" in shown
    assert "enable-prefix-caching" in shown
    assert re.search(r"^computed twice +0 +0 +0$", shown, re.MULTILINE)
