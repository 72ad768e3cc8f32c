"""Shared parts of the prompts of several methods."""

from __future__ import annotations

from typing import Any

from envs import TextEnv
from speedrunner.agents.actor import SUBMIT_ANSWER, EpisodeLimits
from speedrunner.agents.rendering import render
from speedrunner.library.rules import ALLOWED_MODULES
from speedrunner.library.signature import SUPPORTED


def quote_description(env: TextEnv) -> str:
    """Quote what the actor reads about the environment, for a role that does not play itself."""
    return render(__package__, "description", env=env)


def shared_parts(
    env: TextEnv,
    limits: EpisodeLimits | None = None,
    string_tokens: int | None = None,
    *,
    program: bool = False,
) -> dict[str, Any]:
    """Return the shared parts by name, and the variables that they are made of, for `render`.

    For an author of skills: `primitives`; `world`, the quoted `description` and the primitives; the `rules`
    for skills; a worked `example` of a skill, from a world unlike any environment. For an author of prose:
    `actor_world`, the description and the actor's tools. For both, if `limits` are given: `episodes`, the
    limits of an episode and the reasons for which it can end.

    Args:
        string_tokens: maximum tokens of one source, which the rules state.
        program: the skills are the functions of one program, which runs without arguments; see
            `speedrunner.methods.voyager`.
    """
    given: dict[str, Any] = {
        "env": env,
        "description": quote_description(env),
        "submit": SUBMIT_ANSWER,
        "types": SUPPORTED,
        "modules": sorted(ALLOWED_MODULES),
        "string_tokens": string_tokens,
        "program": program,
    }
    names = ["primitives", "world", "actor_world", "rules", "example"]
    if limits is not None:
        given |= {"limits": limits, "seconds": f"{limits.wall_s:g}"}
        names.append("episodes")
    return given | {name: render(__package__, name, **given) for name in names}
