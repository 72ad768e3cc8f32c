from __future__ import annotations

import json
import shutil

import pytest
from msgspec.structs import replace

from serving.meter import LedgerRow
from serving.usage import Usage
from speedrunner.store.episode_summary import summarize_episode
from speedrunner.store.files import StorageError
from speedrunner.store.process_notes import caveats
from speedrunner.store.records import AgentRecord, Policy, Termination, Turn
from speedrunner.store.run_data import EpisodeKey, load
from speedrunner.store.rundir import RunDirectory
from speedrunner.store.stored_run import RunDirectoryError, sleep_key
from tests.speedrunner.run_samples import play, sleep, trajectory
from tests.speedrunner.run_samples import request as make_request


def request(number: int, wasted: bool = False, usage: Usage | None = None, **labels: str) -> LedgerRow:
    status = "ok" if usage else "failed"
    return replace(
        make_request(), request=f"r{number}", labels=labels, status=status, wasted=wasted, usage=usage
    )


@pytest.fixture
def run(tmp_path):
    """A run that goes on: two batches, an evaluation, one sleep."""
    with RunDirectory.open_for_writing(tmp_path / "run") as run:
        run.write_config("env:\n  name: babyai\nrun: {seed: 1}\n")
        run.write_policy(Policy(version=0))
        for number in range(5):
            episode = trajectory(f"train/{number:04d}")
            run.append_trajectory("train", number // 3, episode)
            run.append_episode(summarize_episode(episode, "train", number // 3 * 3))
        run.append_trajectory("test", 3, trajectory("test/0003/0000"))
        run.append_episode(summarize_episode(trajectory("test/0003/0000"), "test", 3))
        run.write_sleep(sleep())
        yield run


def test_a_run_that_goes_on_is_read_without_a_lock(run):
    data = load(run.path)
    assert data.path == run.path
    assert data.config == {"env": {"name": "babyai"}, "run": {"seed": 1}}
    assert data.policies.load(0) == Policy(version=0)
    assert [episode.episode for episode in data.trajectories(1)] == ["train/0003", "train/0004"]
    assert len(data.trajectories()) == 5
    assert data.evaluations(3) == data.evaluations() == [trajectory("test/0003/0000")]
    assert data.trajectories(7) == []
    assert (data.batches(), data.files.numbers("test")) == ([0, 1], [3])
    assert data.sleeps == [sleep()]
    assert len(data.episodes) == 6
    assert data.requests == []


def test_a_summary_row_lost_in_a_kill_is_derived(run):
    complete = load(run.path).episodes
    (run.path / "episodes.jsonl").unlink()
    derived = load(run.path).episodes
    assert derived == complete
    assert [row.checkpoint for row in derived] == [0, 0, 0, 3, 3, 3]
    assert [row.phase for row in derived] == ["train"] * 5 + ["test"]


def test_parts_are_those_of_the_newest_attempts(run):
    run.append_trajectory("train", 1, trajectory("train/0003", attempt=2))
    found = [(part.episode, part.attempt) for part in load(run.path).parts("train", EpisodeKey, 1)]
    assert found == [("train/0003", 2), ("train/0004", 1)]


def test_requests_of_attempts_that_were_given_up_are_wasted(run):
    again = trajectory("train/0005", attempt=2)
    usage = Usage(10, 5, 2, 0)
    rows = [
        (request(0, phase="train", episode="train/0005", attempt="1", usage=usage), True),
        (request(1, phase="train", episode="train/0005", attempt="2", usage=usage), False),
        (request(2, phase="train", episode="train/0005", attempt="2", wasted=True), True),
        (request(3, phase="sleep", episode=sleep_key(1), attempt="1", usage=usage), False),
        (request(4, phase="sleep", episode=sleep_key(1), attempt="2", usage=usage), True),
        (request(5, phase="train", episode="train/0006", attempt="1", usage=usage), True),
        (request(6, phase="train", episode="train/0006", attempt="2", usage=usage), False),
        (request(7, phase="ready", usage=usage), False),
        (request(8, phase="sleep", episode=sleep_key(1), attempt="1", usage=usage), True),
    ]
    record = sleep(1)
    turn = Turn(messages=[], text="", usage=usage, seconds=0.1, request="r3")
    record.agents = [AgentRecord("inducer", [turn], Termination.SUBMITTED)]
    run.write_sleep(record)
    for row, _ in rows:
        run.append_request(row)
    run.append_trajectory("train", 1, again)
    read = load(run.path).requests
    assert [(row.request, row.wasted) for row in read] == [(row.request, wasted) for row, wasted in rows]


class TestOneEpisode:
    def test_it_is_found_by_its_key_or_a_short_form_of_it(self, run):
        data = load(run.path)
        for short in ("train/0003", "train/3"):
            assert data.trajectory(short).episode == "train/0003"
        for short in ("test/0003/0000", "test/3/0"):
            assert data.trajectory(short).episode == "test/0003/0000"

    def test_what_there_is_is_told_where_none_is_meant(self, run):
        data = load(run.path)
        for wrong in ("train/7", "0003", "x"):
            with pytest.raises(
                RunDirectoryError, match="train/0000 to train/0004, test/0003/0000 to"
            ) as error:
                data.trajectory(wrong)
            assert f"has no episode {wrong!r}" in str(error.value)

    def test_of_several_attempts_the_newest_counts_however_the_lines_are_spaced(self, run):
        run.append_trajectory("train", 0, trajectory("train/0000", attempt=2, text="again"))
        (file,) = (run.path / "trajectories").glob("batch_0000.jsonl")
        lines = [json.dumps(json.loads(line)) for line in file.read_text().splitlines()]
        file.write_text("".join(f"{line}\n" for line in lines))
        data = load(run.path)
        assert data.trajectory("train/0").turns[0].text == "again"
        played = [each.episode for each in data.trajectories()]
        assert sorted(played) == sorted({row.episode for row in data.episodes if row.phase == "train"})
        every = [each.episode for each in data.played("train", every_attempt=True)]
        assert every.count("train/0000") == 2


@pytest.mark.parametrize("text", ["a: [1", "just text", ""])
def test_a_damaged_configuration(run, text):
    (run.path / "config.yaml").write_text(text)
    with pytest.raises(RunDirectoryError, match=r"config\.yaml") as error:
        _ = load(run.path).config
    assert "\n" not in str(error.value)


def test_a_file_that_has_lost_records_since_a_step_ended_is_named_with_both_sizes(run):
    run.append_request(request(1, usage=Usage(prompt=10)))
    run.append_request(request(2, usage=Usage(prompt=10)))
    run.mark_finished("train/0000")
    run.append_request(request(3))  # a kill may lose what came later
    ledger = run.files.requests
    first, second, _ = ledger.read_bytes().splitlines(keepends=True)
    ledger.write_bytes(first + second)
    assert len(load(run.path).requests) == 2
    ledger.write_bytes(first)
    sizes = rf"requests\.jsonl has {len(first)} bytes, and state\.json recorded {len(first + second)}"
    with pytest.raises(RunDirectoryError, match=sizes):
        load(run.path)
    # Neither read without a record that was there, nor cut off as if a kill had left it.
    for damaged in (first + second.replace(b"{", b"#", 1), first + b"\0" * len(second)):
        ledger.write_bytes(damaged)
        for open_it in (load, lambda path: RunDirectory.open_for_writing(path).__enter__()):
            with pytest.raises(RunDirectoryError, match=r"requests\.jsonl has a last line that is not JSON"):
                open_it(run.path)
        assert ledger.read_bytes() == damaged
    ledger.unlink()
    with pytest.raises(RunDirectoryError, match=r"requests\.jsonl is missing, and state\.json recorded"):
        load(run.path)


def test_a_finished_sleep_without_its_record_is_a_caveat(run):
    (number,) = run.files.numbers("sleep")
    run.mark_finished(f"sleep/{number:04d}-0123456789ab")
    assert caveats([load(run.path)]) == []
    run.files.numbered("sleep", number).unlink()
    said = f"{run.path.name}: 1 of 1 sleeps have no record, so their costs are missing"
    assert caveats([load(run.path)]) == [said]


def test_a_record_that_occurs_twice_is_refused(tmp_path):
    play(tmp_path / "run")
    run = load(tmp_path / "run")
    shutil.copy(run.files.numbered("sleep", 1), run.files.numbered("sleep", 2))
    with run.files.requests.open("a") as ledger:
        ledger.write(run.files.requests.read_text())
    with pytest.raises(RunDirectoryError, match=r"sleeps/0002\.json is the record of sleep 1"):
        _ = run.sleeps
    with pytest.raises(RunDirectoryError, match=r"requests\.jsonl, line 4 is a copy of an earlier line"):
        _ = run.columns


def test_episodes_without_the_sizes_of_their_files_are_refused(run):
    run.append_trajectory("train", 0, trajectory())
    for lose in (lambda: run.files.state.write_text("{}"), run.files.state.unlink):
        lose()
        for open_it in (load, lambda path: RunDirectory.open_for_writing(path).__enter__()):
            with pytest.raises(RunDirectoryError, match=r"has episodes, but no complete state\.json: copy"):
                open_it(run.path)


def test_a_line_that_is_cut_off_in_the_middle_is_named_by_whatever_needs_all_records(run):
    for name in ("episodes.jsonl", "trajectories/batch_0000.jsonl"):
        first, second, *rest = (run.path / name).read_bytes().splitlines(keepends=True)
        (run.path / name).write_bytes(first + second[:40] + b"\n" + b"".join(rest))
    with pytest.raises(StorageError, match=r"episodes\.jsonl, line 2"):
        _ = load(run.path).rows
    with pytest.raises(StorageError, match=r"batch_0000\.jsonl, line 2"):
        load(run.path).trajectories()
