"""Folders of runs, caches and sockets, and the file systems that they are on."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from speedrunner.config.findings import Finding
from speedrunner.experiments.cluster.cluster_subject import subject_of
from speedrunner.experiments.cluster.doctor import folder_checks

MOUNTINFO = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / {home} rw,relatime shared:2 - {type} server:/export rw,vers=4.2
31 22 0:41 / /odd\\040name rw - tmpfs tmpfs rw
"""


def run_folder(path: Path | str) -> dict[str, Finding]:
    return {
        each.name.split()[0]: each for each in folder_checks.run_folders(subject_of([f"run.dir={path}/one"]))
    }


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is, as far as the list of mounts says, on NFS."""
    home = tmp_path.resolve() / "home"
    home.mkdir()
    listed = tmp_path / "mountinfo"
    listed.write_text(MOUNTINFO.format(home=home, type="nfs4"))
    monkeypatch.setattr(folder_checks, "MOUNTS", listed)
    return home


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Path]:
    """A folder that nobody may enter; nor may the superuser, who is somebody else meanwhile."""
    folder = tmp_path / "closed"
    folder.mkdir(mode=0)
    own = os.geteuid()
    if own == 0:
        os.seteuid(65534)
    try:
        yield folder
    finally:
        os.seteuid(own)
        folder.chmod(0o700)


class TestMounts:
    def test_the_innermost_holds(self, shared: Path) -> None:
        found = folder_checks.mount_of(shared / "a" / "b")
        assert (found.place, found.type, found.is_shared) == (shared, "nfs4", True)
        assert not folder_checks.mount_of(shared.parent).is_shared

    @pytest.mark.parametrize("kind", ["lustre", "gpfs", "beegfs", "nfs", "ceph", "fuse.sshfs"])
    def test_those_of_clusters_are_shared(self, kind: str) -> None:
        assert folder_checks.Mount(Path("/"), kind).is_shared

    @pytest.mark.parametrize(
        "kind", ["ext4", "xfs", "btrfs", "overlay", "tmpfs", "zfs", "fuse.fuse-overlayfs"]
    )
    def test_those_of_a_machine_are_not(self, kind: str) -> None:
        assert not folder_checks.Mount(Path("/"), kind).is_shared


class TestRunFolders:
    def test_one_that_can_be_written_is_left_as_it_was(self, tmp_path: Path) -> None:
        found = run_folder(tmp_path)
        assert [each.level for each in found.values()] == ["ok"]
        assert list(tmp_path.iterdir()) == []

    def test_one_that_cannot_be_written(self) -> None:
        found = run_folder("/proc/runs")["folder"]
        assert found.level == "failed"
        assert found.text.startswith("cannot be written (")

    def test_one_below_what_is_closed(self, closed: Path) -> None:
        found = run_folder(closed / "runs")["folder"]
        assert (found.level, found.text) == ("failed", "cannot be written (Permission denied)")

    def test_a_run_of_another_format_cannot_be_resumed(self, tmp_path: Path) -> None:
        (tmp_path / "one").mkdir()
        (tmp_path / "one/config.yaml").write_text("{}")
        (tmp_path / "one/state.json").write_text('{"format": 1}')
        found = run_folder(tmp_path)
        assert {name: each.level for name, each in found.items()} == {"run": "failed", "folder": "ok"}
        assert "state.json has format 1, but this version of SpeedRunner reads" in found["run"].text

    def test_one_in_memory_ends_with_the_job(self) -> None:
        found = run_folder("/dev/shm/runs")["folder"]
        assert found.level == "warning"
        assert "tmpfs" in found.text

    def test_one_on_a_file_server_is_as_good_as_any(self, shared: Path) -> None:
        found = run_folder(shared)["folder"]
        assert found.level == "ok"
        assert found.text.startswith(f"nfs4 at {shared}")


class TestScratch:
    def test_a_temporary_folder_of_the_machine_s_own(self) -> None:
        assert [each.level for each in folder_checks.scratch(subject_of(["model=tiny"]))] == ["ok"]

    def test_one_that_machines_share(self, shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tempfile, "tempdir", str(shared))
        monkeypatch.setenv("SLURM_TMPDIR", "/local/job7")
        found = list(folder_checks.scratch(subject_of(["model=tiny"])))[-1]
        assert (found.level, found.remedy) == ("warning", "export TMPDIR=/local/job7")

    def test_one_that_is_gone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
        assert [each.level for each in folder_checks.scratch(subject_of(["model=tiny"]))] == ["failed"]


class TestWeights:
    """The cache of the hub, where a model is fetched from there."""

    def told(self, monkeypatch: pytest.MonkeyPatch, cache: Path | str, model: str = "qwen3-8b") -> Finding:
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
        *_, found = folder_checks.caches(subject_of([f"model={model}"]))
        return found

    def test_one_that_can_be_made(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self.told(monkeypatch, tmp_path / "hf" / "hub").level == "ok"
        assert list(tmp_path.iterdir()) == []

    def test_one_that_cannot_be_made(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found = self.told(monkeypatch, "/proc/hf/hub")
        assert found.level == "warning"
        assert found.text.startswith("/proc/hf/hub cannot be created (")
        assert found.remedy.startswith("export HF_HOME=")

    def test_one_below_what_is_closed(self, closed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        found = self.told(monkeypatch, closed / "hf" / "hub")
        assert found.level == "failed"
        assert found.text == f"{closed}/hf/hub cannot be read (Permission denied)"
        assert found.remedy.startswith("export HF_HOME=")

    def test_without_such_a_model_it_does_not_matter(
        self, closed: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert self.told(monkeypatch, closed / "hf" / "hub", "tiny").name == "caches"


def test_what_is_compiled_belongs_on_the_machine_and_weights_anywhere(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in folder_checks.COMPILED:
        monkeypatch.setenv(variable, "/tmp/compiled")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(shared))
    fetched = subject_of(["model=qwen3-8b"])
    assert [each.level for each in folder_checks.caches(fetched)] == ["ok", "ok"]
    monkeypatch.setenv("TRITON_CACHE_DIR", str(shared / "triton"))
    wrong, weights = folder_checks.caches(fetched)
    assert wrong.level == "warning"
    line = 'export TRITON_CACHE_DIR="$(mktemp -d)"'
    assert wrong.remedy == line
    assert weights.text.endswith("(nfs4)")
