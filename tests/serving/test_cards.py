"""Model cards: what is read from them, and what a mistake in one is answered with."""

from __future__ import annotations

import copy
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from serving import cards
from serving.cards import CHECKOUT, Holds, adapted, list_cards, load_card, model_path, prepare
from serving.errors import InvalidCard, ServerFailed
from serving.usage import Prices

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
HOSTED = {"path": None, "tool_format": None, "base_url": "https://h/v1", "route": "chat"}
RESPONSES = {**HOSTED, "route": "responses"}
HOLDS = {"conversations": 3, "tokens": 8192, "by": "arithmetic"}


def write(folder: Path, **changes: Any) -> str:
    """A card like GOOD; a key like `roles__actor` changes a nested value, `None` removes one."""
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
    file = folder / "card.yaml"
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    return str(file)


def test_the_bundled_card_is_listed_and_loads() -> None:
    assert "tiny-random" in list_cards()
    card = load_card("tiny-random")
    assert card.name == "tiny-random"
    assert card.route == "tokens"
    assert card.prices == Prices(uncached=0.75, cached=0.075, output=4.5)
    assert card.role("actor").thinking_tokens == 0


def test_roles_other_than_the_actor_sample_like_the_inducer(tmp_path: Path) -> None:
    card = load_card(write(tmp_path))
    assert card.role("actor").string_tokens == 10
    assert card.role("inducer").max_calls == 3
    assert card.role("curriculum") == card.role("inducer")


def test_flags_stand_on_the_command_line_as_the_engine_reads_them(tmp_path: Path) -> None:
    flags = {"enforce-eager": True, "enable-prefix-caching": False, "block-size": 32, "config": {"a": "b"}}
    card = load_card(write(tmp_path, server__flags=flags))
    assert card.server.arguments() == [
        *["--enforce-eager", "--no-enable-prefix-caching"],
        *["--block-size", "32", "--config", '{"a":"b"}'],
    ]


def test_a_card_says_what_its_cache_keeps(tmp_path: Path) -> None:
    assert load_card(write(tmp_path)).match_unit is None
    dense = load_card(write(tmp_path, server__flags={"block-size": 32}, holds=[HOLDS]))
    assert (dense.cache, dense.match_unit) == ("attention", 32)
    assert dense.holds == [Holds(conversations=3, tokens=8192, by="arithmetic")]
    hybrid = load_card(
        write(tmp_path, cache="hybrid", server__flags={"prefix-match-unit": 16, "block-size": 640})
    )
    assert hybrid.match_unit == 16


def test_replicas_and_load_format_stand_on_the_command_line(tmp_path: Path) -> None:
    card = load_card(write(tmp_path, shape="s", server__flags={"seed": 1}))
    assert card.arguments() == ["--seed", "1"]
    assert adapted(card, 1, None).arguments() == ["--seed", "1"]
    assert adapted(card, 2, "dummy").arguments() == [
        *["--data-parallel-size", "2"],
        *["--load-format", "dummy", "--seed", "1"],
    ]


def test_the_card_s_own_values_stay_where_nothing_else_is_asked_for(tmp_path: Path) -> None:
    card = load_card(write(tmp_path, shape="s", replicas=2, load_format="dummy"))
    assert (card.replicas, card.load_format) == (2, "dummy")
    assert adapted(card, None, None) == card
    assert adapted(card, None, "auto") == card


def test_without_weights_the_shape_stands_for_the_model_and_no_revision_is_named(tmp_path: Path) -> None:
    card = load_card(write(tmp_path, path=None, id="Qwen/Q", revision=COMMIT, shape="s"))
    dummy = adapted(card, load_format="dummy")
    assert (dummy.id, dummy.revision) == (None, None)
    assert model_path(dummy) == str(CHECKOUT / ".cache/models/s-shape")
    stated = write(tmp_path, path=None, id="Qwen/Q", revision=COMMIT, shape="s", load_format="dummy")
    assert load_card(stated) == dummy


@pytest.mark.parametrize(
    ("changes", "replicas", "load_format", "message"),
    [
        ({}, None, "dummy", "model.load_format=dummy does not go with model 'm': `load_format: dummy` needs"),
        ({}, 0, None, "model.replicas=0 does not go with model 'm': replicas must be int > 0, not 0"),
        (
            {},
            None,
            "gguf",
            "model.load_format=gguf does not go with model 'm': load_format must be auto",
        ),
        (HOSTED, 2, None, "model.replicas=2 does not go with model 'm': `base_url` (a hosted model) allows"),
    ],
)
def test_what_a_card_does_not_allow_is_told(
    tmp_path: Path, changes: dict[str, Any], replicas: int | None, load_format: str | None, message: str
) -> None:
    card = load_card(write(tmp_path, **changes))
    with pytest.raises(InvalidCard, match=re.escape(message)) as caught:
        adapted(card, replicas, load_format)
    assert "\n" not in str(caught.value)


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
            {"holds": [{**HOLDS, "by": "guess"}]},
            ["holds[0].by must be arithmetic or measured, not guess"],
        ),
        (
            {"holds": [{"tokns": 1}]},
            ["there is no holds[0].tokns (did you mean holds[0].tokens?)", "conversations"],
        ),
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
        ({**HOSTED, "holds": [HOLDS]}, ["(a hosted model) allows no `holds`"]),
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
    with pytest.raises(InvalidCard, match=r"hosted at https://h/v1"):
        prepare(card, print)


def test_a_model_that_does_not_reason_is_sampled_as_the_card_says(tmp_path: Path) -> None:
    role = {"string_tokens": 10, "reasoning_effort": "none", "temperature": 0.5, "top_p": 0.9}
    assert load_card(write(tmp_path, **RESPONSES, roles__actor=role)).role("actor").temperature == 0.5


def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    file = Path(write(tmp_path, **HOSTED))
    file.write_text(file.read_text() + "route: responses\n")
    with pytest.raises(
        InvalidCard, match=r"card\.yaml cannot be read: route is set twice, again in line"
    ) as caught:
        load_card(str(file))
    assert "\n" not in str(caught.value)


def test_an_unknown_name_lists_the_cards_and_the_nearest() -> None:
    with pytest.raises(
        InvalidCard, match=r"'tiny-randon' \(did you mean tiny-random\?\); known: .*tiny-random"
    ):
        load_card("tiny-randon")


@pytest.mark.parametrize("text", ["a: [", "- just\n- a list", "", "\x00"])
def test_a_file_that_is_no_card_is_refused_by_name(tmp_path: Path, text: str) -> None:
    file = tmp_path / "broken.yaml"
    file.write_text(text)
    with pytest.raises(InvalidCard, match=r"broken\.yaml") as caught:
        load_card(str(file))
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidCard, match=r"no model card at .*absent\.yaml"):
        load_card(str(tmp_path / "absent.yaml"))


def test_a_hub_model_is_left_to_the_engine(tmp_path: Path) -> None:
    card = load_card(write(tmp_path, path=None, id="Qwen/Q", revision=COMMIT))
    assert prepare(card, print) == "Qwen/Q"


def test_a_missing_folder_without_a_recipe_is_named(tmp_path: Path) -> None:
    card = load_card(write(tmp_path, path=str(tmp_path / "nowhere")))
    with pytest.raises(InvalidCard, match=r"model 'm': there is no folder .*nowhere"):
        prepare(card, print)


def test_a_recipe_makes_the_folder_and_its_lines_are_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cards, "MODELS", tmp_path)
    (tmp_path / "recipe.py").write_text(
        "import pathlib, sys\nprint('drawing')\npathlib.Path(sys.argv[sys.argv.index('--out') + 1]).mkdir()\n"
    )
    card = load_card(write(tmp_path, path=str(tmp_path / "made"), recipe="recipe.py"))
    lines: list[str] = []
    assert prepare(card, lines.append) == str(tmp_path / "made")
    assert lines == ["drawing"]


def test_a_failed_recipe_says_its_last_line_and_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cards, "MODELS", tmp_path)
    (tmp_path / "recipe.py").write_text("raise SystemExit('no space left')")
    card = load_card(write(tmp_path, path=str(tmp_path / "made"), recipe="recipe.py"))
    with pytest.raises(ServerFailed, match="status 1: no space left") as caught:
        prepare(card, print)
    assert sys.executable in str(caught.value)
