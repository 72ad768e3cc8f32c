"""The text that chat templates write around messages, including the tokens that end a turn."""

from __future__ import annotations

import msgspec


class Frame(msgspec.Struct, frozen=True):
    """The template text of one family of models.

    Attributes:
        end_of_turn: the control token that ends the model's turn.
        other_ends: control tokens at which an engine could stop as well, and must not.
        user_turn: text before and after a message to the model, up to the model's next turn.
        tool_reply: text before and after the reply to a tool call, up to the model's next turn.
        json_replies: whether the reply itself is written as a JSON string.
        controls: texts that must not occur in reasoning, since they would end it or the turn.
    """

    end_of_turn: str
    other_ends: tuple[str, ...]
    user_turn: tuple[str, str]
    tool_reply: tuple[str, str]
    json_replies: bool = False
    controls: tuple[str, ...] = ()


CHATML = Frame(
    end_of_turn="<|im_end|>",
    other_ends=("<|endoftext|>",),
    user_turn=("\n<|im_start|>user\n", "<|im_end|>\n"),
    tool_reply=("\n<|im_start|>user\n<tool_response>\n", "\n</tool_response><|im_end|>\n"),
    controls=(
        *("<think>", "</think>", "<tool_call>", "</tool_call>"),
        *("<|im_start|>", "<|im_end|>", "<|endoftext|>"),
    ),
)
"""The frame of all Qwen chat templates."""

LLAMA3 = Frame(
    end_of_turn="<|eot_id|>",
    other_ends=("<|eom_id|>", "<|end_of_text|>"),
    user_turn=("<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"),
    tool_reply=("<|start_header_id|>ipython<|end_header_id|>\n\n", "<|eot_id|>"),
    json_replies=True,
    controls=(
        *("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|python_tag|>"),
        *("<|start_header_id|>", "<|end_header_id|>"),
    ),
)
"""The frame of Llama 3.1 to 3.3; their template passes a tool's reply through `tojson`."""
