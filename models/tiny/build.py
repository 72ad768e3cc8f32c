"""Builds the bundled CPU model: a small Qwen3 with its own tokenizer and chat template, as a model folder.

    python models/tiny/build.py --out DIR

The weights are random. The same recipe and library versions give the same bytes. DIR appears by one rename,
when all of it is there; a second call with the same recipe leaves it as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recipe import CONTEXT, SEED, VOCABULARY, Recipe

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, Qwen3ForCausalLM


def build_model(tokenizer: PreTrainedTokenizerBase) -> Qwen3ForCausalLM:
    """A randomly initialised Qwen3 of about 2M parameters whose end-of-turn ids are the tokenizer's."""
    import torch
    from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    end, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=pad,
        dtype="float32",
    )
    torch.manual_seed(SEED)
    model = Qwen3ForCausalLM(config)
    model.generation_config = GenerationConfig(eos_token_id=[end, pad], pad_token_id=pad, do_sample=True)
    return model


if __name__ == "__main__":
    Recipe("build.py", "template.jinja", build_model).main()
