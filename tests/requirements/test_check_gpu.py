"""`make check-gpu` succeeds with one line where the GPU environment cannot be built."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.model_configs import CHECKOUT


def test_too_small_a_disk_skips_it_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(CHECKOUT / "requirements")
    import check_gpu
    import install

    monkeypatch.setattr(check_gpu, "VENV", tmp_path / "venv")
    monkeypatch.setattr(install, "install_bubblewrap", lambda: None)
    monkeypatch.setitem(install.NEEDED_GB, "gpu", 1_000_000)
    check_gpu.main()
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("check-gpu is skipped: set-up needs about 1000000 GB in ")
    assert line.endswith(" GB are free")
