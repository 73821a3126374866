#!/usr/bin/env python3
"""Alternates our benchmarks with the peers' scripts and prints ratios: compare.py BIN WORKLOADS [--peer torch] [--peer onnx]
[--pairs N] [--seconds S] [--threads N] [--only PATTERN] [--python PROGRAM] [--ways "A;B"] [--json FILE]. BIN is the folder of the
benchmarks.

All cases of a workload run N times by us and by each peer in turn (A B A B); a pair's ratio is that of their best times, the table
shows the median of the pairs: what slows both down at once falls out. A peer's process lives as long as its workload, so that it
starts and compiles once. Peak and bandwidth are those our benchmark measured beside the case. "of floor" is the fraction of the
slower of both sides of a training step's floor: its FLOPs at the peak ("of peak"), and the bytes of its weights and moments at the
rate of an in-place update ("of bytes"); "of move" counts the bytes alone, without the optimizer's arithmetic.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

BENCHES = {"train": "bench_training", "infer": "bench_inference"}
SCRIPTS = {"torch": "torch_peer.py", "onnx": "onnx_peer.py"}


def ours(folder, mode, cases, seconds):
    """Returns {case: the benchmark's report}. One process runs all cases."""
    out = subprocess.run([Path(folder) / BENCHES[mode], f"--benchmark_filter=^({'|'.join(cases)})/real_time$", f"--benchmark_min_time={seconds}",
                          "--benchmark_format=json"], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    found = json.loads(out)
    return {row["name"].removesuffix("/real_time"): {**row, "peaks": found["context"]["peaks"]} for row in found["benchmarks"]}


class Peer:
    def __init__(self, kind, workload, python, ways):
        command = [python, Path(__file__).parent / SCRIPTS[kind], workload, "--serve", *(["--ways", ways] if ways else [])]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def measure(self, batch, threads, seconds):
        self.process.stdin.write(f"{batch} {threads} {seconds}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the peer's script ended with {self.process.wait()}")
        return json.loads(line)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def compare(a, workload, cases, peers):
    names = {(batch, threads): f"{workload['name']}/batch:{batch}/threads:{threads}" for batch, threads in cases}
    mine, theirs = {name: [] for name in names.values()}, {kind: {name: [] for name in names.values()} for kind in peers}
    for _ in range(a.pairs):
        for name, row in ours(a.bin, workload["mode"], names.values(), a.seconds).items():
            mine[name].append(row)
        for kind, peer in peers.items():
            for (batch, threads), name in names.items():
                theirs[kind][name].append(peer.measure(batch, threads, a.seconds))
    return [row_of(name, kind, mine[name], theirs[kind][name]) for name in names.values() for kind in peers]


def row_of(name, kind, mine, theirs):
    median = lambda values: statistics.median(values)
    ratios = [m["samples/s"] / t["best"] for m, t in zip(mine, theirs)]
    return {"case": name, "peer": kind, "how": theirs[-1]["how"], "ours": median(m["samples/s"] for m in mine), "theirs": median(t["best"] for t in theirs),
            "ratio": median(ratios), "least": min(ratios), "most": max(ratios),
            "ratio_of_medians": median(m["median"] / t["median"] for m, t in zip(mine, theirs)),
            **{key: median(m.get(key, 0) for m in mine) for key in ("of_floor", "of_update", "of_move", "of_peak", "of_bandwidth")},
            "peaks": mine[-1]["peaks"]}


COLUMNS = {"of_peak": "of peak", "of_bandwidth": "of bw", "of_floor": "of floor", "of_update": "of bytes", "of_move": "of move"}


def show(r):
    fractions = " ".join(f"{f'{r[key]:.2f}' if r[key] else '-':>8}" for key in COLUMNS)
    print(f"{r['case']:<44} {r['peer']:<6} {r['ours']:>10.0f} {r['theirs']:>10.0f} {r['ratio']:>7.2f} {r['least']:>6.2f}-{r['most']:<6.2f} "
          f"{r['ratio_of_medians']:>7.2f} {fractions}  {r['how']}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin")
    parser.add_argument("workloads", type=Path)
    parser.add_argument("--peer", action="append", choices=SCRIPTS, help="default: torch, and onnx for inference")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.5, help="of one measurement (default 0.5)")
    parser.add_argument("--threads", type=int, help="only this number of threads")
    parser.add_argument("--only", default="", help="only cases that match, e.g. 'mlp_train/batch:1/'")
    parser.add_argument("--python", default=sys.executable, help="runs the peers' scripts (default: this one)")
    parser.add_argument("--ways", help="only these ways of the peers, separated by semicolons, e.g. 'eager, fused optimizer'")
    parser.add_argument("--json", help="write the rows here as well")
    a = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f}, median of {a.pairs} pairs of {a.seconds} s")
    print(f"{'case':<44} {'peer':<6} {'ours':>10} {'theirs':>10} {'ratio':>7} {'least-most':^13} {'medians':>7} "
          f"{' '.join(f'{title:>8}' for title in COLUMNS.values())}  their fastest way")
    rows = []
    for path in sorted(a.workloads.glob("*.json")):
        workload = json.loads(path.read_text())
        cases = [(b, t) for b in workload["batches"] for t in workload["threads"]
                 if a.threads in (None, t) and re.search(a.only, f"{workload['name']}/batch:{b}/threads:{t}")]
        if not cases:
            continue
        kinds = [k for k in a.peer or SCRIPTS if k != "onnx" or workload["mode"] == "infer"]
        peers = {kind: Peer(kind, path, a.python, a.ways) for kind in kinds}
        for r in compare(a, workload, cases, peers):
            rows.append(r)
            show(r)
        for peer in peers.values():
            peer.close()
    if rows:
        print(rows[-1]["peaks"])
    if a.json:
        Path(a.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
