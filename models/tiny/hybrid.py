"""Builds the bundled hybrid CPU model: linear attention and a mixture of experts, small, with random weights.

    python models/tiny/hybrid.py --out DIR

Its architecture is Qwen3-Next's, whose layers (three gated delta nets, then full attention) are Qwen3.5's
too, and which an engine without image support can load. Its chat template writes Qwen3.5's native tool calls.
The tokenizer is the other bundled model's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recipe import CONTEXT, SEED, VOCABULARY, Recipe

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, Qwen3NextForCausalLM


def build_model(tokenizer: PreTrainedTokenizerBase) -> Qwen3NextForCausalLM:
    """A randomly initialised Qwen3-Next of 1.6M parameters with the tokenizer's end-of-turn ids."""
    import torch
    from transformers import GenerationConfig, Qwen3NextConfig, Qwen3NextForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    end, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    config = Qwen3NextConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        # Smaller linear heads do not work in vLLM's CPU build.
        linear_num_key_heads=2,
        linear_key_head_dim=128,
        linear_num_value_heads=2,
        linear_value_head_dim=128,
        # The engine wants at least one layer with experts.
        mlp_only_layers=[0, 1, 2],
        num_experts=2,
        num_experts_per_tok=1,
        moe_intermediate_size=128,
        shared_expert_intermediate_size=128,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=False,  # tied, vLLM's Qwen3-Next leaves its output weights uninitialised
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=pad,
        dtype="bfloat16",
    )
    torch.manual_seed(SEED)
    model = Qwen3NextForCausalLM(config)
    model.bfloat16()
    model.generation_config = GenerationConfig(eos_token_id=[end, pad], pad_token_id=pad, do_sample=True)
    return model


if __name__ == "__main__":
    Recipe("hybrid.py", "hybrid.jinja", build_model).main()
