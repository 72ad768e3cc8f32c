"""Libraries as agent skills, checked by the reference library of the format."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from skills_ref import read_properties, validate
from skills_ref.parser import parse_frontmatter

from speedrunner.library.library import Library
from speedrunner.results.export.skill_package import write_package
from speedrunner.store.run_data import load
from tests.scripted_runs import complaint, in_process
from tests.speedrunner.results.small_runs import SmallRun
from tests.speedrunner.store.test_stored_format import STORED


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packages")
    out = folder / "babyai-skills"
    words = ("export", str(STORED), "--to", "skills", "--out", str(out))
    done = in_process(*words)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"2 public skills of {STORED}:1 written to {out}\n"
    return out


def test_the_format_s_own_validator_accepts_it(package: Path) -> None:
    assert validate(package) == []
    found = read_properties(package)
    assert found.name == "babyai-skills"
    assert "go_to_thing, pick_up_thing" in found.description
    assert found.metadata["run-sha256"] == load(STORED).digest
    assert found.license == "Written by the model tiny, under the terms of this model"


def test_its_page_shows_the_functions_and_the_model_s_caveat(package: Path) -> None:
    _, body = parse_frontmatter((package / "SKILL.md").read_text())
    assert "Caveat: tiny: a teaching model" in body
    assert "    go_to_thing(thing: str)\n        Walk until a thing" in body
    assert "    turn_left()\n        Turn left by 90 degrees" in body


def test_hostile_texts_stay_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = SmallRun(tmp_path / "run")
    run.policy(0, {})
    run.policy(1, {"home": "return walk()"})
    data = load(tmp_path / "run")
    found = data.policies.load(1)
    doc = "Go.\n\n    ```\n    # A heading\n    ````\n    ---\n    \x1b[31m<script>"
    policy = msgspec.structs.replace(found, module=found.module.replace("Go.", doc))
    policies = data.policies
    monkeypatch.setattr(type(policies), "load", lambda self, version: policy)
    monkeypatch.setattr("speedrunner.results.export.skill_package.caveats", lambda processes: ["<img src=x>"])
    out = tmp_path / "hostile"
    write_package(data, 1, Library(()).of(policy), out)
    assert validate(out) == []
    properties = read_properties(out)
    assert properties.name == "hostile"
    _, body = parse_frontmatter((out / "SKILL.md").read_text())
    assert "        # A heading\n" in body
    assert "\x1b" not in body
    outside = "\n".join(line for line in body.splitlines() if not line.startswith("    "))
    assert not any(mark in outside for mark in ("<script>", "<img", "```", "# A heading"))


@pytest.mark.parametrize("name", ["Skills", "my_skills", "a--b", "-a", "a" * 65, "täst"])
def test_a_folder_whose_name_is_no_name_of_a_skill_is_refused(tmp_path: Path, name: str) -> None:
    words = ("export", str(STORED), "--to", "skills", "--out", str(tmp_path / name))
    assert "the folder's name becomes the name of the skill" in complaint(in_process(*words))
    assert not (tmp_path / name).exists()


def test_a_library_without_skills_is_refused(tmp_path: Path) -> None:
    words = ("export", f"{STORED}:0", "--to", "skills", "--out", str(tmp_path / "skills"))
    assert complaint(in_process(*words)) == f"{STORED}: policy v0000 has no skills to export"
