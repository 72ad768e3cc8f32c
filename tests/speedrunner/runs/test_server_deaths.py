"""An episode that ends each server is found among those in flight and given up; all others are played."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
import yaml
from msgspec import to_builtins

from serving.errors import ServerDied
from serving.model_config import ModelConfig
from speedrunner.runs import player
from speedrunner.runs.server_deaths import ServerDeaths, Unit
from speedrunner.runs.verification.verify import verify
from speedrunner.store.records import Termination
from speedrunner.store.run_data import load
from tests.scripted_runs import CORRIDOR, LEARN, Runs, check_whole, in_process, roomy, script, walker
from tests.stand_in_server import HEALTHY

DEATH = ServerDied("the engine died")
MARKER = "flag is at field 5"
IN_FLIGHT = 8

WALK = [{"id": "a", "type": "function", "function": {"name": "walk", "arguments": '{"steps": 20}'}}]
FRAGILE = """
        import threading, time
        text = self.rfile.read(int(self.headers["content-length"])).decode()
        if "flag is at" not in text:  # shows the server to be ready
            return self.say(json.dumps({"choices": [CHOICE], "usage": USAGE}))
        waiting.append(text)
        if MARKER in text:
            while lives < 3 and len(waiting) < IN_FLIGHT:
                time.sleep(0.01)
            os._exit(9)
        if lives < 3:
            threading.Event().wait()
        message = {"role": "assistant", "content": "", "tool_calls": WALK}
        self.say(json.dumps({"choices": [{"message": message, "finish_reason": "stop"}], "usage": USAGE}))
"""
"""Answers walk to the flag. Two servers hold all requests until the batch is in flight, and then die."""


@pytest.fixture
def fragile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Serve with a program that dies when a request contains the marker."""
    start = HEALTHY.index('        self.rfile.read(int(self.headers["content-length"]))')
    end = HEALTHY.index("    def say(")
    threads = HEALTHY[:start] + FRAGILE.lstrip("\n") + HEALTHY[end:]
    threads = threads.replace("http.server.HTTPServer", "http.server.ThreadingHTTPServer")
    threads = threads.replace("Unix(socketserver.", "Unix(socketserver.ThreadingMixIn, socketserver.")
    names = f"""
MARKER, IN_FLIGHT, WALK, waiting = {MARKER!r}, {IN_FLIGHT}, {WALK!r}, []
with open({str(tmp_path / "lives")!r}, "a+") as file:
    file.write(".")
    lives = file.tell()
"""
    file = tmp_path / "fragile.py"
    file.write_text(threads.replace('print("ready"', f'{names}print("ready"'))
    monkeypatch.setattr("serving.engine.server.API_SERVER", (sys.executable, str(file)))
    monkeypatch.setattr(player, "PAUSE_S", 0.0)


@pytest.mark.process
@pytest.mark.usefixtures("fragile")
def test_a_request_that_ends_each_server_costs_its_episode_alone(
    tiny_model_config: ModelConfig, tiny_folder: str, tmp_path: Path
) -> None:
    model_config = roomy(tiny_model_config, api="chat", path=tiny_folder)
    (tmp_path / "model.yaml").write_text(yaml.safe_dump(to_builtins(model_config)))
    run = tmp_path / "run"
    batch = (f"run.rollouts={IN_FLIGHT}", f"env.train={IN_FLIGHT}", f"run.in_flight={IN_FLIGHT}")
    once = (f"run.sleep_every={IN_FLIGHT}", "run.test_episodes=0", "method=react", "method.train=true")
    given = (f"env={CORRIDOR}", f"model.name={tmp_path / 'model.yaml'}", f"run.dir={run}", *batch, *once)
    done = in_process("run", *given)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "train/0002 was in flight alone when the server died again: it is given up" in done.stdout
    assert (tmp_path / "lives").read_text() == "...."  # two deaths of the batch, one of the suspect alone
    ends = {row.episode: row.termination for row in load(run).episodes}
    assert ends.pop("train/0002") is Termination.ENGINE_ERROR
    assert ends == dict.fromkeys(ends, Termination.SUCCESS)
    assert len(ends) == IN_FLIGHT - 1
    trusted = [CORRIDOR, str(tmp_path / "model.yaml")]
    found = asyncio.run(verify(run, lambda line: None, lambda check: None, trusted))
    levels = {check.name: check.level for check in found.findings}
    del levels["reconciliations"]  # this server counts no tokens
    assert levels == {"plan": "ok", "policies": "ok", "replay": "ok"}


@pytest.mark.process
async def test_a_sleep_that_ends_each_server_changes_nothing(
    corridor: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ServerDeaths, "is_given_up", lambda deaths, unit: unit[1] == "sleep/0001")
    run = corridor(script(walker, LEARN))
    await run.play()
    check_whole(run)
    first, second = run.data.sleeps
    assert (first.error, first.agents) == ("its requests ended each server", [])
    assert run.data.policies.load(1).module == "" != run.data.policies.load(2).module
    assert second.error is None


async def play(deaths: ServerDeaths, units: list[Unit], deadly: set[Unit]) -> tuple[list[Unit], int]:
    """Play units on one server after another. Return those that ended in order, and the deaths."""
    ended: list[Unit] = []
    count = 0
    while left := [unit for unit in units if unit not in ended]:

        async def one(unit: Unit) -> None:
            async with deaths.turn(unit):
                await asyncio.sleep(0)
                if unit in deadly and not deaths.is_given_up(unit):
                    raise DEATH
                for _ in range(9):  # the others are still in flight at a death
                    await asyncio.sleep(0)
                ended.append(unit)

        try:
            async with asyncio.TaskGroup() as group:
                for unit in left:
                    group.create_task(one(unit))
        except* ServerDied:
            deaths.judge()
            count += 1
    return ended, count


@pytest.mark.parametrize(("deadly", "expected"), [(0, 0), (1, 3), (2, 4), (8, 10)])
async def test_each_unit_that_ends_servers_is_given_up(deadly: int, expected: int) -> None:
    deaths, units = ServerDeaths(), [("run", f"train/{number}") for number in range(8)]
    ended, count = await play(deaths, units, {*units[:deadly]})
    assert sorted(ended) == units
    assert [deaths.is_given_up(unit) for unit in units] == [True] * deadly + [False] * (8 - deadly)
    assert count == expected


async def _die(deaths: ServerDeaths, unit: Unit) -> None:
    async with deaths.turn(unit):
        await asyncio.sleep(0)
        raise DEATH


async def test_a_run_that_stopped_is_suspected_no_more() -> None:
    deaths, unit = ServerDeaths(), ("run", "train/0")
    await asyncio.gather(_die(deaths, unit), _die(deaths, ("run", "train/1")), return_exceptions=True)
    assert deaths.judge() is None
    deaths.forget("run")
    await asyncio.gather(_die(deaths, unit), return_exceptions=True)
    assert deaths.judge() is None  # the first of its deaths that counts
