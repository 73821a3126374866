"""Writes golden/ndsl: for each built-in .ndsl model a folder of Hugging Face with a tiny random model, one more whose
experts are chosen by groups, one whose experts have another activation, and the results of transformers for them.

Needs torch, transformers, numpy, safetensors.

    python tests/parity/make_ndsl.py
"""
import json
import pathlib
import shutil

import torch
import transformers
from safetensors.torch import save_file

FOLDER = pathlib.Path(__file__).parent / "golden"
VOCABULARY, TOKENS, LAYERS, WIDTH, HEADS, SHARED, HIDDEN, CONTEXT = 32, 10, 2, 16, 4, 2, 20, 32
COMMON = dict(attn_implementation="eager", pad_token_id=0, bos_token_id=1, eos_token_id=2)
SIZES = dict(vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=HIDDEN, num_hidden_layers=LAYERS,
             num_attention_heads=HEADS, max_position_embeddings=CONTEXT, **COMMON)
SHARES = dict(num_key_value_heads=SHARED, rms_norm_eps=1e-5)
LLAMA3 = dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16, rope_theta=10000.0)


def models():
    t = transformers
    llama = {**SIZES, **SHARES}
    yield "Llama2", t.LlamaForCausalLM, t.LlamaConfig(**llama, tie_word_embeddings=False)
    yield "Llama3", t.LlamaForCausalLM, t.LlamaConfig(**llama, rope_parameters=LLAMA3, tie_word_embeddings=False)
    yield "SmolLM", t.LlamaForCausalLM, t.LlamaConfig(**llama, tie_word_embeddings=True)
    yield "Qwen2", t.Qwen2ForCausalLM, t.Qwen2Config(**llama, tie_word_embeddings=True)
    yield "Qwen2.5", t.Qwen2ForCausalLM, t.Qwen2Config(**llama, tie_word_embeddings=False, use_sliding_window=True,
                                                       sliding_window=4, max_window_layers=1)
    yield "Qwen3", t.Qwen3ForCausalLM, t.Qwen3Config(**llama, head_dim=8, tie_word_embeddings=True)
    experts = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12, norm_topk_prob=True)
    yield "Qwen3MoE", t.Qwen3MoeForCausalLM, t.Qwen3MoeConfig(**llama, **experts, head_dim=8, mlp_only_layers=[1],
                                                              tie_word_embeddings=False)
    yield "Mixtral", t.MixtralForCausalLM, t.MixtralConfig(**llama, num_local_experts=4, num_experts_per_tok=2,
                                                           tie_word_embeddings=False)
    yield "GPT2", t.GPT2LMHeadModel, t.GPT2Config(vocab_size=VOCABULARY, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS,
                                                  n_positions=CONTEXT, **COMMON)
    yield "GPT_NeoX", t.GPTNeoXForCausalLM, t.GPTNeoXConfig(**SIZES, rotary_pct=0.5, tie_word_embeddings=False)
    gemma = dict(head_dim=8, query_pre_attn_scalar=12, sliding_window=4, tie_word_embeddings=True)
    kinds = ["sliding_attention", "full_attention"]
    yield "Gemma2", t.Gemma2ForCausalLM, t.Gemma2Config(**llama, **gemma, attn_logit_softcapping=5.0,
                                                        final_logit_softcapping=3.0, layer_types=kinds)
    yield "Gemma3", t.Gemma3ForCausalLM, t.Gemma3TextConfig(**llama, **gemma, layer_types=kinds)
    yield "Phi3", t.Phi3ForCausalLM, t.Phi3Config(**llama, sliding_window=4, tie_word_embeddings=False)
    yield "Phi", t.PhiForCausalLM, t.PhiConfig(**SIZES, num_key_value_heads=HEADS, partial_rotary_factor=0.5,
                                               tie_word_embeddings=False)
    yield "BERT", t.BertModel, t.BertConfig(**SIZES, type_vocab_size=2)
    yield "GLM4MoE", t.Glm4MoeForCausalLM, t.Glm4MoeConfig(
        **llama, head_dim=8, attention_bias=True, use_qk_norm=True, n_routed_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=12, n_shared_experts=2, routed_scaling_factor=1.5, tie_word_embeddings=False)
    yield "Qwen2MoE", t.Qwen2MoeForCausalLM, t.Qwen2MoeConfig(
        **llama, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12, shared_expert_intermediate_size=20,
        norm_topk_prob=False, tie_word_embeddings=False)
    yield "GLM4MoE-groups", t.Glm4MoeForCausalLM, t.Glm4MoeConfig(
        **llama, head_dim=8, attention_bias=True, use_qk_norm=True, n_routed_experts=8, num_experts_per_tok=2,
        n_group=4, topk_group=1, moe_intermediate_size=12, n_shared_experts=2, routed_scaling_factor=1.5,
        tie_word_embeddings=False)
    yield "Mixtral-gelu", t.MixtralForCausalLM, t.MixtralConfig(**llama, num_local_experts=4, num_experts_per_tok=2,
                                                                hidden_act="gelu_new", tie_word_embeddings=False)


def randomised(model, seed):
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in model.named_parameters():
        scale = 0.2 if tensor.dim() == 1 else 0.3
        noise = torch.randn(tensor.shape, generator=generator) * scale
        gain = "norm" in name.lower() or ".ln_" in name
        ones = gain and name.endswith("weight") and "gemma" not in model.config.model_type
        tensor.data = noise + (1 if ones else 0)
    for name, tensor in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            tensor.data = torch.randn(tensor.shape, generator=generator) * 0.3
    return model.eval().float()


def main():
    results = {}
    shutil.rmtree(FOLDER / "ndsl", ignore_errors=True)
    for seed, (name, kind, config) in enumerate(models()):
        model = randomised(kind(config), seed)
        folder = FOLDER / "ndsl" / name
        model.save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        path = folder / "config.json"
        text = json.loads(path.read_text())
        text.pop("transformers_version", None)
        path.write_text(json.dumps(text, indent=1) + "\n")
        tokens = torch.randint(3, VOCABULARY, (1, TOKENS), generator=torch.Generator().manual_seed(seed))
        with torch.no_grad():
            out = model(tokens)
        results[f"{name}/tokens"] = tokens.to(torch.int32).contiguous()
        if name == "BERT":
            results[f"{name}/hidden"] = out.last_hidden_state.contiguous()
            results[f"{name}/pooled"] = out.pooler_output.contiguous()
        else:
            results[f"{name}/scores"] = out.logits.contiguous()
    save_file(results, FOLDER / "ndsl.safetensors")


main()
