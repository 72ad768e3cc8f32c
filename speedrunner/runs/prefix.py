"""The prompt prefix that episodes of one policy share: what a sleep leaves of it, and who warms it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from serving.errors import RequestFailed
from serving.tokens.transcript import common_prefix
from speedrunner.agents.actor import Actor, ActorSpec
from speedrunner.store.labels import Labels
from speedrunner.store.records import PrefixChange


def prefix_change(actor: Actor, before: ActorSpec, after: ActorSpec) -> PrefixChange | None:
    """What remains of the prefix when a policy takes another's place; `None` on the chat route."""
    old, new = actor.shared_prefix(before), actor.shared_prefix(after)
    return PrefixChange(len(old), len(new), len(common_prefix(old, new))) if new else None


async def warm(actor: Actor, specs: Iterable[ActorSpec], labels: Labels) -> None:
    """Send each prefix alone that at least two of these episodes begin with.

    One that is not sent costs time later, and nothing else.
    """
    seen: list[ActorSpec] = []
    shared: list[ActorSpec] = []
    for spec in specs:
        if spec not in seen:
            seen.append(spec)
        elif spec not in shared:
            shared.append(spec)

    async def send(spec: ActorSpec) -> None:
        with suppress(RequestFailed):
            await actor.warm(spec, labels)

    await asyncio.gather(*map(send, shared))
