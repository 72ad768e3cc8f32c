"""The rollout's benchmark: what is replayed, what the client alone is measured with, and when it fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from serving.cards import load_card
from serving.meter import LedgerRow
from speedrunner.measure import bench_rollout as rollout
from speedrunner.measure.bench_rollout import Client, LeftBehind, Pair
from speedrunner.measure.episodes import bench_run
from speedrunner.measure.serving import bench_setup
from tests.scripted_runs import Runs, script


def silent(line: str) -> None:
    pass


async def test_the_replay_sends_what_the_rollout_sent_with_its_own_answers(
    corridor: Runs, tmp_path: Path
) -> None:
    scripted = corridor(script())
    setup = bench_setup(scripted.overrides())
    with bench_run(setup, tmp_path / "bench") as run:
        pairs, episodes = await rollout.compare(setup, 2, 1, silent, run)
        rows = run.directory.requests(LedgerRow)
    requests = [each for each in scripted.server.requests if each.turn or each.tools]
    ours = [each for each in requests if "cache_salt" not in each.body]
    replayed = [each for each in requests if "cache_salt" in each.body]
    # The script answers a prompt always in the same way, so both must be equal in all but their order.
    assert len(ours) == len(replayed) == sum(row.labels["role"] == "actor" for row in rows) > 4
    assert sorted(each.prompt for each in ours) == sorted(each.prompt for each in replayed)
    for mine, bare in zip(_by_prompt(ours), _by_prompt(replayed), strict=True):
        bare = {key: value for key, value in bare.items() if key != "cache_salt"}
        assert mine == bare
    assert len({each.body["cache_salt"] for each in replayed}) == 1
    assert sum(len(each.answers) for each in episodes) == len(ours)
    (pair,) = pairs
    assert pair.ours > 0
    assert pair.replay > 0


def _by_prompt(requests: list[Any]) -> list[dict[str, Any]]:
    return [each.body for each in sorted(requests, key=lambda each: each.prompt)]


@pytest.mark.parametrize(("card", "target"), [("tiny", 0.90), ("qwen3.5-27b", 0.95)])
def test_more_is_asked_for_where_the_engine_has_a_gpu_of_its_own(card: str, target: float) -> None:
    assert rollout.ratio_target(load_card(card)) == target


CLIENT = Client(
    client_in_flight=64,
    client_turns=1920,
    client_prompt_tokens=2000.0,
    client_cpu_s=3.2,
    turns_per_second_per_core=600.0,
    mb_per_episode=86.0,
)


class TestCommand:
    @pytest.fixture
    def app(self) -> typer.Typer:
        app = typer.Typer()
        app.command()(rollout.bench_rollout)
        return app

    @staticmethod
    def found(
        monkeypatch: pytest.MonkeyPatch, ratios: list[float], client: Client = CLIENT, *tasks: str
    ) -> None:
        async def measure(*arguments: Any) -> tuple[list[Pair], Client, list[str]]:
            return [Pair(ratio * 1000, 1000.0) for ratio in ratios], client, list(tasks)

        monkeypatch.setattr(rollout, "measure", measure)

    def test_json_is_one_object(self, app: typer.Typer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found(monkeypatch, [0.5, 0.93, 0.94])
        done = CliRunner().invoke(app, ["--json"])
        assert done.exit_code == 0, done.output
        found = json.loads(done.stdout)
        assert found["ratio_to_replay"] == pytest.approx(0.93)
        assert (found["turns_per_second_per_core"], found["mb_per_episode"]) == (600.0, 86.0)
        assert found["left_behind"] == {"tasks": [], "threads": [], "processes": []}
        assert found["met"] is True

    def test_people_see_the_pairs_and_what_is_left(
        self, app: typer.Typer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.found(monkeypatch, [0.92])
        lines = CliRunner().invoke(app, []).stdout.splitlines()
        assert lines[2].split() == ["pair", "1", "920", "1000", "0.920"]
        assert lines[3] == "Target: a median ratio of 0.90 or more: 0.920, met."
        assert lines[-2] == "Target: 250 turns per CPU second or more: 600, met."
        assert lines[-1] == "Nothing is left behind: no task, no thread, no process."

    def test_each_missed_target_is_said_and_is_the_exit_status(
        self, app: typer.Typer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        slow = msgspec.structs.replace(CLIENT, turns_per_second_per_core=249.0)
        for ratios, client, tasks, said in (
            ([0.89], CLIENT, (), "0.890, MISSED"),
            ([0.95], slow, (), "249, MISSED"),
            ([0.95], CLIENT, ("watchdog",), "LEFT BEHIND: watchdog."),
        ):
            self.found(monkeypatch, ratios, client, *tasks)
            done = CliRunner().invoke(app, [])
            assert done.exit_code == 1
            assert said in done.stdout

    def test_nothing_is_left_behind_only_where_nothing_is(self) -> None:
        assert LeftBehind([], [], []).nothing
        assert not LeftBehind([], ["pool"], []).nothing
        assert not LeftBehind([], [], ["python"]).nothing
