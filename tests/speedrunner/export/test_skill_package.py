"""Libraries as agent skills, checked by the reference library of the format."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pytest
from skills_ref import read_properties, validate
from skills_ref.parser import parse_frontmatter
from speedrunner.results.library_label import LibraryLabel, label_library
from speedrunner.verification.certificate import BUNDLED, Certificate

from serving.model_configs import CHECKOUT
from speedrunner.export.skill_package import write_package
from speedrunner.library.library import Library
from speedrunner.store.files import write_shared
from speedrunner.store.json_records import read_record
from speedrunner.store.records import Policy
from speedrunner.store.run_data import load
from tests.scripted_runs import complaint, in_process
from tests.speedrunner.results.small_runs import SmallRun

RECORDED = Path(__file__).parents[2] / "data/format_2"
"""A run of the bundled model, which learnt two public skills."""

CERTIFICATE = BUNDLED / "babyai.json"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packages")
    out = folder / "babyai-skills"
    words = ("library", "export", str(RECORDED), "--to", "skills", "--out", str(out))
    done = in_process(*words, "--certificate", str(CERTIFICATE))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"2 public skills of {RECORDED}:1 written to {out}\n"
    return out


def label_of(package: Path) -> LibraryLabel:
    return msgspec.json.decode((package / "label.json").read_bytes(), type=LibraryLabel)


def test_the_format_s_own_validator_accepts_it(package: Path) -> None:
    assert validate(package) == []
    found = read_properties(package)
    assert found.name == "babyai-skills"
    assert "go_to_thing, pick_up_thing" in found.description
    assert found.license == "Written by the model tiny, under the terms of this model"


def test_its_front_matter_repeats_the_label(package: Path) -> None:
    label, found = label_of(package), read_properties(package).metadata
    assert found["run-sha256"] == label.run_sha256 == load(RECORDED).state.digest
    assert (found["success-with"], found["success-without"]) == ("0.000", "1.000")
    assert found["output-tokens-saved"] == "-156.0"
    assert found["environment-digests"].split()[0] == f"description={label.env_digests['description']}"


def test_its_page_shows_what_was_measured_and_the_model_s_caveat(package: Path) -> None:
    _, body = parse_frontmatter((package / "SKILL.md").read_text())
    assert "| success | 0.000 | 1.000 |  |" in body
    assert "- With the library: policy v0001 after 4 training rollouts; test episodes: 1." in body
    assert "- Caveat: tiny: a teaching model" in body
    assert "go_to_thing(thing: str)\n    Walk until a thing" in body
    assert "turn_left()\n    Turn left by 90 degrees" in body


def test_nothing_of_the_policy_is_lost(package: Path) -> None:
    rest = msgspec.json.decode((package / "policy.json").read_bytes(), type=Policy)
    module = (package / "scripts/skills.py").read_text()
    assert msgspec.structs.replace(rest, module=module) == load(RECORDED).policies.load(1)


def test_a_certificate_is_in_the_label_by_its_digest(package: Path) -> None:
    copied = package / "certificate.json"
    assert copied.read_bytes() == CERTIFICATE.read_bytes()
    assert label_of(package).certificate == read_record(copied, Certificate).digest


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("README.md", "is not a valid Certificate"),
        ("envs/certificates/crafter.json", "crafter.json is the certificate of crafter"),
    ],
)
def test_only_a_certificate_of_the_environment_is_taken(tmp_path: Path, name: str, why: str) -> None:
    words = ("library", "export", str(RECORDED), "--to", "skills", "--out", str(tmp_path / "skills"))
    assert why in complaint(in_process(*words, "--certificate", str(CHECKOUT / name)))
    assert not (tmp_path / "skills").exists()


def test_its_module_can_be_checked_by_itself(package: Path) -> None:
    done = in_process("library", "stats", str(package / "scripts/skills.py"), "--json")
    assert json.loads(done.stdout)["functions"] == 10


def test_hostile_texts_stay_texts(tmp_path: Path) -> None:
    run = SmallRun(tmp_path / "run")
    run.policy(0, {})
    run.policy(1, {"home": "return walk()"})
    data = load(tmp_path / "run")
    found = data.policies.load(1)
    doc = "Go.\n\n    ```\n    # A heading\n    ````\n    ---\n    \x1b[31m<script>"
    policy = msgspec.structs.replace(found, module=found.module.replace("Go.", doc))
    label = msgspec.structs.replace(
        label_library(data, found),
        model='a"b\n---\nname: other',
        licence="---\n[x](http://example.org) <b>",
        caveats=["<img src=x>"],
    )
    out = tmp_path / "hostile"
    write_package(policy, Library(()).of(policy), label, out)
    assert validate(out) == []
    properties = read_properties(out)
    assert properties.name == "hostile"
    assert properties.metadata["model"] == 'a"b --- name: other'
    _, body = parse_frontmatter((out / "SKILL.md").read_text())
    fence = "`````"
    before, block, after = body.partition(f"{fence}\nhome()")
    assert block
    inside, _, after = after.partition(f"\n{fence}\n")
    assert "# A heading" in inside
    assert "\x1b" not in body
    assert not any(mark in before + after for mark in ("<script>", "<img", "<b>", "](http"))


@pytest.mark.parametrize("name", ["Skills", "my_skills", "a--b", "-a", "a" * 65, "täst"])
def test_a_folder_whose_name_is_no_name_of_a_skill_is_refused(tmp_path: Path, name: str) -> None:
    words = ("library", "export", str(RECORDED), "--to", "skills", "--out", str(tmp_path / name))
    assert "the folder's name becomes the name of the skill" in complaint(in_process(*words))
    assert not (tmp_path / name).exists()


def test_a_folder_with_something_in_it_is_refused(package: Path) -> None:
    words = ("library", "export", str(RECORDED), "--to", "skills", "--out", str(package))
    assert complaint(in_process(*words)) == (f"{package} is not an empty folder: name another one with --out")


def test_a_killed_export_leaves_no_folder_that_looks_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "babyai-skills"
    words = ("library", "export", str(RECORDED), "--to", "skills", "--out", str(out))

    def write_or_die(path: Path, content: bytes) -> None:
        if path.name == "label.json":
            raise SystemExit(9)
        write_shared(path, content)

    with monkeypatch.context() as patched:
        patched.setattr("speedrunner.export.skill_package.write_shared", write_or_die)
        patched.setattr("shutil.rmtree", lambda *_, **__: None)  # a kill removes nothing
        assert in_process(*words).returncode == 9
    assert not out.exists()
    assert in_process(*words).returncode == 0
    assert list(tmp_path.iterdir()) == [out]
    assert (out / "label.json").is_file()


def test_a_library_without_skills_is_refused(tmp_path: Path) -> None:
    words = ("library", "export", f"{RECORDED}:0", "--to", "skills", "--out", str(tmp_path / "skills"))
    assert complaint(in_process(*words)) == f"{RECORDED}: policy v0000 has no skills to export"


def test_a_changed_record_is_refused(tmp_path: Path) -> None:
    run = shutil.copytree(RECORDED, tmp_path / "run")
    file = run / "evaluations/0004.jsonl"
    file.write_text(file.read_text().replace("call_limit", "success"))
    words = ("library", "export", str(run), "--to", "skills", "--out", str(tmp_path / "skills"))
    assert "evaluations/0004.jsonl" in complaint(in_process(*words))


def test_a_version_without_test_episodes_is_exported_as_not_measured(tmp_path: Path) -> None:
    run, out = SmallRun(tmp_path / "run"), tmp_path / "skills"
    run.policy(0, {})
    run.policy(1, {"home": "return go_forward()"})
    words = ("library", "export", str(tmp_path / "run"), "--to", "skills", "--out", str(out))
    done = in_process(*words)
    assert done.stdout.splitlines()[1:] == ["not measured: test episodes with the library and without it"]
    assert validate(out) == []
    assert read_properties(out).metadata["success-with"] == "not measured"
