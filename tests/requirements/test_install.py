"""Building `.venv`: what users see while it takes minutes, and if PyTorch's CPU build cannot be had."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import ModuleType

import pytest

from serving.model_configs import CHECKOUT

pytestmark = pytest.mark.process


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the module, with its log in the test's folder."""
    monkeypatch.syspath_prepend(CHECKOUT / "requirements")
    import install

    monkeypatch.setattr(install, "LOG", tmp_path / "install.log")
    return install


class Nothing(BaseHTTPRequestHandler):
    """Has no package."""

    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, format: str, *arguments: object) -> None:
        """Stay silent."""


@pytest.fixture
def empty_index() -> Iterator[str]:
    """Yield the host and port of a package index without packages."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Nothing) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_without_pytorch_s_wheels_every_source_and_the_remedy_are_named(
    install: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_index: str
) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    monkeypatch.setattr(install, "PYTORCH_CPU", f"http://{empty_index}/whl/cpu")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", f"http://someone:secret@{empty_index}/simple")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    settings = install.pip_settings()
    uv = Path(sys.executable).with_name("uv")
    command = [
        uv,
        "pip",
        "install",
        "--python",
        sys.executable,
        "--target",
        tmp_path / "packages",
        "--no-deps",
    ]
    with pytest.raises(install.NotPossibleHere) as error:
        install.install_torch(command, install.pip_sources("cpu", settings), settings)
    message = str(error.value)
    assert message.startswith(
        f"torch==2.13.0+cpu cannot be installed. Tried http://{empty_index}/simple and {wheels} ("
    )
    assert f"), then http://{empty_index}/whl/cpu (" in message
    assert "on another machine and run `PIP_FIND_LINKS=FOLDER make venv`" in message
    assert "or use a mirror: `PIP_FIND_LINKS=https://MIRROR/whl/cpu/torch/ make venv`" in message
    assert "secret" not in message
    assert "\n" not in message


def test_without_a_configured_index_the_default_one_is_named(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install, "attempt", lambda *command, show: "not found")
    with pytest.raises(install.NotPossibleHere, match=r"Tried https://pypi\.org/simple \(not found\), then"):
        install.install_torch(["pip"], [], {})


def test_the_installed_packages_are_counted(install: ModuleType, tmp_path: Path) -> None:
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    (packages / "pip-24.0.dist-info").mkdir(parents=True)
    count = install.InstalledCount(tmp_path, 3)
    assert count.describe().startswith("installed 0 of 3 packages, ")
    (packages / "torch-2.13.0+cpu.dist-info").mkdir()
    (packages / "torch").mkdir()
    assert count.describe().startswith("installed 1 of 3 packages, ")


def test_progress_that_no_terminal_shows_is_a_line_now_and_then(
    install: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    count = install.InstalledCount(tmp_path, 3)
    count.show("Downloading torch")
    assert capsys.readouterr().out == ""
    monkeypatch.setattr(install, "SILENT_S", 0.0)
    count.show("Downloading torch")
    count.end()
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("installed 0 of 3 packages, ")
    assert first.endswith(" s: Downloading torch")
    assert last.startswith("installed 0 of 3 packages, ")


def test_when_all_packages_are_there_progress_says_that_they_are_compiled(
    install: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(install, "SILENT_S", 0.0)
    count = install.InstalledCount(tmp_path, 1)
    (tmp_path / "lib" / "python3.11" / "site-packages" / "torch-2.13.0+cpu.dist-info").mkdir(parents=True)
    count.show("Installed 1 package")
    assert " s: compiling their modules" in capsys.readouterr().out


def test_a_command_shows_its_last_line_and_reports_its_error(install: ModuleType) -> None:
    shown: list[str] = []
    script = "import sys; print('Resolved'); sys.exit('error: no room')"
    assert install.attempt(sys.executable, "-c", script, show=shown.append) == "no room"
    assert shown[-1] == "error: no room"
    assert install.attempt(sys.executable, "-c", "print('fine')") is None
    assert "fine" in install.LOG.read_text()
