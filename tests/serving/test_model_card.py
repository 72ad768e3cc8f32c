from __future__ import annotations

from pathlib import Path

from serving.cards import adapted, load_card
from tests.serving.card_samples import write


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
    dense = load_card(write(tmp_path, server__flags={"block-size": 32}))
    assert (dense.cache, dense.match_unit) == ("attention", 32)
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
