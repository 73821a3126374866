"""Writes golden/folders/described and golden/described_folders.safetensors: tiny models of Hugging Face with settings
that only .ndsl models describe, and transformers' results for them.

Needs what make_further_architectures.py needs.

    python tests/parity/make_described_folders.py
"""
import torch
import transformers as t
from safetensors.numpy import save_file

from make_architectures import FOLDER, tokens_of
from make_further_architectures import RMS, SIZES, THETA, randomised

OUT = FOLDER / "folders" / "described"
RESULTS = {}


def folder(name, config):
    seed = 500 + len(RESULTS)
    model = randomised(t.AutoModelForCausalLM.from_config(config), seed)
    model.save_pretrained(OUT / name)
    (OUT / name / "generation_config.json").unlink(missing_ok=True)
    ids = tokens_of(seed)
    RESULTS[f"{name}/tokens"] = ids[0].to(torch.int32).numpy()
    with torch.no_grad():
        RESULTS[f"{name}/scores"] = model(ids).logits[0].numpy()


def main():
    three = {**RMS, "num_hidden_layers": 3, "tie_word_embeddings": True}
    mixed = ["full_attention", "sliding_attention", "sliding_attention"]
    experts = dict(moe_intermediate_size=8, num_experts=4, num_experts_per_tok=2)
    scaled = {**THETA, "rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
              "original_max_position_embeddings": 16}
    folder("llama", t.LlamaConfig(**three, head_dim=8, attention_bias=True, mlp_bias=True, hidden_act="gelu"))
    folder("qwen3", t.Qwen3Config(**{**three, "rope_parameters": scaled}, head_dim=8, use_sliding_window=True,
                                  sliding_window=5, max_window_layers=1))
    folder("gemma2", t.Gemma2Config(**three, head_dim=8, query_pre_attn_scalar=5, sliding_window=5, layer_types=mixed,
                                    attn_logit_softcapping=None, final_logit_softcapping=None))
    folder("qwen3moe", t.Qwen3MoeConfig(**three, **experts, head_dim=8, norm_topk_prob=False, mlp_only_layers=[1]))
    folder("mixtral", t.MixtralConfig(**RMS, num_local_experts=4, num_experts_per_tok=2, hidden_act="gelu_new"))
    folder("gpt2", t.GPT2Config(vocab_size=SIZES["vocab_size"], n_embd=SIZES["hidden_size"], n_layer=3, n_head=4,
                                n_positions=SIZES["max_position_embeddings"], scale_attn_by_inverse_layer_idx=True))
    save_file(RESULTS, FOLDER / "described_folders.safetensors")


if __name__ == "__main__":
    main()
