"""What all tests share: the random model, and how they are divided between workers."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from serving.model_config import ModelConfig
from serving.model_configs import load_model_config
from serving.tokens.tokenizer import ChatTokenizer
from tests.bundled_models import bundled_folder
from tests.digested_once import digest_once
from tests.tiers import is_outside, names_slow

if TYPE_CHECKING:
    from tests.bundled_demo import Demo

ENGINE = "tests/engine"
"""The folder of all tests that need vLLM."""

DEMO = (f"{ENGINE}/test_tiny.py", "tests/browser/test_screenshots.py")
"""Files of slow tests that look at the same demo."""

WITHOUT_SHARED_SERVER = (
    *("test_faults.py", "test_gpu_steps.py", "test_hybrid_on_engine.py", "test_real_model.py"),
    *("test_replicas.py", "test_engine_flags.py"),
)
"""Files of the engine's slow tests that do not use the session's server: any worker may play them."""

GRAMMARS = ("tests/serving/tokens/", "tests/serving/probes/")
"""Folders whose tests share grammars of the tool formats, which take seconds to compile."""

PROCESS_FOLDERS = (f"{ENGINE}/", "tests/browser/", "tests/slurm/", "tests/gpu/")
"""Folders whose tests all have the marker `process`."""

# Started in the background, a test run ignores these signals, and so would every process that it starts.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

# How long one example takes says how busy the machine is. Each run of the tests draws others.
settings.register_profile(
    "tests",
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("tests")

# Where Python may not write bytecode, each of the hundreds of processes that tests start would compile anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Readline sets the terminal's size in the environment of every process that imports it, and of its children.
for name in ("COLUMNS", "LINES"):
    os.environ.pop(name, None)
sys.dont_write_bytecode = False
# Each collection of garbage scans all loaded modules, which stay: collect less often.
gc.set_threshold(10_000, 20, 50)
digest_once()
# Only after a power cut could a test tell whether files had reached the disk: `tests/chaos` simulates one.
os.fsync = lambda file: None  # type: ignore[assignment]


STARTS_PROCESSES = frozenset(
    (
        *("browser", "bundled_demo", "corridor", "dense_folder", "engine_server", "hybrid_folder"),
        "shared_corridor",
    )
)
"""Shared fixtures that start processes: a test that needs one has the marker `process` by itself."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import files without a test of the tier."""
    if not collection_path.match("test_*.py"):
        return None
    folder = f"{collection_path.parent.relative_to(config.rootpath)}/"
    return is_outside(config.option.markexpr, collection_path, folder.startswith(PROCESS_FOLDERS)) or None


FIRST = ("tests/slurm/", f"{ENGINE}/")
"""Folders whose tests take longest: they begin. Jobs of Slurm also wait, and leave the cores to others."""

LONG = (
    *("test_foreign_runs.py", "test_hostile.py", "test_scienceworld.py", "test_readme.py", "test_app.py"),
    *("test_worker_pool.py", "test_run_lock.py", "test_verify.py", "test_packages.py"),
)
"""Files that take longest without an engine: last, they would keep one worker busy while the other rests."""


def place(item: pytest.Item) -> int:
    """Return the place of a test in the order: `FIRST`, `LONG`, all others."""
    rest = len(FIRST) + (item.path.name not in LONG)
    return next((n for n, folder in enumerate(FIRST) if item.nodeid.startswith(folder)), rest)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the tests, and mark those that start processes."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if item.nodeid.startswith(PROCESS_FOLDERS) or not STARTS_PROCESSES.isdisjoint(fixtures):
            item.add_marker(pytest.mark.process)
        if item.get_closest_marker("slow") and not names_slow(item.path):
            raise pytest.UsageError(f"{item.nodeid} is slow: its file must say pytest.mark.slow")
    items.sort(key=place)
    gc.freeze()  # what was imported stays


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """With several workers: what one of them plays as a whole, so that its tests share their fixtures."""

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group(nodeid.partition("::")[0], config.option.markexpr == "slow")

    return Groups(config, log)


def group(file: str, is_slow: bool) -> str:
    """Return a test's file, or the folder of those tests that share an engine, a model or grammars."""
    if is_slow and file in DEMO:
        return DEMO[0]
    if is_slow and file.endswith(WITHOUT_SHARED_SERVER):
        return file
    if file.startswith(GRAMMARS):
        return GRAMMARS[0]
    shared = (ENGINE, "tests/models")
    return next((folder for folder in shared if file.startswith(f"{folder}/")), file)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer to rewrite golden files."""
    parser.addoption("--update", action="store_true", help="rewrite golden files instead of comparing")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with a file below `tests/golden`, or write it there (`pytest --update`)."""

    def golden(name: str, text: str) -> None:
        file = Path(__file__).with_name("golden") / name
        if request.config.getoption("--update"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        assert text == file.read_text(encoding="utf-8")

    return golden


@pytest.fixture(scope="session")
def bundled_demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """The README's demo, which takes a minute."""
    from tests.bundled_demo import play_demo  # whose imports take seconds, also in xdist's first process

    return play_demo(tmp_path_factory.mktemp("demo"))


@pytest.fixture(scope="session")
def tiny_model_config() -> ModelConfig:
    return load_model_config("tiny-random")


@pytest.fixture(scope="session")
def tiny_folder(tiny_model_config: ModelConfig) -> str:
    """The bundled model, built on first use."""
    return bundled_folder(tiny_model_config.name)


@pytest.fixture(scope="session")
def tiny_tokenizer(tiny_folder: str) -> ChatTokenizer:
    return ChatTokenizer(tiny_folder)
