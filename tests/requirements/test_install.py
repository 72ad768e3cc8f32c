"""Building `.venv`: where PyTorch's CPU build comes from."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from serving.model_configs import CHECKOUT


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the module."""
    monkeypatch.syspath_prepend(CHECKOUT / "requirements")
    import install

    return install


@pytest.mark.process
def test_uv_gets_the_package_sources_of_pip_where_no_one_else_reads_them(
    install: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = "https://me:SECRET@mirror.example/simple"
    for name, value in {"CONFIG_FILE": "/dev/null", "INDEX_URL": index, "FIND_LINKS": "/a /b"}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    monkeypatch.setenv("PIP_TRUSTED_HOST", "mirror.example")
    given = {"UV_DEFAULT_INDEX": index, "UV_INSECURE_HOST": "mirror.example"}
    settings = install.pip_settings()
    assert install.pip_sources("gpu", settings).items() >= given.items()
    assert "UV_FIND_LINKS" not in install.pip_sources("gpu", settings)
    assert install.pip_sources("cpu", settings).items() >= (given | {"UV_FIND_LINKS": "/a,/b"}).items()
    calls = note_commands(install, monkeypatch)
    install.install_packages("cpu", tmp_path)
    assert not [words for _, _, words in calls if "SECRET" in words]
    assert [used for used, _, _ in calls] == [None, None, index, index]


@pytest.mark.process
def test_without_pytorch_s_wheels_the_remedy_is_named(
    install: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    calls = note_commands(install, monkeypatch, has_torch=False)
    with pytest.raises(install.CannotInstall, match="PIP_FIND_LINKS=FOLDER make venv"):
        install.install_packages("cpu", tmp_path)
    (_, errors, configured), (_, last, own) = [call for call in calls if "torch.lock" in call[2]]
    assert install.PYTORCH_CPU not in configured
    assert own.endswith(f"--default-index {install.PYTORCH_CPU}")
    assert (errors, last) == (subprocess.DEVNULL, None)  # the error of the first try would mislead
    assert f"does not have it: trying {install.PYTORCH_CPU}" in capfd.readouterr().out


Call = tuple[str | None, int | None, str]
"""The index in the environment, where errors are written, and the words of a command."""


def note_commands(install: ModuleType, monkeypatch: pytest.MonkeyPatch, has_torch: bool = True) -> list[Call]:
    """Note the commands that would be run from now on."""
    calls: list[Call] = []

    def run(*command: str | Path, errors: int | None = None) -> bool:
        words = " ".join(map(str, command))
        calls.append((os.environ.get("UV_DEFAULT_INDEX"), errors, words))
        return has_torch or "torch.lock" not in words

    monkeypatch.setattr(install, "run", run)
    monkeypatch.setattr(os, "environ", dict(os.environ))  # it adds to them
    return calls
