"""Sweeps as batch scripts; tests/slurm hands them to a real Slurm."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from serving.model_config import ModelConfig
from serving.model_configs import CHECKOUT
from serving.tokens.tokenizer import ChatTokenizer
from speedrunner.cluster.jobs import JOBS, JobPart, Submitted, note_jobs
from tests.golden_tables import Golden, table
from tests.scripted_engine import ScriptedEngine
from tests.scripted_runs import LEARN, SCHEDULE, ScriptedRun, complaint, in_process, roomy, script, walker
from tests.stand_in_slurm import last_call, stand_in

pytestmark = pytest.mark.process

GPU = ("cluster=gpu", "--dry-run")
CPU = ("cluster=cpu", "--dry-run")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the commands are called, with a list of two runs, and no command of a Slurm on the PATH."""
    programs = tmp_path_factory.mktemp("programs")
    if sandbox := shutil.which("bwrap"):
        (programs / "bwrap").symlink_to(sandbox)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{Path(sys.executable).parent}:{programs}")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs.yaml").write_text("- {env: babyai, method: react, run.seed: [0, 1]}\n")
    return tmp_path


def printed(*given: str) -> str:
    """What `speedrunner sweep` prints for the list of runs."""
    done = in_process("sweep", "runs.yaml", *given)
    assert done.returncode == 0, done.stderr
    return done.stdout


def options(text: str) -> dict[str, str]:
    """What a script asks Slurm for."""
    pairs = (
        line.removeprefix("#SBATCH --").partition("=") for line in text.splitlines() if "#SBATCH" in line
    )
    return {name: value for name, _, value in pairs}


def command(text: str) -> str:
    (line,) = re.findall(r" sweep (.*)$", text, re.MULTILINE)
    return str(line)


def refused(*given: str) -> str:
    return complaint(in_process("sweep", "runs.yaml", *given))


class TestAScript:
    def test_asks_for_what_the_site_and_the_model_say(self) -> None:
        site = ["cluster.partition=a100", "cluster.account=lab", "cluster.options=[--qos=long]"]
        site += ["cluster.cpus=16", "cluster.memory_gb=128"]
        assert options(printed("model=qwen3.5-27b", *site, *GPU)) == {
            "job-name": "speedrunner-runs",
            **{"partition": "a100", "account": "lab", "nodes": "1", "ntasks-per-node": "1"},
            **{"cpus-per-task": "16", "mem": "128G", "gpus-per-node": "1", "time": "1440"},
            **{"array": "1", "qos": "long", "requeue": "", "open-mode": "append"},
            "output": f'"{Path.cwd()}/runs/jobs/%A_%a.log"',
        }

    @pytest.mark.parametrize(
        ("model", "gpus"),
        [
            (["model=qwen3.5-27b"], "1"),
            (["model=qwen3.5-27b-2gpu"], "2"),
            (["model=qwen3.5-27b-4x48gb"], "4"),
            (["model=qwen3.5-27b-2gpu", "model.replicas=3"], "6"),
            (["model=qwen3.5-27b", "serving.url=http://127.0.0.1:8000"], None),
            (["model=tiny"], None),
        ],
    )
    def test_asks_for_the_gpus_of_its_servers(self, model: list[str], gpus: str | None) -> None:
        assert options(printed(*model, *GPU)).get("gpus-per-node") == gpus

    @pytest.mark.parametrize(
        ("site", "left_out"),
        [
            ("cluster.memory_gb=null", "mem"),
            ("cluster.options=[--mem-per-cpu=1G]", "mem"),
            ("cluster.options=[--gres=gpu:a100:1]", "gpus-per-node"),
            ("cluster.options=[--gpus=1]", "gpus-per-node"),
            ("cluster.options=[--time=0-02:00]", "time"),
        ],
    )
    def test_requests_nothing_twice(self, site: str, left_out: str) -> None:
        usual = options(printed("model=qwen3.5-27b", *GPU))
        own = options(printed("model=qwen3.5-27b", site, *GPU))
        assert {name for name in usual if own.get(name) != usual[name]} == {left_out}

    def test_plays_its_part_with_the_sweep_s_own_words(self) -> None:
        given = ["model=tiny", "run.seed=0,1", "--dir=some where", "--in-flight=8", "--jobs=2"]
        text = printed(*given, *CPU)
        words = "runs.yaml model=tiny run.seed=0,1 '--dir=some where' --in-flight=8"
        assert command(text) == f'{words} --part="$SLURM_ARRAY_TASK_ID/2"'
        assert options(text)["array"] == "1,2"
        assert f"cd {Path.cwd()} || exit 1\n" in text

    def test_plays_inside_a_container_where_one_is_named(self) -> None:
        text = printed("model=tiny", "cluster.container=apptainer exec --nv /images/mine.sif", *CPU)
        assert "\n    apptainer exec --nv /images/mine.sif speedrunner sweep runs.yaml " in text
        assert sys.executable not in text

    @pytest.mark.parametrize("more", [[], ["cluster.setup=module load cuda", "cluster.scratch=/local/$USER"]])
    def test_is_one_that_bash_reads(self, more: list[str]) -> None:
        text = printed("model=tiny", *more, *CPU)
        shell = shutil.which("bash", path="/bin:/usr/bin")
        assert shell is not None
        read = subprocess.run([shell, "-n"], input=text, capture_output=True, text=True, check=False)
        assert (read.returncode, read.stderr) == (0, "")

    @pytest.mark.parametrize(("mode", "is_used"), [(0o700, True), (0o2700, True), (0o777, False)])
    def test_uses_a_scratch_folder_only_if_no_one_else_can_write_there(
        self, folder: Path, mode: int, is_used: bool
    ) -> None:
        own = folder / f"speedrunner-{os.getuid()}"
        own.mkdir()
        own.chmod(mode)
        text = printed("model=tiny", f"cluster.scratch={folder}", *CPU).partition("\ntrap : ")[0]
        script, job = f'{text}\necho "$scratch"\n', {"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": "8"}
        done = subprocess.run(["bash"], input=script, env=job, capture_output=True, text=True, check=True)
        assert (done.stdout.strip() == str(own)) is is_used


def test_models_that_need_other_machines_are_arrays_of_their_own() -> None:
    Path("runs.yaml").write_text("- {env: babyai, method: react, model: [qwen3.5-27b, qwen3.5-27b-2gpu]}\n")
    scripts = re.split(r"^(?=#!)", printed(*GPU), flags=re.MULTILINE)[1:]
    assert [(options(each)["array"], options(each)["gpus-per-node"]) for each in scripts] == [
        ("1", "1"),
        ("2", "2"),
    ]
    assert all(command(each).endswith('--part="$SLURM_ARRAY_TASK_ID/2"') for each in scripts)


def test_what_cannot_be_asked_for_is_one_line(folder: Path, golden: Golden) -> None:
    cases = {
        "no cluster": ["model=tiny", "--jobs=2"],
        "an unknown key": ["cluster=cpu", "cluster.minuets=9"],
        "an unknown model": ["cluster=cpu", "model=tyni"],
        "GPUs of a cluster without": ["cluster=cpu", "model=qwen3.5-27b"],
        "more GPUs than a node has": ["cluster=gpu", "cluster.gpus=3", "model=qwen3.5-27b-4x48gb"],
        "more jobs than runs": ["cluster=cpu", "model=tiny", "--jobs=3"],
        **{
            f"{option!r}": ["model=tiny", "cluster=cpu", option]
            for option in (
                *(f"--dir={name}" for name in ("back\\slash", "two\nlines", "re\rturn", "b\x07ll")),
                *("cluster.partition=a#b", "cluster.account='\"lab\"'", "cluster.options=['--qos=a\\b']"),
            )
        },
    }
    golden(
        "cluster/refused_jobs.txt",
        table({case: refused(*given) for case, given in cases.items()}, HERE=folder, CHECKOUT=CHECKOUT),
    )


class TestWhatIsFinished:
    @pytest.fixture
    def given(self, folder: Path, tiny_model_config: ModelConfig, tiny_tokenizer: ChatTokenizer) -> list[str]:
        """A list of two runs as two parts, of which the first was played."""
        with ScriptedEngine(tiny_tokenizer, script(walker, LEARN)) as engine:
            shared = ScriptedRun(folder, roomy(tiny_model_config), engine).arguments
            given = [*SCHEDULE, *shared, f"--dir={folder / 'done'}"]
            done = in_process("sweep", "runs.yaml", *given, "--part=1/2")
            assert done.returncode == 0, done.stderr
        return given

    def test_is_left_out_and_nothing_to_submit_when_it_is_all(self, given: list[str]) -> None:
        assert options(printed(*given, "--jobs=2", *CPU))["array"] == "2"
        one = "run.seed=0"
        assert refused(*given, one, *CPU) == "1 run, all finished: there is nothing to submit"


class TestADryRun:
    SITE = ("cluster.minutes=90", "cluster.cpus=16", "cluster.memory_gb=128")
    GIVEN = ("model=qwen3.5-27b-2gpu", "--jobs=2", *SITE, *GPU)

    def test_prints_the_jobs_apart_from_their_script(self) -> None:
        done = in_process("sweep", "runs.yaml", *self.GIVEN)
        assert done.stdout.startswith("#!")
        lines = done.stderr.splitlines()
        assert lines[0] == f"site: {CHECKOUT}/configs/cluster/gpu.yaml, default partition"
        rows = [line.split() for line in lines[1:]]
        assert rows[0] == ["job", "runs", "CPUs", "GB", "GPUs", "hours", "GPU-hours"]
        assert rows[1] == ["speedrunner-runs", "1", "1", "16", "128", "2", "1.5", "3"]
        found = json.loads(printed("--json", *self.GIVEN))
        assert found["cluster"].endswith("gpu.yaml")
        assert [each["gpus"] for each in found["arrays"]] == [2]
        assert [file.name for file in Path.cwd().iterdir()] == ["runs.yaml"]


class TestSubmitting:
    GIVEN = ("model=tiny", "cluster=cpu", "--dir=out", "--jobs=2")

    def test_hands_over_what_it_would_print_and_notes_the_jobs(self, folder: Path) -> None:
        dry = printed(*self.GIVEN, "--dry-run")
        stand_in(folder, "sbatch", "12;cluster\n")
        told = printed(*self.GIVEN)
        assert last_call(folder, "sbatch") == (["--parsable"], dry)
        log = folder / "out" / "jobs" / "12_1.log"
        assert told.splitlines()[0] == f"job 12_1: babyai-react-tiny-seed0 (log: {log})"
        assert log.parent.stat().st_mode & 0o777 == 0o700
        noted = json.loads((folder / "out" / JOBS).read_text())
        assert [job["job"] for job in noted["jobs"]] == ["12_1", "12_2"]

    def test_is_refused_with_the_reason(self, folder: Path, golden: Golden) -> None:
        reasons = {"no sbatch": refused(*self.GIVEN)}
        stand_in(folder, "sbatch", refuses="invalid partition specified: a100")
        reasons["sbatch refuses"] = refused(*self.GIVEN)
        assert not (folder / "out" / JOBS).exists()
        golden("cluster/refused_submissions.txt", table(reasons))

    def test_leaves_out_a_part_that_a_job_in_the_queue_plays(self, folder: Path) -> None:
        run = str(folder / "out" / "babyai-react-tiny-seed1")
        (folder / "out").mkdir()
        note_jobs(folder / "out", Submitted([JobPart("7_2", "7_2.log", [run])]))
        stand_in(folder, "squeue", "7_2|PENDING||0|Priority|\n")
        stand_in(folder, "sbatch", "12\n")
        shown = printed(*self.GIVEN).splitlines()
        assert shown[0] == "part 2 is not submitted: job 7_2, which is pending, plays it"
        assert shown[1].startswith("job 12_1: babyai-react-tiny-seed0")
        stand_in(folder, "squeue", "7_2|PENDING||0|Priority|\n12_1|RUNNING|a1|0||\n")
        assert refused(*self.GIVEN) == (
            "jobs in the queue play all unfinished runs: 12_1 (running), 7_2 (pending). Wait for them, or"
            " cancel them with `scancel`"
        )
        stand_in(folder, "squeue", "")
        assert "job 12_2: babyai-react-tiny-seed1" in printed(*self.GIVEN)

    def test_is_refused_if_a_job_plays_some_runs_of_a_part(self, folder: Path) -> None:
        run = str(folder / "out" / "babyai-react-tiny-seed1")
        (folder / "out").mkdir()
        note_jobs(folder / "out", Submitted([JobPart("7_2", "7_2.log", [run])]))
        stand_in(folder, "squeue", "7_2|PENDING||0|Priority|\n")
        assert refused("model=tiny", "cluster=cpu", "--dir=out", "--jobs=1") == (
            "job 7_2, which is pending, plays a part of part 1: submit the list with the number of jobs that"
            " it was submitted with, or wait for that job"
        )

    def test_names_the_arrays_before_one_that_is_refused(self, folder: Path) -> None:
        models = "[qwen3.5-27b, qwen3.5-27b-2gpu]"
        Path("runs.yaml").write_text(f"- {{env: babyai, method: react, model: {models}}}\n")
        programs = folder / "bin"
        programs.mkdir()
        (programs / "sbatch").write_text(
            "#!/bin/sh\n[ -e submitted ] && { echo 'QOSMaxSubmitJobPerUserLimit' >&2; exit 1; }\n"
            "touch submitted 2>/dev/null || : > submitted\necho 4711\n"
        )
        (programs / "sbatch").chmod(0o700)
        given = ("cluster=gpu", "--dir=out")
        assert refused(*given) == (
            "`sbatch` refuses: QOSMaxSubmitJobPerUserLimit. Submitted before this error: 4711_1. The same"
            " command submits the rest"
        )
        (folder / "submitted").unlink()
        stand_in(folder, "squeue", "4711_1|PENDING||0|Priority|\n")
        assert printed(*given).startswith(
            "part 1 is not submitted: job 4711_1, which is pending, plays it\njob"
        )

    def test_passes_no_variable_that_changes_the_job_or_its_step(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        session = ("SLURM_MEM_PER_CPU", "SLURM_CPU_BIND", "SLURM_NTASKS", "SLURM_JOB_ID", "SLURM_EXPORT_ENV")
        session += ("SBATCH_MEM_PER_NODE", "SBATCH_EXPORT", "SBATCH_ARRAY_INX", "SRUN_CPUS_PER_TASK")
        own = ("SLURM_CONF", "SBATCH_ACCOUNT", "SBATCH_PARTITION", "HF_HOME")
        for name in (*session, *own):
            monkeypatch.setenv(name, "1")
        programs = folder / "bin"
        programs.mkdir()
        (programs / "sbatch").write_text("#!/bin/sh\nexport > variables\necho 12\n")
        (programs / "sbatch").chmod(0o700)

        def passed(*site: str) -> list[str]:
            printed(*self.GIVEN, *site)
            variables = (folder / "variables").read_text()
            return [name for name in (*session, *own) if f" {name}=" in variables]

        assert passed() == list(own)
        shutil.rmtree(folder / "out")
        assert passed("cluster.partition=a100", "cluster.options=[--account=lab]") == [
            "SLURM_CONF",
            "HF_HOME",
        ]
