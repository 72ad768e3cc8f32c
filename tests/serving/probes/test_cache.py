"""What a prefix cache gives, beside the most that it can, and what to change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from serving.cards import ModelCard, load_card
from serving.deployment import ServiceOptions, deploy
from serving.engine.metrics import CacheConfig
from serving.errors import ContextOverflow
from serving.probes.cache import SIBLINGS, CacheReport, CacheRequest, advice, probe_cache
from serving.tokens.tokenizer import ChatTokenizer
from tests.probe_engines import Forgetful, Off, Probed, Silent, Small
from tests.scripted_engine import BLOCK

ATTENTION = CacheConfig(block_size=32, num_gpu_blocks=100, enable_prefix_caching=True, match_unit=32)
HYBRID = CacheConfig(
    block_size=640, num_gpu_blocks=100, enable_prefix_caching=True, match_unit=16, hybrid=True
)


@pytest.fixture
def bare(tiny_card: ModelCard, tiny_folder: str) -> ModelCard:
    """The tiny card without its recipe, which would run each time."""
    return msgspec.structs.replace(tiny_card, recipe=None)


async def probed(
    kind: Callable[..., Probed], card: ModelCard, tokenizer: ChatTokenizer, folder: Path, turns: int
) -> CacheReport:
    with kind(tokenizer) as server:
        options = ServiceOptions(url=str(server.endpoint))
        async with deploy(card, options, log=folder / "unused.log") as deployment:
            return await probe_cache(deployment, turns)


async def test_an_exact_cache_gives_all_that_it_can(
    bare: ModelCard, tiny_tokenizer: ChatTokenizer, tmp_path: Path
) -> None:
    report = await probed(Probed, bare, tiny_tokenizer, tmp_path, turns=4)
    assert len(report.turns) == 4
    assert report.turns[0].expected == report.turns[0].reported == 0
    for earlier, later in zip(report.turns, report.turns[1:], strict=False):
        assert earlier.prompt // BLOCK * BLOCK <= later.expected == later.reported < later.prompt
    assert len(report.siblings) == SIBLINGS
    assert {each.expected for each in report.siblings} == {report.prefix // BLOCK * BLOCK}
    assert report.reported == report.expected
    assert (report.share_of_maximum, report.met, report.advice) == (1.0, True, [])


async def test_a_second_probe_of_the_same_engine_begins_anew(
    bare: ModelCard, tiny_tokenizer: ChatTokenizer, tmp_path: Path
) -> None:
    with Probed(tiny_tokenizer) as server:
        options = ServiceOptions(url=str(server.endpoint))
        async with deploy(bare, options, log=tmp_path / "unused.log") as deployment:
            for _ in range(2):
                report = await probe_cache(deployment, 2)
                assert report.turns[0].reported == 0


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (Silent, "does not report cached tokens: start it with --enable-prompt-tokens-details"),
        (Off, "its prefix cache is off: start it with --enable-prefix-caching"),
        (Small, "its cache of 40 blocks is too small"),
        (Forgetful, "other requests may have pushed it out"),
    ],
)
async def test_what_keeps_tokens_from_the_cache_is_named(
    bare: ModelCard,
    tiny_tokenizer: ChatTokenizer,
    tmp_path: Path,
    kind: Callable[..., Probed],
    told: str,
) -> None:
    report = await probed(kind, bare, tiny_tokenizer, tmp_path, turns=2)
    assert (report.share_of_maximum, report.met) == (0.0, False)
    (line,) = report.advice
    assert told in line


async def test_more_turns_than_the_context_takes_are_an_error(
    bare: ModelCard, tiny_tokenizer: ChatTokenizer, tmp_path: Path
) -> None:
    small = msgspec.structs.replace(bare, context=1_500)
    with pytest.raises(ContextOverflow):
        await probed(Probed, small, tiny_tokenizer, tmp_path, turns=20)


def report_of(*pairs: tuple[int, int], target: float = 0.99) -> CacheReport:
    turns = [CacheRequest(prompt=1000, expected=expected, reported=given) for expected, given in pairs]
    return CacheReport(cache=ATTENTION, turns=turns, siblings=[], prefix=0, target=target, advice=[])


def test_what_is_given_beyond_the_most_makes_up_for_nothing() -> None:
    assert report_of((0, 500), (100, 50)).share_of_maximum == 0.5


def test_targets() -> None:
    assert report_of((1000, 990)).met
    assert not report_of((1000, 989)).met
    assert report_of((1000, 970), target=0.97).met


def test_hybrid_models_need_a_match_unit_and_on_a_cpu_a_block_size() -> None:
    card = load_card("tiny-hybrid")
    assert advice(card, HYBRID, hits=True, reported=True) == []
    whole_blocks = msgspec.structs.replace(HYBRID, match_unit=640)
    (line,) = advice(card, whole_blocks, hits=True, reported=True)
    assert "whole blocks of 640 tokens" in line
    assert "--prefix-match-unit 16" in line
    (line,) = advice(card, HYBRID, hits=False, reported=False)
    assert "--block-size 640" in line
    on_gpu = load_card("qwen3.5-27b")
    assert advice(on_gpu, HYBRID, hits=False, reported=False) == []
