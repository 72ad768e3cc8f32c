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


def primitives(env: TextEnv) -> str:
    """Return an environment's primitives, for an author of skills."""
    return render(__package__, "primitives", env=env)


def world(env: TextEnv) -> str:
    """Return an environment's quoted description and its primitives, for an author of skills."""
    return render(__package__, "world", env=env)


def actor_world(env: TextEnv) -> str:
    """Return an environment's quoted description and the actor's tools, for an author of prose."""
    return render(
        __package__, "actor_world", env=env, submit=SUBMIT_ANSWER, description=quote_description(env)
    )


def describe_episodes(env: TextEnv, limits: EpisodeLimits) -> str:
    """Return the limits of an episode, and the reasons for which it can end."""
    return render(__package__, "episodes", env=env, limits=limits, seconds=f"{limits.wall_s:g}")


def prose_system(template: str, env: TextEnv, limits: EpisodeLimits, **inputs: Any) -> str:
    """Return the system message of a role that writes prose for the actor.

    Args:
        inputs: what the template needs besides the environment and the limits of its episodes.
    """
    return render(
        __package__,
        template,
        env=env,
        submit=SUBMIT_ANSWER,
        description=quote_description(env),
        episodes=describe_episodes(env, limits),
        **inputs,
    )


def skill_rules(
    env: TextEnv,
    string_tokens: int | None = None,
    *,
    program: bool = False,
) -> str:
    """Return the rules for skills, and the abilities of a skill.

    Args:
        string_tokens: maximum tokens of one source, which the text states.
        program: the skills are the functions of one program; see `speedrunner.methods.voyager`.
    """
    modules = sorted(ALLOWED_MODULES)
    return render(
        __package__,
        "rules",
        env=env,
        types=SUPPORTED,
        modules=modules,
        string_tokens=string_tokens,
        program=program,
    )


def skill_example(*, program: bool = False) -> str:
    """Return a worked example of a skill, from a world unlike any environment.

    Args:
        program: give every parameter a default, as a program runs without arguments.
    """
    return render(__package__, "example", program=program)
