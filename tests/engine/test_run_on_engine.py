"""Whole runs as commands, with the random model and a real vLLM."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from serving.engine.endpoint import Endpoint
from serving.usage import Usage
from speedrunner.store.records import Termination
from speedrunner.store.run_data import load
from tests.engine.conftest import ShortModelConfig
from tests.engine.watched_runs import PLANNED, Command
from tests.processes import all_end
from tests.scripted_runs import check_finished, speedrunner
from tests.tampered_runs import statuses, verified


async def idle(endpoint: Endpoint) -> None:
    """Wait until the engine has noticed that killed clients are gone."""
    while not re.search(
        r"^vllm:num_requests_running\{.*\} 0\.0$", (await endpoint.get("/metrics")).text, re.M
    ):
        pass


async def test_a_run_with_one_request_in_flight_repeats_with_its_seed_alone(
    vllm_endpoint: Endpoint, short_model_config: ShortModelConfig, tmp_path: Path
) -> None:
    model = short_model_config(max_calls=2, string_tokens=40)
    written = []
    for number, seed in enumerate((0, 0, 1)):
        run = tmp_path / str(number)
        done = speedrunner(
            *("run", "env=babyai", model, f"serving.url={vllm_endpoint}", f"run.dir={run}"),
            *("run.in_flight=1", f"run.seed={seed}", "run.rollouts=2", "run.sleep_every=2"),
            "run.test_episodes=0",
        )
        assert (done.returncode, done.stderr) == (0, "")
        data = load(run)
        agents = [*data.trajectories(), *(agent for record in data.sleeps for agent in record.agents)]
        written.append([turn.text for agent in agents for turn in agent.turns])
    assert written[0] == written[1]
    assert len(written[0]) == 6
    assert written[0][-1] != written[2][-1]


async def test_a_run_is_valid_and_accounted_for_to_the_token(
    vllm_endpoint: Endpoint, short_model_config: ShortModelConfig, tmp_path: Path
) -> None:
    await idle(vllm_endpoint)
    run = tmp_path / "run"
    done = speedrunner(
        *(
            "run",
            "env=babyai",
            short_model_config(max_calls=5, string_tokens=40),
            f"serving.url={vllm_endpoint}",
            f"run.dir={run}",
        ),
        *("run.rollouts=2", "run.sleep_every=2", "run.eval_every=2", "run.test_episodes=1"),
    )
    assert (done.returncode, done.stderr) == (0, "")
    data = load(run)
    check_finished(
        run,
        ["train/0000", "train/0001", "test/0000/0000", "test/0002/0000"],
        sleeps=1,
    )

    # Every call is valid: an untrained model writes nonsense, but within the grammar.
    assert {row.status for row in data.requests} == {"ok"}
    assert {row.invalid_calls for row in data.episodes} == {0}
    assert {row.termination for row in data.episodes} <= {Termination.CALL_LIMIT, Termination.SUCCESS}
    turns = [turn for record in data.sleeps for agent in record.agents for turn in agent.turns]
    assert turns
    assert all(turn.call is not None for turn in turns)
    assert all(edit.error for record in data.sleeps for edit in record.edits)

    # The printed account is the ledger's sum, and the engine's.
    total = sum((row.usage or Usage() for row in data.requests), Usage())
    account = re.search(
        r"prompt (\d+) / (\d+), cached (\d+) / (\d+), generated (\d+) / (\d+): (.*)", done.stdout
    )
    assert account is not None
    assert account[7] == "they agree to the token."
    assert [int(number) for number in account.groups()[:6]] == [
        *(total.prompt, total.prompt, total.cached, total.cached),
        *(total.completion, total.completion),
    ]
    assert total.cached > 0.5 * total.prompt
    assert f"The run's files are in {run}" in done.stdout

    found = await verified(run)
    assert set(statuses(found).values()) == {"ok"}, found


@pytest.mark.slow
def test_a_killed_run_takes_its_engine_with_it_and_resumes_on_another(
    start: Callable[..., Command], vllm_endpoint: Endpoint
) -> None:
    run = start()
    run.requests(10)
    everything = run.tree
    assert any("EngineCore" in process.name() for process in everything)
    run.process.kill()
    run.end()
    assert all_end(everything)
    done = start(f"serving.url={vllm_endpoint}").end()
    assert (done.returncode, done.stderr) == (0, "")
    check_finished(run.run, PLANNED, sleeps=1)
    data = load(run.run)
    assert any(row.wasted for row in data.requests)
    assert not any(row.termination.is_fault for row in data.episodes)
