#!/usr/bin/env python3
"""Sets our figures beside PyTorch's: report.py OURS THEIRS [--json FILE]; each holds lines {"id", "seconds", "work"}. Prints a table and
exits 1 when a figure misses its goal, or is missing. THEIRS of several runs: ours and theirs in turn, the median ratio counts."""
import argparse
import json
import statistics
import sys

COPY = ("rms_norm", "rms_norm_grad", "layer_norm", "layer_norm_grad", "softmax", "cross_entropy", "cross_entropy_grad", "adamw", "add", "bias_gradient", "transpose")
GEMM = tuple(f"{kind}/{shape}" for kind in ("gemm_f32", "gemm_tf32", "gemm_bf16", "gemm_bias_relu_tf32") for shape in ("64x784x392", "8192x1024x4096", "8192x8192x8192"))
STEPS = {"step/cnn_train": 1.2, "step/char_gpt_train": 1.2, "step/gpt_train": 1, "step/llama_train": 1, "step_bf16/gpt_train": 1, "step_bf16/llama_train": 1}
MLP_MICROSECONDS = 20


def read(path):
    """Returns {id: [(seconds, work), ...]}, in the order of the lines."""
    found = {}
    for line in open(path):
        if line.startswith("{"):
            row = json.loads(line)
            found.setdefault(row["id"], []).append((row["seconds"], row["work"]))
    return found


def ratio(ours, theirs):
    """Returns the median over the pairs of their time divided by ours."""
    return statistics.median(t[0] / o[0] for o, t in zip(ours, theirs))


def rows_of(ours, theirs):
    """(id, what is measured, value, goal, reached)"""
    rows = []

    def judge(name, what, goal, value, low=True):
        rows.append({"id": name, "what": what, "value": value, "goal": goal, "reached": value is not None and (value >= goal if low else value <= goal)})

    def of(table, name):
        return next((v for k, v in sorted(table.items()) if k == name or k.startswith(name + "/")), None)

    for name in GEMM:
        o, t = of(ours, name), of(theirs, name)
        judge(name, "times PyTorch's speed", 0.97, ratio(o, t) if o and t else None)
    copy = of(ours, "copy")
    for name in COPY:
        o, t = of(ours, name), of(theirs, name)
        bandwidth = statistics.median((w / s) / (c[1] / c[0]) for (s, w), c in zip(o, copy)) if o and copy else None
        judge(name, "of the copy bandwidth", 0.85, bandwidth)
        if o and t:
            rows[-1]["times_pytorch"] = ratio(o, t)
    mlp = of(ours, "step/mlp_train")
    judge("step/mlp_train", "us a step at batch 64", MLP_MICROSECONDS, statistics.median(s for s, _ in mlp) * 1e6 if mlp else None, low=False)
    for name, goal in STEPS.items():
        o, t = of(ours, name), of(theirs, name)
        judge(name, "times PyTorch's speed", goal, ratio(o, t) if o and t else None)
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ours")
    parser.add_argument("theirs")
    parser.add_argument("--json")
    a = parser.parse_args()
    rows = rows_of(read(a.ours), read(a.theirs))
    for r in rows:
        value = "missing" if r["value"] is None else f"{r['value']:.3g}"
        beside = f"  ({r['times_pytorch']:.2f} times PyTorch's speed)" if "times_pytorch" in r else ""
        print(f"{'ok  ' if r['reached'] else 'MISS'} {r['id']:36} {value:>8} {r['what']}, goal {r['goal']}{beside}")
    if a.json:
        with open(a.json, "w") as file:
            json.dump(rows, file, indent=1)
    missed = sum(not r["reached"] for r in rows)
    print(f"{len(rows) - missed} of {len(rows)} goals reached")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
