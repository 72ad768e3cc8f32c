"""The cache's benchmark: what it counts, which smaller cache it chooses, and when it fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from serving.cards import load_card
from serving.engine.metrics import CacheConfig
from speedrunner.config.check import InvalidConfig
from speedrunner.measure import bench_cache as cache
from speedrunner.measure.bench_cache import Level, Result
from speedrunner.measure.serving import bench_setup
from tests.scripted_runs import Runs, script


def silent(line: str) -> None:
    pass


async def test_an_engine_that_caches_all_it_can_gives_the_whole_maximum(
    corridor: Runs, tmp_path: Path
) -> None:
    run = corridor(script())
    setup = bench_setup(run.overrides(), turns=3)
    result = await cache.measure(setup, [1, 2], 2, silent, tmp_path / "bench")
    assert [(each.in_flight, each.admission) for each in result.levels] == [
        (1, True),
        (1, False),
        (2, True),
        (2, False),
    ]
    for level in result.levels:
        assert (level.episodes, level.turns) == (2, 6)  # three turns each, as was asked for
        assert level.share_of_maximum == 1.0
        assert 0 < level.cacheable <= level.cached < level.prompt
        assert level.own_blocks > 0
    assert (result.share_of_maximum, result.target, result.met) == (1.0, 0.99, True)
    # The server is not ours: its cache stays as it is.
    assert (result.small_cache_blocks, result.small_cache) == (None, [])


async def test_an_engine_that_caches_nothing_misses_the_target(
    corridor: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = corridor(script())

    class Forgetful(set):  # type: ignore[type-arg]
        def __contains__(self, block: object) -> bool:
            return False

    monkeypatch.setattr(run.server, "_blocks", Forgetful())
    monkeypatch.setattr(Forgetful, "__ior__", lambda self, other: self)
    setup = bench_setup(run.overrides("serving.admission=false"), turns=2)
    result = await cache.measure(setup, [2], 2, silent, tmp_path / "bench")
    assert [each.admission for each in result.levels] == [False]
    assert (result.share_of_maximum, result.met) == (0.0, False)


LEVEL = Level(
    in_flight=16,
    admission=True,
    episodes=16,
    turns=480,
    prompt=1_000_000,
    cached=970_000,
    cacheable=975_000,
    share_of_maximum=0.994,
    hit_rate=0.97,
    output_tokens_per_s=600.0,
    held_back=0,
    preemptions=0,
    shared_blocks=47,
    own_blocks=50.5,
)


def test_the_smaller_cache_holds_what_is_shared_and_half_of_the_conversations() -> None:
    blocks = cache._half(LEVEL)
    assert blocks == 47 + 8 * 50.5 + 1
    card = cache._smaller(load_card("tiny"), CacheConfig(32, 16384, True, 32), 100)
    assert card.server.flags["num-gpu-blocks-override"] == 100
    assert card.context == 99 * 32  # the engine refuses a context that its cache cannot hold
    assert cache._half(msgspec.structs.replace(LEVEL, in_flight=1)) == 47 + 51 + 1


@pytest.mark.parametrize("text", ["", "1,,4", "0,4", "many"])
def test_levels_are_numbers_of_episodes(text: str) -> None:
    with pytest.raises(InvalidConfig, match="write numbers of episodes with commas, such as 1,4,16"):
        cache._levels(text)


def test_a_model_on_the_chat_route_cannot_be_looked_into() -> None:
    with pytest.raises(InvalidConfig, match=r"'gpt-5\.4-mini' is on the chat route"):
        bench_setup(["model=gpt-5.4-mini"])


GOOD = Result(
    model="tiny",
    cache=CacheConfig(32, 16384, True, 32),
    share_of_maximum=0.994,
    target=0.99,
    met=True,
    levels=[LEVEL],
    small_cache_blocks=452,
    small_cache=[
        msgspec.structs.replace(LEVEL, hit_rate=0.95, held_back=8),
        msgspec.structs.replace(LEVEL, admission=False, hit_rate=0.6, output_tokens_per_s=200.0),
    ],
)


class TestCommand:
    @pytest.fixture
    def app(self) -> typer.Typer:
        app = typer.Typer()
        app.command()(cache.bench_cache)
        return app

    @staticmethod
    def found(monkeypatch: pytest.MonkeyPatch, result: Result) -> None:
        async def measure(*arguments: Any) -> Result:
            return result

        monkeypatch.setattr(cache, "measure", measure)

    def test_json_is_one_object(self, app: typer.Typer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found(monkeypatch, GOOD)
        done = CliRunner().invoke(app, ["--json"])
        assert done.exit_code == 0, done.output
        found = json.loads(done.stdout)
        assert (found["share_of_maximum"], found["target"], found["met"]) == (0.994, 0.99, True)
        assert found["levels"][0]["hit_rate"] == 0.97
        assert [each["admission"] for each in found["small_cache"]] == [True, False]

    def test_people_see_a_line_for_each_level_and_what_admission_does(
        self, app: typer.Typer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.found(monkeypatch, GOOD)
        lines = CliRunner().invoke(app, []).stdout.splitlines()
        assert " ".join(lines[2].split()) == "16 yes 480 1000000 97.0% 99.40% 600 0 0"
        assert lines[-2].startswith(
            "Admission keeps 95.0% instead of 60.0% of the prompt tokens cached, at 3.00"
        )
        assert lines[-1] == "Target: at least 99% of the maximum: 99.40%, met."

    def test_a_missed_target_is_said_and_is_the_exit_status(
        self, app: typer.Typer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.found(monkeypatch, msgspec.structs.replace(GOOD, share_of_maximum=0.9, met=False))
        done = CliRunner().invoke(app, [])
        assert done.exit_code == 1
        assert "90.00%, MISSED" in done.stdout
        assert json.loads(CliRunner().invoke(app, ["--json"]).stdout)["met"] is False
