"""`speedrunner bench probe`, as a user calls it."""

from __future__ import annotations

import json
import re
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
from speedrunner.cli.probe_command import cache, tools
from speedrunner.config.schema import InvalidConfig
from tests.golden_tables import Golden, refusals
from tests.probe_engines import Forgetful, Probed
from tests.scripted_engine import Answer, Request, call, sample_call

app = typer.Typer()
app.command()(cache)
app.command()(tools)


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
    return CliRunner().invoke(app, arguments)


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


class TestCache:
    def test_a_cache_that_gives_nothing_misses_the_target(
        self, model_config_file: str, tiny_tokenizer: ChatTokenizer
    ) -> None:
        with Forgetful(tiny_tokenizer) as server:
            arguments = ("cache", model_config_file, f"serving.url={server.endpoint}", "--turns", "2")
            told, machine = probe(*arguments), probe(*arguments, "--json")
        assert told.exit_code == machine.exit_code == 1
        assert re.search(r"^turn 2 +\d+ +[1-9]\d+ +0$", told.stdout, re.MULTILINE)
        assert "To change: " in told.stdout
        assert re.search(r"share of the maximum +0.00% +at least 99.00%: MISSED", told.stdout)
        assert one_object(machine.stdout)["advice"] != []


def test_what_cannot_be_probed_is_refused(
    tiny_model_config: ModelConfig,
    tiny_tokenizer: ChatTokenizer,
    model_config_file: str,
    tmp_path: Path,
    golden: Golden,
) -> None:
    def run(*arguments: str) -> None:
        if error := probe(*arguments).exception:
            raise error

    (tmp_path / "short").mkdir()
    short = written(tiny_model_config, tmp_path / "short", context=3_000)
    with Probed(tiny_tokenizer) as server:
        tries = {
            "no server": partial(run, "cache", model_config_file, "serving.url=unix:/nowhere/at/all"),
            "a cache behind a hosted API": partial(run, "cache", "model=gpt-5.4-mini"),
            "more turns than fit": partial(
                run, "cache", short, f"serving.url={server.endpoint}", "--turns", "200"
            ),
        }
        text = refusals(tries, (ServerFailed, InvalidConfig))
    golden("refused_probes.txt", re.sub(r"has \d+ tokens", "has N tokens", text))  # it has a random part
