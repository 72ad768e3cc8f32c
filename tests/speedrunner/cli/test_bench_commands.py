"""The benchmarks' commands: what they read, the steps of `bench gpu`, replayed runs, and `bench probe`."""

from __future__ import annotations

import json
import math
import random
import re
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer
import yaml
from click.testing import Result
from typer.testing import CliRunner

from serving.errors import ServerFailed
from serving.model_config import ModelConfig
from serving.tokens.tokenizer import ChatTokenizer
from speedrunner.cli import bench_commands
from speedrunner.config.schema import InvalidConfig
from speedrunner.store.stored_run import RunDirectoryError
from tests.golden_tables import Golden, refusals
from tests.probe_engines import Probed
from tests.scripted_engine import Answer, Request, ScriptedEngine, call, sample_call, say
from tests.scripted_runs import Runs, ScriptedRun, complaint, in_process, script
from tests.tampered_runs import trusting

app = typer.Typer()
for command in (bench_commands.replay, bench_commands.probe):
    app.command()(command)


class TestGpu:
    """`bench gpu` as a user meets it."""

    def test_each_chosen_step_prints_its_result(self, corridor: Runs) -> None:
        done = in_process("bench", "gpu", *corridor(script()).overrides(), "--only=capacity,cache-probe")
        assert done.returncode == 0, done.stderr
        assert re.findall(r"^[\w-]+(?=: )", done.stdout, re.MULTILINE) == ["capacity", "cache-probe"]
        assert re.search(r"^cores +\d+$", done.stdout, re.MULTILINE)

    def test_an_engine_that_is_gone_ends_it_in_one_line(self, corridor: Runs) -> None:
        run = corridor(script())
        run.server.stop()
        done = in_process("bench", "gpu", *run.overrides())
        assert (done.returncode, done.stderr.count("error: ")) == (1, 1)
        assert "capacity: " not in done.stdout
        run.server.restart()

    def test_what_it_refuses_is_one_line(self, corridor: Runs) -> None:
        overrides = corridor(script()).overrides()

        def refused(*arguments: str) -> str:
            return complaint(in_process("bench", "gpu", *arguments))

        unknown = refused(*overrides, "--only=capacity,speed")
        assert "--only speed: the steps here are capacity, tools, cache-probe, utilisation, " in unknown
        voyager = refused("method=voyager", "env=crafter")
        assert voyager.startswith("method=voyager plays an episode in several conversations")
        assert "'gpt-5.4-mini' is on the responses API" in refused("model=gpt-5.4-mini")


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
    result = CliRunner().invoke(app, ["replay", *arguments, *options])
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


def one_object(printed: str) -> dict[str, Any]:
    """What --json printed: one object, and nothing beside it; how far it is stands on standard error."""
    found = json.loads(printed)
    assert isinstance(found, dict)
    return found


def written(model_config: ModelConfig, folder: Path, **changes: Any) -> str:
    """The override that names the model config, without its recipe, from a file."""
    file = folder / "scripted.yaml"
    changed = msgspec.structs.replace(model_config, recipe=None, **changes)
    file.write_text(yaml.safe_dump(msgspec.to_builtins(changed)))
    return f"model.name={file}"


@pytest.fixture
def model_config_file(tiny_model_config: ModelConfig, tiny_folder: str, tmp_path: Path) -> str:
    return written(tiny_model_config, tmp_path)


def up_or_valid(request: Request) -> Answer:
    """One tool is called in vain."""
    return (
        call("probe_turn", direction="up") if list(request.tools) == ["probe_turn"] else sample_call(request)
    )


def probe(*arguments: str) -> Result:
    """The command within this process."""
    return CliRunner().invoke(app, ["probe", *arguments])


class TestTools:
    def test_a_table_for_people(self, model_config_file: str, tiny_tokenizer: ChatTokenizer) -> None:
        with Probed(tiny_tokenizer, lambda asked: replace(sample_call(asked), thinking="Hm.")) as server:
            url = f"serving.url={server.endpoint}"
            thinks = "model.actor.thinking_tokens=64"
            done = probe("tools", model_config_file, thinks, url, "--count", "12", "--in-flight", "4")
        assert done.exit_code == 0
        assert "12 probes on the completions API, 4 in flight, 64 tokens of reasoning" in done.stdout
        assert re.search(r"^60 tools +1 +0 +0$", done.stdout, re.MULTILINE)
        assert re.search(r"^all +12 +0 +0$", done.stdout, re.MULTILINE)
        assert re.search(r"^calls truncated +0 +at most 0: met$", done.stdout, re.MULTILINE)

    def test_an_invalid_call_misses_the_target(
        self, model_config_file: str, tiny_tokenizer: ChatTokenizer
    ) -> None:
        with Probed(tiny_tokenizer, up_or_valid) as server:
            arguments = ("tools", model_config_file, f"serving.url={server.endpoint}", "--count", "12")
            told, machine = probe(*arguments), probe(*arguments, "--json")
        assert told.exit_code == machine.exit_code == 1
        assert re.search(r"^enum +0 +1 +0$", told.stdout, re.MULTILINE)
        assert "not valid, such as: enum: probe_turn: 'up' at direction is not one of" in told.stdout
        assert "MISSED" in told.stdout
        found = one_object(machine.stdout)
        assert found["kinds"][-1] == {"probe": "all", "valid": 11, "invalid": 1, "truncated": 0}
        assert [each["value"] for each in found["figures"]] == [1, 0, 0]

    def test_calls_on_the_chat_api_have_no_target(
        self, tiny_model_config: ModelConfig, tiny_folder: str, tiny_tokenizer: ChatTokenizer, tmp_path: Path
    ) -> None:
        chat = written(tiny_model_config, tmp_path, api="chat")
        with Probed(tiny_tokenizer, up_or_valid) as server:
            done = probe("tools", chat, f"serving.url={server.endpoint}", "--count", "12", "--json")
        assert done.exit_code == 0
        found = one_object(done.stdout)
        assert (found["api"], found["kinds"][-1]["invalid"], found["met"]) == ("chat", 1, None)


def test_what_cannot_be_probed_is_refused(model_config_file: str, golden: Golden) -> None:
    def run(*arguments: str) -> None:
        if error := probe(*arguments).exception:
            raise error

    tries = {
        "no server": partial(run, "cache", model_config_file, "serving.url=unix:/nowhere/at/all"),
        "a cache behind a hosted API": partial(run, "cache", "model=gpt-5.4-mini"),
    }
    golden("refused_probes.txt", refusals(tries, (ServerFailed, InvalidConfig)))
