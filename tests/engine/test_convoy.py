"""The convoy scheduler with a fake model: every conversation ends, and turns begin together."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from serving.engine.scheduling import STEPS_VARIABLE
from serving.model_configs import load_model_config
from serving.weights import prepare

pytestmark = pytest.mark.slow

BLOCK = 784
"""Tokens of a block of the 27B model on a GPU."""

TURNS = 5
BATCHES_IN_FLIGHT = 2
"""With asynchronous scheduling, a step is scheduled before the output of the one before it is known."""


@pytest.fixture(scope="module")
def folder() -> str:
    return prepare(load_model_config("tiny-hybrid"), lambda line: None)


def make_scheduler(folder: str, blocks: int, unit: int = 16) -> tuple[Any, Any]:
    """Return the scheduler of a hybrid model with this many blocks and this match unit, and its hash
    function."""
    import torch
    from vllm.config import CacheConfig, ModelConfig, SchedulerConfig, VllmConfig
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, MambaSpec
    from vllm.v1.structured_output import StructuredOutputManager

    from serving.engine.convoy import ConvoyScheduler

    config = VllmConfig(
        model_config=ModelConfig(
            model=folder, dtype="bfloat16", max_model_len=16384, skip_tokenizer_init=True
        ),
        cache_config=CacheConfig(
            block_size=BLOCK, enable_prefix_caching=True, prefix_match_unit=unit, mamba_cache_mode="align"
        ),
        scheduler_config=SchedulerConfig(
            max_num_seqs=128, max_num_batched_tokens=8192, max_model_len=16384, is_encoder_decoder=False
        ),
    )
    config.scheduler_config.async_scheduling = True  # a CPU's configuration turns these off
    config.cache_config.block_size, config.cache_config.mamba_cache_mode = BLOCK, "align"
    config.cache_config.num_gpu_blocks = blocks
    attention = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=8, dtype=torch.float32)
    state = MambaSpec(block_size=BLOCK, shapes=((8, 8),), dtypes=(torch.float32,), mamba_cache_mode="align")
    groups = [KVCacheGroupSpec(["attention"], attention), KVCacheGroupSpec(["state"], state)]
    init_none_hash(sha256)
    scheduler = ConvoyScheduler(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=groups),
        structured_output_manager=StructuredOutputManager(config),
        block_size=BLOCK,
        hash_block_size=unit,
    )
    return scheduler, get_request_block_hasher(unit, sha256)


@dataclass
class Rollout:
    """Conversations of several turns over one scheduler; its model generates the same token again and again.

    Attributes:
        late_grammars: share of requests whose grammar is compiled for three steps first.
        aborted: share of requests that their client aborts in the step after they arrive.
        steps: the tokens that each request of each step computed.
        waiting: number of requests that waited in each step.
        waits: steps from each request's arrival to its start.
        preempted: number of requests that lost their blocks.
    """

    scheduler: Any
    hasher: Any
    in_flight: int
    late_grammars: float = 0.0
    aborted: float = 0.0
    steps: list[list[int]] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)
    preempted: int = 0

    def __post_init__(self) -> None:
        self._draw = random.Random(0)
        self._time = 0
        self._ids = {talk: self._tokens(900) for talk in range(self.in_flight)}
        self._turns = dict.fromkeys(self._ids, 0)
        self._arrivals = dict.fromkeys(self._ids, 0)
        self._requests: dict[str, tuple[int, int, int, Any]] = {}
        """By id: conversation, arrival, length of the answer, and vLLM's request."""
        self._grammars: list[tuple[int, Any]] = []
        self._aborts: list[tuple[int, str]] = []

    def play(self) -> None:
        """Play all conversations to their ends. Fails if that takes too long."""
        batches: deque[Any] = deque()
        while self._arrivals or self._requests or batches:
            self._time += 1
            assert self._time < 30_000, "the scheduler holds requests for ever"
            self._arrive()
            if self.scheduler.has_requests():
                batch = self.scheduler.schedule()
                self.preempted += len(batch.preempted_req_ids or ())
                if batch.num_scheduled_tokens:
                    self._note(batch)
                    batches.append(batch)
                    if len(batches) < BATCHES_IN_FLIGHT:
                        continue
            if batches:
                self._finish(batches.popleft())

    @property
    def decode_only(self) -> float:
        """The share of steps in which each request computed one token."""
        return sum(max(step) == 1 for step in self.steps) / len(self.steps)

    @property
    def running_share(self) -> float:
        """The share of the engine's requests that run, in steps with at least three quarters of all."""
        busy = [
            len(step) / (len(step) + waiting)
            for step, waiting in zip(self.steps, self.waiting, strict=True)
            if len(step) + waiting >= 0.75 * self.in_flight
        ]
        return sum(busy) / len(busy)

    def _tokens(self, least: int) -> list[int]:
        return [self._draw.randrange(5000) for _ in range(least + self._draw.randrange(least))]

    def _arrive(self) -> None:
        from vllm.sampling_params import SamplingParams
        from vllm.v1.request import Request, RequestStatus

        for talk in [talk for talk, at in self._arrivals.items() if at <= self._time]:
            del self._arrivals[talk]
            name = f"{talk}-{self._turns[talk]}"
            options = SamplingParams(max_tokens=400, ignore_eos=True)
            request = Request(name, list(self._ids[talk]), options, None, block_hasher=self.hasher)
            if self._draw.random() < self.late_grammars:
                request.status = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
                request.structured_output_request = SimpleNamespace(
                    grammar=None, reasoning_ended=True, reasoning_parser_kwargs=None
                )
                self._grammars.append((self._time + 3, request))
            if self._draw.random() < self.aborted:
                self._aborts.append((self._time + 1, name))
            length = min(380, max(5, int(self._draw.lognormvariate(4.8, 0.35))))
            self._requests[name] = talk, self._time, length, request
            self.scheduler.add_request(request)
        for _, request in self._due(self._grammars):
            request.structured_output_request.grammar = object()
        for _, name in self._due(self._aborts):
            self._end(name, RequestStatus.FINISHED_ABORTED)

    def _due(self, events: list[tuple[int, Any]]) -> list[tuple[int, Any]]:
        due = [event for event in events if event[0] <= self._time]
        events[:] = [event for event in events if event[0] > self._time]
        return due

    def _note(self, batch: Any) -> None:
        self.steps.append(list(batch.num_scheduled_tokens.values()))
        self.waiting.append(len(self.scheduler.waiting))
        for new in batch.scheduled_new_reqs:
            _, arrival, _, request = self._requests[new.req_id]
            self.waits.append(self._time - arrival)
            request.structured_output_request = None  # a fake model needs no bitmask
        batch.decodes = {
            name for name in batch.num_scheduled_tokens if not self.scheduler.requests[name].is_prefill_chunk
        }

    def _finish(self, batch: Any) -> None:
        from vllm.v1.outputs import ModelRunnerOutput
        from vllm.v1.request import RequestStatus

        names = list(batch.num_scheduled_tokens)
        output = ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: place for place, name in enumerate(names)},
            sampled_token_ids=[[7] if name in batch.decodes else [] for name in names],
        )
        self.scheduler.update_from_output(batch, output)
        for name in names:
            if name in self._requests:
                _, _, length, request = self._requests[name]
                if request.num_output_tokens >= length:
                    self._end(name, RequestStatus.FINISHED_STOPPED)

    def _end(self, name: str, status: Any) -> None:
        if name not in self._requests:
            return
        talk, _, _, request = self._requests.pop(name)
        self.scheduler.finish_requests(name, status)
        self._ids[talk] += [*request.output_token_ids, *self._tokens(30)]
        self._turns[talk] += 1
        if self._turns[talk] < TURNS:
            self._arrivals[talk] = self._time + 2


@pytest.fixture
def convoys(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(STEPS_VARIABLE, "12")
    return


@pytest.mark.parametrize(("in_flight", "unit"), [(1, 16), (3, 1), (32, 1), (128, 16)])
@pytest.mark.parametrize(
    "fates", [{}, {"late_grammars": 0.2}, {"aborted": 0.2}], ids=["plain", "late grammars", "aborts"]
)
@pytest.mark.usefixtures("convoys")
def test_every_conversation_ends_and_none_waits_long(
    folder: str, in_flight: int, unit: int, fates: Any
) -> None:
    rollout = Rollout(*make_scheduler(folder, 20_000, unit), in_flight, **fates)
    rollout.play()
    scheduler = rollout.scheduler
    assert (len(scheduler.requests), len(scheduler.running), len(scheduler.waiting)) == (0, 0, 0)
    assert len(rollout.waits) >= in_flight * TURNS * (1 - fates.get("aborted", 0) * 2)
    beginning = rollout.waits[in_flight:]  # the first prompts of all fill the token budget of several steps
    assert max(beginning) <= 12 + 5  # the interval, and what a grammar or an unfinished convoy adds
    if in_flight == 1:
        assert max(beginning) <= 1 + 3 * bool(fates), "a single conversation waits for no one"


@pytest.mark.parametrize("unit", [16, 1])
@pytest.mark.usefixtures("convoys")
def test_conversations_end_when_the_cache_is_too_small_for_all(folder: str, unit: int) -> None:
    rollout = Rollout(*make_scheduler(folder, 90, unit), 32)
    rollout.play()
    assert rollout.preempted > 0, "the cache was large enough: the test tests nothing"
    assert len(rollout.waits) >= 32 * TURNS


def test_with_convoys_more_steps_only_decode_and_almost_as_many_requests_run(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = {}
    for steps in (0, 12):
        monkeypatch.setenv(STEPS_VARIABLE, str(steps))
        played[steps] = Rollout(*make_scheduler(folder, 20_000), 32)
        played[steps].play()
    at_once, convoys = played[0], played[12]
    assert max(at_once.waits[32:]) <= 1
    assert convoys.decode_only > at_once.decode_only + 0.1
    assert convoys.running_share > 0.93


@pytest.mark.usefixtures("convoys")
def test_a_scheduler_that_lacks_a_private_part_starts_requests_at_once(
    folder: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("serving.engine.convoy.PRIVATE", ("_pause_state", "renamed"))
    rollout = Rollout(*make_scheduler(folder, 20_000), 8)
    rollout.play()
    assert max(rollout.waits) <= 1
    assert "requests start at once: its scheduler has no renamed" in capsys.readouterr().err
