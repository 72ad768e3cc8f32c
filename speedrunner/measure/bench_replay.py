"""Episodes as their engine saw them, and a bare load generator that sends them again."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

import httpx2
import msgspec

from serving.conversation import TokenConversation
from serving.deployment import Deployment
from serving.errors import RequestFailed
from speedrunner.store.records import Trajectory

TIMEOUT_S = 1800.0


class Recorded(msgspec.Struct, frozen=True):
    """One episode as its engine saw it.

    Attributes:
        prompt: token ids of the first prompt.
        replies: those that followed each answer, but the last.
        answers: the answers' own.
        max_tokens: the most that an answer may take.
        options: what each request carried beside prompt and length.
        replica: that it was bound to, where there are several.
    """

    prompt: list[int]
    replies: list[list[int]]
    answers: list[list[int]]
    max_tokens: int
    options: dict[str, Any]
    replica: int | None


def recorded(talk: TokenConversation, played: Trajectory) -> Recorded:
    """Take a conversation apart."""
    ids = talk.transcript.ids
    ends = [(turn.usage.prompt, turn.usage.prompt + turn.usage.completion) for turn in played.turns]
    return Recorded(
        prompt=ids[: ends[0][0]],
        replies=[ids[end:begin] for (_, end), (begin, _) in itertools.pairwise(ends)],
        answers=[ids[begin:end] for begin, end in ends],
        max_tokens=talk.transcript.answer_tokens,
        options=talk.options,
        replica=talk.replica.address,
    )


async def warm(deployment: Deployment, episodes: Sequence[Recorded], prefix: list[int], salt: str) -> None:
    """Send the prefix that the episodes share, alone, as the rollout did.

    Args:
        salt: as for `replay`.

    Raises:
        RequestFailed: the engine refused it.
    """
    async with deployment.endpoint.client(TIMEOUT_S) as client:
        for replica in {each.replica for each in episodes}:
            await _complete(client, deployment, prefix, 1, {"cache_salt": salt}, replica)


async def replay(deployment: Deployment, episodes: Sequence[Recorded], salt: str) -> int:
    """Send what the episodes sent, each request after the answer to the one before it, with nothing around.

    Answers are sampled anew under the same tags, and what the environment said follows them as recorded, so
    that the cache can give as much as it gave to the rollout.

    Args:
        salt: keeps its part of the cache apart from everything that was sent before.

    Returns:
        Output tokens.

    Raises:
        RequestFailed: the engine refused a request.
    """
    context = deployment.card.context
    async with deployment.endpoint.client(TIMEOUT_S) as client:

        async def episode(recorded: Recorded) -> int:
            ids, tokens = list(recorded.prompt), 0
            options = {**recorded.options, "cache_salt": salt}
            for reply in [*recorded.replies, []]:
                most = min(recorded.max_tokens, context - len(ids))
                if most < 1:
                    break
                answer = await _complete(client, deployment, ids, most, options, recorded.replica)
                tokens += len(answer)
                ids += answer + reply
            return tokens

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(episode(each)) for each in episodes]
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return sum(task.result() for task in tasks)


async def _complete(
    client: httpx2.AsyncClient,
    deployment: Deployment,
    ids: list[int],
    max_tokens: int,
    options: dict[str, Any],
    replica: int | None,
) -> list[int]:
    """One answer's token ids."""
    fixed = {"model": deployment.card.name, "return_token_ids": True, "max_tokens": max_tokens}
    headers = {"Content-Type": "application/json"}
    if replica is not None:
        headers["X-data-parallel-rank"] = str(replica)
    body = msgspec.json.encode({**fixed, **options, "prompt": ids})
    try:
        response = await client.post("/v1/completions", content=body, headers=headers)
    except httpx2.RequestError as error:
        raise RequestFailed(f"a bare request failed: {str(error) or type(error).__name__}") from error
    if response.status_code != 200:
        raise RequestFailed(f"a bare request was answered with {response.status_code}: {response.text}")
    answer: list[int] = msgspec.json.decode(response.content)["choices"][0]["token_ids"]
    return answer
