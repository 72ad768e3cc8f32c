"""vLLM's scheduler, changed so that turns begin together. It runs in the engine's process.

A step that only decodes runs as one CUDA graph. A step that also prefills is launched kernel by kernel, since
gated delta nets allow full graphs only for decoding. Most steps of a rollout prefill some turn's new tokens.
Here new requests wait for a few steps while most others decode, so one mixed step serves several turns.

vLLM 0.32 has the idea as `prefill_schedule_interval`, for data-parallel MoE engines only. This scheduler uses
two parts of vLLM's private interface: the scheduler's `_pause_state`, and its request queues.
"""

from __future__ import annotations

import os
import sys
from math import sqrt
from typing import TYPE_CHECKING, Any

from serving.engine.scheduling import LOG_VARIABLE, NO_CONVOYS, STEPS_VARIABLE
from serving.engine.step_log import log_step

if TYPE_CHECKING:
    Base = Any
    AsyncBase = Any
    PauseState = Any
else:
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler as AsyncBase
    from vllm.v1.core.sched.interface import PauseState
    from vllm.v1.core.sched.scheduler import Scheduler as Base

PRIVATE = ("_pause_state", "waiting", "deferred_waiting", "running")
"""Attributes of vLLM's scheduler that convoys need."""

DECODING_SHARE = 0.5
"""Requests are held only while at least this share of the engine's requests decodes."""

EXTRA_COST = 1.5
"""Time that a mixed step takes in addition to a decoding step, in decoding steps: about 30 ms to 20 ms on an
H200 with a model of 27B parameters, fitted to measured rollouts (docs/gpu.md)."""

RECENT_TURNS = 64
"""Number of admitted requests over which the length of a turn is averaged."""


class SyncConvoyScheduler(Base):  # type: ignore[misc]
    """Convoys without asynchronous scheduling, as on CPUs."""

    _pause_state: Any  # vLLM's own

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._most_steps = int(os.environ.get(STEPS_VARIABLE, "0"))
        self._steps_since_admission = self._most_steps
        self._decoded, self._admitted = 0, 0
        """Tokens decoded and requests admitted; both are halved now and then, so that recent turns count."""
        file = os.environ.get(LOG_VARIABLE)
        self._log = open(file, "ab", buffering=0) if file else None  # noqa: PTH123, SIM115
        if missing := [name for name in PRIVATE if not hasattr(self, name)]:
            print(f"{NO_CONVOYS}: its scheduler has no {', '.join(missing)}", file=sys.stderr)
            self._most_steps = 0

    def schedule(self, *args: Any, **settings: Any) -> Any:
        """Schedule a step. Requests that have not started wait if most of the others decode."""
        if self._most_steps == 0:
            return super().schedule(*args, **settings)
        state = self._pause_state
        if state == PauseState.UNPAUSED and self._holds_requests():
            self._pause_state = PauseState.PAUSED_NEW  # vLLM's own: running requests continue, new ones wait
        try:
            output = super().schedule(*args, **settings)
        finally:
            self._pause_state = state
        self._count(output)
        return output

    def _holds_requests(self) -> bool:
        if not self.waiting or self._steps_since_admission >= self._interval():
            return False
        decoding = sum(not request.is_prefill_chunk for request in self.running)
        return decoding > 0 and decoding >= DECODING_SHARE * (len(self.running) + len(self.waiting))

    def _interval(self) -> int:
        """Return the fewest steps between two admissions.

        With one admission in N steps, a request waits for N / 2 steps in the mean, and all requests of those
        N steps share the extra cost of one mixed step. The sum is least at sqrt(2 * tokens of a turn * extra
        cost), so short turns get shorter intervals.
        """
        if self._admitted < RECENT_TURNS / 2:
            return self._most_steps
        return min(self._most_steps, round(sqrt(2 * self._decoded / self._admitted * EXTRA_COST)))

    def _count(self, output: Any) -> None:
        admitted = len(output.scheduled_new_reqs) + len(output.scheduled_cached_reqs.resumed_req_ids)
        self._admitted += admitted
        self._decoded += sum(not request.is_prefill_chunk for request in self.running)
        if self._admitted >= RECENT_TURNS:
            self._decoded, self._admitted = self._decoded // 2, self._admitted // 2
        # If the step had no room for all of them, the next one admits the rest.
        has_admitted_all = admitted > 0 and len(self.waiting) <= len(self.deferred_waiting)
        self._steps_since_admission = 0 if has_admitted_all else self._steps_since_admission + 1

    def update_from_output(self, step: Any, output: Any) -> Any:
        """Process the output of a step, and log the step."""
        if self._log is not None and step.num_scheduled_tokens:
            graphs = output.cudagraph_stats
            mode = graphs.runtime_mode if graphs else None
            log_step(self._log, step.num_scheduled_tokens.values(), len(self.waiting), mode)
        return super().update_from_output(step, output)


class ConvoyScheduler(SyncConvoyScheduler, AsyncBase):  # type: ignore[misc]
    """Convoys with asynchronous scheduling, vLLM's default on GPUs."""
