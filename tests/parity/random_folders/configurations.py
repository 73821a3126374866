"""Random configurations of small models, by their names in transformers."""
import math
import random

VOCABULARY, CONTEXT = 40, 96
ACTIVATIONS = ("silu", "swish", "gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_python", "gelu_fast", "gelu_accurate",
               "quick_gelu", "relu", "relu2", "mish", "tanh", "sigmoid")


class Draw:
    """Settings that are drawn. A usual value is more likely than each of its alternatives."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def __call__(self, *values):
        return self.random.choice(values)

    def rarely(self, usual, *others, share=0.2):
        return self.random.choice(others) if self.random.random() < share else usual

    def flag(self, share=0.5):
        return self.random.random() < share

    def near(self, low, high):
        return round(math.exp(self.random.uniform(math.log(low), math.log(high))), 4)


def activation(draw, usual):
    return draw.rarely(usual, *ACTIVATIONS)


def scaling(draw, kinds, rotated):
    """Returns the settings of scaled rotary positions; `rotated` dimensions of each head are turned."""
    kind = draw(*kinds)
    if kind == "default":
        return {"rope_type": "default"}
    made = {"rope_type": kind, "factor": float(draw(1.5, 2.0, 4.0, 8.0))}
    if kind == "yarn":
        made["original_max_position_embeddings"] = int(CONTEXT / made["factor"])
        if draw.flag(0.3):
            made.update(beta_fast=float(draw(8, 16, 32)), beta_slow=float(draw(1, 2)))
        if draw.flag(0.3):
            made["attention_factor"] = draw(0.8, 1.0, 1.3)
        if draw.flag(0.15):
            made["truncate"] = draw(True, False)
        if draw.flag(0.15):
            made.update(mscale=1.0, mscale_all_dim=draw(0.5, 1.0))
    if kind == "llama3":
        low = draw(1.0, 2.0)
        made.update(low_freq_factor=low, high_freq_factor=low + draw(1.0, 3.0),
                    original_max_position_embeddings=draw(16, 32, 64))
    if kind == "longrope":
        made = {"rope_type": kind, "original_max_position_embeddings": draw(32, 48)}
        for name in ("short_factor", "long_factor"):
            made[name] = [draw.near(1, 4) for _ in range(rotated // 2)]
        if draw.flag(0.3):
            made["factor"] = draw(2.0, 4.0)
        if draw.flag(0.3):
            made["attention_factor"] = draw(0.9, 1.2)
    return made


KINDS = ("default",) * 4 + ("linear", "dynamic", "yarn", "llama3")


def rope(draw, head, part=None, kinds=KINDS):
    made = scaling(draw, kinds, head)
    made["rope_theta"] = float(draw(10, 100, 10000, 10000, 500000))
    if part is not None:
        least = 2 / head
        made["partial_rotary_factor"] = draw(*[p for p in (0.25, 0.4, 0.5, 0.75, 1.0) if p >= least] + [part])
        # Pairs, as every model has.
        while int(head * made["partial_rotary_factor"]) % 2 or int(head * made["partial_rotary_factor"]) < 2:
            made["partial_rotary_factor"] = draw(0.5, 1.0, 2 / head)
        if made["rope_type"] == "dynamic" and int(head * made["partial_rotary_factor"]) == 2:
            made["rope_type"] = "linear"  # its base would be divided by 0
    return made


def sizes(draw, own_head=True, layers=(1, 2, 3)):
    """Returns common settings and the width of a head."""
    shared = draw(1, 2, 3)
    heads = shared * draw(1, 2, 4)
    head = draw(4, 6, 8, 12) if heads > 1 else draw(8, 12)
    width = heads * (max(draw(2, 3, 5, 7), 8 // heads) if own_head and draw.flag(0.7) else head)
    made = dict(vocab_size=VOCABULARY, hidden_size=width, num_hidden_layers=draw(*layers), num_attention_heads=heads,
                num_key_value_heads=shared, max_position_embeddings=CONTEXT, intermediate_size=draw(6, 20, 33))
    if own_head and (width != heads * head or draw.flag()):
        made["head_dim"] = head
    return made, head


def layer_types(draw, count, period=None):
    """Returns the kinds of attention: usually every so many layers the full one."""
    if draw.flag(0.2):
        return [draw("full_attention", "sliding_attention") for _ in range(count)]
    period = period or draw(2, 3, 4)
    return ["sliding_attention" if (i + 1) % period else "full_attention" for i in range(count)]


def rms(draw, usual=None):
    return {} if usual is None and draw.flag(0.3) else {"rms_norm_eps": draw(1e-6, 1e-5, 1e-2)}


def gated(draw, own_head=True, act="silu", tied=(False, False, True), part=None, kinds=KINDS, layers=(1, 2, 3)):
    made, head = sizes(draw, own_head, layers)
    made.update(hidden_act=activation(draw, act), tie_word_embeddings=draw(*tied),
                rope_parameters=rope(draw, head, part, kinds), **rms(draw))
    return made


def llama(draw):
    return gated(draw) | dict(attention_bias=draw.rarely(False, True), mlp_bias=draw.rarely(False, True))


def mistral(draw):
    return gated(draw) | dict(sliding_window=draw(None, 3, 7))


def experts(draw):
    count = draw(2, 4, 6, 8)
    return dict(num_experts_per_tok=draw(*range(1, min(count, 4) + 1))), count


def mixtral(draw):
    some, count = experts(draw)
    return gated(draw) | some | dict(num_local_experts=count, sliding_window=draw(None, None, 5))


def windows(draw, made):
    """Windows as in Qwen."""
    if draw.flag(0.7):
        return made
    made.update(use_sliding_window=True, sliding_window=draw(3, 7), max_window_layers=draw(0, 1, 2))
    if draw.flag():
        made["layer_types"] = layer_types(draw, made["num_hidden_layers"])
    return made


def qwen2(draw):
    return windows(draw, gated(draw, own_head=False))


def qwen3(draw):
    return windows(draw, gated(draw) | dict(attention_bias=draw.rarely(False, True)))


def sparse(draw, made):
    some, count = experts(draw)
    return made | some | dict(num_experts=count, moe_intermediate_size=draw(6, 10), norm_topk_prob=draw.flag(),
                              decoder_sparse_step=draw.rarely(1, 2), mlp_only_layers=draw.rarely([], [0], [1]))


def qwen2_moe(draw):
    return windows(draw, sparse(draw, gated(draw, own_head=False)) |
                   dict(shared_expert_intermediate_size=draw(6, 14), qkv_bias=draw.rarely(True, False)))


def qwen3_moe(draw):
    return sparse(draw, gated(draw)) | dict(attention_bias=draw.rarely(False, True))


def gemma(draw):
    made = gated(draw, act="gelu_pytorch_tanh", tied=(True, True, False))
    made.setdefault("head_dim", made["hidden_size"] // made["num_attention_heads"])
    if made["hidden_act"] in ("gelu", "gelu_python"):  # old folders have this name and mean the function by tanh
        made["hidden_act"] = "gelu_new"
    return made | dict(attention_bias=draw.rarely(False, True))


def gemma2(draw):
    made = gemma(draw)
    made["hidden_activation"] = made.pop("hidden_act")
    made.update(query_pre_attn_scalar=draw(made["head_dim"], made["hidden_size"] // made["num_attention_heads"], 5),
                sliding_window=draw(3, 7), attn_logit_softcapping=draw(50.0, 2.0, None),
                final_logit_softcapping=draw(30.0, 3.0, None))
    if draw.flag(0.3):
        made["layer_types"] = layer_types(draw, made["num_hidden_layers"])
    return made


def gemma3(draw):
    made = gemma2(draw)
    made["num_hidden_layers"] = draw(1, 2, 3, 6, 7)
    made.update(layer_types=layer_types(draw, made["num_hidden_layers"], draw(2, 3, 6)),
                attn_logit_softcapping=draw.rarely(None, 20.0, share=0.1),
                use_bidirectional_attention=draw.rarely(False, True, share=0.05))
    made["rope_parameters"] = {"full_attention": made["rope_parameters"],
                               "sliding_attention": {"rope_type": "default", "rope_theta": draw(10.0, 10000.0)}}
    return made


def layer_norm(made, name, draw):
    made.pop("rms_norm_eps", None)
    return made | {name: draw(1e-5, 1e-3, 1e-2)}


def phi(draw):
    made = gated(draw, own_head=False, act="gelu_new", tied=(False,), part=0.5)
    return layer_norm(made, "layer_norm_eps", draw) | dict(qk_layernorm=draw.rarely(False, True, share=0.1))


def phi3(draw):
    made = gated(draw, own_head=False, part=1.0, kinds=("default", "default", "longrope", "longrope"))
    given = made["rope_parameters"]
    if given["rope_type"] == "longrope":
        head = made["hidden_size"] // made["num_attention_heads"]
        turned = int(head * given["partial_rotary_factor"]) // 2
        for name in ("short_factor", "long_factor"):
            given[name] = given[name][:turned]
    original = given.get("original_max_position_embeddings", CONTEXT)
    return made | dict(sliding_window=draw(None, None, 6), original_max_position_embeddings=original, pad_token_id=0)


def gpt_oss(draw):
    some, count = experts(draw)
    made = gated(draw, tied=(False,), kinds=("default", "yarn", "yarn", "linear")) | some
    made.setdefault("head_dim", made["hidden_size"] // made["num_attention_heads"])
    if made["rope_parameters"]["rope_type"] == "yarn":
        made["rope_parameters"]["truncate"] = draw.rarely(False, True)
    if draw.flag(0.3):
        made["layer_types"] = layer_types(draw, made["num_hidden_layers"])
    return made | dict(num_local_experts=count, sliding_window=draw(3, 8), hidden_act="silu",
                       swiglu_limit=draw.rarely(7.0, 1.5), attention_bias=draw.rarely(True, False))


def olmo2(draw):
    return gated(draw, own_head=False) | dict(attention_bias=draw.rarely(False, True))


def olmo3(draw):
    made = olmo2(draw) | dict(num_hidden_layers=draw(1, 2, 4, 5), sliding_window=draw(3, 7))
    if draw.flag(0.3):
        made["layer_types"] = layer_types(draw, made["num_hidden_layers"])
    given = made["rope_parameters"]
    made["rope_parameters"] = {"full_attention": given, "sliding_attention":
                               {"rope_type": "default", "rope_theta": draw.rarely(given["rope_theta"], 33.0)}}
    return made


def olmoe(draw):
    some, count = experts(draw)
    return olmo2(draw) | some | dict(num_experts=count, norm_topk_prob=draw.rarely(False, True),
                                     clip_qkv=draw.rarely(None, 0.7))


def cohere(draw):
    made = layer_norm(gated(draw, own_head=False, tied=(True, True, False)), "layer_norm_eps", draw)
    return made | dict(logit_scale=draw(0.0625, 0.25, 1.0), use_qk_norm=draw.rarely(False, True),
                       attention_bias=draw.rarely(False, True))


def cohere2(draw):
    made = cohere(draw) | dict(num_hidden_layers=draw(1, 2, 4, 5), sliding_window=draw(3, 7))
    if draw.flag(0.3):
        made["layer_types"] = layer_types(draw, made["num_hidden_layers"])
    made.pop("use_qk_norm")
    return made | dict(head_dim=made["hidden_size"] // made["num_attention_heads"])


def glm4(draw):
    return gated(draw, part=0.5) | dict(attention_bias=draw.rarely(True, False))


def glm4_moe(draw):
    groups = draw(1, 1, 2)
    count = groups * draw(2, 4)
    made = gated(draw, part=0.5, layers=(2, 3)) | dict(attention_bias=draw.flag(), use_qk_norm=draw.flag())
    return made | dict(n_routed_experts=count, n_group=groups, topk_group=draw(*range(1, groups + 1)),
                       num_experts_per_tok=draw(1, 2), n_shared_experts=draw(1, 2), norm_topk_prob=draw.flag(),
                       first_k_dense_replace=draw(0, 1, 2), routed_scaling_factor=draw(1.0, 1.5, 2.5),
                       moe_intermediate_size=draw(6, 10), num_nextn_predict_layers=0)


def exaone4(draw):
    made = gated(draw) | dict(num_hidden_layers=draw(1, 3, 4, 5), sliding_window=draw(None, 4, 7))
    made["sliding_window_pattern"] = draw.rarely(4, 2, 3) if made["sliding_window"] else 4
    if made["sliding_window"] and draw.flag(0.3):
        made["layer_types"] = layer_types(draw, made["num_hidden_layers"], 4)
    if not made["sliding_window"]:
        made["layer_types"] = ["full_attention"] * made["num_hidden_layers"]
    return made


def multipliers(draw):
    return dict(embedding_multiplier=draw(1.0, 3.0, 12.0), attention_multiplier=draw(1.0, 0.25, 0.0625),
                residual_multiplier=draw(1.0, 0.5), logits_scaling=draw(1.0, 2.0, 8.0),
                attention_bias=draw.rarely(False, True))


def granite(draw):
    return gated(draw, own_head=False) | multipliers(draw) | dict(mlp_bias=draw.rarely(False, True))


def granite_moe(draw):
    some, count = experts(draw)
    return gated(draw, own_head=False) | multipliers(draw) | some | dict(num_local_experts=count)


def gpt2(draw):
    made, _ = sizes(draw, own_head=False)
    return dict(vocab_size=VOCABULARY, n_embd=made["hidden_size"], n_layer=made["num_hidden_layers"],
                n_head=made["num_attention_heads"], n_positions=CONTEXT, n_inner=draw(None, 14),
                activation_function=activation(draw, "gelu_new"), layer_norm_epsilon=draw(1e-5, 1e-2), attn_pdrop=0.0,
                resid_pdrop=0.0, embd_pdrop=0.0, scale_attn_weights=draw.rarely(True, False, share=0.1),
                scale_attn_by_inverse_layer_idx=draw.rarely(False, True, share=0.1),
                tie_word_embeddings=draw.rarely(True, False))


def gpt_neox(draw):
    made = layer_norm(gated(draw, own_head=False, act="gelu", part=0.25), "layer_norm_eps", draw)
    made.pop("num_key_value_heads")
    return made | dict(use_parallel_residual=draw.flag(), attention_bias=draw.rarely(True, False))


def starcoder2(draw):
    made = layer_norm(gated(draw, own_head=False, act="gelu_pytorch_tanh", tied=(True, False)), "norm_epsilon", draw)
    return made | dict(use_bias=draw.rarely(True, False), sliding_window=draw(None, 5))


def stable_lm(draw):
    made = layer_norm(gated(draw, own_head=False, part=0.25), "layer_norm_eps", draw)
    return made | dict(use_qkv_bias=draw.flag(), qk_layernorm=draw.rarely(False, True, share=0.1),
                       use_parallel_residual=draw.rarely(False, True))


def nemotron(draw):
    made = layer_norm(gated(draw, act="relu2", part=0.5), "norm_eps", draw)
    made.setdefault("head_dim", made["hidden_size"] // made["num_attention_heads"])
    return made | dict(attention_bias=draw.flag(), mlp_bias=draw.flag())


def smollm3(draw):
    made = gated(draw, own_head=False, tied=(True, False), layers=(1, 3, 4, 5))
    if draw.flag(0.2):
        made["no_rope_layers"] = [draw(0, 1) for _ in range(made["num_hidden_layers"])]
    elif draw.flag(0.2):
        made["no_rope_layer_interval"] = draw(2, 3)
    return windows(draw, made) | dict(attention_bias=draw.rarely(False, True), mlp_bias=draw.rarely(False, True))


def arcee(draw):
    made = gated(draw, act="relu2")
    made.setdefault("head_dim", made["hidden_size"] // made["num_attention_heads"])
    return made | dict(attention_bias=draw.rarely(False, True), mlp_bias=draw.rarely(False, True))


def ernie(draw):
    made = gated(draw, tied=(True, False))
    made.setdefault("head_dim", made["hidden_size"] // made["num_attention_heads"])
    return made | dict(use_bias=draw.rarely(False, True))


def hunyuan(draw):
    made = gated(draw)
    made.setdefault("head_dim", made["hidden_size"] // made["num_attention_heads"])
    if draw.flag(0.3):
        made["rope_parameters"].update(rope_type="dynamic", alpha=draw(50.0, 1000.0), factor=1.0)
    return made | dict(attention_bias=draw.rarely(False, True))


def seed_oss(draw):
    made = gated(draw) | dict(attention_bias=draw.rarely(True, False), attention_out_bias=draw.rarely(False, True))
    made.setdefault("head_dim", made["hidden_size"] // made["num_attention_heads"])
    return made | dict(mlp_bias=draw.rarely(False, True), attention_dropout=0.0, residual_dropout=0.0)


# By the name of the configuration's class, without "Config".
MODELS = {"Llama": llama, "Mistral": mistral, "Mixtral": mixtral, "Qwen2": qwen2, "Qwen3": qwen3, "Qwen2Moe": qwen2_moe,
          "Qwen3Moe": qwen3_moe, "Gemma": gemma, "Gemma2": gemma2, "Gemma3Text": gemma3, "Phi": phi, "Phi3": phi3,
          "GptOss": gpt_oss, "Olmo2": olmo2, "Olmo3": olmo3, "Olmoe": olmoe, "Cohere": cohere, "Cohere2": cohere2,
          "Glm4": glm4, "Glm4Moe": glm4_moe, "Exaone4": exaone4, "Granite": granite, "GraniteMoe": granite_moe,
          "GPT2": gpt2, "GPTNeoX": gpt_neox, "Starcoder2": starcoder2, "StableLm": stable_lm, "Nemotron": nemotron,
          "SmolLM3": smollm3, "Arcee": arcee, "Ernie4_5": ernie, "HunYuanDenseV1": hunyuan, "SeedOss": seed_oss}
