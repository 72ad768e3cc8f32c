"""What a mistake in a model card is answered with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from serving.cards import load_card
from serving.errors import InvalidCard
from tests.serving.card_samples import COMMIT, HOSTED, RESPONSES, write


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tried": None}, ["tried is not set"]),
        ({"tried": ""}, ['tried must be non-empty str, not ""']),
        ({"contxt": 1}, ["there is no contxt (did you mean context?)", "tool_format"]),
        (
            {"roles__actor__temprature": 1.0},
            ["there is no roles.actor.temprature (did you mean roles.actor.temperature?)"],
        ),
        (
            {"roles__critic": {"string_tokens": 1}},
            ["there is no roles.critic", "there are roles.actor.string_tokens"],
        ),
        ({"context": "long"}, ["context must be int > 0, not long"]),
        ({"context": 0}, ["context must be int > 0, not 0"]),
        ({"roles__actor__top_p": 1.5}, ["roles.actor.top_p must be float > 0 and <= 1 or null, not 1.5"]),
        ({"dtype": "float8"}, ["dtype must be auto or float32 or bfloat16 or float16, not float8"]),
        ({"roles__inducer": None}, ["roles.inducer is not set"]),
        ({"prices": None}, ["prices is not set"]),
        ({"path": None}, ["exactly one of `path`", "has none"]),
        ({"id": "Qwen/Q", "revision": COMMIT}, ["exactly one of `path`", "has path and id"]),
        ({"path": None, "id": "Qwen/Q"}, ["id: Qwen/Q", "needs a `revision`"]),
        (
            {"path": None, "id": "Qwen/Q", "revision": "main"},
            ["revision must be a commit (40 hexadecimal digits) or null, not main"],
        ),
        ({"revision": COMMIT}, ["`revision` goes with `id`"]),
        ({"path": None, "id": "Q", "revision": COMMIT, "recipe": "r.py"}, ["`recipe` goes with `path`"]),
        ({"path": None, "base_url": "https://h/v1"}, ["needs `route: chat` or `route: responses`"]),
        ({"route": "completions"}, ["route must be tokens or chat or responses, not completions"]),
        ({"route": ["chat", "responses"]}, ["route must be tokens or chat or responses, not [", "responses"]),
        (
            {**HOSTED, "thinking": "generated", "roles__actor__thinking_tokens": 64},
            ["roles.actor.thinking_tokens must be 0 on `route: chat`, which has no budget of thinking"],
        ),
        (
            {**RESPONSES, "roles__inducer__top_k": 20},
            ["roles.inducer.top_k must be null on a hosted model's `route: responses`"],
        ),
        (
            {**RESPONSES, "roles__actor__reasoning_effort": "low", "roles__actor__temperature": 0.5},
            ["roles.actor.temperature must be null beside a reasoning_effort: models that reason refuse it"],
        ),
        (
            {**RESPONSES, "roles__inducer__reasoning_effort": "high", "roles__inducer__top_p": 0.5},
            ["roles.inducer.top_p must be null beside a reasoning_effort"],
        ),
        ({"api_key_env": "KEY"}, ["`api_key_env` goes with `base_url`"]),
        ({"tool_format": None}, ["needs a `tool_format`", "qwen3_json or qwen3_xml or llama3_json"]),
        ({"roles__actor__thinking_tokens": 64}, ["roles.actor.thinking_tokens must be 0"]),
        ({"server__flags": {"--seed": 1}}, ["server.flags.--seed", "without its leading dashes"]),
        ({"server__flags": {"port": 80}}, ["server.flags.port", "card's other fields"]),
        (
            {"server__flags": {"seed": [1]}},
            ["server.flags.seed must be bool or int or float or str or a mapping, not [1]"],
        ),
        ({"server__flags": {"data-parallel-size": 2}}, ["data-parallel-size", "card's other fields"]),
        ({"cache": "hybrid"}, ["`cache: hybrid` needs server.flags.prefix-match-unit, such as 16"]),
        ({"server__flags": {"prefix-match-unit": 16}}, ["prefix-match-unit goes with `cache: hybrid`"]),
        ({"gpus": 2}, ["`gpus: 2` contradicts server.flags.tensor-parallel-size", "which is 1"]),
        ({"nodes": 2}, ["`nodes: 2` must divide server.flags.tensor-parallel-size", "which is 1"]),
        (
            {"nodes": 2, "replicas": 2, "server__flags": {"pipeline-parallel-size": 2}},
            ["`nodes` above 1 goes with `replicas: 1` alone"],
        ),
        ({"server__flags": {"nnodes": 2}}, ["server.flags.nnodes", "card's other fields"]),
        ({"load_format": "dummy"}, ["`load_format: dummy` needs a `shape`"]),
        (
            {"contxt": 1, "dtype": "float8", "tool_format": "hermes"},
            [
                "(1) there is no contxt (did you mean context?)",
                "; (3) dtype must be auto or float32",
                "; (2) tool_format must be qwen3_json or qwen3_xml or llama3_json or null, not hermes",
            ],
        ),
        (
            {"tool_format": None, "path": None, "id": "Qwen/Q", "server__flags": {"port": 80, "uds": "x"}},
            [
                "(1) `id: Qwen/Q`",
                "; (2) `route: tokens`",
                "; (3) server.flags.port",
                "; (4) server.flags.uds",
            ],
        ),
        ({**HOSTED, "gpus": 1, "replicas": 2}, ["(a hosted model) allows no `gpus`, `replicas`"]),
        ({**HOSTED, "replicas": 2}, ["(a hosted model) allows no `replicas`"]),
        ({**HOSTED, "nodes": 2}, ["(a hosted model) allows no `nodes`"]),
        ({**HOSTED, "gpus": 1}, ["(a hosted model) allows no `gpus`"]),
        ({**HOSTED, "shape": "s"}, ["(a hosted model) allows no `shape`"]),
        ({**HOSTED, "server__env": {"A": 1}}, ["(a hosted model) allows no `server`"]),
    ],
)
def test_a_mistake_gets_one_line_with_file_place_and_what_is_allowed(
    tmp_path: Path, changes: dict[str, Any], words: list[str]
) -> None:
    file = write(tmp_path, **changes)
    with pytest.raises(InvalidCard) as caught:
        load_card(file)
    message = str(caught.value)
    assert "\n" not in message
    for word in [file, *words]:
        assert word in message


def test_a_hosted_model_needs_an_address_and_nothing_else(tmp_path: Path) -> None:
    card = load_card(write(tmp_path, **HOSTED, api_key_env="KEY", roles__actor__reasoning_effort="low"))
    assert card.hosted
    assert card.role("actor").reasoning_effort == "low"


def test_a_model_that_does_not_reason_is_sampled_as_the_card_says(tmp_path: Path) -> None:
    role = {"string_tokens": 10, "reasoning_effort": "none", "temperature": 0.5, "top_p": 0.9}
    assert load_card(write(tmp_path, **RESPONSES, roles__actor=role)).role("actor").temperature == 0.5
