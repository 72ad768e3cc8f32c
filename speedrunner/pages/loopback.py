"""Listen on the loopback address only, and recognise requests that browsers send for other sites."""

from __future__ import annotations

import re
import secrets
import socket
from collections.abc import Sequence

ADDRESS = "127.0.0.1"
HOST = re.compile(r"(127\.0\.0\.1|localhost)(:\d{1,5})?", re.ASCII)
"""Allowed names of this machine; the port may differ because of a tunnel."""


class PortInUse(Exception):
    """Another process uses the port."""


def listen(port: int) -> socket.socket:
    """Return a socket on the loopback address. Raises `PortInUse`.

    Args:
        port: 0: any free port.
    """
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((ADDRESS, port))
        listener.listen()
    except OSError as error:
        listener.close()
        reason = (error.strerror or str(error)).lower()
        raise PortInUse(
            f"port {port} is not available ({reason}): choose another --port, or 0 for a free one"
        ) from error
    return listener


def new_token() -> str:
    """Return a token that other users of this machine cannot guess."""
    return secrets.token_urlsafe(16)


def find_refusal(hosts: Sequence[str], origin: str | None) -> tuple[int, str] | None:
    """Return the HTTP status and the reason to refuse a request; `None` if it is allowed.

    A page of another site can send requests here by a name that it resolves to this machine, or from its own
    origin.

    Args:
        hosts: values of the header `Host`.
        origin: value of the header `Origin`, if there is one.
    """
    if len(hosts) != 1 or not HOST.fullmatch(hosts[0]):
        return 421, "this server works only on its own machine: use localhost"
    if origin is not None and origin != f"http://{hosts[0]}":
        return 403, "requests from pages of other origins are not allowed"
    return None
