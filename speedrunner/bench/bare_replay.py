"""A bare replay: sends the requests of a rollout again, from a client that does nothing else."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from serving.apis.completions import TokenConversation
from serving.deployment import Deployment
from serving.engine.http import HttpClient, HttpError
from serving.errors import RequestFailed
from serving.together import run_together
from speedrunner.store.records import Turn


@dataclass(frozen=True)
class TokenStream:
    """One episode as its engine saw it.

    Attributes:
        prompt: token ids of the first prompt.
        replies: ids that followed each answer; none after the last.
        most_tokens: limit of an answer.
        options: the other fields of each request, without prompt and length.
        replica: the replica that it was bound to, if there are several.
    """

    prompt: list[int]
    replies: list[list[int]]
    most_tokens: int
    options: dict[str, Any]
    replica: int | None

    @classmethod
    def of(cls, turns: Sequence[Turn], talk: TokenConversation) -> TokenStream:
        """Return the token stream of an episode's conversation."""
        ids, usages = talk.transcript.ids, [turn.usage for turn in turns]
        between = [
            ids[before.prompt + before.completion : after.prompt]
            for before, after in itertools.pairwise(usages)
        ]
        return cls(
            prompt=ids[: usages[0].prompt],
            replies=[*between, []],
            most_tokens=talk.transcript.answer_tokens,
            options=talk.options,
            replica=talk.replica.address,
        )


class BareClient:
    """A minimal load generator.

    It samples answers under the same grammars. The recorded replies follow them, so that the cache can
    provide as much as it did for the rollout. A salt separates its part of the cache from all earlier
    requests.
    """

    def __init__(self, deployment: Deployment, http: HttpClient) -> None:
        self._model_config = deployment.model_config
        self._http = http
        self._salt = secrets.token_hex(8)

    async def warm(self, streams: Sequence[TokenStream], prefix: list[int]) -> None:
        """Send the prefix that the streams share alone, as the rollout did. Raises `RequestFailed`."""
        for replica in {each.replica for each in streams}:
            await self._complete(prefix, 1, {}, replica)

    async def play(self, streams: Sequence[TokenStream]) -> int:
        """Send the requests of all episodes at once; return the output tokens. Raises `RequestFailed`."""
        return sum(await run_together(self._play, streams, len(streams)))

    async def _play(self, stream: TokenStream) -> int:
        tokens, ids = 0, list(stream.prompt)
        for reply in stream.replies:
            most = min(stream.most_tokens, self._model_config.context - len(ids))
            if most < 1:
                break
            answer = await self._complete(ids, most, stream.options, stream.replica)
            tokens += len(answer)
            ids += answer + reply
        return tokens

    async def _complete(
        self, ids: list[int], max_tokens: int, options: dict[str, Any], replica: int | None
    ) -> list[int]:
        """Return one answer's token ids."""
        fixed = {"model": self._model_config.name, "return_token_ids": True, "max_tokens": max_tokens}
        headers = {} if replica is None else {"X-data-parallel-rank": str(replica)}
        body = msgspec.json.encode({**fixed, **options, "cache_salt": self._salt, "prompt": ids})
        try:
            response = await self._http.post("/v1/completions", body, headers)
        except HttpError as error:
            raise RequestFailed(f"a bare request failed: {error}") from error
        if response.status != 200:
            raise RequestFailed(f"a bare request got status {response.status}: {response.text}")
        answer: list[int] = response.json()["choices"][0]["token_ids"]
        return answer
