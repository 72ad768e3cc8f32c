"""Recorded runs, played again: the same prompts, the same answers, with the cache and without."""

from __future__ import annotations

import asyncio
import json
import math
import random
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
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
    if not request.tools:
        return say("")
    tag = json.loads(request.body["structured_outputs"]["structural_tag"])["format"]
    parts = tag["elements"] if tag["type"] == "sequence" else [tag]
    assert {part["type"] for part in parts} == {"const_string"}
    return say("".join(part["value"] for part in parts))


def asked(engine: ScriptedEngine, *arguments: str, tokens: int = 0) -> str:
    trust = [word for run in arguments if Path(run, "config.yaml").exists() for word in trusting(Path(run))]
    options = [f"serving.url={engine.endpoint}", *trust, "--tokens", str(tokens)]
    result = CliRunner().invoke(app, [*arguments, *options])
    if result.exception is not None:
        raise result.exception
    return result.stdout


def studied(engine: ScriptedEngine, *arguments: str, tokens: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(asked(engine, *arguments, "--json", tokens=tokens))
    return found


def actors(requests: list[Request]) -> list[Request]:
    return [each for each in requests if "walk" in each.tools and "write_skill" not in each.tools]


def prompts(requests: list[Request]) -> list[tuple[int, ...]]:
    return sorted(each.prompt for each in actors(requests))


def salts(requests: list[Request]) -> dict[str, list[Request]]:
    found: dict[str, list[Request]] = {}
    for each in actors(requests):
        found.setdefault(each.body["cache_salt"], []).append(each)
    return found


def check_same_prompts(run: ScriptedRun, again: ScriptedEngine) -> None:
    """Both passes sent what the run had sent, id by id."""
    recorded = prompts(run.server.requests)
    shared, *fresh = sorted(salts(again.requests).values(), key=len, reverse=True)
    assert prompts(shared) == recorded
    assert {len(each) for each in fresh} == {1}
    alone = Counter(prompts([each for one in fresh for each in one]))
    # One request goes before all others, so that the engine has done its first work.
    assert (alone - Counter(recorded)).total() == 1
    assert not Counter(recorded) - alone


def test_a_run_s_prompts_come_again_id_by_id(learnt: ScriptedRun, tiny_tokenizer: ChatTokenizer) -> None:
    with ScriptedEngine(tiny_tokenizer, forced) as engine:
        found = studied(engine, str(learnt.dir))
    check_same_prompts(learnt, engine)
    (method,) = found["methods"]
    (cached, fresh) = method["passes"]
    assert method["method"] == "speedrunner on tests.toy_env:Corridor"
    assert cached["requests"] == fresh["requests"] == len(prompts(learnt.server.requests))
    assert cached["compared"] == cached["requests"]
    assert [each["respelled"] + each["unforced"] for each in (cached, fresh)] == [0, 0]
    # What the engine does not tell is not made up.
    assert cached["first_token_s"] is None
    others = [row for row in learnt.data.requests if row.labels["role"] not in ("actor", "prefix_warm_up")]
    assert method["left_out"] == len(others)


def test_answers_without_a_call_come_again_too(corridor: Runs, tiny_tokenizer: ChatTokenizer) -> None:
    def actor(request: Request) -> Answer:
        answers = {0: say("Let me see."), 1: cut(walker(request), 5)}
        return answers.get(request.turn, walker(request))

    run = corridor(script(actor, LEARN))
    asyncio.run(run.play("run.rollouts=2", "run.test_episodes=1"))
    with ScriptedEngine(tiny_tokenizer, forced) as engine:
        found = studied(engine, str(run.dir))
    check_same_prompts(run, engine)
    cached = found["methods"][0]["passes"][0]
    assert cached["unforced"] == 0
    assert cached["compared"] == cached["requests"] - 2 * found["methods"][0]["episodes"]


def test_runs_of_several_methods_are_told_apart(
    learnt: ScriptedRun, tiny_tokenizer: ChatTokenizer, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    changed = yaml.safe_load((learnt.dir / "config.yaml").read_text())
    shutil.copytree(learnt.dir, other)
    changed["method"] = {"name": "speedrunner.methods.speedrunner.speedrunner_method:SpeedRunner"}
    (other / "config.yaml").write_text(yaml.safe_dump(changed))
    with ScriptedEngine(tiny_tokenizer, forced) as engine:
        found = studied(engine, str(learnt.dir), str(other), "--prices", "gpt-5.4-mini")
    assert [each["method"].partition(" ")[0] for each in found["methods"]] == [
        *("speedrunner", "speedrunner.methods.speedrunner.speedrunner_method:SpeedRunner")
    ]
    for method in found["methods"]:
        assert [each["cache"] for each in method["passes"]] == ["with", "without"]
        for row in method["passes"]:
            assert row["usd_at_0.1"] == pytest.approx(
                (0.75 * (row["prompt"] - row["cached"]) + 0.075 * row["cached"] + 4.5 * row["output"]) / 1e6
            )


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
        (method,) = studied(engine, str(learnt.dir), tokens=60)["methods"]
    found = method["logprobs"]
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
