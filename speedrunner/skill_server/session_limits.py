"""The limits of clients' sessions, which the servers of all protocols share."""

from __future__ import annotations

IDLE_S = 1800.0
"""Seconds without a message of its client after which a session and its episode end."""


def describe_full(limit: int) -> str:
    """Return why a client is refused while all sessions are in use."""
    return f"all {limit} sessions are in use: end one, or start the server with --sessions N"
