"""Digests of SpeedRunner's code that a process computes once. Users' processes compute them for each run."""

from __future__ import annotations

from functools import cache

from speedrunner.runs import identity


def digest_once() -> None:
    """Cache the digests of the packages and the state of the checkout."""
    identity._package = cache(identity._package)
    identity._commit = cache(identity._commit)
