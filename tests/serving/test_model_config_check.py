"""What a mistake in a model config is answered with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from serving.errors import InvalidModelConfig
from serving.model_configs import load_model_config
from tests.golden_tables import Golden, refusals
from tests.serving.model_config_samples import COMMIT, HOSTED, write

MISTAKES: list[dict[str, Any]] = [
    *({**HOSTED, "tried": None}, {"tried": ""}, {"contxt": 1}, {"roles__actor__temprature": 1.0}),
    *({"roles__critic": {"string_tokens": 1}}, {"context": "long"}, {"context": 0}),
    *({"roles__actor__top_p": 1.5}, {"dtype": "float8"}, {"roles__inducer": 3}, {"prices": 3}),
    *({**HOSTED, "roles__inducer": None}, {**HOSTED, "prices": None}),
    *({"path": None}, {"id": "Qwen/Q", "revision": COMMIT}, {"path": None, "id": "Qwen/Q"}),
    *({"path": None, "id": "Qwen/Q", "revision": "main"}, {"revision": COMMIT}),
    *({"path": None, "base_url": "https://h/v1"}, {"api": "tokens"}, {"api": ["chat", "completions"]}),
    {**HOSTED, "thinking": "generated", "roles__actor__thinking_tokens": 64},
    {"tool_format": None},
    *({"server__flags": {flag: 2}} for flag in ("port", "data-parallel-size")),
    *(
        {"server__flags": {"seed": [1]}},
        {"server__flags": {"prefix-match-unit": 16}},
        {"cache": "hybrid", "server__flags": {"prefix-match-unit": None}},
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


def test_a_hosted_model_needs_an_address_and_nothing_else(tmp_path: Path) -> None:
    model_config = load_model_config(
        write(tmp_path, **HOSTED, api_key_env="KEY", roles__actor__reasoning_effort="low")
    )
    assert model_config.hosted
    assert model_config.role("actor").reasoning_effort == "low"
