"""Means of a run on disk at its checkpoints, with numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from envs import Outcome
from serving.usage import Prices, Usage
from speedrunner.results.cost_text import checkpoint_notes
from speedrunner.results.frames import frame_episodes, frame_sleeps
from speedrunner.results.ledger import run_costs
from speedrunner.results.means import SPENT, frame_checkpoints, share_sleeps
from speedrunner.results.pricing import PriceBook
from speedrunner.results.writing import list_rows
from speedrunner.store.records import Policy, PrefixChange, Skill, Termination
from speedrunner.store.run_data import load
from speedrunner.store.rundir import RunDirectory
from speedrunner.store.stored_run import sleep_key
from tests.speedrunner.results.ledgers import play, row
from tests.speedrunner.results.small_runs import SmallRun
from tests.speedrunner.run_samples import sleep

LIST = Prices(uncached=1.0, cached=0.5, output=10.0)
BOOK = PriceBook("a list", LIST)
CONFIG = {"run": {"dir": "x"}, "env": {"name": "babyai"}, "method": {"name": "react"},
          "model": {"name": "tiny-random"}}  # fmt: skip


def skill(name: str, public: bool) -> Skill:
    return Skill(name=name, public=public, created=1, edited=1)


def learn(
    run: RunDirectory, number: int, rollouts: int, *usages: Usage, prefix: PrefixChange | None = None
) -> None:
    """Record a sleep."""
    key = sleep_key(number)
    for usage in usages:
        run.append_request(row(1.0, usage, "inducer", phase="sleep", episode=key, attempt="1"))
    record = sleep(number)
    record.rollouts, record.prefix = rollouts, prefix
    run.write_sleep(record)


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[RunDirectory]:
    with RunDirectory.open_for_writing(tmp_path / "run") as run:
        run.write_config(yaml.safe_dump(CONFIG))
        run.write_policy(Policy(version=0))
        yield run


@pytest.fixture
def run(empty: RunDirectory) -> RunDirectory:
    """Two checkpoints of two test episodes, with two rollouts and a sleep between them."""
    lost = {"outcome": Outcome(0.5, False, {}), "termination": Termination.FAILURE}
    play(empty, "test/0000/0000", Usage(100, 60, 20, 5), Usage(130, 120, 10), **lost)
    play(empty, "test/0000/0001", outcome=None, termination=Termination.ENGINE_ERROR)
    for number in range(2):
        play(empty, f"train/{number:04d}", Usage(1000, 0, 0))
    learn(empty, 1, 2, Usage(0, 0, 400))
    skills = (skill("go", True), skill("helper", False))
    empty.write_policy(Policy(version=1, skills=skills, notes="Mind the gap."))
    for number in range(2):
        play(empty, f"test/0002/{number:04d}", Usage(1000, 800, 10, 4 * number), policy=1)
    return empty


def rows(run: RunDirectory, book: PriceBook = BOOK) -> list[dict[str, Any]]:
    data = load(run.path)
    return list_rows(frame_checkpoints(data, run_costs(data, book)))


def rollouts(run: RunDirectory) -> dict[str, float]:
    data = load(run.path)
    costs = run_costs(data, BOOK)
    found = share_sleeps(frame_episodes(data.episodes, costs), frame_sleeps(data, costs))
    return dict(zip(found["episode"], found["usd"], strict=True))


def test_a_checkpoint_is_the_means_of_its_test_episodes(run: RunDirectory) -> None:
    actor, sleep = 200e-6 + 400e-6 + 100e-6, 2000e-6
    assert rows(run)[1] == {
        "checkpoint": 2,
        **{"planned": 30, "complete": False},
        "policy": 1,
        "cached_share": 0.8,
        "episodes": 2,
        "unscored": 0,
        "refused": 0,
        "silent": 0,
        "call_limit": 0.0,
        "action_limit": 0.0,
        "wall_clock": 0.0,
        "context_overflow": 0.0,
        "repeat_limit": 0.0,
        "limited": 0.0,
        "thought_cut": 0.0,
        "score": 1.0,
        "llm_calls": 1.0,
        "actions": 0.0,
        "repeated_calls": 0.0,
        "uncached": 200.0,
        "cached": 800.0,
        "output": 10.0,
        "actor_usd": pytest.approx(actor),
        "sleep_usd": pytest.approx(sleep),
        "cost_usd": pytest.approx(actor + sleep),
        "rollout_usd": pytest.approx(1000e-6 + sleep),
        "training_uncached": 2000.0,
        "training_cached": 0.0,
        "training_output": 400.0,
        "training_usd": pytest.approx(2 * (1000e-6 + sleep)),
        "public": 1,
        "skills": 2,
        "notes": True,
    }


def test_what_is_unscored_is_left_out_of_all_means_and_counted(run: RunDirectory) -> None:
    first = rows(run)[0]
    assert (first["episodes"], first["unscored"], first["score"]) == (2, 1, 0.5)
    assert [first[name] for name in ("llm_calls", "uncached", "cached", "output")] == [2, 50, 180, 30]
    play(run, "test/0000/0002", outcome=None, termination=Termination.REFUSED)
    first = rows(run)[0]
    assert (first["episodes"], first["unscored"], first["refused"], first["score"]) == (3, 2, 1, 0.5)


def test_an_episode_without_a_request_keeps_its_score_and_is_in_no_mean_of_costs(run: RunDirectory) -> None:
    play(run, "test/0004/0000", Usage(10, 0, 1), policy=1)
    play(
        run,
        "test/0004/0001",
        policy=1,
        outcome=Outcome(0.0, False, {}),
        termination=Termination.CONTEXT_OVERFLOW,
    )
    last = rows(run)[2]
    assert (last["score"], last["silent"], last["context_overflow"]) == (0.5, 1, 0.5)
    assert [last[name] for name in ("llm_calls", "uncached", "output")] == [1, 10, 1]
    assert " 1 sent no request: their score counts, their calls, tokens and USD do not." in checkpoint_notes(
        [last], [BOOK]
    )


def test_a_rollout_without_a_request_is_in_no_mean_of_costs_either(empty: RunDirectory) -> None:
    play(empty, "train/0000", Usage(1000, 0, 0))
    play(empty, "train/0001", outcome=Outcome(0.0, False, {}), termination=Termination.CONTEXT_OVERFLOW)
    learn(empty, 1, 2, Usage(0, 0, 400))
    empty.write_policy(Policy(version=1))
    play(empty, "test/0002/0000", Usage(10, 0, 0), policy=1)
    (found,) = rows(empty)
    assert found["rollout_usd"] == pytest.approx(1000e-6 + 2000e-6)
    assert found["training_usd"] == pytest.approx(1000e-6 + 2 * 2000e-6)


LIMITS = (
    Termination.CALL_LIMIT,
    Termination.ACTION_LIMIT,
    Termination.WALL_CLOCK,
    Termination.CONTEXT_OVERFLOW,
    Termination.REPEAT_LIMIT,
)


def test_each_limit_has_the_share_of_test_episodes_that_it_ended(run: RunDirectory) -> None:
    for number, termination in enumerate((*LIMITS, Termination.CALL_LIMIT, Termination.FAILURE)):
        play(run, f"test/0004/{number:04d}", Usage(10, 0, 1), policy=1, termination=termination)
    first, _, last = rows(run)
    assert [last[name.value] for name in LIMITS] == pytest.approx([2 / 7] + [1 / 7] * 4)
    assert (first["limited"], last["limited"]) == (0.0, pytest.approx(6 / 7))


def test_thinking_closed_at_its_budget_is_a_share_of_the_answers_that_count(run: RunDirectory) -> None:
    usages = Usage(10, 0, 1), Usage(20, 0, 1), Usage(30, 0, 1)
    play(run, "test/0004/0000", *usages, policy=1)
    close_thinking(run, "test/0004/0000", answers=2)
    labels = {"phase": "test", "episode": "test/0004/0000", "attempt": "1"}
    wasted = row(9.0, Usage(5, 0, 5), status="aborted", **labels)
    run.append_request(msgspec.structs.replace(wasted, thought_cut=True))
    *before, last = rows(run)
    assert last["thought_cut"] == pytest.approx(2 / 3)
    assert [row["thought_cut"] for row in before] == [0.0, 0.0]


def close_thinking(run: RunDirectory, episode: str, answers: int) -> None:
    """Mark the thinking of an episode's first answers in the ledger as closed at its budget."""
    found = [msgspec.json.decode(line) for line in (run.path / "requests.jsonl").read_bytes().splitlines()]
    for each in [each for each in found if each["labels"].get("episode") == episode][:answers]:
        each["thought_cut"] = True
    (run.path / "requests.jsonl").write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in found))


def test_without_a_price_there_is_no_cost_and_everything_else_stays(run: RunDirectory) -> None:
    unpriced = rows(run, PriceBook("none", None))[1]
    assert {unpriced[name] for name in ("actor_usd", "cost_usd", "rollout_usd", "training_usd")} == {None}
    assert (unpriced["score"], unpriced["cached"]) == (1.0, 800)


def test_a_rollout_costs_its_requests_and_its_share_of_the_sleep_after_it(empty: RunDirectory) -> None:
    own = Usage(prompt=1000, cached=600, completion=10)  # 400 + 300 + 100 = 800 millionths
    play(empty, "train/0000", own)
    play(empty, "train/0001", own, own)
    learn(empty, 1, 2, Usage(2000, 0, 0), Usage(0, 0, 400))  # 2000 + 4000 millionths over two rollouts
    assert rollouts(empty) == pytest.approx({"train/0000": 3800e-6, "train/0001": 4600e-6})


def test_each_sleep_is_spread_over_its_own_batch(empty: RunDirectory) -> None:
    for number, policy in enumerate([0, 0, 1, 2]):
        play(empty, f"train/{number:04d}", Usage(), policy=policy)
    learn(empty, 1, 2, Usage(completion=1000))
    learn(empty, 2, 1, Usage(completion=2000))
    assert rollouts(empty) == pytest.approx(
        {"train/0000": 0.005, "train/0001": 0.005, "train/0002": 0.02, "train/0003": 0.0}
    )


def test_training_has_taken_the_tokens_of_all_roles_and_sleeps_until_a_checkpoint(
    empty: RunDirectory,
) -> None:
    for point, version in ((0, 0), (2, 1), (3, 2)):
        play(empty, f"test/{point:04d}/0000", Usage(1, 0, 1), policy=version)
    for number, policy in enumerate([0, 0, 1]):
        play(empty, f"train/{number:04d}", Usage(100, 40, 10), policy=policy)
        # The curriculum and the critic of a rollout work under its key.
        labels = {"phase": "train", "episode": f"train/{number:04d}", "attempt": "1"}
        empty.append_request(row(2.0, Usage(50, 0, 5), "critic", **labels))
    learn(empty, 1, 2, Usage(1000, 200, 30))
    learn(empty, 2, 1, Usage(2000, 0, 60))
    for version in (1, 2):
        empty.write_policy(Policy(version=version))
    found = [tuple(row[f"training_{name}"] for name in SPENT[:-1]) for row in rows(empty)]
    assert found == [(0, 0, 0), (2 * 110 + 800, 2 * 40 + 200, 2 * 15 + 30), (3130, 320, 135)]
    by_token = [
        LIST.cost(Usage(int(uncached + cached), int(cached), int(output)))
        for uncached, cached, output in found
    ]
    assert [row["training_usd"] for row in rows(empty)] == pytest.approx(by_token)
    assert rows(empty, PriceBook("none", None))[-1]["training_output"] == 135


def test_without_a_ledger_tokens_are_those_of_the_turns_and_usd_are_unknown(tmp_path: Path) -> None:
    small = SmallRun(tmp_path / "run")
    small.policy(0, {})
    small.train(0, (None, None))
    small.sleep(1)
    data = load(small.path)
    costs = run_costs(data, BOOK)
    pairs = [(frame_episodes(data.rows), frame_episodes(data.rows, costs))]
    pairs.append((frame_sleeps(data, None), frame_sleeps(data, costs)))
    for without, ledger in pairs:
        assert without["llm_calls"].tolist() == ledger["llm_calls"].tolist()
        for name in ("uncached", "cached", "output", "reasoning"):
            assert without[name].tolist() == ledger[name].tolist(), name
        assert without["usd"].isna().all()
        assert ledger["usd"].min() > 0
