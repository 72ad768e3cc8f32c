"""What the checks of policies and of tokens find in records that were changed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from speedrunner.plain.findings import Finding
from speedrunner.runs.verification.record_checks import check_policies, check_reconciliations
from speedrunner.store.run_data import load
from tests.golden_tables import Golden, table
from tests.scripted_engine import Answer, Request, call
from tests.scripted_runs import Runs, ScriptedRun, script, walker
from tests.tampered_runs import change, copy_of, open_checked, told

pytestmark = pytest.mark.process

STEP = 'LONG = 2\n\n\ndef step() -> str:\n    """Walk."""\n    return walk(LONG)'
TWICE = 'def twice() -> str:\n    """Step twice."""\n    step()\n    return step()'
SPARE = 'def spare() -> str:\n    """Look."""\n    return look()'
BACK = 'def back() -> str:\n    """Walk back."""\n    return walk(1, direction="left")'

FIRST = (call("write_skill", source=f"{STEP}\n\n\n{TWICE}\n\n\n{SPARE}\n\n\n{BACK}", public=True),)
SECOND = (
    call("rename_skill", name="step", new_name="pace"),
    call("edit_skill", name="pace", old='"""Walk."""', new='"""Walk on."""'),
    call("set_visibility", name="spare", public=False),
    call("delete_skill", name="back"),
    call("write_skill", source=BACK, public=True),
    call("edit_skill", name="LONG", old="2", new="1"),
    call("delete_skill", name="nothing"),
)
"""Refused is the last one alone; `twice` is changed by the renaming."""


@pytest.fixture(scope="module")
def edited(shared_corridor: Runs) -> Path:
    """A run of two sleeps that used every kind of edit."""

    def inducer(request: Request) -> Answer:
        return script(walker, SECOND if "def twice" in request.task else FIRST)(request)

    run = shared_corridor(inducer, "run.test_episodes=0").finish()
    (_, second) = run.data.sleeps
    assert [edit.error is None for edit in second.edits] == [True] * 6 + [False]
    return run.dir


def test_every_kind_of_edit_leads_to_the_next_version(edited: Path) -> None:
    check = check_policies(open_checked(edited))
    assert (check.level, told(check)) == ("ok", [])
    assert check.text == "3 versions, made by 7 accepted edits"


def text(old: str, new: str) -> Callable[[Path], None]:
    """A change of the newest library's module."""

    def edit(run: Path) -> None:
        file = run / "policies/v0002/skills.py"
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new))

    return edit


def skill(name: str, **values: Any) -> Callable[[Path], None]:
    """A change of what the newest library's index says of a skill."""

    def edit(record: Any) -> None:
        next(each for each in record["skills"] if each["name"] == name).update(values)

    return lambda run: change(run, "policies/v0002/library.json", edit)


def add_skill(run: Path, name: str) -> None:
    """Add a function to the newest library."""
    file = run / "policies/v0002/skills.py"
    file.write_text(file.read_text() + f"\n\n{SPARE.replace('spare', name)}\n")
    entry = {"name": name, "public": True, "created": 2, "edited": 2}
    change(run, "policies/v0002/library.json", lambda record: record["skills"].append(entry))


def swap_functions(run: Path) -> None:
    """Swap the last two functions of the newest library."""
    file = run / "policies/v0002/skills.py"
    *rest, first, second = file.read_text().rstrip("\n").split("\n\n\n")
    file.write_text("\n\n\n".join([*rest, second, first]) + "\n")

    def swap(record: Any) -> None:
        record["skills"][-2:] = reversed(record["skills"][-2:])

    change(run, "policies/v0002/library.json", swap)


def edits(edit: Callable[[list[Any]], object]) -> Callable[[Path], None]:
    """A change of the edits of the second sleep."""
    return lambda run: change(run, "sleeps/0002.json", lambda record: edit(record["edits"]))


NO_CHANGE = {"action": "edit", "name": "twice", "old": "Step twice.", "new": "Step twice."}


def argument(number: int, **values: Any) -> Callable[[Path], None]:
    """Return a change of one edit of the second sleep."""
    return edits(lambda all_: all_[number].update(values))


def write(file: str, content: str) -> Callable[[Path], object]:
    """Another content of a file."""
    return lambda run: (run / file).write_text(content)


CHANGES: dict[str, Callable[[Path], object]] = {
    "a text": text("Step twice.", "Step twice!"),
    "a shared constant": text("LONG = 1", "LONG = 3"),
    "a visibility": skill("twice", public=False),
    "an age": skill("spare", created=0),
    "an edit's age": skill("pace", edited=1),
    "a function that no edit adds": lambda run: add_skill(run, "more"),
    "a rename that is left out": edits(lambda all_: all_.pop(0)),
    "another new name": argument(0, new_name="go"),
    "another text": argument(1, new='"""Walk far."""'),
    "an old text that does not occur": argument(1, old="Run."),
    "another source": argument(4, source=BACK.replace("left", "right")),
    "another visibility": argument(4, public=False),
    "an edit that is left out": edits(lambda all_: all_.pop(1)),
    "no visibility": edits(lambda all_: all_.pop(2)),
    "no write": edits(lambda all_: all_.pop(4)),
    "no deletion": edits(lambda all_: all_.pop(3)),
    "an edit too many": edits(lambda all_: all_.append(NO_CHANGE)),
    "an edit of what is not there": edits(lambda all_: all_[-1].update(error=None)),
    "another order": swap_functions,
    "a version": lambda run: change(run, "policies/v0002/library.json", lambda it: it.update(version=3)),
    "a version that is missing": lambda run: shutil.rmtree(run / "policies/v0001"),
    "a version that no sleep has made": lambda run: (run / "sleeps/0001.json").unlink(),
    "a module that is no Python": write("policies/v0001/skills.py", "def ("),
    "notes in the first version": write("policies/v0000/notes.md", "Run."),
}
"""Changes of a run by what they change."""


def test_each_change_is_found(edited: Path, tmp_path: Path, golden: Golden) -> None:
    found = {}
    for number, (name, edit) in enumerate(CHANGES.items()):
        run = copy_of(edited, tmp_path / str(number))
        edit(run)
        found[name] = "\n".join(told(check_policies(open_checked(run)))).replace(str(run), "RUN")
    golden("verification/changed_policies.txt", table(found))


async def test_a_library_of_another_run_of_which_the_method_shows_every_skill(corridor: Runs) -> None:
    first = corridor(script(walker, (call("write_skill", source=SPARE, public=False),)), "run.rollouts=2")
    first.name = "first"
    await first.play("run.test_episodes=0")
    run = corridor(script(), f"run.start_from={first.dir}", "method.visibility=all_public", "run.rollouts=2")
    await run.play("run.test_episodes=0")
    before, after = (run.data.policies.load(version).skills[0] for version in (0, 1))
    assert (before.public, after.public) == (False, True)
    assert told(check_policies(open_checked(run.dir))) == []


def check_sums(run: Path, *, is_finished: bool = True) -> Finding:
    verified = open_checked(run)
    verified.is_finished = is_finished
    return check_reconciliations(verified)


def row_of(run: Path, episode: str) -> int:
    """The first row of the ledger that is an episode's."""
    lines = (run / "requests.jsonl").read_text().splitlines()
    return next(n for n, line in enumerate(lines) if json.loads(line)["labels"].get("episode") == episode)


def more(record: Any) -> None:
    record["usage"]["prompt"] += 1


@pytest.fixture
def run(learnt: ScriptedRun, tmp_path: Path) -> Path:
    """A copy of the finished run, to be changed."""
    return copy_of(learnt.dir, tmp_path)


@pytest.mark.parametrize("key", ["train/0001", "test/0002/0000", "sleep/0001"])
def test_a_row_of_the_ledger(run: Path, key: str) -> None:
    change(run, "requests.jsonl", more, row_of(run, key))
    (found,) = told(check_sums(run))
    assert found.startswith(f"{key}: tokens of its turns and of its rows in the ledger")


def test_a_prompt_that_is_shorter_than_what_it_continues(run: Path) -> None:
    def edit(record: Any) -> None:
        record["agents"][0]["turns"][1]["usage"] |= {"prompt": 3, "cached": 0}

    change(run, "sleeps/0001.json", edit)
    first, *_ = told(check_sums(run))
    assert first.startswith("sleep/0001: tokens of its turns")
    assert any(
        each.startswith("sleep/0001, turn 2: its prompt has 3 tokens") for each in told(check_sums(run))
    )


def test_a_row_of_an_episode_that_is_not_there(run: Path) -> None:
    place = row_of(run, "train/0001")
    change(run, "requests.jsonl", lambda row: row["labels"].update(episode="train/0099"), place)
    found = told(check_sums(run))
    assert any("it has tokens of train/0099, attempt 1, which is not recorded" in each for each in found)
    assert len(told(check_sums(run, is_finished=False))) == 1  # which lacks its tokens


@pytest.mark.parametrize(("name", "value"), [("score", 0.5), ("checkpoint", 1), ("actions", 99)])
def test_a_summary_row(run: Path, name: str, value: float) -> None:
    change(run, "episodes.jsonl", lambda row: row.update({name: value}), 3)
    (difference,) = told(check_sums(run))
    assert difference.startswith(f"{load(run).episodes[3].episode}: its row in episodes.jsonl")


def test_summary_rows_that_are_missing_or_twice(run: Path) -> None:
    lines = (run / "episodes.jsonl").read_text().splitlines(keepends=True)
    first = load(run).episodes[0].episode
    (run / "episodes.jsonl").write_text("".join([*lines[1:], lines[2]]))
    twice, missing = told(check_sums(run))
    assert twice == "episodes.jsonl: 1 rows occur twice"
    assert missing == f"{first}: it has no row in episodes.jsonl"
    assert told(check_sums(run, is_finished=False)) == [twice]


def test_counters_of_the_run_s_own_engine(run: Path) -> None:
    def edit(row: Any) -> None:
        row["engine"]["generated"] += 1
        row["ours"] = True

    change(run, "reconciliation.jsonl", edit)
    (found,) = told(check_sums(run))
    assert found.startswith("reconciliation.jsonl: counters of the engine, which no one else used")
