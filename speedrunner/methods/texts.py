"""Parts that the prompts of several methods share."""

from __future__ import annotations

from envs import TextEnv
from speedrunner.agents.texts import render
from speedrunner.library.signature import SUPPORTED
from speedrunner.sandbox.child.bounds import ALLOWED_MODULES


def primitives(env: TextEnv) -> str:
    """An environment's primitives, for an author of skills."""
    return render(__package__, "primitives", env=env)


def world(env: TextEnv) -> str:
    """An environment and its primitives, for an author of skills."""
    return render(__package__, "world", env=env)


def skill_rules(env: TextEnv, string_tokens: int | None = None) -> str:
    """What a library takes, and what a skill can do.

    Args:
        string_tokens: the most that one text may have, to be told.
    """
    modules = sorted(ALLOWED_MODULES)
    return render(
        __package__, "rules", env=env, types=SUPPORTED, modules=modules, string_tokens=string_tokens
    )
