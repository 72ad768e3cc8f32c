"""ATIF trajectories of a run, read by the format's own package, and what an import refuses."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from atif import Trajectory as Atif

from serving.conversation import TokenIds
from serving.model_config import ModelConfig
from serving.tokens.tokenizer import ChatTokenizer
from speedrunner.export import atif, atif_steps
from speedrunner.export.atif_import import import_run
from speedrunner.export.atif_steps import in_order, steps_of, turns_of
from speedrunner.store.checksums import find_changed
from speedrunner.store.files import StorageError
from speedrunner.store.json_records import write_record
from speedrunner.store.records import CallNode, Message, Turn
from speedrunner.store.run_data import RunData, load
from tests.golden_tables import Golden, table
from tests.round_trips import check_round_trip, records
from tests.scripted_engine import ScriptedEngine
from tests.scripted_runs import LEARN, SCHEDULE, ScriptedRun, complaint, in_process, roomy, script, walker
from tests.speedrunner.run_samples import trajectory
from tests.speedrunner.store.test_stored_format import STORED

pytestmark = pytest.mark.process

Json = dict[str, Any]


@pytest.fixture(scope="module")
def run(learnt: ScriptedRun) -> RunData:
    return learnt.data


@pytest.fixture(scope="module")
def exported(run: RunData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("exported") / "out"
    done = in_process("export", str(run.path), "--to", "atif", "--out", str(out))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"12 trajectories of 1 runs written to {out}\n"
    return out / "run"


def opened(path: Path) -> Atif:
    return Atif.model_validate_json(path.read_bytes())


class TestATrajectory:
    def test_has_the_system_prompt_and_the_tool_definitions(self, run: RunData, exported: Path) -> None:
        found = opened(exported / "evaluations/0004/00001-0000.json")
        episode = run.evaluations(4)[0]
        assert found.schema_version == "ATIF-v1.8"
        assert [step.source for step in found.steps[:2]] == ["system", "user"]
        assert found.steps[0].message == episode.turns[0].messages[0].content
        assert found.agent.tool_definitions is not None
        names = [each["function"]["name"] for each in found.agent.tool_definitions]
        assert {"walk", "look", "to_flag"} <= set(names)
        assert found.agent.model_name == "tiny-random"
        assert found.notes is None

    def test_has_the_tools_of_an_inducer(self, exported: Path) -> None:
        found = opened(exported / "sleeps/0001/agent-0000.json")
        assert found.agent.tool_definitions is not None
        assert "write_skill" in [each["function"]["name"] for each in found.agent.tool_definitions]
        assert found.final_metrics is not None
        assert found.final_metrics.extra is not None
        assert found.final_metrics.extra["termination"] == "submitted"

    def test_has_tokens_termination_and_score(self, run: RunData, exported: Path) -> None:
        found = opened(exported / "trajectories/batch_0000/00001-0000.json").final_metrics
        episode = next(run.played("train"))
        assert found is not None
        usage = episode.usage
        assert (found.total_prompt_tokens, found.total_cached_tokens) == (usage.prompt, usage.cached)
        assert found.total_completion_tokens == usage.completion
        assert found.extra == {
            "reasoning_tokens": usage.reasoning,
            "termination": "success",
            "score": 1.0,
            "success": True,
        }

    def test_has_the_primitives_of_a_skill_as_steps_without_a_model(self, exported: Path) -> None:
        steps = opened(exported / "evaluations/0004/00001-0000.json").steps
        answer, *below = (step for step in steps if step.source == "agent")
        calls = [step.tool_calls[0].function_name for step in (answer, *below) if step.tool_calls]
        assert calls == ["to_flag", "look", "walk"]
        assert [step.llm_call_count for step in (answer, *below)] == [1, 0, 0]
        assert answer.metrics is not None
        assert answer.timestamp is not None
        seen = below[1].observation
        assert seen is not None
        assert seen.results[0].content == "You are at the flag."

    def test_shows_a_reply_as_the_observation_of_its_call(self, run: RunData, exported: Path) -> None:
        steps = opened(exported / "trajectories/batch_0000/00001-0000.json").steps
        first, second = next(run.played("train")).turns[:2]
        answer = steps[2]
        assert answer.observation is not None
        assert answer.tool_calls is not None
        (result,) = answer.observation.results
        assert (result.content, result.source_call_id) == (
            second.messages[0].content,
            answer.tool_calls[0].tool_call_id,
        )
        assert answer.message == first.text


class TestTokenIds:
    def test_are_those_of_the_engine_s_requests_if_the_run_recorded_them(
        self,
        tmp_path: Path,
        tiny_model_config: ModelConfig,
        tiny_tokenizer: ChatTokenizer,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        with ScriptedEngine(tiny_tokenizer, script(walker, LEARN)) as engine:
            played = ScriptedRun(tmp_path, roomy(tiny_model_config), engine)
            where = f"run.dir={tmp_path / 'run'}"
            done = in_process("run", *SCHEDULE, *played.arguments, "serving.token_ids=true", where)
            assert done.returncode == 0, done.stderr
            requests = [each for each in engine.requests if not (each.warms or each.probes)]
            sent = [each.prompt for each in requests if len(each.prompt) > 1]  # the first one is a ping
        out = ("--out", str(tmp_path / "ids"), "--token-ids")
        done = in_process("export", str(tmp_path / "run"), "--to", "atif", *out)
        assert (done.returncode, done.stderr) == (0, "")
        found = [
            (step.metrics, step.message)
            for path in (tmp_path / "ids").rglob("*-*.json")
            for step in opened(path).steps
            if step.metrics
        ]
        assert sorted(tuple(each.prompt_token_ids or ()) for each, _ in found) == sorted(sent)
        for each, text in found:
            assert len(each.prompt_token_ids or ()) == each.prompt_tokens
            assert len(each.completion_token_ids or ()) == each.completion_tokens
            assert str(text) in tiny_tokenizer.decode(each.completion_token_ids or [])
        copy = check_round_trip(tmp_path / "run", tmp_path)
        played_run = load(copy)
        verified = in_process(
            "verify", str(copy), "--trust", played_run.settings.env.name, *_trusted(played_run)
        )
        assert verified.returncode == 0, verified.stdout
        done = in_process("import", str(tmp_path / "ids/run"), "--out", str(tmp_path / "again"))
        assert done.returncode == 0, done.stderr
        assert records(tmp_path / "again") == records(tmp_path / "run")
        monkeypatch.setattr(atif_steps, "PROMPT_IDS", 1)
        assert atif.write_trajectories(tmp_path / "run", tmp_path / "short", with_ids=True) > 0
        shortened = [opened(each) for each in (tmp_path / "short").rglob("*-*.json")]
        assert {each.notes for each in shortened} == {atif.LONG_PROMPTS}
        assert not any(
            step.metrics.prompt_token_ids for each in shortened for step in each.steps if step.metrics
        )
        import_run(tmp_path / "short", tmp_path / "from short")
        assert records(tmp_path / "from short") == records(tmp_path / "run")

    def test_of_long_prompts_are_left_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        first = Turn([], "", trajectory().usage, 0.5, token_ids=TokenIds(0, [1, 2], [3]))
        second = Turn([], "", trajectory().usage, 0.5, token_ids=TokenIds(3, [4], [5]))
        turns = list(enumerate(msgspec.json.decode(msgspec.json.encode([first, second]))))
        metrics = [step["metrics"] for step in steps_of(turns, {}, None, with_ids=True)]
        assert [each["prompt_token_ids"] for each in metrics] == [[1, 2], [1, 2, 3, 4]]
        monkeypatch.setattr(atif_steps, "PROMPT_IDS", 5)
        steps = steps_of(turns, {}, None, with_ids=True)
        assert not any("prompt_token_ids" in step["metrics"] for step in steps)
        assert [step["metrics"]["completion_token_ids"] for step in steps] == [[3], [5]]
        found = [msgspec.json.encode(in_order(turn, Turn)) for _, turn in turns_of(steps)]
        assert found == [msgspec.json.encode(each) for each in (first, second)]

    def test_a_trajectory_that_no_import_reads_is_refused(
        self, run: RunData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lines = (line for file in run.path.rglob("*.jsonl") for line in file.read_bytes().splitlines())
        monkeypatch.setattr("speedrunner.store.files.RECORD_BYTES", max(map(len, lines)) + 1)
        with pytest.raises(StorageError, match=r"as trajectory 0000\d-0000, has more than"):
            atif.write_trajectories(run.path, tmp_path / "atif")

    def test_a_run_without_them_is_not_exported_with_them(self, run: RunData, tmp_path: Path) -> None:
        out = ("--out", str(tmp_path / "ids"), "--token-ids")
        done = in_process("export", str(run.path), "--to", "atif", *out)
        assert "has no token ids: only runs with serving.token_ids=true record them" in done.stderr
        assert not any("token_ids" in path.read_text() for path in run.path.glob("trajectories/*"))


class TestTheRoundTrip:
    def test_gives_the_same_files_and_a_green_verification(
        self, run: RunData, exported: Path, tmp_path: Path
    ) -> None:
        copy = tmp_path / "runs" / "copy"
        done = in_process("import", str(exported), "--out", str(copy))
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"10 episodes and 2 sleeps imported into {copy}\n"
        assert records(copy) == records(run.path)
        assert {path.stat().st_mode & 0o077 for path in (copy, *copy.rglob("*"))} == {0}
        verified = in_process("verify", str(copy), "--trust", run.settings.env.name, *_trusted(run))
        assert verified.returncode == 0, verified.stdout

    def test_of_a_run_of_an_earlier_version(self, tmp_path: Path) -> None:
        check_round_trip(STORED, tmp_path)
        found = opened(next((tmp_path / "atif").rglob("batch_0000/00001-0000.json")))
        assert found.agent.tool_definitions is None
        assert found.notes == "The run has no record of the tools that this conversation was offered."

    def test_of_an_episode_without_an_answer(self, run: RunData, tmp_path: Path) -> None:
        copy = Path(shutil.copytree(run.path, tmp_path / "run"))
        (copy / "trajectories/batch_0000.jsonl").write_bytes(
            msgspec.json.encode(trajectory(turns=[], outcome=None, error="The world broke.")) + b"\n"
        )
        check_round_trip(copy, tmp_path)
        (step,) = opened(next((tmp_path / "atif").rglob("batch_0000/00001-0000.json"))).steps
        assert (step.source, step.message) == ("system", "No request was answered.")

    def test_of_carried_history(self, run: RunData, tmp_path: Path) -> None:
        copy = Path(shutil.copytree(run.path, tmp_path / "run"))
        for name in ("trajectories", "sleeps", "policies", "config.yaml"):
            (shutil.copytree if (run.path / name).is_dir() else shutil.copy)(
                run.path / name, _made(copy / "carried/0000") / name
            )
        check_round_trip(copy, tmp_path)
        assert list((tmp_path / "atif").rglob("carried/0000/sleeps/0001/agent-0000.json"))
        assert not list((tmp_path / "atif").rglob("records/carried/0000/trajectories"))

    @pytest.mark.parametrize(
        "result", [None, "text", 1, 1.0, True, [1, {"a": None}], {"deep": [[[]]]}, 2**60, "\x1b[2J\x00\u2028"]
    )
    def test_of_every_kind_of_result(self, result: object) -> None:
        inner = CallNode("look", "primitive", {"at": 1.0}, result, actions=1, line=3)
        outer = CallNode(
            "skill", "skill", {}, result, calls=[inner, CallNode("x", "primitive", {}, error="no")]
        )
        turn = Turn([Message("user", "go")], "text", trajectory().usage, 0.5, executed=outer)
        plain = msgspec.json.decode(msgspec.json.encode(turn))
        steps = msgspec.json.decode(msgspec.json.encode(steps_of([(4, plain)], {}, None)))
        ((number, found),) = turns_of(steps)
        assert (number, msgspec.json.encode(in_order(found, Turn))) == (4, msgspec.json.encode(turn))

    def test_of_a_run_that_continues_during_the_export(
        self, run: RunData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        copy = Path(shutil.copytree(run.path, tmp_path / "run"))
        index, whole = copy / "episodes.jsonl", (run.path / "episodes.jsonl").read_bytes()
        index.write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]))
        checksums = {name: each for name, each in run.state.checksums.items() if name != index.name}
        write_record(copy / "state.json", msgspec.structs.replace(run.state, checksums=checksums))
        copy_file = atif._copy

        def copy_and_continue(source: Path, target: Path) -> None:
            copy_file(source, target)
            if source == index:  # the run records another episode, then its checksums
                index.write_bytes(whole)
                shutil.copy(run.path / "state.json", copy)

        monkeypatch.setattr(atif, "_copy", copy_and_continue)
        atif.write_trajectories(copy, tmp_path / "atif")
        imported = import_run(tmp_path / "atif", tmp_path / "imported")
        assert list(find_changed(imported.path, imported.state.checksums)) == []

    def test_loses_nothing_silently(self, run: RunData, tmp_path: Path) -> None:
        copy = Path(shutil.copytree(run.path, tmp_path / "run"))
        file = copy / "trajectories/batch_0000.jsonl"
        file.write_bytes(file.read_bytes().replace(b'"seconds":', b'"seconds" :', 1))
        done = in_process("export", str(copy), "--to", "atif", "--out", str(tmp_path / "out"))
        assert complaint(done) == f"{file}, line 1, has values that a trajectory cannot hold without loss"
        assert not list(tmp_path.glob("*out*"))


def _trusted(run: RunData) -> list[str]:
    return ["--trust", run.settings.model.name]


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def change(path: Path, edit: Callable[[Json], None]) -> None:
    document = json.loads(path.read_bytes())
    edit(document)
    path.write_text(json.dumps(document))


FIRST = "trajectories/batch_0000/00001-0000.json"


def _without_steps(document: Json) -> None:
    del document["steps"]


def _of_another_version(document: Json) -> None:
    document["schema_version"] = "ATIF-v1.5\x1b[2J"


def _without_note(document: Json) -> None:
    del document["extra"]


def _of_a_newer_note(document: Json) -> None:
    document["extra"]["speedrunner"]["format"] = 9


def _without_turn(document: Json) -> None:
    del document["steps"][2:]


def _without_calls(document: Json) -> None:
    document["steps"][2]["extra"] = {}


def _of_wrong_content(document: Json) -> None:
    document["extra"]["speedrunner"]["episode"]["termination"] = "\x1b[31mnever"


def _of_parts(document: Json) -> None:
    document["steps"][0]["message"] = [{"type": "text", "text": "hi"}]


def _trajectory(edit: Callable[[Json], None]) -> Callable[[Path], object]:
    return lambda copy: change(copy / FIRST, edit)


def _grow(name: str) -> Callable[[Path], object]:
    """Append 100 MB of zeros, which take no room on the disk."""
    return lambda copy: os.truncate(copy / name, (copy / name).stat().st_size + 100 * 2**20)


def _link(name: str) -> Callable[[Path], object]:
    """Put a link in the place of a file or folder."""

    def edit(copy: Path) -> None:
        (copy / name).resolve().rename(copy.parent / "private")
        (copy / name).symlink_to(copy.parent / "private")

    return edit


def _of_another_tool(copy: Path) -> None:
    shutil.rmtree(copy)
    (_made(copy) / "trajectory.json").write_text('{"schema_version": "ATIF-v1.8"}')


YAML = "!!python/object/apply:os.system ['true']"
CHANGES: dict[str, Callable[[Path], object]] = {
    "a trajectory without steps": _trajectory(_without_steps),
    "a trajectory of another version": _trajectory(_of_another_version),
    "a trajectory without our note": _trajectory(_without_note),
    "a trajectory with a newer note": _trajectory(_of_a_newer_note),
    "a trajectory without a turn": _trajectory(_without_turn),
    "a trajectory without calls": _trajectory(_without_calls),
    "a trajectory with wrong content": _trajectory(_of_wrong_content),
    "a trajectory with parts": _trajectory(_of_parts),
    "trajectories of another tool": _of_another_tool,
    "a missing line": lambda copy: (copy / FIRST).unlink(),
    "lists within lists": lambda copy: (copy / FIRST).write_text("[" * 10_000 + "]" * 10_000),
    "a configuration that is no YAML": lambda copy: (copy / "records/config.yaml").write_text(YAML),
    **{f"100 MB: {name}": _grow(name) for name in (FIRST, "records/requests.jsonl", "records/config.yaml")},
    **{
        f"a link: {name}": _link(name)
        for name in (FIRST, "records/state.json", ".", "records", "trajectories", "records/policies")
    },
}
"""Changes of an export by what they make of it."""


class TestRefusals:
    def test_each_is_one_line_and_leaves_nothing(
        self, exported: Path, tmp_path: Path, golden: Golden
    ) -> None:
        lines = {}
        for number, (name, edit) in enumerate(CHANGES.items()):
            folder = tmp_path / str(number)
            copy = Path(shutil.copytree(exported, folder / "atif"))
            edit(copy)
            line = complaint(in_process("import", str(copy), "--out", str(folder / "copy")))
            assert "\x1b" not in line
            assert not list(folder.glob("*copy*"))
            lines[name] = re.sub(r"\d{6,}|(?<=line )\d\d", "N", line.replace(str(folder), "HERE"))
        golden("refused_imports.txt", table(lines))

    def test_digits_of_another_script_are_no_number(self, exported: Path, tmp_path: Path) -> None:
        copy = Path(shutil.copytree(exported, tmp_path / "atif"))
        shutil.copytree(
            copy / "trajectories/batch_0000", copy / "trajectories/batch_\u0661\u0661\u0661\u0661"
        )
        shutil.copytree(copy / "records/policies/v0000", copy / "records/policies/v\u0661\u0661\u0661\u0661")
        import_run(copy, tmp_path / "copy")
        assert all(name.isascii() for name in records(tmp_path / "copy"))

    def test_files_that_are_not_of_a_run_are_left_out(self, exported: Path, tmp_path: Path) -> None:
        copy = Path(shutil.copytree(exported, tmp_path / "atif"))
        names = {"lock", "x\x1b.jsonl", ".bashrc", "policies/v0000/.bashrc", "trajectories/batch_0009.jsonl"}
        _made(copy / "records/trajectories")
        for name in names:
            (copy / "records" / name).write_text("mine")
        done = in_process("import", str(copy), "--out", str(tmp_path / "copy"))
        assert done.returncode == 0, done.stderr
        assert not names & records(tmp_path / "copy").keys()
