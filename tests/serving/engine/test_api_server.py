"""How the API server starts its engine, with a stand-in for vLLM's platform."""

from __future__ import annotations

import os
import sys
from types import ModuleType

import pytest

from serving.engine.api_server import fork_cpu_engine

METHOD = "VLLM_WORKER_MULTIPROC_METHOD"


class Platform:
    """vLLM's platform, which asks for a new process on a CPU when it checks a configuration."""

    def __init__(self, cpu: bool) -> None:
        self._cpu = cpu

    def is_cpu(self) -> bool:
        return self._cpu

    @classmethod
    def check_and_update_config(cls, config: object) -> None:
        os.environ[METHOD] = "spawn"


@pytest.mark.parametrize(
    ("cpu", "threads", "method"),
    [(True, "1", "fork"), (True, "2", "spawn"), (True, None, "spawn"), (False, "1", "spawn")],
)
def test_a_cpu_s_engine_is_forked_if_it_has_one_thread(
    cpu: bool, threads: str | None, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(METHOD, "unset")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if threads is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
    platform = type("Own", (Platform,), {})(cpu)
    module = ModuleType("vllm.platforms")
    module.current_platform = platform  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", ModuleType("vllm"))
    monkeypatch.setitem(sys.modules, "vllm.platforms", module)
    fork_cpu_engine()
    platform.check_and_update_config("config")
    assert os.environ[METHOD] == method
