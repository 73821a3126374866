#!/usr/bin/env python3
"""Alternates our benchmarks with the peers' scripts and prints ratios: compare.py BIN WORKLOADS [--peer torch] [--peer onnx]
[--pairs N] [--seconds S] [--threads N] [--only PATTERN] [--json FILE]. BIN is the folder of the benchmarks.

Every case runs N times by us and by each peer in turn (A B A B); a pair's ratio is that of their best times, the table shows the
median of the pairs: what slows both down at once falls out. A peer's process lives as long as its workload, so that it starts and
compiles once. Peak and bandwidth are those our benchmark measured beside the case.
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


def ours(folder, mode, case, seconds):
    out = subprocess.run([Path(folder) / BENCHES[mode], f"--benchmark_filter=^{case}/real_time$", f"--benchmark_min_time={seconds}",
                          "--benchmark_format=json"], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    found = json.loads(out)
    return {**found["benchmarks"][0], "peaks": found["context"]["peaks"]}


class Peer:
    def __init__(self, kind, workload):
        script = Path(__file__).parent / SCRIPTS[kind]
        self.process = subprocess.Popen([sys.executable, script, workload, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

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


def compare(a, workload, batch, threads, peers):
    case = f"{workload['name']}/batch:{batch}/threads:{threads}"
    mine, theirs, how = [], {kind: [] for kind in peers}, {}
    for _ in range(a.pairs):
        mine.append(ours(a.bin, workload["mode"], case, a.seconds))
        for kind, peer in peers.items():
            row = peer.measure(batch, threads, a.seconds)
            theirs[kind].append(row)
            how[kind] = row["how"]
    median = lambda values: statistics.median(values)
    rows = []
    for kind in peers:
        ratios = [m["samples/s"] / t["best"] for m, t in zip(mine, theirs[kind])]
        rows.append({"case": case, "peer": kind, "how": how[kind], "ours": median(m["samples/s"] for m in mine), "theirs": median(t["best"] for t in theirs[kind]),
                     "ratio": median(ratios), "least": min(ratios), "most": max(ratios),
                     "ratio_of_medians": median(m["median"] / t["median"] for m, t in zip(mine, theirs[kind])),
                     "of_floor": median(m.get("of_floor", 0) for m in mine), "of_move": median(m.get("of_move", 0) for m in mine),
                     "of_peak": median(m.get("of_peak", 0) for m in mine), "of_bandwidth": median(m.get("of_bandwidth", 0) for m in mine),
                     "peaks": mine[-1]["peaks"]})
    return rows


def show(r):
    bandwidth = f"{r['of_bandwidth']:.2f}" if r["of_bandwidth"] else "-"
    floor, moved = (f"{r[key]:.2f}" if r[key] else "-" for key in ("of_floor", "of_move"))
    print(f"{r['case']:<44} {r['peer']:<6} {r['ours']:>10.0f} {r['theirs']:>10.0f} {r['ratio']:>7.2f} {r['least']:>6.2f}-{r['most']:<6.2f} "
          f"{r['ratio_of_medians']:>7.2f} {r['of_peak']:>7.2f} {bandwidth:>6} {floor:>8} {moved:>7}  {r['how']}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin")
    parser.add_argument("workloads", type=Path)
    parser.add_argument("--peer", action="append", choices=SCRIPTS, help="default: torch, and onnx for inference")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.5, help="of one measurement (default 0.5)")
    parser.add_argument("--threads", type=int, help="only this number of threads")
    parser.add_argument("--only", default="", help="only cases that match, e.g. 'mlp_train/batch:1/'")
    parser.add_argument("--json", help="write the rows here as well")
    a = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f}, median of {a.pairs} pairs of {a.seconds} s")
    print(f"{'case':<44} {'peer':<6} {'ours':>10} {'theirs':>10} {'ratio':>7} {'least-most':^13} {'medians':>7} {'of peak':>7} {'of bw':>6} {'of floor':>8} {'of move':>7}  their fastest way")
    rows = []
    for path in sorted(a.workloads.glob("*.json")):
        workload = json.loads(path.read_text())
        cases = [(b, t) for b in workload["batches"] for t in workload["threads"]
                 if a.threads in (None, t) and re.search(a.only, f"{workload['name']}/batch:{b}/threads:{t}")]
        if not cases:
            continue
        kinds = [k for k in a.peer or SCRIPTS if k != "onnx" or workload["mode"] == "infer"]
        peers = {kind: Peer(kind, path) for kind in kinds}
        for batch, threads in cases:
            for r in compare(a, workload, batch, threads, peers):
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
