"""`speedrunner follow`: the step that waits on the other nodes of a job for its model."""

from __future__ import annotations


def follow() -> None:
    """Serve a part of a model with the job's first node. The scripts of `speedrunner submit` call it."""
    from serving.engine.follower import follow as serve_for_the_first_node

    serve_for_the_first_node()
