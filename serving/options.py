"""User options for reaching or starting an engine, with their defaults."""

from __future__ import annotations

from typing import Annotated, Literal, Self

import msgspec

START_TIMEOUT_S = 1800.0
REQUEST_TIMEOUT_S = 1800.0
OUTAGE_TIMEOUT_S = 900.0

Seconds = Annotated[float, msgspec.Meta(gt=0)]
Text = Annotated[str, msgspec.Meta(min_length=1)]
Check = Literal["once", "never"]


class ServiceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach or start an engine."""

    #: A running server to use, `unix:/path/to/socket` or `http://HOST:PORT/v1`; `None` starts one.
    url: Text | None = None
    #: Environment variable with the API key for `url`; `None` for a server that asks for none.
    api_key_env: Text | None = None
    #: Seconds that a starting server may take until it is ready.
    start_timeout_s: Seconds = START_TIMEOUT_S
    #: Seconds that one request may take.
    request_timeout_s: Seconds = REQUEST_TIMEOUT_S
    #: Seconds that a request may wait in all for a server that others run and that refuses connections or is
    #: overloaded, and for rate limits. A server of ours is restarted instead.
    outage_timeout_s: Seconds = OUTAGE_TIMEOUT_S
    #: Seconds without progress while requests run after which the engine counts as hung; each hang doubles
    #: them. `None`: one per 1,000 tokens of context, at least 60 (on a CPU 180). Before its first token, an
    #: engine gets at least 300.
    hang_timeout_s: Seconds | None = None
    #: Hold conversations back that the prefix cache has no room for.
    admission: bool = True
    #: Check tool calls and the prefix cache before the first episode: `once` for each engine, or `never`.
    check: Check = "once"
    #: Record the token ids of all prompts and answers (completions API), for `export --to atif --token-ids`.
    token_ids: bool = False

    def elsewhere(self) -> Self:
        """Return the same options for another engine, without this one's address and API key."""
        return msgspec.structs.replace(self, url=None, api_key_env=None)
