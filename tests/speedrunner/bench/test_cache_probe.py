"""What a prefix cache gives, beside the most that it can, and what to change."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from serving.deployment import ServiceOptions, deploy
from serving.model_config import ModelConfig
from serving.tokens.tokenizer import ChatTokenizer
from speedrunner.bench.measurement import Measurement
from speedrunner.bench.probes import SIBLINGS, CacheRequest, probe_cache
from tests.probe_engines import Forgetful, Off, Probed, Silent
from tests.scripted_engine import BLOCK


@pytest.fixture
def bare(tiny_model_config: ModelConfig, tiny_folder: str) -> ModelConfig:
    """The random model's config without its recipe, which would run each time."""
    return msgspec.structs.replace(tiny_model_config, recipe=None)


async def probed(
    kind: Callable[..., Probed], model_config: ModelConfig, tokenizer: ChatTokenizer, folder: Path, turns: int
) -> Measurement:
    with kind(tokenizer) as server:
        options = ServiceOptions(url=str(server.endpoint))
        async with deploy(model_config, options, log=folder / "unused.log") as deployment:
            return await probe_cache(deployment, turns, print)


def requests(found: Measurement, part: str) -> list[CacheRequest]:
    return [each for each in found.tables[0].rows if each.cached_tokens.startswith(part)]


async def test_an_exact_cache_gives_all_that_it_can(
    bare: ModelConfig, tiny_tokenizer: ChatTokenizer, tmp_path: Path
) -> None:
    found = await probed(Probed, bare, tiny_tokenizer, tmp_path, turns=4)
    turns, siblings, (whole,) = (requests(found, part) for part in ("turn", "sibling", "all"))
    assert len(turns) == 4
    assert turns[0].expected == turns[0].reported == 0
    for earlier, later in itertools.pairwise(turns):
        assert earlier.prompt // BLOCK * BLOCK <= later.expected == later.reported < later.prompt
    assert len(siblings) == SIBLINGS
    assert {each.expected for each in siblings} == {found.facts["prefix"] // BLOCK * BLOCK}
    assert whole.reported == whole.expected == sum(each.expected for each in [*turns, *siblings])
    assert (found.figures[0].value, found.met, found.facts["advice"]) == (1.0, True, [])


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (Silent, "does not report cached tokens: start it with --enable-prompt-tokens-details"),
        (Off, "its prefix cache is off: start it with --enable-prefix-caching"),
        (Forgetful, "other requests may have evicted it from the cache, or the cache is too small"),
    ],
)
async def test_what_keeps_tokens_from_the_cache_is_named(
    bare: ModelConfig,
    tiny_tokenizer: ChatTokenizer,
    tmp_path: Path,
    kind: Callable[..., Probed],
    told: str,
) -> None:
    report = await probed(kind, bare, tiny_tokenizer, tmp_path, turns=2)
    assert (report.figures[0].value, report.met) == (0.0, False)
    (line,) = report.facts["advice"]
    assert told in line
