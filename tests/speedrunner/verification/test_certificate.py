"""Certificates: equal hashes, the first seed that differs, and certificates of something else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from envs import InvalidOption, Task, splits
from envs.env_registry import ENVIRONMENTS
from speedrunner.config.findings import Finding
from speedrunner.store.json_records import read_record
from speedrunner.verification.certificate import (
    BUNDLED,
    MOST_CALLS,
    PLAYS,
    Certificate,
    certified_tasks,
    certify,
    find_bundled,
    repeat_plays,
)
from speedrunner.verification.verify import verify
from tests.scripted_runs import ScriptedRun, complaint, in_process
from tests.tampered_runs import names
from tests.toy_env import Corridor

pytestmark = pytest.mark.process

CORRIDOR = Corridor.name


class Sign(Corridor):
    """A corridor with a sign that Python's random hashes determine."""

    def _view(self) -> str:
        return f"{super()._view()} A sign says {hash('flag')}."


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of the corridor, as the command writes it."""
    path = tmp_path_factory.mktemp("certificates") / "corridor.json"
    done = in_process("check", "env", CORRIDOR, "--calls", "12", "--certificate", str(path))
    assert done.returncode == 0, done.stdout
    assert f"certificate: 6 random plays are hashed in {path}; their digest is " in done.stdout
    return path


def tampered(written: Path, folder: Path, **changes: Any) -> Path:
    """Write a copy of a certificate with other values; `hash` changes the play of seed 3."""
    content = json.loads(written.read_text())
    if "hash" in changes:
        content["plays"][3]["hash"] = changes.pop("hash")
    path = folder / "other.json"
    path.write_text(json.dumps(content | changes))
    return path


def test_it_has_plays_of_training_and_held_out_tasks_with_their_context(written: Path) -> None:
    found = read_record(written, Certificate)
    split = splits(CORRIDOR)
    assert found.tasks() == [*split.train, *split.test]  # the toy has fewer than ten
    assert len({each.hash for each in found.plays}) == len(found.plays)
    assert (found.env, found.options) == (CORRIDOR, {"pit": -5, "numbers": 0})
    assert {"python", "speedrunner"} <= found.versions.keys()


def test_the_digest_follows_the_plays_and_not_the_machine(written: Path, tmp_path: Path) -> None:
    found = read_record(written, Certificate)
    elsewhere = read_record(tampered(written, tmp_path, machine="Plan9 mips"), Certificate)
    assert elsewhere.digest == found.digest
    assert read_record(tampered(written, tmp_path, hash="0"), Certificate).digest != found.digest


async def test_equal_plays_are_reported_with_the_other_machine(written: Path, tmp_path: Path) -> None:
    other = tampered(written, tmp_path, machine="Plan9 mips")
    found = await repeat_plays(read_record(other, Certificate), str(other), CORRIDOR, {}, 60)
    assert found.level == "ok"
    assert "made on Plan9 mips with python" in found.text


def test_the_first_seed_that_differs_is_reported_with_both_hashes(written: Path, tmp_path: Path) -> None:
    other = tampered(written, tmp_path, hash="0" * 64, versions={"speedrunner": "0.0.9"})
    known = read_record(written, Certificate).plays[3]
    done = in_process("check", "env", CORRIDOR, "--calls", "12", "--compare", str(other))
    assert done.returncode == 1
    assert (
        f"seed 3 ({known.task.name}, {known.task.index}) has the hash {known.hash} here, and {'0' * 64}"
        in done.stdout
    )
    assert "speedrunner 0.1.0 here" in done.stdout


async def test_an_environment_that_differs_between_processes_gets_none() -> None:
    found = await certify(Sign.name, {}, [Task(Sign.name, "default", 3)], 5, 60)
    assert isinstance(found, Finding)
    assert found.level == "failed"
    assert "determinism: seed 0 " in found.text


async def test_a_certificate_of_other_options_is_refused(written: Path) -> None:
    known = read_record(written, Certificate)
    with pytest.raises(InvalidOption, match=r"is the certificate of .* pit=-5 .*, not of .* pit=-9 "):
        await repeat_plays(known, "corridor.json", CORRIDOR, {"pit": -9}, 60)


def test_a_file_that_is_no_certificate_is_an_error_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "none.json"
    path.write_text('{"env": 3}')
    line = complaint(in_process("check", "env", CORRIDOR, "--calls", "3", "--compare", str(path)))
    assert str(path) in line


@pytest.mark.parametrize("changes", [{"plays": []}, {"calls": 0}, {"calls": MOST_CALLS + 1}])
def test_a_certificate_that_compares_nothing_or_takes_forever_is_refused(
    written: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(json.loads(written.read_text()) | changes))
    refused = complaint(in_process("check", "env", CORRIDOR, "--compare", str(path)))
    assert "is not a valid Certificate" in refused


class TestVerify:
    async def test_the_comparison_ends_with_the_time_of_the_verification(
        self, learnt: ScriptedRun, written: Path
    ) -> None:
        found = await verify(
            learnt.dir, print, lambda check: None, names(learnt.dir), limit_s=0, certificate=written
        )
        assert (found.findings[-1].name, found.findings[-1].level) == ("certificate", "not checked")

    async def test_it_compares_the_run_s_environment(self, learnt: ScriptedRun, written: Path) -> None:
        found = await verify(learnt.dir, print, lambda check: None, names(learnt.dir), certificate=written)
        assert found.findings[-1].name == "certificate"
        assert found.findings[-1].level == "ok"

    async def test_a_difference_fails(self, learnt: ScriptedRun, written: Path, tmp_path: Path) -> None:
        other = tampered(written, tmp_path, hash="0" * 64)
        found = await verify(learnt.dir, print, lambda check: None, names(learnt.dir), certificate=other)
        assert not found.passed


class TestBundled:
    @pytest.mark.parametrize("env", [each for each in ENVIRONMENTS if each != "openenv"])
    def test_each_environment_has_one_that_applies(self, env: str) -> None:
        options = {"family": 4} if env == "scienceworld" else {}
        tasks = splits(env, **options).train
        found = find_bundled(env, options, tasks)
        assert found is not None
        path, certificate = found
        assert path.parent == BUNDLED
        assert certificate.tasks() == certified_tasks(env, options)
        assert len(certificate.plays) == PLAYS

    def test_other_rules_have_none(self) -> None:
        assert find_bundled("babyai", {"num_dists": 4}, splits("babyai").train) is None
        assert find_bundled(CORRIDOR, {}, splits(CORRIDOR).train) is None
