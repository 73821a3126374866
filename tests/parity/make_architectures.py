"""Writes golden/architectures: for each built-in spec a tiny model in GGUF with random weights, and the results of
Hugging Face transformers for it.

Needs torch, transformers, gguf, numpy, safetensors. Names and layouts of tensors are those of llama.cpp's converter:
rotary dimensions of the family of Llama are interleaved, gains of Gemma hold the 1 that is added to them.

    python tests/parity/make_architectures.py
"""
import pathlib

import gguf
import numpy
import torch
import transformers
from safetensors.numpy import save_file

FOLDER = pathlib.Path(__file__).parent / "golden"
VOCABULARY, TOKENS, LAYERS, WIDTH, HEADS, SHARED, HIDDEN, CONTEXT = 40, 12, 2, 24, 4, 2, 20, 64

SIZES = dict(vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=HIDDEN, num_hidden_layers=LAYERS,
             num_attention_heads=HEADS, num_key_value_heads=SHARED, max_position_embeddings=CONTEXT,
             rms_norm_eps=1e-5, attn_implementation="eager", pad_token_id=0, bos_token_id=1, eos_token_id=2)


def randomised(model, seed):
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in model.named_parameters():
        scale = 0.2 if tensor.dim() == 1 else 0.3
        noise = torch.randn(tensor.shape, generator=generator) * scale
        is_gain = name.endswith("norm.weight") or "LayerNorm.weight" in name or "layernorm.weight" in name
        ones = is_gain and "gemma" not in model.config.model_type
        tensor.data = noise + (1 if ones else 0)
    return model.eval().float()


def interleaved(weight, heads):
    """Reorders a projection's rows from pairs (i, i + d/2) to adjacent pairs."""
    rows = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
    return rows.swapaxes(1, 2).reshape(weight.shape)


NAMES = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
         "lm_head.weight": "output.weight"}
PARTS = {"input_layernorm.weight": "attn_norm.weight", "post_attention_layernorm.weight": "ffn_norm.weight",
         "self_attn.q_proj.weight": "attn_q.weight", "self_attn.k_proj.weight": "attn_k.weight",
         "self_attn.v_proj.weight": "attn_v.weight", "self_attn.q_proj.bias": "attn_q.bias",
         "self_attn.k_proj.bias": "attn_k.bias", "self_attn.v_proj.bias": "attn_v.bias",
         "self_attn.o_proj.weight": "attn_output.weight", "self_attn.q_norm.weight": "attn_q_norm.weight",
         "self_attn.k_norm.weight": "attn_k_norm.weight", "self_attn.qkv_proj.weight": "attn_qkv.weight",
         "mlp.gate_proj.weight": "ffn_gate.weight", "mlp.up_proj.weight": "ffn_up.weight",
         "mlp.down_proj.weight": "ffn_down.weight", "mlp.gate_up_proj.weight": "ffn_up.weight",
         "mlp.gate.weight": "ffn_gate_inp.weight"}
OF_GEMMA = {"post_attention_layernorm.weight": "post_attention_norm.weight",
            "pre_feedforward_layernorm.weight": "ffn_norm.weight",
            "post_feedforward_layernorm.weight": "post_ffw_norm.weight"}


def tensors_of(model, permuted, sandwich):
    for name, tensor in model.state_dict().items():
        value = tensor.float().numpy()
        if "gemma" in model.config.model_type and name.endswith("norm.weight"):
            value = value + 1
        if name in NAMES:
            if name == "lm_head.weight" and model.config.tie_word_embeddings:
                continue
            yield NAMES[name], value
            continue
        _, _, layer, part = name.split(".", 3)
        block = f"blk.{layer}."
        if part == "mlp.experts.gate_up_proj":
            half = value.shape[1] // 2
            yield block + "ffn_gate_exps.weight", value[:, :half]
            yield block + "ffn_up_exps.weight", value[:, half:]
        elif part == "mlp.experts.down_proj":
            yield block + "ffn_down_exps.weight", value
        else:
            if permuted and part == "self_attn.q_proj.weight":
                value = interleaved(value, HEADS)
            if permuted and part == "self_attn.k_proj.weight":
                value = interleaved(value, SHARED)
            yield block + {**PARTS, **(OF_GEMMA if sandwich else {})}[part], value


def write(name, architecture, keys, tensors):
    path = FOLDER / "architectures" / f"{name}.gguf"
    path.parent.mkdir(exist_ok=True)
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in keys.items():
        key = f"{architecture}.{key}"
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        else:
            writer.add_string(key, value)
    for tensor, value in tensors:
        writer.add_tensor(tensor, numpy.ascontiguousarray(value, dtype=numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def basic_keys(config, head):
    return {"context_length": CONTEXT, "embedding_length": WIDTH, "block_count": config.num_hidden_layers,
            "feed_forward_length": config.intermediate_size, "attention.head_count": HEADS,
            "attention.head_count_kv": SHARED, "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
            "attention.key_length": head, "attention.value_length": head, "rope.dimension_count": head,
            "vocab_size": VOCABULARY}


RESULTS = {}


def tokens_of(seed):
    return torch.randint(3, VOCABULARY, (1, TOKENS), generator=torch.Generator().manual_seed(seed))


def decoder(name, architecture, config, keys=None, permuted=False, sandwich=False, extra=()):
    model = randomised(transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32), len(RESULTS) + 1)
    head = getattr(config, "head_dim", None) or WIDTH // HEADS
    rope = getattr(config, "rope_parameters", None) or {}
    base = rope.get("rope_theta") or rope.get("full_attention", {}).get("rope_theta") or 10000.0
    all_keys = {**basic_keys(config, head), "rope.freq_base": float(base), **(keys or {})}
    write(name, architecture, all_keys, list(tensors_of(model, permuted, sandwich)) + list(extra))
    ids = tokens_of(len(RESULTS))
    with torch.no_grad():
        scores = model(ids).logits[0]
    RESULTS[f"{name}/tokens"] = ids[0].to(torch.int32).numpy()
    RESULTS[f"{name}/scores"] = scores.numpy()


def llama3_factors(config, head):
    """Returns the divisors of the frequencies, as computed by the converter."""
    rope = config.rope_parameters
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    context, factor = rope["original_max_position_embeddings"], rope["factor"]
    factors = []
    for pair in range(head // 2):
        wavelength = 2 * numpy.pi * rope["rope_theta"] ** (2 * pair / head)
        if wavelength < context / high:
            factors.append(1.0)
        elif wavelength > context / low:
            factors.append(factor)
        else:
            smooth = (context / wavelength - low) / (high - low)
            factors.append(1 / ((1 - smooth) / factor + smooth))
    return numpy.array(factors, dtype=numpy.float32)


def main():
    t = transformers
    theta = {"rope_type": "default", "rope_theta": 10000.0}
    decoder("llama", "llama", t.LlamaConfig(**SIZES, rope_parameters=theta, tie_word_embeddings=False), permuted=True)
    linear = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
    decoder("llama_linear", "llama", t.LlamaConfig(**SIZES, rope_parameters=linear, tie_word_embeddings=True),
            {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}, permuted=True)
    llama3 = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0,
              "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
    config = t.LlamaConfig(**SIZES, rope_parameters=llama3, head_dim=8, tie_word_embeddings=True)
    decoder("llama3", "llama", config, permuted=True, extra=[("rope_freqs.weight", llama3_factors(config, 8))])
    decoder("mistral", "llama", t.MistralConfig(**SIZES, rope_parameters=theta, head_dim=8, sliding_window=5,
                                                tie_word_embeddings=False),
            {"attention.sliding_window": 5}, permuted=True)
    yarn = {"rope_type": "yarn", "rope_theta": 10.0, "factor": 4.0, "original_max_position_embeddings": 64}
    decoder("qwen2", "qwen2", t.Qwen2Config(**SIZES, rope_parameters=theta, tie_word_embeddings=False))
    decoder("qwen2_yarn", "qwen2", t.Qwen2Config(**SIZES, rope_parameters=yarn, tie_word_embeddings=True),
            {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 64})
    decoder("qwen3", "qwen3", t.Qwen3Config(**SIZES, rope_parameters=theta, head_dim=8, tie_word_embeddings=True))
    decoder("qwen3moe", "qwen3moe",
            t.Qwen3MoeConfig(**SIZES, rope_parameters=theta, head_dim=8, num_experts=4, num_experts_per_tok=2,
                             moe_intermediate_size=8, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[],
                             tie_word_embeddings=True),
            {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 8})
    tied = {**SIZES, "tie_word_embeddings": True}
    decoder("gemma", "gemma", t.GemmaConfig(**tied, rope_parameters=theta, head_dim=8))
    decoder("gemma2", "gemma2", t.Gemma2Config(**tied, rope_parameters=theta, head_dim=8, query_pre_attn_scalar=8,
                                               sliding_window=5, attn_logit_softcapping=2.0,
                                               final_logit_softcapping=3.0),
            {"attention.sliding_window": 5, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0},
            sandwich=True)
    both = {"full_attention": {"rope_type": "linear", "rope_theta": 50000.0, "factor": 8.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}
    decoder("gemma3", "gemma3", t.Gemma3TextConfig(**tied, rope_parameters=both, head_dim=8, query_pre_attn_scalar=8,
                                                   sliding_window=5, layer_types=["sliding_attention",
                                                                                  "full_attention"]),
            {"attention.sliding_window": 5, "attention.sliding_window_pattern": 2, "rope.scaling.type": "linear",
             "rope.scaling.factor": 8.0}, sandwich=True)
    decoder("phi3", "phi3", t.Phi3Config(**SIZES, rope_parameters=theta, sliding_window=5, tie_word_embeddings=False),
            {"attention.sliding_window": 5})
    four = {**SIZES, "num_hidden_layers": 4, "intermediate_size": 12}
    decoder("smollm3", "smollm3", t.SmolLM3Config(**four, rope_parameters=theta, no_rope_layers=[1, 1, 1, 0],
                                                  tie_word_embeddings=True), permuted=True)
    decoder("granite", "granite", t.GraniteConfig(**SIZES, rope_parameters=theta, embedding_multiplier=3.0,
                                                  attention_multiplier=0.25, residual_multiplier=0.5,
                                                  logits_scaling=2.0, tie_word_embeddings=True),
            {"embedding_scale": 3.0, "attention.scale": 0.25, "residual_scale": 0.5, "logit_scale": 2.0},
            permuted=True)
    bert()
    save_file(RESULTS, FOLDER / "architectures.safetensors")


OF_BERT = {"attention.self.query": "attn_q", "attention.self.key": "attn_k", "attention.self.value": "attn_v",
           "attention.output.dense": "attn_output", "attention.output.LayerNorm": "attn_output_norm",
           "intermediate.dense": "ffn_up", "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm"}


def bert():
    config = transformers.BertConfig(vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=HIDDEN,
                                     num_hidden_layers=LAYERS, num_attention_heads=HEADS,
                                     max_position_embeddings=CONTEXT, attn_implementation="eager")
    model = randomised(transformers.BertModel(config, add_pooling_layer=False), 99)
    tensors = {}
    for name, tensor in model.state_dict().items():
        value = tensor.numpy()
        if name == "embeddings.position_ids" or name.startswith("pooler"):
            continue
        if name.startswith("embeddings."):
            tensors[{"embeddings.word_embeddings.weight": "token_embd.weight",
                     "embeddings.position_embeddings.weight": "position_embd.weight",
                     "embeddings.token_type_embeddings.weight": "token_types.weight",
                     "embeddings.LayerNorm.weight": "token_embd_norm.weight",
                     "embeddings.LayerNorm.bias": "token_embd_norm.bias"}[name]] = value
            continue
        _, _, layer, part = name.split(".", 3)
        stem, kind = part.rsplit(".", 1)
        tensors[f"blk.{layer}.{OF_BERT[stem]}.{kind}"] = value
    ids = tokens_of(99)
    with torch.no_grad():
        hidden = model(ids).last_hidden_state[0]
    for name, pooling, embedding in (("bert", 1, hidden.mean(0)), ("bert_first", 2, hidden[0])):
        write(name, "bert", {"context_length": CONTEXT, "embedding_length": WIDTH, "block_count": LAYERS,
                             "feed_forward_length": HIDDEN, "attention.head_count": HEADS,
                             "attention.layer_norm_epsilon": config.layer_norm_eps, "attention.causal": False,
                             "pooling_type": pooling, "vocab_size": VOCABULARY}, list(tensors.items()))
        RESULTS[f"{name}/tokens"] = ids[0].to(torch.int32).numpy()
        RESULTS[f"{name}/hidden"] = hidden.numpy()
        RESULTS[f"{name}/embedding"] = embedding.numpy()


if __name__ == "__main__":
    main()
