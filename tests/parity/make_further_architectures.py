"""Writes further models to golden/architectures, and golden/further_architectures.safetensors: as make_architectures.py,
for the specs of architectures beside the first ones. Those of AS_FOLDERS are in golden/folders as well.

Needs what make_architectures.py needs.

    python tests/parity/make_further_architectures.py
"""
import torch
import transformers as t
from safetensors.numpy import save_file

import make_architectures as first
from make_architectures import CONTEXT, FOLDER, HEADS, HIDDEN, LAYERS, RESULTS, SHARED, VOCABULARY, WIDTH

AS_FOLDERS = ("arcee", "cohere2", "olmo3", "olmoe", "starcoder2")
THETA = {"rope_type": "default", "rope_theta": 10000.0}
COMMON = dict(vocab_size=VOCABULARY, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
              max_position_embeddings=CONTEXT, attn_implementation="eager", pad_token_id=0, bos_token_id=1, eos_token_id=2)
SIZES = dict(COMMON, num_key_value_heads=SHARED, intermediate_size=HIDDEN)
RMS = dict(SIZES, rms_norm_eps=1e-5, rope_parameters=THETA)
PARTS = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.gate": "ffn_gate_inp"}
TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def randomised(model, seed):
    """As the function of the other script; gains are those of any norm."""
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in model.named_parameters():
        noise = torch.randn(tensor.shape, generator=generator) * (0.2 if tensor.dim() == 1 else 0.3)
        tensor.data = noise + (1 if name.endswith("weight") and tensor.dim() == 1 else 0)
    return model.eval().float()


def fused_qkv(value):
    """GPT-NeoX stores query, key and value of each head together; returns all queries, all keys, all values."""
    by_head = value.reshape(HEADS, 3, WIDTH // HEADS, *value.shape[1:])
    return by_head.swapaxes(0, 1).reshape(value.shape)


def permuted(part, kind, value):
    heads = {"attn_q": HEADS, "attn_k": SHARED}.get(part)
    return first.interleaved(value, heads) if heads else value


def gguf_tensors(model, parts, top, layers, change):
    for name, tensor in model.state_dict().items():
        value, (stem, kind) = tensor.float().numpy(), name.rsplit(".", 1)
        if stem in top:
            if not (top[stem] == "output" and getattr(model.config, "tie_word_embeddings", False)):
                yield f"{top[stem]}.{kind}", change(top[stem], kind, value)
            continue
        if not name.startswith(layers):
            continue
        layer, part = name[len(layers):].split(".", 1)
        block = f"blk.{layer}."
        if model.config.model_type == "gpt_oss" and ".experts." in part:
            # Matrices are [in, out]; rows of gate and up alternate.
            value, kind = (value.swapaxes(1, 2), "weight") if value.ndim == 3 else (value, "bias")
            for start, own in enumerate(("gate", "up")) if "gate_up" in part else ((None, "down"),):
                yield f"{block}ffn_{own}_exps.{kind}", value if start is None else value[:, start::2]
        elif part == "self_attn.sinks":
            yield block + "attn_sinks.weight", value
        elif part.endswith(".experts.gate_up_proj"):
            half = value.shape[1] // 2
            yield block + "ffn_gate_exps.weight", value[:, :half]
            yield block + "ffn_up_exps.weight", value[:, half:]
        elif part.endswith(".experts.down_proj"):
            yield block + "ffn_down_exps.weight", value
        else:
            stem, kind = part.rsplit(".", 1)
            if stem in parts:
                yield f"{block}{parts[stem]}.{kind}", change(parts[stem], kind, value)


def model(name, architecture, config, keys=None, parts=None, top=None, layers="model.layers.", change=lambda part, kind, value: value):
    made = randomised(t.AutoModelForCausalLM.from_config(config, dtype=torch.float32), len(RESULTS) + 101)
    own = {"context_length": CONTEXT, "embedding_length": WIDTH, "block_count": config.num_hidden_layers, "feed_forward_length": HIDDEN,
           "attention.head_count": HEADS, "vocab_size": VOCABULARY, **(keys or {})}
    first.write(name, architecture, own, list(gguf_tensors(made, {**PARTS, **(parts or {})}, {**TOP, **(top or {})}, layers, change)))
    if name in AS_FOLDERS:
        made.save_pretrained(FOLDER / "folders" / name)
        (FOLDER / "folders" / name / "generation_config.json").unlink(missing_ok=True)
    ids = first.tokens_of(len(RESULTS) + 200)
    with torch.no_grad():
        scores = made(ids).logits[0]
    RESULTS[f"{name}/tokens"] = ids[0].to(torch.int32).numpy()
    RESULTS[f"{name}/scores"] = scores.numpy()


def rms_keys(head=WIDTH // HEADS, theta=10000.0, turned=None, **more):
    return {"attention.head_count_kv": SHARED, "attention.layer_norm_rms_epsilon": 1e-5, "attention.key_length": head, "attention.value_length": head,
            "rope.dimension_count": turned or head, "rope.freq_base": theta, **{k.replace("__", "."): v for k, v in more.items()}}


def norm_keys(theta=10000.0, turned=None, shared=SHARED, **more):
    rotary = {"rope.dimension_count": turned or WIDTH // HEADS, "rope.freq_base": theta} if turned != 0 else {}
    return {"attention.head_count_kv": shared, "attention.layer_norm_epsilon": 1e-5, **rotary, **{k.replace("__", "."): v for k, v in more.items()}}


def nomic():
    config = t.NomicBertConfig(vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
                               max_position_embeddings=CONTEXT, rope_parameters={"rope_type": "default", "rope_theta": 1000.0}, attn_implementation="eager")
    made = randomised(t.NomicBertModel(config, add_pooling_layer=False), 99)
    names = {"embeddings.word_embeddings": "token_embd", "embeddings.token_type_embeddings": "token_types", "embeddings.LayerNorm": "token_embd_norm"}
    parts = {"self_attn.o_proj": "attn_output", "post_attention_layernorm": "attn_output_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
             "mlp.down_proj": "ffn_down", "post_mlp_layernorm": "layer_output_norm"}
    tensors = list(gguf_tensors(made, parts, names, "layers.", lambda part, kind, value: value))
    for i, layer in enumerate(made.layers):
        attention = layer.self_attn
        rows = torch.cat([attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight])
        tensors.append((f"blk.{i}.attn_qkv.weight", rows.detach().numpy()))
    first.write("nomic-bert", "nomic-bert", {"context_length": CONTEXT, "embedding_length": WIDTH, "block_count": LAYERS, "feed_forward_length": HIDDEN,
                                             "attention.head_count": HEADS, "attention.layer_norm_epsilon": config.layer_norm_eps, "attention.causal": False,
                                             "pooling_type": 1, "rope.freq_base": 1000.0, "vocab_size": VOCABULARY}, tensors)
    ids = first.tokens_of(99)
    with torch.no_grad():
        hidden = made(ids).last_hidden_state[0]
    RESULTS["nomic-bert/tokens"] = ids[0].to(torch.int32).numpy()
    RESULTS["nomic-bert/hidden"] = hidden.numpy()
    RESULTS["nomic-bert/embedding"] = hidden.mean(0).numpy()


def main():
    sandwich = {"post_attention_layernorm": "post_attention_norm", "post_feedforward_layernorm": "post_ffw_norm"}
    model("olmo2", "olmo2", t.Olmo2Config(**RMS, tie_word_embeddings=False), rms_keys(), parts=sandwich)
    four = {**RMS, "num_hidden_layers": 4, "intermediate_size": HIDDEN}
    yarn = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16}
    model("olmo3", "olmo2", t.Olmo3Config(**{**four, "rope_parameters": {"full_attention": yarn, "sliding_attention": THETA}}, sliding_window=5, tie_word_embeddings=False),
          rms_keys(attention__sliding_window=5, rope__scaling__type="yarn", rope__scaling__factor=4.0, rope__scaling__original_context_length=16),
          parts=sandwich)
    model("starcoder2", "starcoder2", t.Starcoder2Config(**SIZES, rope_parameters=THETA, sliding_window=None, use_bias=True), norm_keys(),
          parts={"mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"})
    turned = lambda part, kind, value: value.T if kind == "weight" and value.ndim == 2 and not part.endswith("embd") else value
    model("gpt2", "gpt2", t.GPT2Config(vocab_size=VOCABULARY, n_embd=WIDTH, n_inner=HIDDEN, n_layer=LAYERS, n_head=HEADS, n_positions=CONTEXT,
                                       attn_implementation="eager"),
          {"attention.layer_norm_epsilon": 1e-5}, layers="transformer.h.", change=turned,
          top={"transformer.wte": "token_embd", "transformer.wpe": "position_embd", "transformer.ln_f": "output_norm"},
          parts={"ln_1": "attn_norm", "ln_2": "ffn_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "mlp.c_fc": "ffn_up",
                 "mlp.c_proj": "ffn_down"})
    for name, parallel in (("gptneox", True), ("gptneox_serial", False)):
        model(name, "gptneox", t.GPTNeoXConfig(**COMMON, intermediate_size=HIDDEN, rope_parameters={**THETA, "partial_rotary_factor": 0.34}, rotary_pct=0.34,
                                               use_parallel_residual=parallel, tie_word_embeddings=False),
              norm_keys(turned=2, shared=HEADS, use_parallel_residual=parallel), layers="gpt_neox.layers.",
              top={"gpt_neox.embed_in": "token_embd", "gpt_neox.final_layer_norm": "output_norm", "embed_out": "output"},
              parts={"attention.query_key_value": "attn_qkv", "attention.dense": "attn_output", "mlp.dense_h_to_4h": "ffn_up",
                     "mlp.dense_4h_to_h": "ffn_down"},
              change=lambda part, kind, value: fused_qkv(value) if part == "attn_qkv" else value)
    half = {**THETA, "partial_rotary_factor": 0.34}
    model("phi2", "phi2", t.PhiConfig(**SIZES, rope_parameters=half, partial_rotary_factor=0.34), norm_keys(turned=2), top={"model.final_layernorm": "output_norm"},
          parts={"self_attn.dense": "attn_output", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down"})
    model("stablelm", "stablelm", t.StableLmConfig(**SIZES, rope_parameters=half, partial_rotary_factor=0.34, use_qkv_bias=True),
          norm_keys(turned=2, use_parallel_residual=False))
    model("command-r", "command-r", t.CohereConfig(**SIZES, rope_parameters=THETA, logit_scale=0.25), norm_keys(logit_scale=0.25))
    model("cohere2", "cohere2", t.Cohere2Config(**{**SIZES, "num_hidden_layers": 4}, rope_parameters=THETA, sliding_window=5, logit_scale=0.25, head_dim=8),
          norm_keys(turned=8, attention__key_length=8, attention__value_length=8, attention__sliding_window=5, logit_scale=0.25))
    model("glm4", "glm4", t.Glm4Config(**{**RMS, "rope_parameters": {**THETA, "partial_rotary_factor": 0.5}}, head_dim=8, attention_bias=True,
                                       tie_word_embeddings=False),
          rms_keys(8, turned=4), parts={"post_self_attn_layernorm": "post_attention_norm", "post_mlp_layernorm": "post_ffw_norm", "mlp.gate_up_proj": "ffn_up"})
    model("ernie4_5", "ernie4_5", t.Ernie4_5Config(**RMS, head_dim=8, tie_word_embeddings=True), rms_keys(8))
    model("seed_oss", "seed_oss", t.SeedOssConfig(**RMS, head_dim=8, attention_bias=True, attention_out_bias=False, tie_word_embeddings=False), rms_keys(8),
          parts={"post_attention_layernorm": "post_attention_norm"})
    model("hunyuan-dense", "hunyuan-dense", t.HunYuanDenseV1Config(**RMS, head_dim=8, tie_word_embeddings=True), rms_keys(8),
          parts={"self_attn.query_layernorm": "attn_q_norm", "self_attn.key_layernorm": "attn_k_norm"})
    model("exaone", "exaone", t.LlamaConfig(**RMS, tie_word_embeddings=False), rms_keys())
    experts = dict(num_experts=4, num_experts_per_tok=2)
    model("qwen2moe", "qwen2moe", t.Qwen2MoeConfig(**RMS, **experts, moe_intermediate_size=8, shared_expert_intermediate_size=12, decoder_sparse_step=1,
                                                   mlp_only_layers=[], norm_topk_prob=False, tie_word_embeddings=False),
          rms_keys(expert_count=4, expert_used_count=2, expert_feed_forward_length=8, expert_shared_feed_forward_length=12),
          parts={"mlp.shared_expert.gate_proj": "ffn_gate_shexp", "mlp.shared_expert.up_proj": "ffn_up_shexp", "mlp.shared_expert.down_proj": "ffn_down_shexp",
                 "mlp.shared_expert_gate": "ffn_gate_inp_shexp"})
    model("olmoe", "olmoe", t.OlmoeConfig(**RMS, **experts, tie_word_embeddings=False), rms_keys(expert_count=4, expert_used_count=2))
    model("granitemoe", "granitemoe", t.GraniteMoeConfig(**RMS, num_local_experts=4, num_experts_per_tok=2, embedding_multiplier=3.0,
                                                         attention_multiplier=0.25, residual_multiplier=0.5, logits_scaling=2.0,
                                                         tie_word_embeddings=True),
          rms_keys(expert_count=4, expert_used_count=2, embedding_scale=3.0, attention__scale=0.25, residual_scale=0.5, logit_scale=2.0),
          parts={"block_sparse_moe.router": "ffn_gate_inp"}, change=permuted)
    yarn = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 32.0, "beta_slow": 1.0,
            "truncate": False}
    model("gpt-oss", "gpt-oss", t.GptOssConfig(**{**RMS, "rope_parameters": yarn, "intermediate_size": 8}, head_dim=8, num_local_experts=4,
                                               num_experts_per_tok=2, sliding_window=5, tie_word_embeddings=False),
          rms_keys(8, expert_count=4, expert_used_count=2, expert_feed_forward_length=8, attention__sliding_window=5, rope__scaling__type="yarn",
                   rope__scaling__factor=4.0, rope__scaling__original_context_length=16),
          parts={"post_attention_layernorm": "post_attention_norm", "mlp.router": "ffn_gate_inp"})
    model("exaone4", "exaone4", t.Exaone4Config(**{**four, "head_dim": 8}, sliding_window=5, sliding_window_pattern=4, tie_word_embeddings=True),
          rms_keys(8, attention__sliding_window=5), parts=sandwich)
    model("arcee", "arcee", t.ArceeConfig(**RMS, head_dim=8, tie_word_embeddings=False), rms_keys(8), change=permuted)
    model("nemotron", "nemotron", t.NemotronConfig(**SIZES, head_dim=8, norm_eps=1e-5, rope_parameters={**THETA, "partial_rotary_factor": 0.5}),
          norm_keys(turned=4, attention__key_length=8, attention__value_length=8), top={"model.norm": "output_norm"},
          change=lambda part, kind, value: value + 1 if part.endswith("norm") and kind == "weight" else value)
    model("mixtral", "llama", t.MixtralConfig(**RMS, num_local_experts=4, num_experts_per_tok=2, sliding_window=None, tie_word_embeddings=False),
          rms_keys(expert_count=4, expert_used_count=2), change=permuted)
    nomic()
    save_file(RESULTS, FOLDER / "further_architectures.safetensors")


if __name__ == "__main__":
    main()
