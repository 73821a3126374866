"""Draws random transformers in YAML, and compares the program with an own evaluation in PyTorch: all values of a forward
pass (`infer --trace`), the weights after two steps of SGD (`train`), and a text that continues token by token with a
cache (`generate`). Exits with 1 if one differs.

The evaluation follows docs/ndsl.md; rotary frequencies come from transformers. Needs torch, transformers, safetensors.

    python tests/parity/random_ndsl.py build/release/bin/harmonics [--seeds 0-99] [--folder FOLDER] [--verbose]
"""
import argparse
import json
import math
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

torch.set_num_threads(1)
VOCABULARY, CONTEXT, TOKENS, ROWS, MORE = 40, 64, 24, 3, 30
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJK"  # with three special tokens a vocabulary of 40
ALLOWED = 2e-4   # of values and weights, relative to the largest one
ACTIVATIONS = {"silu": F.silu, "gelu": F.gelu, "relu": F.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid,
               "gelu_new": lambda x: F.gelu(x, approximate="tanh"), "relu2": lambda x: F.relu(x) ** 2,
               "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh"), "mish": F.mish,
               "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x)}


# Drawing

def maybe(draw, chance, value):
    return value() if draw.random() < chance else {}


def draw_rope(draw, head):
    config = maybe(draw, 0.5, lambda: {"rope_theta": draw.choice([100.0, 5000.0, 1e6])})
    if head % 4 == 0:
        config |= maybe(draw, 0.3, lambda: {"partial_rotary_factor": 0.5})
    config |= maybe(draw, 0.2, lambda: {"rope_pairing": "interleaved"})
    kind = draw.choice(["linear", "dynamic", "yarn", "llama3", "longrope"]) if draw.random() < 0.4 else None
    if not kind:
        return config
    scaling = {"rope_type": kind, "factor": draw.choice([1.5, 4.0])}
    if kind in ("yarn", "llama3", "longrope"):
        scaling["original_max_position_embeddings"] = draw.choice([8, 32])
    if kind == "llama3":
        scaling |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    if kind == "yarn":
        scaling |= maybe(draw, 0.3, lambda: {"beta_fast": 16, "beta_slow": 2})
        scaling |= maybe(draw, 0.3, lambda: {"attention_factor": 0.8})
        scaling |= maybe(draw, 0.3, lambda: {"truncate": False})
    if kind == "longrope":
        pairs = int(head * config.get("partial_rotary_factor", 1)) // 2
        scaling["factor"] = CONTEXT / scaling["original_max_position_embeddings"]
        scaling |= {name: [round(draw.uniform(1, 4), 2) for _ in range(pairs)] for name in ("short_factor", "long_factor")}
    return config | {"rope_scaling": scaling}


def draw_experts(draw):
    experts = draw.choice([3, 4, 8])
    config = {"num_experts": experts, "num_experts_per_tok": draw.randint(1, 3), "moe_intermediate_size": draw.randint(5, 20)}
    config |= maybe(draw, 0.5, lambda: {"norm_topk_prob": draw.random() < 0.5})
    if draw.random() < 0.4:
        config |= {"scoring_func": "sigmoid"}
        config |= maybe(draw, 0.6, lambda: {"use_router_bias": True})
        config |= maybe(draw, 0.5, lambda: {"routed_scaling_factor": 1.7})
        if experts == 8:
            config |= maybe(draw, 0.5, lambda: {"n_group": 4, "topk_group": draw.choice([2, 3])})
    if draw.random() < 0.4:
        config |= draw.choice([{"num_shared_experts": draw.randint(1, 2)},
                               {"shared_expert_intermediate_size": draw.randint(5, 20)}])
        config |= maybe(draw, 0.5, lambda: {"use_shared_expert_gate": True})
    return config


def draw_attention(draw, encoder):
    config = {}
    for key in ("use_qk_norm", "use_qkv_bias", "use_out_bias", "attention_bias"):
        config |= maybe(draw, 0.25, lambda: {key: True})
    config |= maybe(draw, 0.2, lambda: {"query_pre_attn_scalar": draw.choice([3.0, 12.0])})
    config |= maybe(draw, 0.2, lambda: {"attn_logit_softcapping": draw.choice([1.5, 5.0])})
    if not encoder:
        config |= maybe(draw, 0.2, lambda: {"attention_sinks": True})
    step = {"op": "SelfAttention" if encoder else "CausalSelfAttention"}
    if config and draw.random() < 0.7:
        step["config"] = config
        config = {}
    return step, config


def draw_feed(draw, experts):
    if experts:
        return {"op": "MoE_FFN"}, draw_experts(draw) | {"hidden_act": draw.choice(["silu", "silu", "gelu_pytorch_tanh"])}
    op = draw.choice(["SwiGLU_FFN", "GEGLU_FFN", "GELU_FFN", "ReLU_FFN"])
    config = maybe(draw, 0.4, lambda: {"use_mlp_bias": True})
    if op != "ReLU_FFN":
        config |= maybe(draw, 0.5, lambda: {"hidden_act": draw.choice(list(ACTIVATIONS))})
    return ({"op": op, "config": config} if config else {"op": op}), {}


def draw_block(draw, shape, norm, encoder, experts):
    """Returns the operations of a block, and settings of the model that they need."""
    attention, of_attention = draw_attention(draw, encoder)
    feed, of_feed = draw_feed(draw, experts)
    settings = of_attention | of_feed
    first, second = {"op": norm, "name": "ln1"}, {"op": norm, "name": "ln2"}
    if shape == "short":
        return [{"op": norm}, attention, feed], settings
    if shape == "post":
        return [attention, {"op": "ResidualAdd"}, first | {"output": "residual"}, feed, {"op": "ResidualAdd"},
                second | {"output": "residual"}], settings
    if shape == "parallel":
        feed = feed | {"branch": "mlp"}
        after = [feed | {"reads_from": "ln1"}] if draw.random() < 0.5 else [second | {"reads_from": "residual"}, feed]
        return [first, attention | {"branch": "attention"}, *after,
                {"op": "ResidualAdd", "inputs": ["residual", "attention", "mlp"], "output": "residual"}], settings
    block = [first, attention]
    if draw.random() < 0.3:
        block.append({"op": norm, "name": "post_attention_norm"})
    block += [{"op": "ResidualAdd"}, second, feed]
    if draw.random() < 0.3:
        block.append({"op": norm, "name": "post_mlp_norm"})
    block.append({"op": "ResidualAdd"})
    if draw.random() < 0.3:
        block += draw.choice([
            [{"op": "linear", "name": "mixed", "weights": {"w": ["hidden_size", "hidden_size"]}}, {"op": "ResidualAdd"}],
            [{"op": "linear", "name": "score", "weights": {"w": ["1", "hidden_size"]}},
             {"op": "Select", "inputs": ["ln2", "residual"], "output": "residual", "config": {"above": 0.1}}],
            [{"op": "tanh", "name": "bounded"}, {"op": "ResidualAdd"}]])
    return block, settings


def draw_model(seed):
    draw = random.Random(seed)
    heads, head = draw.choice([2, 3, 4, 6]), draw.choice([4, 6, 8])
    width, layers = draw.choice([heads * head, 16, 20]), draw.randint(1, 4)
    encoder = draw.random() < 0.12
    shape = "post" if encoder else draw.choice(["dense", "dense", "dense", "short", "post", "parallel"])
    experts = shape != "parallel" and not encoder and draw.random() < 0.35
    norm = draw.choice(["RMSNorm", "LayerNorm"])
    config = {"vocab_size": VOCABULARY, "hidden_size": width, "num_layers": layers, "num_query_heads": heads,
              "num_kv_heads": draw.choice([n for n in range(1, heads + 1) if heads % n == 0]), "head_dim": head,
              "intermediate_size": draw.randint(9, 40), "max_position_embeddings": CONTEXT}
    config |= maybe(draw, 0.3, lambda: {"eps": draw.choice([1e-3, 1e-8])})
    if norm == "RMSNorm":
        config |= maybe(draw, 0.2, lambda: {"unit_offset": True})
    else:
        config |= maybe(draw, 0.2, lambda: {"norm_bias": False})
    block, more = draw_block(draw, shape, norm, encoder, experts)
    config |= more | draw_rope(draw, head)
    config |= maybe(draw, 0.5, lambda: {"tie_word_embeddings": draw.random() < 0.6})
    config |= maybe(draw, 0.2, lambda: {"final_logit_softcapping": 4.0})
    architecture = {"variant": "moe" if experts else "parallel" if shape == "parallel" else "dense", "block": block}
    embedding = maybe(draw, 0.3, lambda: {"positions": "learned"})
    embedding |= maybe(draw, 0.2, lambda: {"scale": "sqrt(hidden_size)"})
    embedding |= maybe(draw, 0.2, lambda: {"norm": norm})
    embedding |= maybe(draw, 0.1, lambda: {"token_types": True})
    if embedding:
        architecture["embedding"] = embedding
    if shape == "post" or draw.random() < 0.1:
        architecture["final_norm"] = False
    elif draw.random() < 0.3:
        architecture["final_norm"] = {"op": draw.choice(["RMSNorm", "LayerNorm"]), "eps": 1e-4}
    if encoder:
        architecture["head"] = {"none": True}
    elif draw.random() < 0.2:
        architecture["head"] = {"bias": True}
    if not encoder:
        if draw.random() < 0.3:
            config |= {"sliding_window": draw.choice([3, 8])}
            config |= draw.choice([{}, {"sliding_window_pattern": 2}, {"use_sliding_window": True, "max_window_layers": 1},
                                   {"layer_types": [draw.choice(["sliding_attention", "full_attention"])
                                                    for _ in range(layers)]}])
            config |= maybe(draw, 0.4, lambda: {"rope_local_theta": 300.0})
        elif draw.random() < 0.3:
            architecture["layers"] = [draw.choice([
                {"pattern": [{"config": {"sliding_window": 4}}, "block"]},
                {"every": 2, "from": 1, "config": {"rope_theta": 77.0}},
                {"at": [0], "config": {"sliding_window": 5, "rope_theta": 50.0}}])]
    if experts:
        config |= draw.choice([{}, {}, {"first_k_dense_replace": 1}, {"decoder_sparse_step": 2}, {"mlp_only_layers": [0]}])
    elif shape in ("dense", "short") and draw.random() < 0.3:
        other, more = draw_block(draw, shape, norm, encoder, True)
        if not any(key in config and config[key] != value for key, value in more.items()):
            config |= more
            architecture |= {"variant": "moe", "blocks": {"other": other}}
            architecture.setdefault("layers", []).append({"every": 2, "from": draw.randint(0, 1), "block": "other"})
    return {"name": "Random", "type": "model", "architecture": architecture, "config": config}


# Evaluation

class Network:
    def __init__(self, model, weights, length=CONTEXT):
        """`length`: the longest sequence, of which scaled rotary positions depend."""
        self.architecture, self.config, self.w, self.length = model["architecture"], model["config"], weights, length
        self.values = {}

    def layer_rules(self, layer):
        own, block = {}, self.architecture["block"]
        for rule in self.architecture.get("layers", []):
            if "pattern" in rule:
                item = rule["pattern"][layer % len(rule["pattern"])]
                item = {} if item == "block" else item
            elif "every" in rule:
                since = layer - rule.get("from", 0)
                if since < 0 or since % rule["every"]:
                    continue
                item = rule
            else:
                if layer not in rule["at"]:
                    continue
                item = rule
            if item.get("block"):
                block = self.architecture["blocks"][item["block"]]
            own |= item.get("config", {})
        return own, block

    def has_window(self, layer, own):
        c = self.config
        if "sliding_window" in own:
            return True
        if "layer_types" in c:
            return c["layer_types"][layer] == "sliding_attention"
        if "sliding_window_pattern" in c:
            return (layer + 1) % c["sliding_window_pattern"] != 0
        if "max_window_layers" in c:
            return layer >= c["max_window_layers"]
        return "sliding_window" in c

    def has_experts(self, layer):
        c = self.config
        return (layer not in c.get("mlp_only_layers", []) and layer >= c.get("first_k_dense_replace", 0)
                and (layer + 1) % c.get("decoder_sparse_step", 1) == 0)

    def norm(self, kind, name, x, settings):
        weight = self.w[name + ".weight"]
        eps = settings.get("eps", 1e-5 if kind == "LayerNorm" else 1e-6)
        if kind == "LayerNorm":
            return F.layer_norm(x, x.shape[-1:], weight + bool(settings.get("unit_offset")), self.w.get(name + ".bias"), eps)
        return F.rms_norm(x, x.shape[-1:], weight + bool(settings.get("unit_offset")), eps)

    def linear(self, x, name):
        return F.linear(x, self.w[name + ".weight"], self.w.get(name + ".bias"))

    def rope(self, x, s, local):
        head = x.shape[-1]
        dims = int(head * s.get("partial_rotary_factor", 1))
        theta = s["rope_local_theta"] if local and "rope_local_theta" in s else s.get("rope_theta", 10000.0)
        scaling = {} if local and "rope_local_theta" in s else s.get("rope_scaling", {})
        kind, factor = scaling.get("rope_type", "default"), 1.0
        if kind == "default":
            frequencies = 1 / theta ** (torch.arange(0, dims, 2, dtype=torch.float32) / dims)
        else:
            config = transformers.LlamaConfig(
                hidden_size=head, num_attention_heads=1, head_dim=head, max_position_embeddings=CONTEXT,
                rope_parameters=scaling | {"rope_theta": theta, "partial_rotary_factor": dims / head})
            config.original_max_position_embeddings = scaling.get("original_max_position_embeddings", CONTEXT)
            frequencies, factor = ROPE_INIT_FUNCTIONS[kind](config, "cpu", self.length)
        angles = torch.arange(x.shape[1]).float()[:, None] * frequencies.float()
        cos, sin = (angles.cos() * factor)[:, None].to(x.dtype), (angles.sin() * factor)[:, None].to(x.dtype)
        rotated, rest = x[..., :dims], x[..., dims:]
        if s.get("rope_pairing", "half") == "half":
            a, b = rotated[..., :dims // 2], rotated[..., dims // 2:]
            rotated = torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
        else:
            a, b = rotated[..., 0::2], rotated[..., 1::2]
            rotated = torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
        return torch.cat([rotated, rest], -1)

    def attention(self, x, at, s, window, causal):
        heads, shared, head = s["num_query_heads"], s["num_kv_heads"], s["head_dim"]
        batch, time = x.shape[:2]
        q = self.linear(x, at + "attn_q").view(batch, time, heads, head)
        k = self.linear(x, at + "attn_k").view(batch, time, shared, head)
        v = self.linear(x, at + "attn_v").view(batch, time, shared, head)
        if s.get("use_qk_norm"):
            own = {"eps": s["eps"]} if "eps" in s else {}
            own |= {"unit_offset": s.get("unit_offset", False)}
            q, k = self.norm("RMSNorm", at + "attn_q_norm", q, own), self.norm("RMSNorm", at + "attn_k_norm", k, own)
        if causal:
            q, k = self.rope(q, s, window), self.rope(k, s, window)
        k, v = (t.repeat_interleave(heads // shared, 2) for t in (k, v))
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * s.get("query_pre_attn_scalar", head) ** -0.5
        if cap := s.get("attn_logit_softcapping"):
            scores = cap * torch.tanh(scores / cap)
        if causal:
            behind = torch.arange(time)[:, None] - torch.arange(time)[None]
            visible = (behind >= 0) & ((behind < s["sliding_window"]) if window else True)
            scores = scores.masked_fill(~visible, -math.inf)
        if s.get("attention_sinks"):
            sinks = self.w[at + "attn_sinks.weight"].view(1, -1, 1, 1).expand(batch, -1, time, 1)
            probabilities = torch.cat([scores, sinks], -1).softmax(-1)[..., :-1]
        else:
            probabilities = scores.softmax(-1)
        out = torch.einsum("bhqk,bkhd->bqhd", probabilities, v).reshape(batch, time, heads * head)
        return self.linear(out, at + "attn_output")

    def feed(self, op, x, at, s):
        act = s.get("hidden_act")
        if op in ("SwiGLU_FFN", "GEGLU_FFN"):
            act = ACTIVATIONS[act or ("gelu_pytorch_tanh" if op == "GEGLU_FFN" else "silu")]
            return self.linear(act(self.linear(x, at + "ffn_gate")) * self.linear(x, at + "ffn_up"), at + "ffn_down")
        act = F.relu if op == "ReLU_FFN" else ACTIVATIONS[act or "gelu"]
        return self.linear(act(self.linear(x, at + "ffn_up")), at + "ffn_down")

    def experts(self, x, at, s):
        act = ACTIVATIONS[s["hidden_act"]]
        scores = F.linear(x, self.w[at + "ffn_gate_inp.weight"])
        scores = torch.sigmoid(scores) if s.get("scoring_func") == "sigmoid" else scores.softmax(-1)
        choice = scores + (self.w[at + "exp_probs_b.bias"] if s.get("use_router_bias") else 0)
        if s.get("n_group"):
            groups = choice.unflatten(-1, (s["n_group"], -1))
            best = groups.topk(2, -1).values.sum(-1).topk(s["topk_group"], -1).indices
            kept = torch.zeros(groups.shape[:-1]).scatter(-1, best, 1.0)
            choice = (groups.masked_fill(kept[..., None] == 0, -math.inf)).flatten(-2)
        chosen = choice.topk(s["num_experts_per_tok"], -1).indices
        weights = scores.gather(-1, chosen)
        if s.get("norm_topk_prob", True):
            weights = weights / (weights.sum(-1, keepdim=True) + (1e-20 if s.get("scoring_func") == "sigmoid" else 0))
        weights = weights * s.get("routed_scaling_factor", 1)
        gate, up, down = (self.w[at + f"ffn_{part}_exps.weight"] for part in ("gate", "up", "down"))
        inner = act(torch.einsum("btd,ehd->bteh", x, gate)) * torch.einsum("btd,ehd->bteh", x, up)
        every = torch.einsum("bteh,edh->bted", inner, down)
        mixed = (every.gather(2, chosen[..., None].expand(*chosen.shape, x.shape[-1])) * weights[..., None]).sum(2)
        if s.get("num_shared_experts") or s.get("shared_expert_intermediate_size"):
            shared = self.linear(act(self.linear(x, at + "ffn_gate_shexp")) * self.linear(x, at + "ffn_up_shexp"),
                                 at + "ffn_down_shexp")
            if s.get("use_shared_expert_gate"):
                shared = shared * torch.sigmoid(F.linear(x, self.w[at + "ffn_gate_inp_shexp.weight"]))
            mixed = mixed + shared
        return mixed

    NORMS = {"ln1": "attn_norm", "ln2": "ffn_norm", "post_attention_norm": "post_attention_norm",
             "post_mlp_norm": "post_ffw_norm"}

    def completed(self, block):
        """Adds the residual sums and the second norm that a short block leaves out."""
        if len(block) != 3:
            return block
        norm, attention, feed = block
        return [norm | {"name": "ln1"}, attention, {"op": "ResidualAdd"}, norm | {"name": "ln2"}, feed, {"op": "ResidualAdd"}]

    def layer(self, number, residual):
        own, block = self.layer_rules(number)
        at, values, current = f"blk.{number}.", {"residual": residual}, residual
        window = self.has_window(number, own)
        for step in self.completed(block):
            op, s = step["op"], self.config | own | step.get("config", {})
            x = values[step["reads_from"]] if "reads_from" in step else current
            if op in ("RMSNorm", "LayerNorm"):
                y = self.norm(op, at + self.NORMS[step["name"]], x, s)
            elif op in ("CausalSelfAttention", "SelfAttention"):
                y = self.attention(x, at, s, window, op == "CausalSelfAttention")
            elif op == "MoE_FFN" and self.has_experts(number):
                y = self.experts(x, at, s)
            elif op == "MoE_FFN":
                y = self.feed("SwiGLU_FFN", x, at, s)
            elif op == "ResidualAdd":
                y = sum(values[name] for name in step["inputs"]) if "inputs" in step else values["residual"] + x
                values["residual"] = y
            elif op == "linear":
                y = F.linear(x, self.w[at + step["name"] + ".w"])
            elif op == "Select":
                a, b = (values[name] for name in step["inputs"])
                y = torch.where(x > s.get("above", 0), a, b)
            elif op in ACTIVATIONS:
                y = ACTIVATIONS[op](x)
            else:
                y = self.feed(op, x, at, s)
            for key in ("name", "branch", "output"):
                if key in step:
                    values[step[key]] = y
            current = y
        self.values[f"blk.{number}"] = values["residual"]
        return values["residual"]

    def __call__(self, tokens):
        a, c = self.architecture, self.config
        e = a.get("embedding", {})
        x = self.w["token_embd.weight"][tokens]
        if "scale" in e:
            x = x * math.sqrt(c["hidden_size"])
        if e.get("positions") == "learned":
            x = x + self.w["position_embd.weight"][:tokens.shape[1]]
        if e.get("token_types"):
            x = x + self.w["token_types.weight"][0]
        if "norm" in e:
            x = self.norm(e["norm"], "token_embd_norm", x, c)
        self.values["embedding"] = x
        for number in range(c["num_layers"]):
            x = self.layer(number, x)
        final = a.get("final_norm", {})
        if final is not False:
            first = next(step["op"] for step in a["block"] if step["op"].endswith("Norm"))
            x = self.values["final_norm"] = self.norm(final.get("op", first), "output_norm", x, c | final)
        if a.get("head", {}).get("none"):
            return x
        tied = c.get("tie_word_embeddings", False)
        x = F.linear(x, self.w["token_embd.weight" if tied else "output.weight"], self.w.get("output.bias"))
        if cap := c.get("final_logit_softcapping"):
            x = cap * torch.tanh(x / cap)
        self.values["scores"] = x
        return x


# Comparison

class Refused(Exception):
    pass


def run(program, folder, *arguments):
    done = subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise Refused(f"{' '.join(arguments)}\n{done.stderr}")
    return done.stdout


def draw_weights(tensors, seed, offset):
    """`offset`: gains are stored minus 1."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for tensor in tensors:
        noise = torch.randn(tensor["shape"], generator=generator)
        gain = len(tensor["shape"]) == 1 and tensor["name"].endswith("norm.weight")
        weights[tensor["name"]] = (0 if offset else 1) + 0.2 * noise if gain else 0.35 * noise
    return weights


def write_tokenizer(folder):
    vocabulary = {token: i for i, token in enumerate(["<unk>", "<s>", "</s>", *LETTERS])}
    special = [{"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                "special": True} for i, text in enumerate(["<unk>", "<s>", "</s>"])]
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": special, "normalizer": None, "pre_tokenizer": None, "post_processor": None,
        "decoder": None, "model": {"type": "BPE", "unk_token": "<unk>", "vocab": vocabulary, "merges": []}}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", "bos_token": None}))


def difference(ours, theirs):
    return ((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1e-3)).item()


def compare_training(program, folder, model, weights, tokens):
    run(program, folder, "export", "model.ndsl", "initial/", "--weights", "weights.safetensors", "--tokenizer",
        "tokenizer.json")
    texts = ["".join(LETTERS[t - 3] for t in row) for row in tokens.tolist()]
    (folder / "data.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts * 2))
    (folder / "train.yaml").write_text(json.dumps({
        "model": "initial", "datasets": ["data.jsonl"], "output_dir": "trained", "optimizer": "sgd", "weight_decay": 0,
        "learning_rate": 0.05, "lr_scheduler": "constant", "max_grad_norm": 0, "micro_batch_size": ROWS, "shuffle": False,
        "sequence_len": TOKENS + 8, "max_steps": 2, "logging_steps": 1}))
    run(program, folder, "train", "train.yaml", "--quiet")
    log = [json.loads(line) for line in (folder / "trained/log.jsonl").read_text().splitlines()]
    losses = [row["metrics"]["loss"] for row in log if row["kind"] == "step"]
    ours = load_file(folder / "trained/model/model.safetensors")
    rows = torch.cat([tokens, torch.full((ROWS, 1), 2)], 1)
    expected, learned = train(model, weights, rows, torch.float64)
    _, rounded = train(model, weights, rows, torch.float32)
    worst = {"loss": max(abs(a - b) / b for a, b in zip(losses, expected, strict=True))}
    for name, before in weights.items():
        if name not in ours:
            worst["missing " + name] = 1
            continue
        # Steps that amplify errors of rounding do so in PyTorch too; and weights are stored in f32.
        noise = 10 * (rounded[name] - learned[name]).abs().max().item() + 5e-7 * before.abs().max().item()
        moved = (learned[name] - before).abs().max().item()
        off = (ours[name] - learned[name]).abs().max().item()
        worst[name] = max(off - noise, 0) / max(moved, 1e-4)
    return worst


def train(model, weights, rows, dtype):
    """Returns the losses of two steps of SGD, and the weights after them."""
    learned = {name: value.to(dtype, copy=True).requires_grad_() for name, value in weights.items()}
    optimizer = torch.optim.SGD([w for name, w in learned.items() if not name.endswith("exp_probs_b.bias")], lr=0.05)
    losses = []
    for _ in range(2):
        loss = F.cross_entropy(Network(model, learned)(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {name: value.detach() for name, value in learned.items()}


def compare_text(program, folder, model, weights, tokens):
    """Returns 1 if the text differs before the first token that is not certain."""
    prompt = "".join(LETTERS[t - 3] for t in tokens)
    said = json.loads(run(program, folder, "generate", "initial/", "--prompt", prompt, "--max-tokens", str(MORE),
                          "--temperature", "0", "--precision", "fp32", "--json"))["text"]
    ids, expected = tokens.tolist(), ""
    for _ in range(MORE):
        with torch.no_grad():
            scores = Network(model, weights)(torch.tensor([ids]))[0, -1]
        (best, second), (token, _) = (part.tolist() for part in scores.topk(2))
        if best - second < 1e-3 * max(abs(best), 1) or token < 3:
            return float(not said.startswith(expected))
        ids.append(token)
        expected += LETTERS[token - 3]
    return float(said != expected)


def compare(program, folder, seed):
    model = draw_model(seed)
    (folder / "model.ndsl").write_text(json.dumps(model, indent=1) + "\n")
    tensors = json.loads(run(program, folder, "explain", "model.ndsl", "--json"))["transformer"]["tensors"]
    weights = draw_weights(tensors, seed, model["config"].get("unit_offset"))
    save_file(weights, folder / "weights.safetensors")
    write_tokenizer(folder)
    tokens = torch.randint(3, VOCABULARY, (ROWS, TOKENS), generator=torch.Generator().manual_seed(seed))
    (folder / "rows.csv").write_text("".join(",".join(map(str, row)) + "\n" for row in tokens.tolist()))
    run(program, folder, "infer", "model.ndsl", "--weights", "weights.safetensors", "-p", "tokens=rows.csv", "--trace",
        "values")
    ours = load_file(folder / "values/0.safetensors")
    network = Network(model, weights)
    with torch.no_grad():
        network(tokens)
    worst = {name: difference(ours[name], value) for name, value in network.values.items() if name in ours}
    assert "scores" in worst or "head" in model["architecture"], sorted(ours)
    if "scores" in worst:
        trained = compare_training(program, folder, model, weights, tokens)
        worst |= {"trained " + name: value for name, value in trained.items()}
        worst["text"] = compare_text(program, folder, model, weights, tokens[0])
    return model, worst


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--seeds", default="0-99")
    parser.add_argument("--folder")
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args()
    first, _, last = given.seeds.partition("-")
    program, wrong, refused = str(pathlib.Path(given.program).resolve()), 0, 0
    for seed in range(int(first), int(last or first) + 1):
        folder = pathlib.Path(given.folder or tempfile.mkdtemp())
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            model, worst = compare(program, folder, seed)
        except Refused as error:
            refused += 1
            print(f"seed {seed}: refused: {error}", (folder / "model.ndsl").read_text() if given.verbose else "")
            continue
        off = {name: value for name, value in worst.items() if not value <= ALLOWED * (5 if name.startswith("trained") else 1)}
        if off or given.verbose:
            shown = (off or worst) if given.verbose else dict(sorted(off.items(), key=lambda pair: pair[1])[-6:])
            print(f"seed {seed}:", json.dumps({k: float(f"{v:.2g}") for k, v in shown.items()}))
        if off:
            wrong += 1
            print(json.dumps(model))
        elif not given.folder:
            shutil.rmtree(folder)
    print(f"{wrong} wrong, {refused} refused")
    sys.exit(wrong + refused > 0)


if __name__ == "__main__":
    main()
