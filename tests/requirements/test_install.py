"""Building `.venv`: where PyTorch's CPU build comes from."""

from __future__ import annotations

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
def test_uv_gets_the_package_sources_of_pip(install: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", "https://mirror.example/simple")
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels")
    settings = install.pip_settings()
    index = ["--index-url", "https://mirror.example/simple"]
    assert install.pip_sources("cpu", settings)[:4] == [*index, "--find-links", "/wheels"]
    assert install.pip_sources("gpu", settings)[:2] == index
    assert "--find-links" not in install.pip_sources("gpu", settings)


def test_without_pytorch_s_wheels_the_remedy_is_named(
    install: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def run(*command: str | Path) -> bool:
        line = " ".join(map(str, command))
        if line.endswith("torch.lock"):
            tried.append(line)
        return not line.endswith("torch.lock")

    monkeypatch.setattr(install, "run", run)
    with pytest.raises(install.CannotInstall, match="PIP_FIND_LINKS=FOLDER make venv"):
        install.install_packages("cpu", tmp_path)
    configured, own = tried
    assert install.PYTORCH_CPU not in configured
    assert f"--index-url {install.PYTORCH_CPU}" in own
