#!/usr/bin/env python3
"""Compares generated tokens and log-probabilities with llama.cpp on the same files: beside_llama_cpp.py HARMONICS [--tokens N]
[--type T] [--architecture A] [--seed N]. HARMONICS is the program. Needs numpy, gguf and llama-cpp-python; run by hand.

For each architecture it writes a model of random weights in F32, continues a prompt greedily with both programs, and
compares the tokens and the log-probabilities of the most likely ones. Then the model is quantized, and both programs
read the quantized file: "differ" is the largest difference of two log-probabilities as long as the tokens are equal,
"type" what quantization itself changes in llama.cpp, which rounds activations to 8 bits, or to f16, where we do not. The
first may be twice the second.

In a model with experts in f16 or bf16, rounding can change which of two experts with nearly equal scores a token
uses. experts_in_numpy.py finds these tokens: their number and their largest difference are "ties", not "differ". At every token, ties included, our log-probabilities must be those of its float64 ("exact").
"""
import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import experts_in_numpy
    import gguf
    import llama_cpp
    import numpy as np
except ImportError as missing:
    sys.exit(f"beside_llama_cpp.py: {missing}; pip install numpy gguf llama-cpp-python")

WIDTH, HIDDEN, LAYERS, HEADS, SHARED, HEAD, VOCABULARY, CONTEXT = 256, 512, 4, 4, 2, 64, 512, 512
EXPERTS, USED, EXPERT = 4, 2, 256
ARCHITECTURES = ("llama", "qwen2", "qwen3", "qwen3moe", "gemma", "gemma2", "gemma3", "phi3", "smollm3", "granite", "granitemoe", "qwen2moe",
                 "olmoe", "olmo2", "command-r", "cohere2", "glm4", "exaone", "ernie4_5", "seed_oss", "hunyuan-dense", "stablelm", "starcoder2",
                 "gpt2", "gptneox", "phi2", "gpt-oss", "exaone4", "arcee", "nemotron")
LAYER_NORM = ("stablelm", "starcoder2", "gpt2", "gptneox", "phi2", "nemotron")  # with biases
WITH_BIASES = ("starcoder2", "gpt2", "gptneox", "phi2", "gpt-oss")  # of every matrix
WITH_EXPERTS = ("qwen3moe", "qwen2moe", "olmoe", "granitemoe", "gpt-oss")
ONE_MATRIX = ("phi3", "gpt2", "gptneox")  # for queries, keys and values
EACH_HEAD_ITS_KEYS = ("gpt2", "gptneox", "olmoe")
HIDDEN_OF_EXPERTS = ("olmoe", "granitemoe")  # their feed_forward_length is that of an expert
# llama.cpp looks up gelu in a table of f16, and computes its tanh form for GPT-NeoX, whose authors use the exact one
BOUNDS = {"gemma": 5e-3, "gemma2": 5e-3, "gemma3": 5e-3, "starcoder2": 1e-2, "gpt2": 1e-2, "phi2": 1e-2, "gptneox": 2e-2}
PROMPT = "The quick brown fox jumps over 13 lazy dogs."
TYPES = ("f16", "bf16", "q8_0", "q6_k", "q5_k_m", "q5_k_s", "q5_1", "q5_0", "q4_k_m", "q4_k_s", "q4_1", "q4_0", "iq4_nl", "iq4_xs",
         "mxfp4", "q3_k_l", "q3_k_m", "q3_k_s", "q2_k", "q2_k_s")
NEW_TYPES = ("mxfp4",)  # llama.cpp reads them since August 2025


def byte_tokens():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    further = iter(range(256, 512))
    return [chr(byte if byte in printable else next(further)) for byte in range(256)]


def shared_heads(architecture):
    return HEADS if architecture in EACH_HEAD_ITS_KEYS else SHARED


def matrices(architecture):
    """Returns names and shapes of a layer's matrices."""
    queries, keys = HEADS * HEAD, shared_heads(architecture) * HEAD
    if architecture in ONE_MATRIX:
        attention = {"attn_qkv": (queries + 2 * keys, WIDTH)}
    else:
        attention = {"attn_q": (queries, WIDTH), "attn_k": (keys, WIDTH), "attn_v": (keys, WIDTH)}
    attention["attn_output"] = (WIDTH, queries)
    if architecture in WITH_EXPERTS:
        attention |= {"ffn_gate_inp": (EXPERTS, WIDTH), "ffn_gate_exps": (EXPERTS, EXPERT, WIDTH),
                      "ffn_up_exps": (EXPERTS, EXPERT, WIDTH), "ffn_down_exps": (EXPERTS, WIDTH, EXPERT)}
        if architecture == "qwen2moe":
            attention |= {"ffn_gate_inp_shexp": (1, WIDTH), "ffn_gate_shexp": (EXPERT, WIDTH), "ffn_up_shexp": (EXPERT, WIDTH),
                          "ffn_down_shexp": (WIDTH, EXPERT)}
        return attention
    if architecture in ("phi3", "glm4"):
        return attention | {"ffn_up": (2 * HIDDEN, WIDTH), "ffn_down": (WIDTH, HIDDEN)}
    gate = {} if architecture in (*WITH_BIASES, "arcee", "nemotron") else {"ffn_gate": (HIDDEN, WIDTH)}
    return attention | gate | {"ffn_up": (HIDDEN, WIDTH), "ffn_down": (WIDTH, HIDDEN)}


def norms(architecture):
    names = {} if architecture in ("olmo2", "exaone4") else {"attn_norm": WIDTH}
    if architecture not in ("phi2", "command-r", "cohere2", "olmo2", "seed_oss", "gpt-oss", "exaone4"):
        names |= {"ffn_norm": WIDTH}
    if architecture in ("qwen3", "qwen3moe", "gemma3", "hunyuan-dense", "exaone4"):
        names |= {"attn_q_norm": HEAD, "attn_k_norm": HEAD}
    if architecture in ("olmo2", "olmoe"):
        names |= {"attn_q_norm": HEADS * HEAD, "attn_k_norm": shared_heads(architecture) * HEAD}
    if architecture in ("gemma2", "gemma3", "olmo2", "glm4", "exaone4"):
        names |= {"post_attention_norm": WIDTH, "post_ffw_norm": WIDTH}
    if architecture in ("seed_oss", "gpt-oss"):
        names |= {"post_attention_norm": WIDTH}
    return names


def has_bias(architecture, name):
    return architecture in WITH_BIASES or (architecture in ("qwen2", "qwen2moe", "seed_oss", "glm4", "stablelm") and name in ("attn_q", "attn_k", "attn_v"))


def write(path, architecture, seed):
    random = np.random.default_rng(seed)
    w = gguf.GGUFWriter(path, architecture)
    w.add_context_length(CONTEXT)
    w.add_embedding_length(WIDTH)
    w.add_feed_forward_length(EXPERT if architecture in HIDDEN_OF_EXPERTS else HIDDEN)
    w.add_block_count(LAYERS)
    w.add_head_count(HEADS)
    w.add_head_count_kv(shared_heads(architecture))
    w.add_key_length(HEAD)
    w.add_value_length(HEAD)
    if architecture != "gpt2":
        w.add_rope_dimension_count(HEAD // 2 if architecture in ("glm4", "stablelm", "gptneox", "phi2", "nemotron") else HEAD)
        w.add_rope_freq_base(10000.0)
    if architecture in (*LAYER_NORM, "command-r", "cohere2"):
        w.add_layer_norm_eps(1e-5)
    else:
        w.add_layer_norm_rms_eps(1e-5)
    w.add_vocab_size(VOCABULARY)
    w.add_file_type(0)
    if architecture in WITH_EXPERTS:
        w.add_expert_count(EXPERTS)
        w.add_expert_used_count(USED)
        if architecture not in HIDDEN_OF_EXPERTS:
            w.add_expert_feed_forward_length(EXPERT)
    if architecture == "qwen2moe":
        w.add_expert_shared_feed_forward_length(EXPERT)
    if architecture in ("gemma3", "cohere2", "gpt-oss"):
        w.add_sliding_window(64)
    if architecture in ("command-r", "cohere2"):
        w.add_logit_scale(0.25)
    if architecture in ("gptneox", "stablelm"):
        w.add_parallel_residual(architecture == "gptneox")
    if architecture in ("granite", "granitemoe"):
        w.add_embedding_scale(3.0)
        w.add_residual_scale(0.5)
        w.add_attention_scale(0.15)
        w.add_logit_scale(2.0)
    if architecture == "gemma2":
        w.add_attn_logit_softcapping(50.0)
        w.add_final_logit_softcapping(30.0)
        w.add_sliding_window(64)  # llama.cpp ignores the window of phi3
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    tokens = byte_tokens() + [f"<|{i}|>" for i in range(256, VOCABULARY)]
    w.add_token_list(tokens)
    w.add_token_types([1] * 256 + [5] * (VOCABULARY - 256))
    w.add_token_merges(["~ ~"])
    w.add_add_bos_token(False)
    tensor = lambda name, *shape, scale: w.add_tensor(name, (random.normal(size=shape) * scale).astype(np.float32))
    gain = lambda name, n: w.add_tensor(name, (1 + 0.1 * random.normal(size=n)).astype(np.float32))
    gemma = architecture.startswith("gemma") or architecture in ("command-r", "cohere2")  # one table for words and scores
    tensor("token_embd.weight", VOCABULARY, WIDTH, scale=1 if not gemma else WIDTH ** -0.5)
    gain("output_norm.weight", WIDTH)
    if architecture in LAYER_NORM:
        tensor("output_norm.bias", WIDTH, scale=0.5)
    if architecture == "phi2":
        tensor("output.bias", VOCABULARY, scale=0.5)
    if architecture == "gpt2":
        tensor("position_embd.weight", CONTEXT, WIDTH, scale=1)
    if not gemma:
        tensor("output.weight", VOCABULARY, WIDTH, scale=4 * WIDTH ** -0.5)
    for layer in range(LAYERS):
        for name, shape in matrices(architecture).items():
            tensor(f"blk.{layer}.{name}.weight", *shape, scale=2 * shape[-1] ** -0.5)
            if has_bias(architecture, name):
                tensor(f"blk.{layer}.{name}.bias", *shape[:-1], scale=0.5)
        for name, n in norms(architecture).items():
            gain(f"blk.{layer}.{name}.weight", n)
            if architecture in LAYER_NORM:
                tensor(f"blk.{layer}.{name}.bias", n, scale=0.5)
        if architecture == "gpt-oss":
            tensor(f"blk.{layer}.attn_sinks.weight", HEADS, scale=1)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def theirs(path, count, forced=None):
    """Returns greedily chosen tokens, or those given, and the logits before each."""
    model = llama_cpp.Llama(str(path), n_ctx=CONTEXT, n_threads=1, n_threads_batch=1, type_k=0, type_v=0, flash_attn=False,
                            verbose=False)
    model.reset()
    model.eval(model.tokenize(PROMPT.encode(), add_bos=False, special=False))
    chosen, rows = [], []
    for i in range(count if forced is None else len(forced)):
        logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(model.ctx, -1), shape=(VOCABULARY,)).astype(np.float64)
        rows.append(logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max())
        chosen.append(int(logits.argmax()) if forced is None else forced[i])
        model.eval(chosen[-1:])
    model.close()
    return chosen, rows


def ours(program, path, count):
    out = subprocess.run([program, "generate", path, "--prompt", PROMPT, "--temperature", "0", "--max-tokens", str(count), "--threads", "1",
                          "--log-probabilities", "5", "--json", "--quiet"], check=True, stdout=subprocess.PIPE).stdout
    chosen = json.loads(out)["chosen"]
    return [t["id"] for t in chosen], [{b["id"]: b["log_probability"] for b in t["best"]} for t in chosen]


def difference(mine, their, ties=frozenset()):
    """Returns the number of equal tokens, and the largest differences of the log-probabilities of our most likely
    tokens while contexts are equal: at other places than those in `ties`, and at those."""
    (tokens, best), (their_tokens, rows) = mine, their
    most = [0.0, 0.0]
    for i, (row, probable) in enumerate(zip(rows, best)):
        most[i in ties] = max([most[i in ties], *(abs(value - row[id]) for id, value in probable.items())])
        if tokens[i] != their_tokens[i]:
            return i, *most
    return min(len(tokens), len(their_tokens)), *most


def beside_float64(path, mine):
    """Returns the largest difference of our log-probabilities from those in float64, and the places of ties."""
    tokens, best = mine
    before = [*PROMPT.encode()]  # tokens are bytes
    ids, first = np.array(before + tokens[:-1]), len(before) - 1
    rows, scores = experts_in_numpy.run(path, ids, HEADS, USED, rounds=False)
    changed = experts_in_numpy.run(path, ids, HEADS, USED, rounds=True)[1]
    places = np.flatnonzero(experts_in_numpy.ties(scores, changed, USED)[first:])
    most = max(abs(value - row[id]) for row, probable in zip(rows[first:], best) for id, value in probable.items())
    return most, frozenset(places.tolist())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("harmonics")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--type", action="append", help=f"default: {', '.join(TYPES)}")
    parser.add_argument("--architecture", action="append", help=f"default: {', '.join(ARCHITECTURES)}")
    parser.add_argument("--seed", type=int, default=0, help="of the first architecture's weights; default: 0")
    a = parser.parse_args()
    failed = False
    print(f"{'architecture':<13} {'type':<8} {'equal tokens':>12} {'differ':>10} {'type':>10}")
    with tempfile.TemporaryDirectory() as folder:
        for seed, architecture in enumerate(a.architecture or ARCHITECTURES, a.seed):
            path = Path(folder) / f"{architecture}.gguf"
            write(path, architecture, seed)
            plain = theirs(path, a.tokens)
            equal, most, _ = difference(ours(a.harmonics, path, a.tokens), plain)
            # Beside a table of f16, tokens with nearly equal scores may change places.
            failed |= (equal < a.tokens and architecture not in BOUNDS) or most > BOUNDS.get(architecture, 1e-3)
            print(f"{architecture:<13} {'f32':<8} {equal:>8}/{a.tokens} {most:>10.2e}", flush=True)
            for kind in a.type if a.type is not None else TYPES:
                smaller = Path(folder) / f"{architecture}-{kind}.gguf"
                subprocess.run([a.harmonics, "quantize", path, smaller, "--type", kind, "--quiet"], check=True)
                try:
                    their = theirs(smaller, a.tokens)
                except ValueError:
                    if kind not in NEW_TYPES:
                        raise
                    print(f"{architecture:<13} {kind:<8} not read: this llama-cpp-python is older than the type", flush=True)
                    continue
                mine, ties, note = ours(a.harmonics, smaller, a.tokens), frozenset(), ""
                experts = architecture == "qwen3moe" and kind in ("f16", "bf16")
                if experts:
                    exact, ties = beside_float64(smaller, mine)
                    failed |= exact > 1e-3
                equal, most, of_ties = difference(mine, their, ties)
                if experts:
                    note = f"  exact {exact:.1e}, {len(ties)} ties {of_ties:.2e}"
                lost = max(np.abs(np.sort(x)[-5:] - x_plain[np.argsort(x)[-5:]]).max()
                           for x, x_plain in zip(theirs(smaller, 0, plain[0][:16])[1], plain[1]))
                failed |= most > 2 * lost
                found = f"{equal:>8}/{a.tokens} {most:>10.2e} {lost:>10.2e}{note}"
                print(f"{architecture:<13} {kind:<8} {found}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
