"""What each command prints on small runs, and for mistakes: transcripts in `tests/golden/cli`.

`pytest --update` writes them again.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from serving.cards import CHECKOUT
from tests.scripted_runs import in_process
from tests.speedrunner.results import small_runs
from tests.speedrunner.results.small_runs import SmallRun, skill

MODULE = '''
def go_on(steps: int) -> str:
    """Walk some steps."""
    for _ in range(steps):
        seen = move_forward()
    return seen
'''

TRANSCRIPTS = {
    "help": ["--help", "library --help", "cost --help", "runn", "library shwo", "cost", "cost --price zero"],
    "moved": [
        *("eval runs/a:1 env=babyai", "play env=crafter", "version", "envs check babyai", "methods check react"),
        *("study cache runs/a --csv x", "plot runs/a", "tables runs --out x", "bench sandbox --json"),
        *("bench envs", "bench accounts model=tiny-random"),
    ],
    "list": ["list envs", "list methods", "list models", "list experiments", "list envs env=crafter", "list"],
    "show": [
        *("show runs/a train/0", "show runs/a train/0002", "show runs/a test/4/1", "show runs/a sleep/1"),
        *("show runs/a train/9", "show runs/a sleep/7", "show runs/a nothing", "show runs train/0"),
    ],
    "cost": [
        *("cost runs/a", "cost runs/a runs/b --prices zero", "cost runs/a --json", "cost runs/none"),
        *("cost runs/a --prices nothing", "cost runs/a --prices gpu-hours"),
    ],
    "compare": [
        *("compare runs/a", "compare runs/a runs/b", "compare runs/a runs/b --json --prices zero"),
        *("compare runs", "compare runs/a runs/c", "compare runs/a runs/b --prices gpu-hours"),
    ],
    "status": ["status", "status runs/a", "status runs --json", "status empty", "status none"],
    "library": [
        *("library show runs/a", "library show runs/a 1", "library show runs/a 0", "library show runs/a 7"),
        *("library diff runs/a", "library diff runs/a 1", "library diff runs/a:2 :0"),
        *("library diff runs/a:0 runs/b:0", "library diff runs/a:1 runs/b", "library diff runs/a :7"),
        *("library graph runs/a 1", "library graph runs/a 0", "library graph runs/a 7"),
        *("library stats runs/a:1", "library stats runs/a:1 --json", "library stats skills.py"),
        *("library stats broken.py", "library stats none.py", "library stats none"),
        "library blame runs/a",
    ],
    "run": [
        *(
            f"run run.dir=new serving.url=http://127.0.0.1:9 {mistake}"
            for mistake in (
                *("run.rolouts=3", "rollouts=3", "run.rollouts=many", "env=babyia", "method=none"),
                *("model=large", "model.card=nowhere.yaml", "env.size=3", "run.rollouts=9999", "run.rollouts"),
                *("run.start_from=nowhere:1", "run.start_from=runs/none:1 run.rollouts=0", "task.index=3"),
                *("run.start_from=runs/a:7 run.rollouts=0", "run.start_from=runs/a:new run.rollouts=0"),
                *("run.start_from=runs/a --trust a:B", "library.visible_last=5", "serving.port=8000"),
                *("experiment=none", "experiment=main scale=smoke", "scale=smoke"),
            )
        ),
        "run run.dir=new serving.url=what",
        "run run.dir=folder serving.url=http://127.0.0.1:9",
        "run run.dir=skills.py serving.url=http://127.0.0.1:9",
    ],
    "sweep": ["sweep none.yaml", "sweep experiment=none", "sweep experiment=main run.dir=x", "sweep"],
    "episode": ["episode task.name=maze", "episode run.rolout=3", "episode --human env=babyai task.name=maze"],
    "init": [
        *("init env maze", "init method diary", "init card qwen-9.b", "init env maze", "init env 'my world'"),
        *("init method class", "init card ../up", "init method policy", "init method json", "init thing x"),
        "init env maze new_folder",
    ],
    "check": [
        *("check env babyia", "check env babyai size=3", "check env nowhere:World", "check method raect"),
        *("check method react trian=true", "check method nowhere:Method"),
    ],
    "export": [
        *("export runs --to inspect --out folder", "export empty --to dataset --out data"),
        *("export none --to dataset --out data", "export runs/a --to nothing --out data"),
        "export runs/a --out data",
    ],
    "report": ["report empty", "report none", "report runs/a --out skills.py", "report runs/a --prices nothing"],
    "forecast": ["forecast experiment=demo run.rollouts=20", "forecast experiment=none"],
    "verify": ["verify runs/none", "verify empty", "verify folder"],
    "view": ["view runs --static pages", "view empty", "view none"],
    "bench": [
        *("bench cache --in-flight 0,4", "bench cache --in-flight many", "bench replay model=tiny-random"),
        *("bench replay runs/a --csv none/x.csv", "bench replay none", "bench rollout run.rolout=3"),
        *("bench gpu model=tiny-random", "probe tools model=large", "probe cache run.rolout=3"),
    ],
    "cluster": [
        *("prepare model.card=qwen9", "doctor run.rollout=3", "serve serving.url=http://127.0.0.1:9"),
        *("serve model=gpt-5.4-mini --print", "submit experiment=demo", "submit experiment=demo cluster=none"),
    ],
}  # fmt: skip
"""Command lines of each transcript."""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs `a`, `b` and, with other settings of the environment, `c`; modules of skills; other folders."""
    folder = tmp_path_factory.mktemp("template")
    small_runs.learnt(folder / "runs/a")
    other = SmallRun(folder / "runs/b", run={"rollouts": 2, "seed": 1}, method={"name": "asi"})
    other.policy(0, {})
    other.test(0, 0, [0.5, 0.0])
    other.train(0, [None, None], [None, None])
    other.sleep(1)
    other.policy(1, {"home": "return 'home'"})
    other.test(2, 1, [1.0, None], [skill("home", 4)])
    SmallRun(folder / "runs/c", env={"num_dists": 4}).policy(0, {})
    (folder / "skills.py").write_text(MODULE)
    (folder / "broken.py").write_text("def f(:")
    for name in ("empty", "folder"):
        (folder / name).mkdir()
    (folder / "folder/thesis.tex").write_text("All of it.")
    return folder


@pytest.fixture
def workplace(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the template as the current folder."""
    folder = shutil.copytree(template, tmp_path / "here")
    monkeypatch.chdir(folder)
    return folder


def transcript(lines: list[str], folder: Path) -> str:
    """Return commands with their output, as on a terminal, without what differs between machines."""
    shown = []
    for line in lines:
        done = in_process(*shlex.split(line))
        status = f"[exit status {done.returncode}]\n" if done.returncode else ""
        shown.append(f"$ speedrunner {line}\n{done.stdout}{done.stderr}{status}")
    text = "\n".join(shown).replace(str(folder), "HERE").replace(str(CHECKOUT), "CHECKOUT")
    return re.sub(r" +$", "", text, flags=re.MULTILINE)


WITH_PROCESSES = ("run", "episode", "check", "bench", "cluster")
"""Transcripts with commands that start processes."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.process] * (name in WITH_PROCESSES)) for name in TRANSCRIPTS],
)
def test_commands_print_what_their_transcript_shows(
    name: str, workplace: Path, golden: Callable[[str, str], None]
) -> None:
    golden(f"cli/{name}.txt", transcript(TRANSCRIPTS[name], workplace))
