#!/usr/bin/env python3
"""Alternates our benchmarks with a peer's script and prints medians and ratios: compare.py BIN WORKLOADS PEER [--rounds N]
[--seconds S] [--threads N]. BIN is the folder of the benchmarks, PEER a script like torch_mlp.py, run by this interpreter.

In every round each workload is run by us, then by the peer. The table shows the median over rounds of the samples a second
(of a round's fastest step) and of the ratio of a round: what slows both down at once falls out of the ratio.
"""
import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

BENCHES = {"train": "bench_training", "infer": "bench_inference"}


def ours(folder, workload, seconds, threads):
    bench = Path(folder) / BENCHES[json.loads(workload.read_text())["mode"]]
    out = subprocess.run([bench, f"--benchmark_filter=^{workload.stem}/.*threads:{threads or ''}", f"--benchmark_min_time={seconds}",
                          "--benchmark_format=json"], check=True, stdout=subprocess.PIPE).stdout
    return {b["name"].removesuffix("/real_time"): (b["samples/s"], b.get("of_peak")) for b in json.loads(out)["benchmarks"]}


def theirs(script, workload, seconds, threads):
    only = [f"--threads={threads}"] if threads else []
    out = subprocess.run([sys.executable, script, workload, f"--seconds={seconds}", *only], check=True, stdout=subprocess.PIPE).stdout
    return {line["name"]: line["best"] for line in map(json.loads, out.splitlines())}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin")
    parser.add_argument("workloads", type=Path)
    parser.add_argument("peer")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--threads", type=int, help="only this number of threads")
    a = parser.parse_args()
    rounds = {}
    for _ in range(a.rounds):
        for workload in sorted(a.workloads.glob("*.json")):
            mine, other = ours(a.bin, workload, a.seconds, a.threads), theirs(a.peer, workload, a.seconds, a.threads)
            for name, (samples, of_peak) in mine.items():
                rounds.setdefault(name, []).append((samples, other[name], of_peak or 0))
    print(f"{'case':<36} {'ours':>10} {'theirs':>10} {'ratio':>7} {'of peak':>8}   samples/s, median of {a.rounds} rounds")
    for name, values in rounds.items():
        median = lambda of: statistics.median(map(of, values))
        print(f"{name:<36} {median(lambda v: v[0]):>10.0f} {median(lambda v: v[1]):>10.0f} "
              f"{median(lambda v: v[0] / v[1]):>7.2f} {median(lambda v: v[2]):>8.2f}")


if __name__ == "__main__":
    main()
