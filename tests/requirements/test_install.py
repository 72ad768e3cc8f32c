"""Building `.venv`: where PyTorch's CPU build comes from."""

from __future__ import annotations

import os
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


def commands(install: ModuleType, monkeypatch: pytest.MonkeyPatch, fails: str = "nothing") -> list[str]:
    """The commands that are run from now on, each after the index in its environment; some fail."""
    found: list[str] = []

    def run(*command: str | Path, errors: int | None = None) -> bool:
        words = " ".join(map(str, command))
        found.append(f"{os.environ.get('UV_DEFAULT_INDEX')} {words}")
        return fails not in words

    monkeypatch.setattr(install, "run", run)
    monkeypatch.setattr(os, "environ", dict(os.environ))  # it adds to them
    return found


@pytest.mark.process
def test_uv_gets_the_package_sources_of_pip_where_no_one_else_reads_them(
    install: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = "https://me:SECRET@mirror.example/simple"
    for name, value in {"CONFIG_FILE": "/dev/null", "INDEX_URL": index, "FIND_LINKS": "/a /b"}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    settings = install.pip_settings()
    assert "UV_FIND_LINKS" not in install.pip_sources("gpu", settings)
    assert install.pip_sources("cpu", settings)["UV_FIND_LINKS"] == "/a,/b"
    called = commands(install, monkeypatch)
    install.install_packages("cpu", tmp_path)
    assert [each.split(" ", 1)[0] for each in called] == ["None", "None", index, index]
    assert not [each for each in called if "SECRET" in each.split(" ", 1)[1]]


@pytest.mark.process
def test_without_pytorch_s_wheels_the_remedy_is_named(
    install: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    called = commands(install, monkeypatch, fails="torch.lock")
    with pytest.raises(install.CannotInstall, match="PIP_FIND_LINKS=FOLDER make venv"):
        install.install_packages("cpu", tmp_path)
    assert [install.PYTORCH_CPU in each for each in called] == [False, False, False, True]
    assert f"does not give it: trying {install.PYTORCH_CPU}" in capfd.readouterr().out
