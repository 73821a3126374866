#!/usr/bin/env python3
"""Training steps of gpt_train and llama_train beside PyTorch: transformer_steps.py BIN WORKLOADS [--python PROGRAM] [--steps N]
[--threads N] [--only WORKLOAD] [--ways "A;B"].

For each net and 1 and 2 threads: our step in f32 and with --precision=auto, PyTorch's eager and compiled step, the fraction of the FMA
peak, and the resident memory of a process that does nothing else. BIN is the folder of the benchmarks. Ours runs before and after
PyTorch; the fastest step of each counts. About eight minutes with the default of four steps.
"""
import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

WAYS = "eager, fused optimizer;compiled, fused optimizer"


def ours(a, name, threads, precision):
    """Returns samples per second, and the fraction of the peak."""
    out = subprocess.run([a.bin / "bench_training", f"--benchmark_filter=^{name}/batch:[0-9]+/threads:{threads}/real_time$",
                          f"--benchmark_min_time={a.steps}", "--benchmark_format=json", f"--precision={precision}"],
                         check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    row = json.loads(out)["benchmarks"][0]
    return row["samples/s"], row["of_peak"]


def peer(a, path, threads, way):
    """Returns PyTorch's row of one way, run in a separate process; None: it failed."""
    run = subprocess.run([a.python, Path(__file__).parent / "torch_peer.py", path, f"--threads={threads}", f"--seconds=0", f"--least={a.steps}",
                          f"--ways={way}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if run.returncode != 0:
        print(f"{way}: {run.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return None
    return json.loads(run.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=Path)
    parser.add_argument("workloads", type=Path)
    parser.add_argument("--python", default=sys.executable, help="runs PyTorch (default: this one)")
    parser.add_argument("--steps", type=int, default=4, help="measured steps of PyTorch, and seconds of ours (default 4)")
    parser.add_argument("--threads", type=int, help="only this number of threads")
    parser.add_argument("--only", default="", help="only this workload")
    parser.add_argument("--ways", default=WAYS, help=f"ways of PyTorch, separated by semicolons (default: {WAYS})")
    a = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f}; seconds of a step, resident MiB")
    print(f"{'case':<28} {'f32':>7} {'of peak':>8} {'auto':>7} {'f32/auto':>9} {'PyTorch':>8} {'ratio':>6} {'MiB':>6} {'PyTorch':>8} {'ratio':>6}")
    for name in ("gpt_train", "llama_train"):
        path = a.workloads / f"{name}.json"
        batch = json.loads(path.read_text())["batches"][0]
        for threads in (1, 2):
            if a.threads not in (None, threads) or a.only not in ("", name):
                continue
            f32 = [ours(a, name, threads, "fp32")]
            auto = [ours(a, name, threads, "auto")]
            memory = json.loads(subprocess.run([a.bin / "peak_memory", name, str(batch), str(threads)], check=True, stdout=subprocess.PIPE).stdout)
            rows = [(way, peer(a, path, threads, way)) for way in a.ways.split(";")]
            f32.append(ours(a, name, threads, "fp32"))
            rate, of_peak = max(f32)
            mixed = max(auto)[0]
            for way, row in rows:
                if row:
                    print(f"{name + f', {threads} threads':<28} {batch / rate:>7.3f} {of_peak:>8.2f} {batch / mixed:>7.3f} {mixed / rate:>9.2f} "
                          f"{batch / row['best']:>8.3f} {rate / row['best']:>6.2f} {memory['resident']:>6.0f} {row['resident']:>8.0f} "
                          f"{memory['resident'] / row['resident']:>6.2f}  {way}", flush=True)


if __name__ == "__main__":
    main()
