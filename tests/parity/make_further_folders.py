"""Writes further models to golden/folders, and golden/further_folders.safetensors: as make_folders.py, for the
architectures beside the first ones. Folders of EXAONE 3 and of mxfp4 weights, which transformers does not write, are
written here: their models are those of Llama and of gpt-oss with the decoded weights.

Needs what make_architectures.py needs.

    python tests/parity/make_further_folders.py
"""
import json

import numpy
import torch
import transformers as t
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_tensors

from make_architectures import CONTEXT, FOLDER, HEADS, HIDDEN, LAYERS, SHARED, VOCABULARY, WIDTH, tokens_of
from make_further_architectures import COMMON, RMS, SIZES, THETA, randomised

OUT = FOLDER / "folders"
RESULTS = {}
HALF = {**THETA, "partial_rotary_factor": 0.34}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16,
        "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False}


def results(name, model, seed):
    ids = tokens_of(seed)
    RESULTS[f"{name}/tokens"] = ids[0].to(torch.int32).numpy()
    with torch.no_grad():
        result = model(ids)
    if hasattr(result, "logits"):
        RESULTS[f"{name}/scores"] = result.logits[0].numpy()
    else:
        RESULTS[f"{name}/hidden"] = result.last_hidden_state[0].numpy()


def folder(name, config, make=None):
    seed = 300 + len(RESULTS)
    model = randomised((make or t.AutoModelForCausalLM.from_config)(config), seed)
    model.save_pretrained(OUT / name)
    (OUT / name / "generation_config.json").unlink(missing_ok=True)
    results(name, model, seed)


def write(name, config, tensors):
    (OUT / name).mkdir(parents=True, exist_ok=True)
    (OUT / name / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_tensors({key: value.contiguous() for key, value in tensors.items()}, OUT / name / "model.safetensors",
                 metadata={"format": "pt"})


EXAONE = {"model.embed_tokens": "transformer.wte", "model.norm": "transformer.ln_f", "model.layers": "transformer.h",
          "input_layernorm": "ln_1", "post_attention_layernorm": "ln_2", "self_attn.o_proj": "attn.attention.out_proj",
          "self_attn": "attn.attention", "mlp.gate_proj": "mlp.c_fc_0", "mlp.up_proj": "mlp.c_fc_1",
          "mlp.down_proj": "mlp.c_proj"}


def exaone():
    """EXAONE 3 is Llama with other names."""
    rope = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32}
    config = t.LlamaConfig(**{**RMS, "rope_parameters": rope}, tie_word_embeddings=False)
    model = randomised(t.LlamaForCausalLM(config), 401)
    tensors = {}
    for name, value in model.state_dict().items():
        for own, other in EXAONE.items():
            name = name.replace(own, other)
        tensors[name] = value
    write("exaone", {"architectures": ["ExaoneForCausalLM"], "model_type": "exaone", "activation_function": "silu",
                     "vocab_size": VOCABULARY, "hidden_size": WIDTH, "intermediate_size": HIDDEN, "num_layers": LAYERS,
                     "num_attention_heads": HEADS, "num_key_value_heads": SHARED, "max_position_embeddings": CONTEXT,
                     "layer_norm_epsilon": 1e-5, "rope_theta": 500.0, "tie_word_embeddings": False,
                     "rope_scaling": {key: value for key, value in rope.items() if key != "rope_theta"},
                     "torch_dtype": "float32"}, tensors)
    results("exaone", model, 401)


CODES = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def blocks_of(generator, *shape):
    """Returns codes [.., n / 32, 16], scales [.., n / 32], and what they are."""
    codes = torch.randint(0, 256, (*shape[:-1], shape[-1] // 32, 16), generator=generator, dtype=torch.uint8)
    scales = torch.randint(122, 126, codes.shape[:-1], generator=generator, dtype=torch.uint8)
    values = torch.stack([CODES[(codes & 15).long()], CODES[(codes >> 4).long()]], -1).flatten(-2)
    return codes, scales, (values * torch.exp2(scales.float() - 127)[..., None]).flatten(-2)


def oss(name, blocks):
    wide, hidden, experts = (32, 32, 3) if blocks else (WIDTH, 8, 4)
    config = t.GptOssConfig(**{**RMS, "hidden_size": wide, "intermediate_size": hidden, "rope_parameters": YARN},
                            head_dim=8, num_local_experts=experts, num_experts_per_tok=2, sliding_window=5,
                            tie_word_embeddings=False)
    if not blocks:
        return folder(name, config)
    model = randomised(t.GptOssForCausalLM(config), 402)
    generator = torch.Generator().manual_seed(403)
    tensors = dict(model.state_dict())
    for i, layer in enumerate(model.model.layers):
        own = layer.mlp.experts
        for part, shape in (("gate_up_proj", (experts, 2 * hidden, wide)), ("down_proj", (experts, wide, hidden))):
            codes, scales, values = blocks_of(generator, *shape)
            getattr(own, part).data = values.transpose(1, 2).contiguous()
            stem = f"model.layers.{i}.mlp.experts.{part}"
            del tensors[stem]
            tensors[stem + "_blocks"], tensors[stem + "_scales"] = codes, scales
    written = config.to_dict()
    written.update(architectures=["GptOssForCausalLM"], quantization_config={"quant_method": "mxfp4"})
    write(name, {key: value for key, value in written.items() if value is not None}, tensors)
    results(name, model, 402)


def main():
    four = {**RMS, "num_hidden_layers": 4, "intermediate_size": 12}
    experts = dict(num_local_experts=4, num_experts_per_tok=2)
    folder("olmo2", t.Olmo2Config(**RMS, tie_word_embeddings=False))
    folder("command-r", t.CohereConfig(**SIZES, rope_parameters=THETA, logit_scale=0.25))
    folder("ernie4_5", t.Ernie4_5Config(**RMS, head_dim=8, tie_word_embeddings=True))
    folder("seed_oss", t.SeedOssConfig(**RMS, head_dim=8, attention_bias=True, attention_out_bias=False,
                                       tie_word_embeddings=False))
    folder("exaone4", t.Exaone4Config(**four, head_dim=8, sliding_window=5, sliding_window_pattern=4,
                                      tie_word_embeddings=True))
    folder("starcoder2-window", t.Starcoder2Config(**SIZES, rope_parameters=THETA, sliding_window=5, use_bias=True))
    folder("phi", t.PhiConfig(**SIZES, rope_parameters=HALF))
    folder("stablelm", t.StableLmConfig(**SIZES, rope_parameters=HALF, use_qkv_bias=True))
    folder("glm4", t.Glm4Config(**{**RMS, "rope_parameters": {**THETA, "partial_rotary_factor": 0.5}}, head_dim=8,
                                attention_bias=True, tie_word_embeddings=False))
    folder("nemotron", t.NemotronConfig(**SIZES, head_dim=8, norm_eps=1e-5, attention_bias=True, mlp_bias=True,
                                        rope_parameters={**THETA, "partial_rotary_factor": 0.5}))
    folder("hunyuan-dense", t.HunYuanDenseV1Config(
        **{**RMS, "rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 1.0, "alpha": 50.0}},
        head_dim=8, tie_word_embeddings=True))
    folder("granitemoe", t.GraniteMoeConfig(**RMS, **experts, embedding_multiplier=3.0, attention_multiplier=0.25,
                                            residual_multiplier=0.5, logits_scaling=2.0, tie_word_embeddings=True))
    folder("gpt2", t.GPT2Config(vocab_size=VOCABULARY, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, n_positions=CONTEXT,
                                attn_implementation="eager"))
    for name, parallel in (("gptneox", True), ("gptneox-serial", False)):
        folder(name, t.GPTNeoXConfig(**COMMON, intermediate_size=HIDDEN, rope_parameters=HALF,
                                     use_parallel_residual=parallel, tie_word_embeddings=False))
    folder("qwen2moe", t.Qwen2MoeConfig(**RMS, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8,
                                        shared_expert_intermediate_size=12, decoder_sparse_step=1, mlp_only_layers=[],
                                        norm_topk_prob=False, tie_word_embeddings=False))
    folder("nomic-bert", t.NomicBertConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=HIDDEN, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, max_position_embeddings=CONTEXT, attn_implementation="eager",
        rope_parameters={"rope_type": "default", "rope_theta": 1000.0}), t.NomicBertModel)
    oss("gpt-oss", False)
    oss("gpt-oss-mxfp4", True)
    exaone()
    save_file(RESULTS, FOLDER / "further_folders.safetensors")


if __name__ == "__main__":
    main()
