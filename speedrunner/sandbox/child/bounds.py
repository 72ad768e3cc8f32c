"""How much of a tool call is recorded. The child keeps to it to save work, the host enforces it."""

NODE_LIMIT = 20_000
"""Recorded calls of one tool call. The host records as many calls beside them that advance the world."""

DEPTH_LIMIT = 100
"""Levels of recorded calls; what runs deeper is recorded under the deepest recorded call."""

TEXT_LIMIT = 4_000_000
"""Characters of arguments and results of one tool call that are kept whole."""

MESSAGE_LIMIT = 8 * 2**20
"""Bytes that one message of the child may have."""
