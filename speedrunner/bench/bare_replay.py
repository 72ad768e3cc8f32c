"""A bare replay: sends the requests of a rollout again, from a client that does nothing else."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Sequence
from typing import Any

import msgspec

from serving.admission import Replica
from serving.apis.completions import TokenConversation
from serving.deployment import Deployment
from serving.engine.client import run_together
from serving.engine.endpoint import HttpClient, HttpError
from serving.errors import RequestFailed
from speedrunner.store.records import Turn

Played = tuple[Sequence[Turn], TokenConversation]
"""An episode's turns and its actor's conversation."""


class BareClient:
    """A minimal load generator.

    It samples answers under the same grammars. The recorded replies follow them, so that the cache can
    provide as much as it did for the rollout. A salt separates its part of the cache from all earlier
    requests. Its conversations queue for room in the cache as those of the rollout did.

    Args:
        prefix: token ids that all conversations start with.
    """

    def __init__(self, deployment: Deployment, http: HttpClient, prefix: list[int]) -> None:
        self._deployment = deployment
        self._http = http
        self._prefix = prefix
        self._salt = secrets.token_hex(8)

    async def warm(self) -> None:
        """Send the prefix alone, as the rollout did. Raises `RequestFailed`."""
        for replica in self._deployment.replicas:
            await self._complete(self._prefix, 1, {}, replica)

    async def play(self, episodes: Sequence[Played]) -> int:
        """Send the requests of all episodes at once; return the output tokens. Raises `RequestFailed`."""
        return sum(await run_together(self._play, episodes, len(episodes)))

    async def _play(self, played: Played) -> int:
        turns, talk = played
        recorded, usages = talk.transcript.ids, [turn.usage for turn in turns]
        replies = [
            recorded[before.prompt + before.completion : after.prompt]
            for before, after in itertools.pairwise(usages)
        ]
        tokens, ids = 0, recorded[: usages[0].prompt]
        slot = talk.replica.slot(tuple(self._prefix))
        try:
            for talk.turns, reply in enumerate([*replies, []]):  # the seed is that of the same turn
                room = self._deployment.model_config.context - len(ids)
                if room < 1:
                    break
                await slot.enter(len(ids))
                most = min(talk.transcript.answer_tokens, room)
                answer = await self._complete(ids, most, talk.options | talk.seed, talk.replica)
                slot.pause()
                tokens += len(answer)
                ids += answer + reply
        finally:
            slot.leave()
        return tokens

    async def _complete(
        self, ids: list[int], max_tokens: int, options: dict[str, Any], replica: Replica
    ) -> list[int]:
        """Return one answer's token ids."""
        name, address = self._deployment.model_config.name, replica.address
        fixed = {"model": name, "return_token_ids": True, "max_tokens": max_tokens}
        headers = {} if address is None else {"X-data-parallel-rank": str(address)}
        body = msgspec.json.encode({**fixed, **options, "cache_salt": self._salt, "prompt": ids})
        try:
            response = await self._http.send("/v1/completions", body, headers)
        except HttpError as error:
            raise RequestFailed(f"a bare request failed: {error}") from error
        if response.status != 200:
            raise RequestFailed(f"a bare request got status {response.status}: {response.text}")
        answer: list[int] = response.json()["choices"][0]["token_ids"]
        return answer
