"""`speedrunner serve env`: an environment as an OpenEnv server."""

from __future__ import annotations

from typing import Annotated

import typer

from speedrunner.cli.command import class_name, class_options
from speedrunner.cli.local_server import SESSIONS, Sessions, TokenFile, read_token, serve_until_signal
from speedrunner.cli.output import say_error
from speedrunner.config.compose import compose, env_settings
from speedrunner.pages.loopback import ADDRESS, listen, new_token
from speedrunner.skill_server.game import make_game
from speedrunner.skill_server.openenv_server import serve_openenv

OPTIONS = "Its options. Settings have a dot: task.name=..., limits (run.max_actions=100)."


def serve(
    name: Annotated[str, class_name("babyai")],
    options: Annotated[list[str] | None, class_options(OPTIONS)] = None,
    port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=65535, help="Port on 127.0.0.1. 0: any free one.")
    ] = 8000,
    token_file: TokenFile = None,
    sessions: Sessions = SESSIONS,
) -> None:
    """Serve an environment as an OpenEnv server until Ctrl-C.

    Each client of the protocol of openenv-core 0.3.0 plays its own episodes, with the actor's texts and the
    limits of a run. A seed chooses a task of the training split. A step is a typed call,
    {"message": "NAME(PARAMETER=VALUE)"}, or a call_tool action.

    Example: speedrunner serve env babyai --token-file ~/.speedrunner-token
    """
    game = make_game(compose([f"env={name}", *env_settings(options or [])]))
    token = new_token() if token_file is None else read_token(token_file)
    listener = listen(port)
    port = listener.getsockname()[1]
    say_error(f"{name} is at http://{ADDRESS}:{port}; press Ctrl-C to stop")
    if token_file is None:
        say_error(f"clients use http://user:{token}@{ADDRESS}:{port}")
    else:
        say_error(f"clients send the token in {token_file} as password")
    serve_until_signal(serve_openenv(game, token, listener, sessions))
