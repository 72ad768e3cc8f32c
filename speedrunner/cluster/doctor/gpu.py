"""GPUs as `nvidia-smi` shows them: there, free, large enough, with a driver that is new enough."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from serving import hub
from serving.cards import CHECKOUT
from serving.engine.gpus import Gpu, gpu_processes, visible_gpus
from serving.model_card import ModelCard
from serving.weights import model_path
from speedrunner.cluster.doctor.finding import Finding, failure, ok, warning
from speedrunner.cluster.subject import Subject

MIN_DRIVERS = {12: 525, 13: 580}
"""Oldest branch of the driver for each major version of CUDA (NVIDIA: CUDA Compatibility, Minor Version
Compatibility). Within a major version, a newer toolkit runs on any of these."""

LOCK = CHECKOUT / "requirements" / "gpu.lock"

IN_USE_MIB = 1024
"""Memory that an idle GPU does not have in use: the driver takes some hundreds of MiB."""

USABLE = 0.9
"""Share of the nominal memory that the engine gets (docs/gpu.md)."""

RESERVE_GB = 4.0
"""For activations and graphs, on each GPU (docs/gpu.md)."""

CACHE_SHARE = 0.1
"""Share of the memory below which hardly a conversation fits into the prefix cache: an estimate."""


def gpus(subject: Subject) -> Iterator[Finding]:
    """Whether the machine has the GPUs that the models take."""
    if not subject.gpus:
        yield ok("GPU", "none is needed")
        return
    try:
        found = visible_gpus()
    except (OSError, subprocess.SubprocessError) as error:
        yield failure(
            "GPU", f"{subject.gpus} needed, and nvidia-smi shows none ({_why(error)})", subject.doctor
        )
        return
    if len(found) < subject.gpus:
        yield failure("GPU", f"{subject.gpus} needed, and {len(found)} can be used here", subject.doctor)
    else:
        names = ", ".join(f"{each.name} ({each.total / 1024:.0f} GiB)" for each in found)
        yield ok("GPU", f"{subject.gpus} needed; here: {names}")
    if found:
        yield _driver(found[0].driver)
        yield from _free(found, subject)
        for card, _ in subject.served:
            if card.gpus:
                yield _memory(card, min(each.total for each in found))


def cuda_major(lock: Path = LOCK) -> int | None:
    """The major version of CUDA that the GPU build was made for, by the lock."""
    pin = re.search(r"^cuda-toolkit==(\d+)\.", lock.read_text("utf-8"), re.MULTILINE)
    return int(pin[1]) if pin else None


def _driver(version: str) -> Finding:
    major = cuda_major()
    least = MIN_DRIVERS.get(major or 0)
    if least is None:
        return warning(
            "driver", f"{version}; what CUDA {major} needs is not known", "see NVIDIA's release notes"
        )
    if _whole(version.partition(".")[0]) < least:
        return failure(
            "driver",
            f"{version}, and the engine's CUDA {major} needs {least} or newer",
            f"take a node with a newer driver, or ask the administrators for {least} or newer",
        )
    return ok("driver", f"{version}; CUDA {major} needs {least} or newer")


def _free(found: Sequence[Gpu], subject: Subject) -> Iterator[Finding]:
    """Whether others compute there."""
    shares = [card.server.flags.get("gpu-memory-utilization") for card, _ in subject.served if card.gpus]
    share = max((each for each in shares if isinstance(each, float)), default=USABLE)
    holders = gpu_processes()
    remedy = "ask Slurm for a GPU of your own (--gres=gpu:N, --exclusive), or end what is yours"
    for each in found:
        name = f"GPU {each.id} free"
        if each.used <= IN_USE_MIB:
            yield ok(name, f"{each.used} MiB in use")
            continue
        who = ", ".join(holders.get(each.uuid, [])) or "processes that cannot be seen from here"
        text = f"{each.used} of {each.total} MiB in use by {who}"
        if each.total - each.used < share * each.total:
            yield failure(name, f"{text}; the engine asks for {share:.0%}", remedy)
        else:
            yield warning(name, text, remedy)


def _memory(card: ModelCard, total_mib: int) -> Finding:
    """Whether the weights leave room for a cache, on the smallest GPU."""
    name = f"GPU memory for {card.name}"
    folder = hub.found(model_path(card), card.revision) if card.id else Path(model_path(card))
    weights = hub.weights_bytes(folder) if folder is not None and folder.is_dir() else 0
    if not weights:
        return ok(name, "not computed: its weights are not here")
    total_gb = total_mib * 2**20 / 1e9
    own_gb = weights / 1e9 / card.gpus
    left_gb = USABLE * total_gb - RESERVE_GB - own_gb
    text = (
        f"{own_gb:.1f} GB of weights on each of {total_gb:.0f} GB leave {max(left_gb, 0):.1f} GB for a cache"
    )
    larger = "a card for more GPUs or an 8-bit one (speedrunner list models), or a larger GPU"
    if left_gb <= 0:
        return failure(name, text, larger)
    return warning(name, text, larger) if left_gb < CACHE_SHARE * total_gb else ok(name, text)


def _whole(text: str) -> int:
    """A number, or 0 for what is none, such as `[N/A]`."""
    return int(text) if text.isdigit() else 0


def _why(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        lines = f"{error.stdout}{error.stderr}".strip().splitlines()
        return lines[-1] if lines else f"exit status {error.returncode}"
    return getattr(error, "strerror", None) or str(error)
