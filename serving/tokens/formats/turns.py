"""Template text around what the model is told: the same in all of Qwen's chat templates."""

from __future__ import annotations


def tool_reply() -> tuple[str, str]:
    """Template text around a tool's reply."""
    return "\n<|im_start|>user\n<tool_response>\n", "\n</tool_response><|im_end|>\n"


def user_turn() -> tuple[str, str]:
    """Template text around a user message."""
    return "\n<|im_start|>user\n", "<|im_end|>\n"
