#!/usr/bin/env python3
"""Draws random GGUF models, and compares log-probabilities with llama.cpp; random blocks of each type, and compares
them with the library gguf. Prints what differs, the program's refusals by reason, and the counts. Exits with 1 if
something differs. Run by hand.

    pip install numpy gguf llama-cpp-python
    tests/parity/random_gguf.py build/release/bin/harmonics [--seeds 0-99] [--architecture A] [--keep FOLDER]
    tests/parity/random_gguf.py build/release/bin/harmonics --blocks [--seeds 0-19]

A seed draws an architecture, its sizes, the metadata that is present, absent or of another kind of integer, scalings of
rotary positions, windows, biases, and a type for each matrix. The program continues a text greedily with the typed
file, without rounding of activations; llama.cpp gets the same numbers in F32 and the same tokens.

Not compared: types without a decoder in the program, and the byte 255 as the scale of mxfp4, which is NaN.
"""
import argparse
import collections
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import beside_llama_cpp as base
    import gguf
    import numpy as np
    from gguf import GGMLQuantizationType as Type, GGUFValueType as Kind, quants
except ImportError as missing:
    sys.exit(f"random_gguf.py: {missing}; pip install numpy gguf llama-cpp-python")

LIMIT_S = 60
TYPES = ("F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL",
         "IQ4_XS", "MXFP4")
ENCODED = ("F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "MXFP4")  # by a rule, without a search
INTEGERS = (Kind.UINT32, Kind.UINT32, Kind.INT32, Kind.UINT64, Kind.INT64, Kind.UINT16)
# Heads of any width, not only the model's width divided among them
FREE_HEADS = ("llama", "qwen3", "qwen3moe", "gemma", "gemma2", "gemma3", "smollm3", "granite", "granitemoe", "arcee",
              "seed_oss", "gpt-oss", "ernie4_5")
WHOLE_ROTATED = ("llama", "gpt-oss", "granitemoe", "olmoe")  # by llama.cpp, or by both
PARTLY_ROTATED = ("glm4", "stablelm", "gptneox", "phi2", "nemotron", "phi3")
WITH_FACTORS = ("llama", "arcee", "exaone", "exaone4")
TIED = ("gemma", "gemma2", "command-r", "cohere2")
NEVER_TIED = ("stablelm", "gptneox", "phi2", "gpt-oss", "nemotron", "qwen2moe", "olmoe", "olmo2", "exaone4")
LOOSE = {**base.BOUNDS, "gemma": 1e-2, "gemma2": 1e-2, "gemma3": 1e-2, "arcee": 2e-3, "nemotron": 2e-3}
SCALES_WINDOWS = ("gpt-oss", "gemma2", "cohere2")


# Models

def draw_sizes(draw, architecture):
    """Draws the sizes of base's models."""
    pick = lambda *values: int(draw.choice(values))
    base.LAYERS, base.VOCABULARY = pick(1, 2, 3, 6), 256 + pick(1, 7, 64, 256)
    base.HEADS, base.HEAD = pick(1, 2, 3, 4, 6, 8), pick(8, 16, 24, 32, 40, 64, 80)
    divisors = [n for n in range(1, base.HEADS + 1) if base.HEADS % n == 0]
    base.SHARED = int(draw.choice(divisors))
    base.WIDTH = pick(32, 64, 72, 96, 128, 256, 256) if architecture in FREE_HEADS else base.HEADS * base.HEAD
    base.HIDDEN, base.EXPERT = pick(31, 64, 96, 256, 512), pick(32, 50, 256)
    base.EXPERTS = pick(2, 3, 4, 8)
    base.USED = int(draw.integers(1, base.EXPERTS + 1))
    base.CONTEXT = pick(128, 200, 512)


def scaling_of(draw, prefix):
    """Draws metadata of scaled rotary positions. llama.cpp scales windows of some models by the factor of "none",
    rounds the ends of gpt-oss's YaRN, and reads yarn_beta_fast and yarn_beta_slow of few architectures."""
    name, factor = prefix + ".rope.scaling.", float(draw.choice([1.0, 2.0, 4.0, 2.5]))
    kinds = [{}, {}, {}, {name + "type": "none"}, {name + "type": "linear", name + "factor": factor},
             {name + "factor": factor}, {prefix + ".rope.scale_linear": factor}, {name + "type": "linear"},
             {name + "type": "yarn", name + "factor": factor, name + "original_context_length": 64},
             {name + "type": "yarn", name + "factor": factor},
             {name + "type": "yarn", name + "factor": factor, name + "original_context_length": 64,
              name + "attn_factor": 0.8}]
    if prefix not in SCALES_WINDOWS:
        kinds.append({name + "type": "none", name + "factor": factor})
    if prefix == "gpt-oss":
        kinds = [kind for kind in kinds if kind.get(name + "type") != "yarn"]
    chosen = dict(kinds[draw.integers(len(kinds))])
    if draw.random() < 0.1:
        chosen[name + "finetuned"] = bool(draw.random() < 0.7)
    return chosen


def metadata_of(draw, architecture):
    """Draws metadata: {key: value}."""
    maybe = lambda chance=0.5: draw.random() < chance
    p = architecture
    shared = base.shared_heads(architecture)
    all = {f"{p}.context_length": base.CONTEXT, f"{p}.embedding_length": base.WIDTH, f"{p}.block_count": base.LAYERS,
           f"{p}.attention.head_count": base.HEADS,
           f"{p}.feed_forward_length": base.EXPERT if architecture in base.HIDDEN_OF_EXPERTS else base.HIDDEN}
    if shared != base.HEADS or maybe():
        all[f"{p}.attention.head_count_kv"] = [shared] * base.LAYERS if maybe(0.15) else shared
    for key in ("feed_forward_length", "attention.head_count"):
        if maybe(0.1):
            all[f"{p}.{key}"] = [all[f"{p}.{key}"]] * base.LAYERS
    if base.HEAD != base.WIDTH // base.HEADS or maybe():
        all[f"{p}.attention.key_length"] = all[f"{p}.attention.value_length"] = base.HEAD
    if architecture != "gpt2":
        rotary = base.HEAD
        if architecture in PARTLY_ROTATED and maybe():
            rotary = base.HEAD // 4 * 2
        if rotary != base.HEAD or maybe():
            all[f"{p}.rope.dimension_count"] = rotary
        if maybe(0.7):
            all[f"{p}.rope.freq_base"] = float(draw.choice([10000.0, 500000.0, 1000.0, 1e6]))
        all.update(scaling_of(draw, p))
    with_means = architecture in (*base.LAYER_NORM, "command-r", "cohere2")
    eps = "layer_norm_epsilon" if with_means else "layer_norm_rms_epsilon"
    all[f"{p}.attention.{eps}"] = float(draw.choice([1e-5, 1e-6, 1e-3]))
    if maybe():
        all[f"{p}.vocab_size"] = base.VOCABULARY
    if architecture in base.WITH_EXPERTS:
        all |= {f"{p}.expert_count": base.EXPERTS, f"{p}.expert_used_count": base.USED}
        if architecture not in base.HIDDEN_OF_EXPERTS:
            all[f"{p}.expert_feed_forward_length"] = base.EXPERT
    elif maybe(0.1):
        all |= {f"{p}.expert_count": 0, f"{p}.expert_used_count": 0}
    if architecture == "qwen2moe":
        all[f"{p}.expert_shared_feed_forward_length"] = base.EXPERT
    if architecture in ("cohere2", "gpt-oss") or (architecture in ("gemma2", "gemma3", "olmo2") and maybe(0.7)):
        all[f"{p}.attention.sliding_window"] = int(draw.choice([1, 2, 8, 16, 64, 1000]))
        if maybe(0.4):
            pattern = int(draw.choice([1, 2, 3, 4, 6]))
            all[f"{p}.attention.sliding_window_pattern"] = (
                [bool((i + 1) % pattern) for i in range(base.LAYERS)] if maybe(0.3) else pattern)
        if architecture in ("gemma3", "gemma2", "cohere2") and maybe(0.3):
            all[f"{p}.rope.freq_base_swa"] = float(draw.choice([10000.0, 1000.0]))
    if architecture == "command-r" and maybe(0.8) or architecture in ("cohere2", "granite", "granitemoe"):
        all[f"{p}.logit_scale"] = float(draw.choice([0.25, 2.0, 1.0, 0.0625]))
    if architecture == "gptneox" or (architecture == "stablelm" and maybe()):
        all[f"{p}.use_parallel_residual"] = bool(architecture == "gptneox" and maybe())
    if architecture in ("granite", "granitemoe"):
        for key, values in (("embedding_scale", (3.0, 1.0, 12.0)), ("residual_scale", (0.5, 0.22)),
                            ("attention.scale", (0.15, 0.25))):
            if maybe(0.7):
                all[f"{p}.{key}"] = float(draw.choice(values))
    if architecture in ("gemma2", "gemma3"):
        if maybe():
            all[f"{p}.final_logit_softcapping"] = float(draw.choice([30.0, 5.0]))
        if architecture == "gemma2" and maybe():
            all[f"{p}.attn_logit_softcapping"] = float(draw.choice([50.0, 2.0]))
    return all


def tensors_of(draw, architecture, metadata):
    """Draws tensors: {name: numbers}."""
    tensors = {}
    normal = lambda name, *shape, scale: tensors.update(
        {name: (draw.normal(size=shape) * scale).astype(np.float32)})
    gain = lambda name, n: tensors.update({name: (1 + 0.1 * draw.normal(size=n)).astype(np.float32)})
    tied = architecture in TIED or (architecture not in NEVER_TIED and draw.random() < 0.3)
    normal("token_embd.weight", base.VOCABULARY, base.WIDTH, scale=base.WIDTH ** -0.5 if tied else 1)
    gain("output_norm.weight", base.WIDTH)
    with_biases = architecture in base.LAYER_NORM
    if with_biases:
        normal("output_norm.bias", base.WIDTH, scale=0.5)
    if architecture == "phi2":
        normal("output.bias", base.VOCABULARY, scale=0.5)
    if architecture == "gpt2":
        normal("position_embd.weight", base.CONTEXT, base.WIDTH, scale=1)
    if not tied:
        normal("output.weight", base.VOCABULARY, base.WIDTH, scale=4 * base.WIDTH ** -0.5)
    if architecture in WITH_FACTORS and draw.random() < 0.3:
        tensors["rope_freqs.weight"] = np.exp(draw.normal(size=base.HEAD // 2) * 0.5).astype(np.float32)
    added = draw.random() < 0.15  # optional biases
    for layer in range(base.LAYERS):
        for name, shape in base.matrices(architecture).items():
            normal(f"blk.{layer}.{name}.weight", *shape, scale=2 * shape[-1] ** -0.5)
            if base.has_bias(architecture, name) or (added and name in ("attn_q", "attn_k", "attn_v", "attn_output")):
                normal(f"blk.{layer}.{name}.bias", *shape[:-1], scale=0.5)
        for name, n in base.norms(architecture).items():
            gain(f"blk.{layer}.{name}.weight", n)
            if with_biases:
                normal(f"blk.{layer}.{name}.bias", n, scale=0.5)
        if architecture == "gpt-oss":
            normal(f"blk.{layer}.attn_sinks.weight", base.HEADS, scale=1)
    return tensors


def stored(draw, tensors, mixed):
    """Draws a type for each matrix: {name: (type, bytes or None for F32, the numbers that they are)}."""
    chosen = {}
    for name, x in tensors.items():
        matrix = x.ndim > 1 and not name.startswith(("position", "rope")) and "gate_inp" not in name
        fitting = [t for t in TYPES if x.shape[-1] % gguf.GGML_QUANT_SIZES[Type[t]][0] == 0]
        if not matrix or not mixed or draw.random() < 0.2 or name.endswith(".bias"):
            chosen[name] = (Type.F32, None, x)
            continue
        kind = Type[str(draw.choice(fitting))]
        try:
            packed = quants.quantize(x, kind)
        except NotImplementedError:  # scales of a search: random blocks, with scales that suit the matrix
            packed = random_blocks(draw, kind, x.shape, float(x.std()))
        chosen[name] = (kind, packed, quants.dequantize(packed, kind).astype(np.float32).reshape(x.shape))
    return chosen


SCALES = {"Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "IQ4_NL": (0,),
          "IQ4_XS": (0,), "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,)}
STEPS = {"Q2_K": 15, "Q3_K": 60, "Q4_K": 240, "Q5_K": 480, "Q6_K": 1500, "IQ4_NL": 70, "IQ4_XS": 1200}


def random_blocks(draw, kind, shape, deviation):
    size, bytes = gguf.GGML_QUANT_SIZES[kind]
    packed = draw.integers(0, 256, size=(*shape[:-1], shape[-1] // size * bytes), dtype=np.uint8)
    blocks = packed.reshape(-1, bytes)
    for at in SCALES[kind.name]:
        scales = (deviation / STEPS[kind.name] * draw.uniform(0.5, 1.5, size=len(blocks))).astype(np.float16)
        blocks[:, at:at + 2] = scales.view(np.uint8).reshape(-1, 2)
    return packed


def add_value(writer, key, value, integers):
    if isinstance(value, list):
        writer.add_array(key, value)
    elif isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    else:
        writer.add_key_value(key, value, integers())


def write(path, architecture, metadata, tensors, integers):
    """Writes a file. tensors: {name: (type, bytes)}; integers(): the kind of the next integer."""
    w = gguf.GGUFWriter(path, architecture)
    for key, value in metadata.items():
        add_value(w, key, value, integers)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(base.byte_tokens() + [f"<|{i}|>" for i in range(256, base.VOCABULARY)])
    w.add_token_types([1] * 256 + [5] * (base.VOCABULARY - 256))
    w.add_token_merges(["~ ~"])
    w.add_add_bos_token(False)
    for name, (kind, data) in tensors.items():
        w.add_tensor(name, data, raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def in_process(function, *arguments):
    """Returns the function's result, or a text why it has none. llama.cpp ends the process if it finds a mistake."""
    mine, other = multiprocessing.Pipe(False)

    def run():
        log = os.open(os.devnull, os.O_WRONLY)
        os.dup2(log, 1), os.dup2(log, 2)
        try:
            other.send(function(*arguments))
        except (ValueError, RuntimeError, AssertionError) as error:
            other.send(f"{error}".split(": /")[0])

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    other.close()
    try:
        return mine.recv() if mine.poll(LIMIT_S) else "no answer"
    except EOFError:
        return "llama.cpp ended the process"
    finally:
        process.kill()
        process.join()


def rows_of(path, prompt, tokens):
    base.PROMPT = prompt
    return base.theirs(path, 0, tokens)[1]


def compare_model(program, seed, only, folder):
    """Returns (what differs or "", the refusal or "", the peer's refusal or "")."""
    draw = np.random.default_rng(seed)
    architecture = str(draw.choice(only or base.ARCHITECTURES))
    draw_sizes(draw, architecture)
    metadata = metadata_of(draw, architecture)
    chosen = stored(draw, tensors_of(draw, architecture, metadata), draw.random() < 0.5)
    ours, theirs = folder / f"{seed}.gguf", folder / f"{seed}-f32.gguf"
    unusual = draw.random() < 0.3
    integers = lambda: INTEGERS[draw.integers(len(INTEGERS))] if unusual else Kind.UINT32
    typed = {n: (t, x if packed is None else packed) for n, (t, packed, x) in chosen.items()}
    write(ours, architecture, metadata, typed, integers)
    write(theirs, architecture, metadata, {n: (Type.F32, x) for n, (_, _, x) in chosen.items()}, lambda: Kind.UINT32)
    prompt = "".join(chr(draw.integers(33, 127)) for _ in range(draw.integers(1, 60)))
    place = f"seed {seed} {architecture}"
    done = subprocess.run([program, "generate", ours, "--prompt", prompt, "--temperature", "0", "--max-tokens", "24",
                           "--precision", "fp32", "--threads", "1", "--log-probabilities", "20", "--json", "--quiet"],
                          timeout=LIMIT_S, capture_output=True, text=True)
    if done.returncode not in (0, 1) and done.returncode < 64:
        return f"{place}: exit {done.returncode}: {done.stderr[-300:]}", "", ""
    refusal = "" if done.returncode == 0 else done.stderr.strip().replace(str(ours), "FILE")
    if refusal:
        rows = in_process(rows_of, theirs, prompt, [0])
        their = rows if isinstance(rows, str) else ""
        return "", f"{architecture}: {refusal}" + ("" if their else " [llama.cpp opens it]"), their
    steps = json.loads(done.stdout)["chosen"]
    rows = in_process(rows_of, theirs, prompt, [step["id"] for step in steps])
    if isinstance(rows, str):
        return "", "", f"{place}: {rows} [the program opens it]"
    most = [max(abs(best["log_probability"] - row[best["id"]]) for best in step["best"])
            for step, row in zip(steps, rows)]
    bound = LOOSE.get(architecture, 1e-3)
    if most and max(most) <= bound:
        return "", "", ""
    return (f"{place}: {max(most, default=0):.2e} at token {int(np.argmax(most)) if most else -1}, first {most[:1]}, "
            f"{metadata}, {sorted({t.name for t, _, _ in chosen.values()})}"), "", ""


# Blocks

def wild_halves(draw, count):
    """Returns f16 scales of all kinds, with zeros, subnormals, infinities and NaN."""
    special = np.array([0, 0x8000, 1, 0x8001, 0x3FF, 0x400, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0x7C01, 0xFE00,
                        0x3C00, 0xBC00], np.uint16)
    any_bits = draw.integers(0, 65536, size=count).astype(np.uint16)
    return np.where(draw.random(count) < 0.3, draw.choice(special, size=count), any_bits)


def wild_rows(draw, rows, columns):
    """Returns finite numbers in rows of all magnitudes and distributions."""
    x = draw.normal(size=(rows, columns)).astype(np.float32)
    changes = [lambda r: r * np.float32(10.0 ** draw.integers(-38, 38)), lambda r: np.round(r * 4) / 4, lambda r: r * 0,
               lambda r: -(r * 0), np.abs, lambda r: draw.choice([1.0, -1.0], size=columns) * r[0],
               lambda r: draw.integers(0, 2 ** 32, size=columns, dtype=np.uint32).view(np.float32),
               lambda r: np.full(columns, r[0]), lambda r: draw.integers(-32, 33, size=columns) / 2,
               lambda r: np.exp2(draw.integers(-126, 127, size=columns)) * draw.choice([1, -1], size=columns)]
    with np.errstate(all="ignore"):
        for i in range(rows):
            if draw.random() < 0.8:
                x[i] = changes[draw.integers(len(changes))](x[i])
    x[~np.isfinite(x)] = 1
    return x


def write_blocks(path, tensors):
    w = gguf.GGUFWriter(path, "llama")
    w.add_block_count(1)
    for name, (data, kind) in tensors.items():
        w.add_tensor(f"blk.0.{name}.weight", data, raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def quantized(program, source, target, *arguments):
    subprocess.run([program, "quantize", source, target, *arguments, "--quiet"], check=True, timeout=LIMIT_S)
    return {tensor.name.split(".")[2]: tensor for tensor in gguf.GGUFReader(target).tensors}


def compare_blocks(program, seed, folder):
    """Returns what differs."""
    draw = np.random.default_rng(seed)
    wrong, tensors = [], {}
    for name in TYPES:
        size, bytes = gguf.GGML_QUANT_SIZES[Type[name]]
        packed = draw.integers(0, 256, size=(16, 512 // size * bytes), dtype=np.uint8)
        blocks = packed.reshape(-1, bytes)
        for at in SCALES.get(name, ()):
            blocks[:, at:at + 2] = wild_halves(draw, len(blocks)).view(np.uint8).reshape(-1, 2)
        if name == "MXFP4":
            blocks[:, 0] %= 255
        tensors[name] = (packed, Type[name])
    source, target = folder / f"{seed}.gguf", folder / f"{seed}-out.gguf"
    write_blocks(source, tensors)
    found = quantized(program, source, target, "--type", "f32", "--requantize")
    for name, (packed, kind) in tensors.items():
        with np.errstate(all="ignore"):
            expected = quants.dequantize(packed.view(np.float16) if name == "F16" else packed, kind)
        expected = expected.astype(np.float32)
        mine = np.array(found[name].data).reshape(expected.shape)
        same = (mine.view(np.uint32) == expected.view(np.uint32)) | (np.isnan(mine) & np.isnan(expected))
        if not same.all():
            at = tuple(np.argwhere(~same)[0])
            wrong.append(f"seed {seed}: {name} decodes {tensors[name][0][at[0]].tobytes().hex()[:40]}... at {at} to "
                         f"{mine[at]}, not {expected[at]}")
    x = wild_rows(draw, 24, 512)
    for name in ENCODED:
        kind, size = Type[name], gguf.GGML_QUANT_SIZES[Type[name]]
        write_blocks(source, {"ffn_up": (x, Type.F32)})
        tensor = quantized(program, source, target, "--type", name.lower(), "--pure")["ffn_up"]
        with np.errstate(all="ignore"):
            expected = quants.quantize(x, kind)
            # Blocks whose f16 scale is 0 or infinite: their indices have no meaning.
            blocks = x.reshape(-1, size[0])
            spread = blocks.max(1) - blocks.min(1) if name in ("Q4_1", "Q5_1") else np.abs(blocks).max(1)
        seen = ((spread > 1e-5) & (spread < 6e4)) | (name in ("F16", "BF16"))
        mine = np.ascontiguousarray(tensor.data).view(np.uint8).reshape(-1, size[1])
        expected = expected.view(np.uint8).reshape(-1, size[1])
        for block in np.flatnonzero((mine != expected).any(1) & seen)[:1]:
            wrong.append(f"seed {seed}: {name} encodes {blocks[block][:4]}... to {mine[block].tobytes().hex()}, not "
                         f"{expected[block].tobytes().hex()}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("harmonics")
    parser.add_argument("--seeds", default="0-99")
    parser.add_argument("--architecture", action="append")
    parser.add_argument("--blocks", action="store_true")
    parser.add_argument("--keep", type=Path, help="keep the files in this folder")
    a = parser.parse_args()
    first, _, last = a.seeds.partition("-")
    differ, refused, not_read = [], collections.Counter(), collections.Counter()
    with tempfile.TemporaryDirectory() as temporary:
        folder = a.keep or Path(temporary)
        folder.mkdir(exist_ok=True)
        for seed in range(int(first), int(last or first) + 1):
            if a.blocks:
                wrong = compare_blocks(a.harmonics, seed, folder)
            else:
                wrong, refusal, peer = compare_model(a.harmonics, seed, a.architecture, folder)
                refused[refusal] += 1
                not_read[peer] += 1
                wrong = [wrong] if wrong else []
            for line in wrong:
                print(line, flush=True)
            differ += wrong
            if not a.keep:
                for file in folder.iterdir():
                    file.unlink()
    count = int(last or first) + 1 - int(first)
    for text, number in sorted((*refused.items(), *not_read.items()), key=lambda item: -item[1]):
        if text:
            print(f"{number:>4} x {text}")
    print(f"{count} seeds: {len(differ)} differences, {count - refused[''] if not a.blocks else 0} refused, "
          f"{count - not_read[''] if not a.blocks else 0} not read by llama.cpp")
    return int(bool(differ))


if __name__ == "__main__":
    sys.exit(main())
