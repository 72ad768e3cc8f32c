"""The benchmarks' commands: what they read themselves, and the record that `bench gpu` makes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from speedrunner.bench.gpu import steps
from speedrunner.cli.bench_command import numbers
from speedrunner.config.schema import InvalidConfig
from speedrunner.store.run_lock import RunLock
from tests.scripted_runs import Runs, complaint, in_process, script


@pytest.mark.parametrize("text", ["", "1,,4", "0,4", "many"])
def test_what_is_no_list_of_numbers_is_told_with_the_option(text: str) -> None:
    with pytest.raises(
        InvalidConfig, match=r"--in-flight .*: write numbers separated by commas, such as 1,4,16"
    ):
        numbers("--in-flight", text)


class TestGpu:
    """`bench gpu` as a user meets it."""

    def test_a_running_server_gives_what_it_can_and_the_same_command_has_nothing_left(
        self, corridor: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for levels in ("LEVELS", "LOAD_LEVELS"):
            monkeypatch.setattr(steps, levels, (2, 4))
        monkeypatch.setattr(steps, "LEAST_JUDGED", 2)  # no verdict on this machine's speed
        overrides, out = corridor(script()).overrides(), tmp_path / "record"
        done = in_process("bench", "gpu", *overrides, "--minutes=30", f"--out={out}")
        assert done.returncode == 0, done.stderr
        assert "#### Rollouts" in done.stdout
        assert "Remaining" not in done.stdout
        assert done.stdout.endswith(f"The tables were written to {out / 'record.md'}\n")
        files = {path: path.stat().st_mtime_ns for path in out.glob("step-*.json")}
        again = in_process("bench", "gpu", *overrides, "--minutes=8", f"--out={out}")
        assert (again.returncode, again.stdout) == (0, done.stdout)
        assert files == {path: path.stat().st_mtime_ns for path in out.glob("step-*.json")}

    def test_an_engine_that_is_gone_is_the_reason_of_each_step_and_the_command_to_continue_is_named(
        self, corridor: Runs, tmp_path: Path
    ) -> None:
        run, out = corridor(script()), tmp_path / "record"
        run.server.stop()
        done = in_process("bench", "gpu", *run.overrides(), f"--out={out}")
        assert done.returncode == 1
        assert re.search(r"\n\| tools +\| ServerFailed: its server did not start: \S", done.stdout)
        assert "Remaining steps: capacity, tools, " in done.stdout
        assert f"To continue: speedrunner bench gpu {run.overrides()[0]}" in done.stdout
        assert done.stderr.count("error") == 0
        run.server.restart()

    def test_what_it_refuses_is_one_line(self, corridor: Runs, tmp_path: Path) -> None:
        overrides = corridor(script()).overrides()

        def refused(*arguments: str) -> str:
            return complaint(in_process("bench", "gpu", *arguments))

        (tmp_path / "file").write_text("")
        assert "file could not be made: file exists" in refused(*overrides, f"--out={tmp_path / 'file'}")
        unknown = refused(*overrides, f"--out={tmp_path}", "--only=capacity,speed")
        assert "--only speed: the steps here are capacity, tools, cache-probe, utilisation, " in unknown
        done = in_process("bench", "gpu", *overrides, f"--out={tmp_path}", "--only=capacity")
        assert "Remaining" not in done.stdout
        assert "contains a record of tiny-random with other settings" in refused(
            *overrides, "sandbox.memory_mb=1000", f"--out={tmp_path}"
        )
        voyager = refused("method=voyager", "env=crafter", f"--out={tmp_path / 'voyager'}")
        assert voyager.startswith("method=voyager plays an episode in several conversations")
        hosted = refused("model=gpt-5.4-mini", f"--out={tmp_path / 'hosted'}")
        assert "'gpt-5.4-mini' is on the chat API" in hosted
        assert not (tmp_path / "hosted").exists()

    def test_two_at_a_time_in_one_folder_are_refused(self, corridor: Runs, tmp_path: Path) -> None:
        overrides = corridor(script()).overrides()
        with RunLock(tmp_path / "lock"):
            told = complaint(in_process("bench", "gpu", *overrides, f"--out={tmp_path}"))
        assert f"{tmp_path} is in use by process" in told
