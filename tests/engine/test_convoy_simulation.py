"""What convoys and a match unit of 1 would gain on a GPU, by a simulation. Nothing here was run on one.

Its costs are those of a decoding step of the 27B on an H200 (docs/gpu.md), and a fitted 50 ms for a mixed
step, whatever is in it. Whoever changes the scheduler can compare its rule here before a GPU is lent.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from math import log, log2
from random import Random

import pytest

BLOCK = 784
MEAN_ANSWER, SPREAD = 143, 0.35
"""Tokens of an answer: log-normal."""

MIXED_MS = 50.0
TOKEN_MS, WEIGHTS_MS = 0.078, 11.9
"""An uncached token's time, and the time to read the weights, which prefill shares with decoding."""

STEPS, WARM_UP = 5000, 800


def step_ms(decoding: int, prefilled: int) -> float:
    """Return the duration of a step: decoding as measured, and 1 ms for grammar and sampling."""
    decode = 15.71 + 0.0862 * max(decoding, 1) + 0.565 * log2(max(decoding, 1))
    computed = decode + max(0.0, TOKEN_MS * (decoding + prefilled) - WEIGHTS_MS)
    return max(MIXED_MS, computed) if prefilled else decode


def prefill_parts(start: int, end: int, unit: int) -> list[int]:
    """Return the tokens of each step that prefills a prompt from `start` on, by vLLM's rule: it stops at the
    next block's beginning, and at the last multiple of the unit."""
    stops = [(start // BLOCK + 1) * BLOCK, (end - 1) // unit * unit, end]
    borders = [start, *sorted({stop for stop in stops if start < stop <= end})]
    return [after - before for before, after in itertools.pairwise(borders)]


def draw_answer(draw: Random) -> int:
    """Return the tokens of an answer."""
    return max(8, round(draw.lognormvariate(log(MEAN_ANSWER) - SPREAD**2 / 2, SPREAD)))


@dataclass
class Talk:
    """A conversation: where its tokens are, and what is left of its turn."""

    tokens: int
    new: int
    ready_ms: float
    parts: list[int] = field(default_factory=list)
    answer: int = 0


@dataclass
class Rollout:
    """Endless conversations on one engine. Attributes are sums since the warm-up."""

    in_flight: int
    unit: int
    interval: int
    ms: float = 0.0
    output: int = 0
    steps: int = 0
    mixed: int = 0

    def play(self) -> Rollout:
        """Play the steps, each scheduled when the one before it began, as with asynchronous scheduling."""
        draw = Random(self.in_flight)
        away = [Talk(1000 + draw.randrange(BLOCK), 120, draw.uniform(0, 3000)) for _ in range(self.in_flight)]
        running: list[Talk] = []
        now, seen, since, ended = 0.0, 0.0, 0, 0
        for number in range(STEPS):
            waiting = [talk for talk in away if talk.ready_ms <= seen]
            decoding = [talk for talk in running if not talk.parts]
            held = waiting and since < self.interval and len(decoding) >= 0.5 * (len(running) + len(waiting))
            if waiting and not held:
                for talk in waiting:
                    away.remove(talk)
                    running.append(talk)
                    talk.parts = prefill_parts(talk.tokens - talk.new, talk.tokens, self.unit)
                    talk.answer = draw_answer(draw)
                since = 0
            parts = [talk.parts.pop(0) for talk in running if talk.parts]
            emitting = [talk for talk in running if not talk.parts]
            ones = len(decoding) + ended + parts.count(1)  # those that ended are computed once more
            prefilled = sum(part for part in parts if part > 1)
            ms = step_ms(ones, prefilled)
            seen, now, since = now + 4, now + ms, since + 1
            for talk in emitting:
                talk.answer -= 1
            done = [talk for talk in emitting if talk.answer <= 0]
            for talk in done:
                running.remove(talk)
                away.append(talk)
                talk.ready_ms = now + draw.uniform(6, 12)
                talk.new = draw_answer(draw) + draw.randint(30, 70)
                talk.tokens += talk.new
            ended = len(done)
            if number >= WARM_UP:
                self.ms += ms
                self.output += len(emitting)
                self.steps += 1
                self.mixed += prefilled > 0
        return self

    @property
    def per_s(self) -> float:
        return 1000 * self.output / self.ms


@pytest.mark.parametrize(
    ("in_flight", "per_s", "decode_only", "convoys", "unit_1", "both"),
    [
        (8, 359, 88, 0, 8, 7),
        (32, 976, 63, 14, 15, 23),
        (64, 1549, 39, 19, 14, 27),
        (104, 2198, 23, 12, 9, 17),
    ],
)
def test_the_gains_are_those_of_the_study(
    in_flight: int, per_s: int, decode_only: int, convoys: int, unit_1: int, both: int
) -> None:
    today = Rollout(in_flight, 16, 0).play()
    assert today.per_s == pytest.approx(per_s, rel=0.05)
    assert 100 * (1 - today.mixed / today.steps) == pytest.approx(decode_only, abs=5)
    for (unit, interval), gain in zip([(16, 12), (1, 0), (1, 12)], [convoys, unit_1, both], strict=True):
        changed = Rollout(in_flight, unit, interval).play()
        assert 100 * (changed.per_s / today.per_s - 1) == pytest.approx(gain, abs=5)
