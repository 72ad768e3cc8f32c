"""Growth of the actor's prompt from call to call, from a ledger of a few rows."""

from __future__ import annotations

from pathlib import Path

from serving.usage import Usage
from speedrunner.results.prompt_growth import frame_prompts
from speedrunner.store.records import Policy
from speedrunner.store.run_data import load
from speedrunner.store.rundir import RunDirectory
from tests.speedrunner.results.ledgers import play, row


def test_an_episode_has_its_first_prompt_and_the_growth_per_call(tmp_path: Path) -> None:
    with RunDirectory.open_for_writing(tmp_path / "run") as run:
        run.write_config("run: {}\n")
        run.write_policy(Policy(version=0))
        play(run, "train/0000")
        play(run, "test/0000/0000", Usage(300, 0, 5))  # one call shows no growth
        labels = {"phase": "train", "episode": "train/0000", "attempt": "1"}
        for time, prompt in ((3.0, 1800), (1.0, 1000), (2.0, 1500)):
            run.append_request(row(time, Usage(prompt, 0, 5), **labels))
        run.append_request(row(4.0, Usage(9000, 0, 5), status="aborted", **labels))
        run.append_request(row(5.0, Usage(9000, 0, 5), "critic", **labels))
        trial = {"phase": "sleep", "episode": "sleep/0001", "attempt": "1"}
        for time in (6.0, 7.0):
            run.append_request(row(time, Usage(9000, 0, 5), **trial))
    found = frame_prompts(load(tmp_path / "run"))
    assert found.to_dict("index") == {"train/0000": {"first_prompt": 1000.0, "growth": 400.0}}
