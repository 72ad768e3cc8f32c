"""The GPUs of this machine as the driver reports them (NVML), and those that this process may use."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from serving.child_answer import answer_in_child

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""The environment variable that chooses and orders the GPUs of a process."""

ORDER = "CUDA_DEVICE_ORDER"
"""The environment variable that says what an index in `CUDA_VISIBLE_DEVICES` means."""

MIB = 2**20

DRIVER_S = 20.0
"""Longest wait for the driver. It takes seconds where no process keeps it loaded."""


class Gpu(msgspec.Struct, frozen=True):
    """One GPU. MIG slices are not supported.

    Attributes:
        id: its name for `CUDA_VISIBLE_DEVICES`: its index, or its full UUID if the variable has UUIDs. (CUDA
            takes an abbreviated UUID, vLLM 0.32 does not.)
        name: such as `NVIDIA H100 80GB HBM3`.
        total: memory in MiB; 0 if the driver does not report it.
        used: memory in use in MiB, by any process.
        driver: the driver's version.
        capability: compute capability, such as (9, 0); (0, 0) if the driver does not report it.
        problem: why the driver does not report its memory, in the driver's words.
        is_broken: whether it cannot compute either, such as a GPU that needs a reset.
    """

    id: str
    uuid: str
    name: str
    total: int
    used: int
    driver: str
    capability: tuple[int, int] = (0, 0)
    problem: str = ""
    is_broken: bool = False

    def __str__(self) -> str:
        return f"{self.name} ({f'{self.total / 1024:.0f} GiB' if self.total else 'memory unknown'})"


class GpuReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver reports, and which of these GPUs this process may use.

    Attributes:
        installed: all GPUs of the machine.
        chosen: the value of `CUDA_VISIBLE_DEVICES`; `None` if it is not set.
        failure: why the driver cannot be asked; empty if it can.
    """

    installed: list[Gpu] = []
    chosen: str | None = None
    failure: str = ""

    @property
    def usable(self) -> list[Gpu]:
        """The GPUs that this process may use, in CUDA's order.

        The rules are CUDA's: without a value of `CUDA_VISIBLE_DEVICES`, all GPUs; an entry that names no GPU
        hides those after it, and one GPU named twice hides all.
        """
        if self.chosen is None:
            return list(self.installed)
        usable: dict[str, Gpu] = {}
        for entry in map(str.strip, self.chosen.split(",")):
            if (gpu := _find_gpu(self.installed, entry)) is None:
                break
            if gpu.uuid in usable:
                return []
            usable[gpu.uuid] = gpu
        return list(usable.values())


class GpuReading(msgspec.Struct, frozen=True):
    """One GPU at one moment. `None`: the driver does not report it.

    Attributes:
        busy: share of the last moments (up to a second) in which a kernel ran.
        watts: power.
        joules: energy since the driver was loaded.
        memory_mib: memory in use in MiB, by any process.
        pids: processes that compute on it. In a container they may have other numbers than inside.
    """

    busy: float | None = None
    watts: float | None = None
    joules: float | None = None
    memory_mib: float | None = None
    pids: frozenset[int] | None = None


class Nvml:
    """The driver's library. One reading takes about a millisecond.

    Attributes:
        failure: why it cannot be asked; empty if it can.

    Args:
        failure: what `read_gpus` has found; with one, the driver is not asked, since it may hang.
    """

    def __init__(self, failure: str = "") -> None:
        import pynvml  # takes long to import

        self._library, self.failure = pynvml, failure
        if failure:
            return
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError_LibraryNotFound:
            self.failure = "this machine has no NVIDIA driver (libnvidia-ml.so.1 is missing)"
        except pynvml.NVMLError as error:
            self.failure = f"the NVIDIA driver does not answer: {error}"

    def list_gpus(self) -> list[Gpu]:
        """Return all GPUs of the machine."""
        count = 0 if self.failure else self._ask(self._library.nvmlDeviceGetCount) or 0
        return [self._describe_gpu(index) for index in range(count)]

    def _describe_gpu(self, index: int) -> Gpu:
        nvml, problem, is_broken = self._library, "", False
        device = memory = None
        try:
            device = nvml.nvmlDeviceGetHandleByIndex(index)
            memory = nvml.nvmlDeviceGetMemoryInfo(device, nvml.nvmlMemory_v2)
        except nvml.NVMLError as error:
            # A GPU with MIG slices forbids the question, and one that shares the CPU's memory has no answer.
            is_fine = error.value in (nvml.NVML_ERROR_NO_PERMISSION, nvml.NVML_ERROR_NOT_SUPPORTED)
            problem, is_broken = str(error), device is None or not is_fine
        return Gpu(
            id=str(index),
            uuid=self._ask(nvml.nvmlDeviceGetUUID, device) or f"GPU {index}",
            name=self._ask(nvml.nvmlDeviceGetName, device) or "",
            total=memory.total // MIB if memory else 0,
            used=memory.used // MIB if memory else 0,
            driver=self._ask(nvml.nvmlSystemGetDriverVersion) or "",
            capability=self._ask(nvml.nvmlDeviceGetCudaComputeCapability, device) or (0, 0),
            problem=problem,
            is_broken=is_broken,
        )

    def read(self, uuid: str) -> GpuReading:
        """Return the current values of a GPU (`Gpu.uuid`); all are `None` if the driver does not know it."""
        nvml = self._library
        device = None if self.failure else self._ask(nvml.nvmlDeviceGetHandleByUUID, uuid)
        if device is None:
            return GpuReading()
        rates = self._ask(nvml.nvmlDeviceGetUtilizationRates, device)
        milliwatts = self._ask(nvml.nvmlDeviceGetPowerUsage, device)
        millijoules = self._ask(nvml.nvmlDeviceGetTotalEnergyConsumption, device)
        memory = self._ask(nvml.nvmlDeviceGetMemoryInfo, device, nvml.nvmlMemory_v2)
        processes = self._ask(nvml.nvmlDeviceGetComputeRunningProcesses, device)
        return GpuReading(
            busy=None if rates is None else rates.gpu / 100,
            watts=None if milliwatts is None else milliwatts / 1e3,
            joules=None if millijoules is None else millijoules / 1e3,
            memory_mib=None if memory is None else memory.used / MIB,
            pids=None if processes is None else frozenset(process.pid for process in processes),
        )

    def _ask(self, query: Callable[..., Any], *arguments: Any) -> Any:
        """Return the driver's answer; `None` if it does not know it."""
        try:
            return query(*arguments)
        except self._library.NVMLError:
            return None


def read_gpus() -> GpuReport:
    """Ask the driver for the GPUs. It may hang, so a child process asks, abandoned after `DRIVER_S`."""
    import pynvml  # noqa: F401 - not in the child, where another thread's import would never end

    def ask() -> bytes:
        nvml = Nvml()
        return msgspec.json.encode(GpuReport(installed=nvml.list_gpus(), failure=nvml.failure))

    content = answer_in_child(ask, DRIVER_S)
    if not content:
        reason = f"does not answer within {DRIVER_S:g} s" if content is None else "could not be asked"
        return GpuReport(chosen=os.environ.get(VISIBLE), failure=f"the NVIDIA driver {reason}")
    report = msgspec.json.decode(content, type=GpuReport)
    return msgspec.structs.replace(report, chosen=os.environ.get(VISIBLE))


def device_settings(gpus: Sequence[Gpu]) -> dict[str, str]:
    """Return the environment variables that show a process only these GPUs; none without GPUs."""
    if not gpus:
        return {}
    # By default CUDA numbers the fastest GPU 0. NVML and vLLM number them by their position on the bus.
    return {VISIBLE: ",".join(gpu.id for gpu in gpus), ORDER: os.environ.get(ORDER, "PCI_BUS_ID")}


def _find_gpu(installed: Sequence[Gpu], entry: str) -> Gpu | None:
    """Return the GPU that an entry of `CUDA_VISIBLE_DEVICES` names: by index, or by the start of a UUID."""
    if entry.isdigit():
        return next((gpu for gpu in installed if gpu.id == str(int(entry))), None)
    fits = [gpu for gpu in installed if entry.startswith("GPU-") and gpu.uuid.startswith(entry)]
    return msgspec.structs.replace(fits[0], id=fits[0].uuid) if len(fits) == 1 else None
