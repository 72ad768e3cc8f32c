"""Episodes as their engine saw them, sent again: each request after the answer to the one before it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx2
import msgspec

from serving.deployment import Deployment
from serving.errors import RequestFailed
from serving.together import together
from speedrunner.measure.played_episodes import PlayedEpisode

TIMEOUT_S = 1800.0


@dataclass(frozen=True)
class TokenStream:
    """One episode as its engine saw it.

    Attributes:
        prompt: token ids of the first prompt.
        answers: ids of each answer.
        replies: ids that followed each answer; none after the last.
        most_tokens: that an answer may take.
        options: what each request carried beside prompt and length.
        replica: that it was bound to, where there are several.
    """

    prompt: list[int]
    answers: list[list[int]]
    replies: list[list[int]]
    most_tokens: int
    options: dict[str, Any]
    replica: int | None

    @classmethod
    def of(cls, played: PlayedEpisode) -> TokenStream:
        """Take an episode's conversation apart."""
        talk, ids = played.talk, played.talk.transcript.ids
        usages = [turn.usage for turn in played.trajectory.turns]
        ends = [(usage.prompt, usage.prompt + usage.completion) for usage in usages]
        return cls(
            prompt=ids[: ends[0][0]],
            answers=[ids[begin:end] for begin, end in ends],
            replies=[*(ids[end:begin] for (_, end), (begin, _) in itertools.pairwise(ends)), []],
            most_tokens=talk.transcript.answer_tokens,
            options=talk.options,
            replica=talk.replica.address,
        )


class BareClient:
    """A load generator with nothing around it.

    Answers are sampled anew under the same tags, and what the environment said follows them as recorded, so
    that the cache can give as much as it gave to the rollout.

    Args:
        salt: keeps its part of the cache apart from everything that was sent before.
    """

    def __init__(self, deployment: Deployment, http: httpx2.AsyncClient, salt: str) -> None:
        self._card = deployment.card
        self._http = http
        self._salt = salt

    async def warm(self, streams: Sequence[TokenStream], prefix: list[int]) -> None:
        """Send the prefix that the streams share alone, as the rollout did. Raises `RequestFailed`."""
        for replica in {each.replica for each in streams}:
            await self._complete(prefix, 1, {}, replica)

    async def play(self, streams: Sequence[TokenStream]) -> int:
        """Send what the episodes sent, all of them at once.

        Returns:
            Output tokens.

        Raises:
            RequestFailed: the engine refused a request.
        """
        return sum(await together(self._play, streams, len(streams)))

    async def _play(self, stream: TokenStream) -> int:
        tokens, ids = 0, list(stream.prompt)
        for reply in stream.replies:
            most = min(stream.most_tokens, self._card.context - len(ids))
            if most < 1:
                break
            answer = await self._complete(ids, most, stream.options, stream.replica)
            tokens += len(answer)
            ids += answer + reply
        return tokens

    async def _complete(
        self, ids: list[int], max_tokens: int, options: dict[str, Any], replica: int | None
    ) -> list[int]:
        """One answer's token ids."""
        fixed = {"model": self._card.name, "return_token_ids": True, "max_tokens": max_tokens}
        headers = {"Content-Type": "application/json"}
        if replica is not None:
            headers["X-data-parallel-rank"] = str(replica)
        body = msgspec.json.encode({**fixed, **options, "cache_salt": self._salt, "prompt": ids})
        try:
            response = await self._http.post("/v1/completions", content=body, headers=headers)
        except httpx2.RequestError as error:
            raise RequestFailed(f"a bare request failed: {str(error) or type(error).__name__}") from error
        if response.status_code != 200:
            raise RequestFailed(f"a bare request was answered with {response.status_code}: {response.text}")
        answer: list[int] = msgspec.json.decode(response.content)["choices"][0]["token_ids"]
        return answer
