"""Builds the bundled CPU model: a small Qwen3 with its own tokenizer and chat template, as a model folder.

    python models/random/build.py --out DIR

The weights (about 2M) are random. The same recipe and library versions give the same bytes. DIR appears by
one rename, when all of it is there; a second call with the same recipe leaves it as it is.
"""

from recipe import run_bundled

if __name__ == "__main__":
    run_bundled(
        __file__,
        "template.jinja",
        "Qwen3ForCausalLM",
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=32,
        tie_word_embeddings=True,
        dtype="float32",
    )
