"""`speedrunner library serve`: a library and its environment as tools of an MCP server."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from speedrunner.cli.command import StoredLibrary, Trust, key_values
from speedrunner.cli.local_server import SESSIONS, Sessions, TokenFile, read_token, serve_until_signal
from speedrunner.cli.output import say_error
from speedrunner.config.optional import optional
from speedrunner.config.schema import InvalidConfig
from speedrunner.pages.loopback import ADDRESS, listen, new_token
from speedrunner.skill_server.game import load_game


def serve(
    source: StoredLibrary,
    overrides: Annotated[
        list[str] | None,
        key_values(
            "Settings that differ from the run's own: the environment (env=babyai), the task if the client"
            " names none (task.index=7), limits (run.max_actions=100)."
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            min=0,
            max=65535,
            help="Serve HTTP on 127.0.0.1 instead of standard input and output. 0: any free port.",
            show_default=False,
        ),
    ] = None,
    token_file: TokenFile = None,
    sessions: Sessions = SESSIONS,
    trust: Trust = None,
) -> None:
    """Serve an environment and a library as MCP tools.

    An MCP client plays episodes with the primitives and the public skills, as the actor of a run does: the
    same tools, texts and limits. The tool start_episode begins an episode. Skills run in the sandbox. Each
    HTTP client plays its own episodes. The episode of a client ends with its session.

    Examples:
      speedrunner library serve runs/demo
      speedrunner library serve runs/demo:2 env=babyai task.index=7 --port 8765
    """
    optional("mcp", "mcp", "library serve")
    from speedrunner.skill_server.http_sessions import PATH, serve_http
    from speedrunner.skill_server.mcp_server import serve_stdio

    game = load_game(source, overrides or [], trust or [])
    if port is None:
        if token_file is not None:
            raise InvalidConfig("--token-file is for HTTP clients: add --port 0")
        if sys.stdin.isatty():
            say_error("waiting for an MCP client at the standard input; press Ctrl-C to stop")
        serve_until_signal(serve_stdio(game))
        return
    token = new_token() if token_file is None else read_token(token_file)
    listener = listen(port)
    say_error(f"{source} is at http://{ADDRESS}:{listener.getsockname()[1]}{PATH}; press Ctrl-C to stop")
    where = f"Authorization: Bearer {token}" if token_file is None else f"the token in {token_file}"
    say_error(f"clients send {where}")
    serve_until_signal(serve_http(game, token, listener, sessions))
