"""Export ledgers as Mooncake request traces, which benchmarks of serving systems replay.

Each line is a request: `timestamp` (milliseconds from the first one), `input_length` and `output_length` in
tokens, and `hash_ids`, one for each block of the prompt, the last one for its incomplete block. The ids that
two prompts have in common at their starts are the blocks that they share.

The ledger has no token ids, but `cacheable`: how many tokens of a prompt earlier requests had computed. So a
prompt gets the ids of the request that it continues, up to there, and new ids after that. It continues the
request before it in its conversation; a first request continues the newest one of its role and policy.
Without `cacheable` (chat and responses APIs), the tokens that the provider took from its cache count.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import msgspec

from serving.meter import LedgerRow
from speedrunner.store.files import explain_errors
from speedrunner.store.run_data import RunData, load

Key = tuple[object, ...]


class TracedRequest(msgspec.Struct, frozen=True):
    """One line of a trace. Times are in milliseconds, lengths in tokens."""

    timestamp: int
    input_length: int
    output_length: int
    hash_ids: list[int]


def write_request_trace(path: Path, folder: Path, block_size: int) -> int:
    """Write the trace of a run into a folder, which is created. Return the number of requests.

    Args:
        block_size: tokens of a block. That of the engine's cache gives the engine's hits.

    Raises:
        StorageError: the run cannot be read, or the folder cannot be written.
    """
    total = 0
    with explain_errors(folder, "written"):
        folder.mkdir(parents=True)
        with (folder / "trace.jsonl").open("wb") as file:
            for request in trace_requests(load(path), block_size):
                file.write(msgspec.json.encode(request) + b"\n")
                total += 1
    return total


def trace_requests(run: RunData, block_size: int) -> Iterator[TracedRequest]:
    """Yield the requests of a run with known tokens, in the order in which they were sent."""
    rows = sorted((row for row in run.ledger if row.usage is not None), key=_sent)
    talks = _conversations(run)
    fresh = count()
    newest: dict[Key, list[int]] = {}
    for row in rows:
        assert row.usage is not None
        prompt, labels = row.usage.prompt, row.labels
        whole, shared = prompt // block_size, row.usage.cached if row.cacheable is None else row.cacheable
        talk: Key = ("talk", talks.get(row.request, row.request))
        replica, policy, role = (labels.get(name) for name in ("replica", "policy", "role"))
        groups: list[Key] = [
            (replica, policy, role),
            (replica, policy, None),
            (replica, None, role),
            (replica,),
        ]
        before = newest.get(talk)
        if before is None:
            known = [newest[group] for group in groups if group in newest]
            enough = (each for each in known if len(each) * block_size >= shared)
            before = next(enough, max(known, key=len, default=[]))
        ids = before[: min(shared // block_size, whole)]
        ids += [next(fresh) for _ in range(-(-prompt // block_size) - len(ids))]
        newest |= dict.fromkeys((talk, *groups), ids[:whole])
        sent_ms = round((_sent(row) - _sent(rows[0])) * 1000)
        yield TracedRequest(sent_ms, prompt, row.usage.completion, ids)


def _sent(row: LedgerRow) -> float:
    return row.time - row.seconds


def _conversations(run: RunData) -> dict[str, Key]:
    """Return the conversation of each request of finished episodes and sleeps."""
    found: dict[str, Key] = {}
    episodes = [*run.played("train"), *run.played("test")]
    for record in run.sleeps:
        for number, agent in enumerate(record.agents):
            found |= {turn.request: (record.sleep, number) for turn in agent.turns}
        episodes += record.attempts
    for episode in episodes:
        key = episode.episode, episode.attempt
        found |= {turn.request: (*key, turn.conversation) for turn in episode.turns}
    return found
