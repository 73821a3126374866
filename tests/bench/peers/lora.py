#!/usr/bin/env python3
"""Alternates our training step of an adapter and PEFT's: lora.py MODEL_STEP [--layers N] [--vocabulary N] [--rank N] [--batch N]
[--tokens N] [--threads N] [--pairs N] [--steps N] [--ways "eager;compiled"] [--base TYPE] [--their-base TYPE] [--precision NAME]
[--recompute NAMES] [--json FILE].

MODEL_STEP is the benchmark of that name. Both train an adapter of all linear maps but the head of a Qwen 3 of 0.6B parameters with
random weights, or of fewer layers, in f32 with AdamW. Runs in an environment with PyTorch, transformers and PEFT. Each pair measures
ours, then each way of theirs; times are those of the fastest step, a ratio is the median over the pairs; 'by cpu' is the ratio of CPU
seconds, which other load changes less. --base is the type of our frozen weights, --their-base of theirs: float32 or bfloat16; their adapter
stays f32. Memory is the maximum resident size of a process that makes the model and runs the steps.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path


def ours(a, threads):
    command = [a.model_step, "Qwen3", "--set", f"num_layers={a.layers}", "--set", f"vocab_size={a.vocabulary}", "--lora",
               f"rank={a.rank}", "--batch", str(a.batch), "--tokens", str(a.tokens), "--threads", str(threads), "--steps", str(a.steps),
               "--recompute", a.recompute, "--precision", a.precision]
    if a.base:
        command += ["--base", a.base]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def theirs(a, threads, way):
    """Runs in a separate process, so that its memory can be measured."""
    out = subprocess.run([sys.executable, __file__, a.model_step, "--peer", way, "--layers", str(a.layers), "--vocabulary", str(a.vocabulary),
                          "--rank", str(a.rank), "--batch", str(a.batch), "--tokens", str(a.tokens), "--threads", str(threads), "--steps",
                          str(a.steps), "--their-base", a.their_base], check=True, stdout=subprocess.PIPE).stdout
    return json.loads(out.splitlines()[-1])


def peer(a):
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.set_num_threads(a.threads[0])
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    torch.set_default_dtype(getattr(torch, a.their_base))
    config = Qwen3Config(vocab_size=a.vocabulary, hidden_size=1024, intermediate_size=3072, num_hidden_layers=a.layers, num_attention_heads=16,
                         num_key_value_heads=8, head_dim=128, max_position_embeddings=40960, tie_word_embeddings=True, use_cache=False,
                         attn_implementation="sdpa")
    model = get_peft_model(Qwen3ForCausalLM(config), LoraConfig(r=a.rank, lora_alpha=16, target_modules="all-linear"))
    learned = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(learned, lr=1e-3, fused=True)
    rows = [torch.randint(a.vocabulary, (a.batch, a.tokens)) for _ in range(2)]

    def loss_of(tokens, targets):
        scores = model(input_ids=tokens).logits.float()
        return torch.nn.functional.cross_entropy(scores.view(-1, a.vocabulary), targets.view(-1))

    loss_of = torch.compile(loss_of) if a.peer == "compiled" else loss_of

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss_of(*rows).backward()
        optimizer.step()

    step()
    seconds, cpu = [], []
    for _ in range(a.steps):
        begin, cpu_begin = time.perf_counter(), time.process_time()
        step()
        seconds.append(time.perf_counter() - begin)
        cpu.append(time.process_time() - cpu_begin)
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": min(seconds), "cpu_seconds": min(cpu), "resident": resident, "learned": sum(p.numel() for p in learned), "version": torch.__version__}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model_step", type=Path)
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--vocabulary", type=int, default=151936)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--threads", type=int, action="append", help="default: 1 and 2")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--ways", default="eager;compiled")
    parser.add_argument("--base", help="our frozen weights: nf4_64, q8_0, ...")
    parser.add_argument("--their-base", choices=("float32", "bfloat16"), default="float32", help="their frozen weights (default float32)")
    parser.add_argument("--precision", default="fp32", help="of our products, as on the command line (default fp32); theirs stay fp32")
    parser.add_argument("--recompute", default="none", help="names of what our step recomputes (default none)")
    parser.add_argument("--json", help="write the rows here as well")
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.peer:
        return peer(a)
    print(f"load average {os.getloadavg()[0]:.1f}; {a.layers} layers, vocabulary of {a.vocabulary}, rank {a.rank}, {a.batch} x {a.tokens} tokens, "
          f"median of {a.pairs} pairs")
    print(f"{'way':<10} {'thr':>3} | {'ours s':>8} {'theirs s':>8} {'ratio':>6} {'by cpu':>6} {'of peak':>8} | {'ours MiB':>9} {'theirs':>9} {'ratio':>6}")
    rows = []
    for threads in a.threads or (1, 2):
        mine, other = [], {way: [] for way in a.ways.split(";")}
        for _ in range(a.pairs):
            mine.append(ours(a, threads))
            for way in other:
                other[way].append(theirs(a, threads, way))
        for way, runs in other.items():
            row = {"way": way, "threads": threads, "seconds": min(m["seconds"] for m in mine), "their_seconds": min(t["seconds"] for t in runs),
                   "ratio": statistics.median(t["seconds"] / m["seconds"] for m, t in zip(mine, runs)),
                   "cpu_ratio": statistics.median(t["cpu_seconds"] / m["cpu_seconds"] for m, t in zip(mine, runs)),
                   "of_peak": max(m["of_peak"] for m in mine), "resident": min(m["resident"] for m in mine),
                   "their_resident": min(t["resident"] for t in runs), "version": runs[0]["version"]}
            rows.append(row)
            print(f"{way:<10} {threads:>3} | {row['seconds']:>8.3f} {row['their_seconds']:>8.3f} {row['ratio']:>6.2f} {row['cpu_ratio']:>6.2f} {row['of_peak']:>8.2f} | "
                  f"{row['resident']:>9.0f} {row['their_resident']:>9.0f} {row['resident'] / row['their_resident']:>6.2f}", flush=True)
    if a.json:
        Path(a.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    sys.exit(main())
