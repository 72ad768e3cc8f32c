"""Imports: which rooms may import which, the public places, and bare imports that stay light."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path

import pytest

from tests.speedrunner.results.small_runs import learnt

ROOT = Path(__file__).parents[1]

FLOORS = (
    ("plain",),
    ("envs", "serving"),
    ("config",),
    ("store",),
    ("workers", "library"),
    ("agents", "results"),
    ("methods",),
    ("runs",),
    ("bench", "cluster", "pages"),
    ("cli", "models"),
)
"""Rooms by floor, the lowest first. A room imports only from lower floors, inside functions too."""

FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}

PACKAGES = ("serving", "envs", "models", "speedrunner")

EXCEPTIONS: set[tuple[str, str]] = set()
"""Modules with a room that they import although it is not below. This set may only shrink."""

PUBLIC = ("envs", "serving", "speedrunner.results", "speedrunner.methods")
"""The imports for own environments, model configurations, analyses and methods."""

HEAVY = ["torch", "transformers", "vllm", "minigrid", "gymnasium", "pygame", "numpy", "pandas"]


def run_python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)


def run_commands(commands: Iterable[str], names: Iterable[str]) -> subprocess.CompletedProcess[str]:
    """Run commands in one process, which prints those of the modules, and the commands' own, that it has."""
    return run_python(f"""
import sys
from speedrunner.cli.app import main
for words in {[*commands]}:
    try:
        main(words.split())
    except SystemExit:
        pass
print([name for name in {[*names]} if name in sys.modules])
print([name.rpartition(".")[2] for name in sys.modules if name.startswith("speedrunner.cli.")])
""")


@pytest.mark.process
@pytest.mark.parametrize(
    ("program", "heavy"),
    [
        *((f"import {package}", HEAVY) for package in ("speedrunner", *PUBLIC)),
        ("import envs; envs.splits('babyai'); envs.make('babyai')", HEAVY),
        ("import envs.env_registry as found; found.REGISTRY.find('babyai')", HEAVY),
        ("import serving.tokens.tokenizer as of; of.ChatTokenizer('models/tiny/weights')", ["torch"]),
    ],
)
def test_what_needs_no_heavy_package_is_quiet_and_loads_none(program: str, heavy: list[str]) -> None:
    run = run_python(f"{program}; import sys; print([name for name in {heavy} if name in sys.modules])")
    assert (run.stdout.strip(), run.stderr) == ("[]", "")


@pytest.mark.process
@pytest.mark.parametrize(
    ("words", "modules"),
    [
        ("--help", set()),
        ("status --help", {"command", "status_command"}),
    ],
)
def test_help_imports_only_the_module_of_its_command(words: str, modules: set[str]) -> None:
    drawing = ["matplotlib", "jinja2"]
    others = ["prometheus_client", "scienceworld", "psutil"]
    run = run_commands([words], HEAVY if modules else [*HEAVY, *others, *drawing])
    *_, found, loaded = run.stdout.splitlines()
    assert set(ast.literal_eval(loaded)) == {"app", "output", *modules}
    assert (found, run.stderr) == ("[]", "")


CLIENTS = ("prometheus_client", "httpx2")
ENGINES = ("torch", "transformers", "vllm", "xgrammar", "tokenizers", "huggingface_hub")
FRAMES = ("pandas", "numpy", "scipy", "pyarrow")
DRAWING = ("matplotlib", "jinja2")
SIMULATORS = ("minigrid", "gymnasium", "pygame")

SLOW = (*CLIENTS, *ENGINES, *DRAWING, *SIMULATORS)


@pytest.mark.process
@pytest.mark.parametrize("words", ["run", "sweep experiment=main", "sweep experiment=main cluster=cpu"])
def test_a_wrong_key_is_refused_before_anything_slow_is_imported(words: str) -> None:
    run = run_commands([f"{words} run.rollout=3"], (*SLOW, *FRAMES))
    assert run.stderr.endswith("unknown key `run.rollout` (=3). Did you mean `run.rollouts`?\n")
    assert run.stdout.splitlines()[0] == "[]"


QUICK = {
    (*SLOW, *FRAMES): (
        "show RUN",
        "show RUN train/0",
        "show RUN sleep/1",
        "show RUN library",
        "list models",
        "status RUN",
    ),
    (*ENGINES, *FRAMES): (
        "run env=babyai model=tiny-random --dry-run",
        "sweep experiment=main --dry-run",
    ),
    (*SLOW, "scipy"): ("cost RUN",),
    (*SLOW, "scipy.stats"): ("compare RUN",),
}
"""Commands that answer at once, by the modules that they must not import, since each takes long."""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run and a module of skills."""
    folder = tmp_path_factory.mktemp("quick")
    learnt(folder / "run")
    (folder / "skills.py").write_text('def turn() -> str:\n    """Turn."""\n    return turn_left()\n')
    return folder


@pytest.mark.process
@pytest.mark.parametrize("slow", QUICK)
def test_quick_commands_import_nothing_slow(slow: tuple[str, ...], small: Path) -> None:
    run = run_commands([words.replace("RUN", str(small / "run")) for words in QUICK[slow]], slow)
    assert (run.stdout.splitlines()[-2], run.stderr) == ("[]", "")


def room_of(module: str) -> str:
    """Return the room of one of our modules: a package, or a package or module of `speedrunner`."""
    first, _, rest = module.partition(".")
    return rest.partition(".")[0] if first == "speedrunner" else first


def imports(file: Path) -> Iterator[str]:
    """Yield the modules that a file imports, inside functions too."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            is_whole = node.module == "speedrunner"  # from speedrunner import view
            names = [f"speedrunner.{each.name}" for each in node.names] if is_whole else [node.module]
        else:
            continue
        yield from (name for name in names if name.partition(".")[0] in PACKAGES)


def crossings() -> Iterator[tuple[str, str]]:
    """Yield each of our modules with each other room that it imports."""
    for package in PACKAGES:
        for file in (ROOT / package).rglob("*.py"):
            module = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            rooms = {room_of(each) for each in imports(file)} - {room_of(module)}
            yield from ((module, room) for room in rooms)


def test_each_room_imports_only_from_the_floors_below_it() -> None:
    upward = {
        (module, room)
        for module, room in crossings()
        if module not in ("speedrunner",) and FLOOR_OF[room] >= FLOOR_OF[room_of(module)]
    }
    assert upward == EXCEPTIONS


def test_of_the_runner_only_the_curves_import_the_analysis() -> None:
    files = (ROOT / "speedrunner/runs").rglob("*.py")
    found = {
        file.name for file in files if any(name.startswith("speedrunner.results") for name in imports(file))
    }
    assert found == {"metrics.py"}


@pytest.mark.parametrize(
    "file",
    [
        *(f"speedrunner/cli/scaffold/my_{kind}.py" for kind in ("env", "method")),
        *(f"speedrunner/methods/{name}.py" for name in ("react", "opo")),
        *(f"models/tiny/teachers/{name}.py" for name in ("bot", "scripted_inducer")),
    ],
)
def test_what_people_begin_with_imports_only_from_the_public_places(file: str) -> None:
    assert {each for each in imports(ROOT / file) if not each.startswith("models.")} <= set(PUBLIC)


CONTRACT = {"__init__", "method_base", "prompt_parts", "method_registry"}
"""Modules of `speedrunner.methods` that make up its public place, or check and list methods."""

IN_THE_SANDBOX = "workspace"
"""A program for the inducer's interpreter, which starts without the contract."""


def test_a_bundled_method_imports_from_other_modules_only_what_the_public_place_lacks() -> None:
    public = vars(import_module("speedrunner.methods"))
    files = (ROOT / "speedrunner/methods").rglob("*.py")
    found = [
        f"{file.stem}: {node.module}.{alias.name}"
        for file in files
        if file.stem not in {*CONTRACT, IN_THE_SANDBOX}
        for node in ast.walk(ast.parse(file.read_bytes()))
        if isinstance(node, ast.ImportFrom) and node.module != "speedrunner.methods"
        for alias in node.names
        if alias.name in public
    ]
    assert found == []


def test_the_scaffold_s_tests_import_only_from_the_public_places() -> None:
    found = {each for file in (ROOT / "speedrunner/cli/scaffold").glob("test_*.py") for each in imports(file)}
    own = {f"speedrunner.cli.scaffold.my_{kind}" for kind in ("env", "method")}
    assert found - own <= set(PUBLIC)
