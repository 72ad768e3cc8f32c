"""Model configs as files: what is read from them, and how they are adapted."""

from __future__ import annotations

import copy
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from serving import weights
from serving.errors import InvalidModelConfig, ServerFailed
from serving.model_config import ServerOptions
from serving.model_configs import CHECKOUT, adapt, load_model_config
from serving.usage import Prices
from serving.weights import model_path, prepare
from tests.golden_tables import Golden, refusals

GOOD: dict[str, Any] = {
    "name": "m",
    "tried": "Nothing.",
    "path": "weights",
    "context": 4096,
    "tool_format": "qwen3_json",
    "roles": {"actor": {"string_tokens": 10}, "inducer": {"string_tokens": 20, "max_calls": 3}},
    "prices": {"uncached": 1, "cached": 0.1, "output": 2},
}

COMMIT = "0e9e39f249a16976918f6564b8830bc894c89659"
HOSTED = {"path": None, "tool_format": None, "base_url": "https://h/v1", "api": "chat"}


def write(folder: Path, **changes: Any) -> str:
    """A model config like GOOD; a key like `roles__actor` changes a nested value, `None` removes one."""
    content = copy.deepcopy(GOOD)
    for place, value in changes.items():
        *parents, last = place.split("__")
        part = content
        for parent in parents:
            part = part.setdefault(parent, {})
        if value is None:
            del part[last]
        else:
            part[last] = value
    file = folder / "model.yaml"
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    return str(file)


MISTAKES: list[dict[str, Any]] = [
    *({**HOSTED, "tried": None}, {"tried": ""}, {"contxt": 1}, {"roles__actor__temprature": 1.0}),
    *({"roles__critic": {"string_tokens": 1}}, {"context": "long"}, {"context": 0}),
    *({"roles__actor__top_p": 1.5}, {"dtype": "float8"}, {"roles__inducer": 3}, {"prices": 3}),
    *({**HOSTED, "roles__inducer": None}, {**HOSTED, "prices": None}),
    *({"path": None}, {"id": "Qwen/Q", "revision": COMMIT}, {"path": None, "id": "Qwen/Q"}),
    *({"path": None, "id": "Qwen/Q", "revision": "main"}, {"revision": COMMIT}),
    *(
        {"path": None, "base_url": "https://h/v1"},
        {**HOSTED, "base_url": "https://me:pw@h/v1"},
        {"api": "tokens"},
        {"api": ["chat", "completions"]},
    ),
    {**HOSTED, "thinking": "generated", "roles__actor__thinking_tokens": 64},
    {"tool_format": None},
    *({"server__flags": {flag: 2}} for flag in ("port", "data-parallel-size")),
    *(
        {"server__flags": {"seed": [1]}},
        {"server__flags": {"prefix-match-unit": 16}},
    ),
    *(
        {"convoy_steps": 12},
        {"cache": "hybrid", "convoy_steps": -1},
        {"cache": "hybrid", "server__flags": {"prefix-match-unit": "one", "scheduler-cls": 3}},
        {"cache": "hybrid", "convoy_steps": 12, "server__flags": {"speculative-config": {"method": "mtp"}}},
    ),
    *({"gpus": 2}, {"load_format": "dummy"}, {**HOSTED, "roles__actor__template_options": {"x": 1}}),
    {"thinking": "generated", "roles__actor__template_options": {"enable_thinking": False}},
    {"roles__actor__template_options": {"messages": 3}},
    {"contxt": 1, "dtype": "float8", "tool_format": "hermes"},
    {"tool_format": None, "path": None, "id": "Qwen/Q", "server__flags": {"port": 80, "uds": "x"}},
]


def test_a_mistake_gets_one_line_with_file_place_and_what_is_allowed(tmp_path: Path, golden: Golden) -> None:
    tries = [
        (changes, lambda changes=changes: load_model_config(write(tmp_path, **changes)))
        for changes in MISTAKES
    ]
    golden("model_configurations.txt", refusals(tries, InvalidModelConfig, FILE=tmp_path / "model.yaml"))


def test_a_served_model_s_file_may_leave_out_roles_prices_note_and_server(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f"{{name: m, id: Q/M, revision: {COMMIT}, context: 65536, tool_format: qwen3_json}}")
    found = load_model_config(str(file))
    assert (found.tried, found.prices) == ("Nothing yet.", Prices(uncached=0, cached=0, output=0))
    assert [found.role(name).string_tokens for name in ("actor", "inducer")] == [1024, 8192]
    assert found.server.flags["enable-prompt-tokens-details"] is True


def test_a_served_model_s_flags_and_variables_add_to_the_defaults_and_null_removes_one(
    tmp_path: Path,
) -> None:
    plain = load_model_config(write(tmp_path, cache="hybrid")).server
    changed = {"enable-prefix-caching": False, "prefix-match-unit": 32, "seed": 1}
    flags = {
        **changed,
        "generation-config": None,
        "structured-outputs-config": {"disable_any_whitespace": True},
    }
    env = {"VLLM_NO_USAGE_STATS": None, "OMP_NUM_THREADS": 1}
    own = load_model_config(write(tmp_path, cache="hybrid", server={"flags": flags, "env": env})).server
    assert plain.flags["prefix-match-unit"] == 16
    backend = {"backend": "xgrammar", "disable_any_whitespace": True}
    expected = {**plain.flags, **changed, "structured-outputs-config": backend}
    del expected["generation-config"]
    assert own.flags == expected
    assert (plain.env, own.env) == ({"VLLM_NO_USAGE_STATS": 1}, {"OMP_NUM_THREADS": 1})


def test_a_context_limits_the_model_s_own(tmp_path: Path) -> None:
    model_config = load_model_config(write(tmp_path))
    assert adapt(model_config, context=model_config.context - 1).context == model_config.context - 1
    assert adapt(model_config, context=10 * model_config.context).context == model_config.context


def test_without_weights_the_shape_stands_for_the_model_and_no_revision_is_named(tmp_path: Path) -> None:
    model_config = load_model_config(write(tmp_path, path=None, id="Qwen/Q", revision=COMMIT, shape="s"))
    dummy = adapt(model_config, load_format="dummy")
    assert (dummy.id, dummy.revision) == (None, None)
    assert model_path(dummy) == str(CHECKOUT / ".cache/models/s-shape")
    stated = write(tmp_path, path=None, id="Qwen/Q", revision=COMMIT, shape="s", load_format="dummy")
    assert load_model_config(stated) == dummy


def test_what_a_model_config_does_not_allow_is_told(tmp_path: Path, golden: Golden) -> None:
    plain = load_model_config(write(tmp_path))
    given: list[dict[str, Any]] = [{"load_format": "dummy"}, {"load_format": "gguf"}, {"replicas": 0}]
    tries = [(changes, partial(adapt, plain, **changes)) for changes in given]
    golden("adapted_configurations.txt", refusals(tries, InvalidModelConfig))


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(InvalidModelConfig, match=r"'tiny-randon' \(did you mean tiny-random\?\): see"):
        load_model_config("tiny-randon")


@pytest.mark.parametrize("text", ["a: [", "- just\n- a list", ""])
def test_a_file_that_is_no_model_config_is_refused_by_name(tmp_path: Path, text: str) -> None:
    file = tmp_path / "broken.yaml"
    file.write_text(text)
    with pytest.raises(InvalidModelConfig, match=r"broken\.yaml") as caught:
        load_model_config(str(file))
    assert "\n" not in str(caught.value)


def test_flags_stand_on_the_command_line_as_the_engine_reads_them() -> None:
    flags = {"enforce-eager": True, "enable-prefix-caching": False, "block-size": 32, "config": {"a": "b"}}
    assert ServerOptions(flags).arguments() == [
        *["--enforce-eager", "--no-enable-prefix-caching"],
        *["--block-size", "32", "--config", '{"a":"b"}'],
    ]


def test_replicas_and_load_format_stand_on_the_command_line(tmp_path: Path) -> None:
    model_config = load_model_config(write(tmp_path, shape="s", server__flags={"seed": 1}))
    flags = model_config.server.arguments()
    assert flags[-2:] == ["--seed", "1"]
    assert model_config.arguments() == adapt(model_config, 1, None).arguments() == flags
    assert adapt(model_config, 2, "dummy").arguments() == [
        *["--data-parallel-size", "2"],
        *["--load-format", "dummy", *flags],
    ]


def test_nothing_is_started_for_a_hosted_model(tmp_path: Path) -> None:
    model_config = load_model_config(write(tmp_path, **HOSTED))
    with pytest.raises(InvalidModelConfig, match=r"hosted at https://h/v1"):
        prepare(model_config, print)


def test_a_missing_folder_without_a_recipe_is_named(tmp_path: Path) -> None:
    model_config = load_model_config(write(tmp_path, path=str(tmp_path / "nowhere")))
    with pytest.raises(InvalidModelConfig, match=r"model 'm': no folder at .*nowhere"):
        prepare(model_config, print)


@pytest.mark.process
def test_a_recipe_makes_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "MODELS", tmp_path)
    (tmp_path / "recipe.py").write_text(
        "import pathlib, sys\nprint('drawing')\npathlib.Path(sys.argv[sys.argv.index('--out') + 1]).mkdir()\n"
    )
    model_config = load_model_config(write(tmp_path, path=str(tmp_path / "made"), recipe="recipe.py"))
    lines: list[str] = []
    assert prepare(model_config, lines.append) == str(tmp_path / "made")
    assert lines == [f"preparing {tmp_path / 'made'}"]


@pytest.mark.process
def test_a_failed_recipe_says_its_last_line_and_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "MODELS", tmp_path)
    (tmp_path / "recipe.py").write_text("raise SystemExit('no space left')")
    model_config = load_model_config(write(tmp_path, path=str(tmp_path / "made"), recipe="recipe.py"))
    with pytest.raises(ServerFailed, match="status 1: no space left") as caught:
        prepare(model_config, print)
    assert sys.executable in str(caught.value)
