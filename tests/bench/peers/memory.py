#!/usr/bin/env python3
"""The memory of each training workload's steps, ours and PyTorch's: memory.py BIN WORKLOADS [--threads N] [--json FILE].

'planned' and 'measured' are our plan's bytes and the high-water mark of memory for numbers (see peak_memory.cpp); 'resident' is the
most the whole process held during the steps, libraries included, each in a process of its own.
"""
import argparse
import json
import subprocess
import sys
from pathlib import Path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=Path)
    parser.add_argument("workloads", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", help="write the rows here as well")
    a = parser.parse_args()
    mib = lambda n: n / 2**20
    print(f"{'case':<34} {'planned':>8} {'measured':>9} {'ratio':>6} {'heap':>8} {'resident':>9} {'PyTorch':>9} {'ratio':>6}   MiB")
    rows = []
    for path in sorted(a.workloads.glob("*.json")):
        workload = json.loads(path.read_text())
        for batch in workload["batches"] if workload["mode"] == "train" else []:
            ours = json.loads(subprocess.run([a.bin / "peak_memory", path.stem, str(batch), str(a.threads)], check=True, stdout=subprocess.PIPE).stdout)
            theirs = json.loads(subprocess.run([sys.executable, Path(__file__).parent / "torch_peer.py", path, f"--batch={batch}", f"--threads={a.threads}",
                                                "--seconds=0.3", "--ways=eager, fused optimizer"], check=True, stdout=subprocess.PIPE).stdout)
            rows.append({**ours, "torch_resident": theirs["resident"]})
            print(f"{ours['name']:<34} {mib(ours['planned']):>8.2f} {mib(ours['measured']):>9.2f} {ours['measured'] / ours['planned']:>6.3f} {mib(ours['heap']):>8.2f} "
                  f"{ours['resident']:>9.1f} {theirs['resident']:>9.1f} {ours['resident'] / theirs['resident']:>6.2f}", flush=True)
    if a.json:
        Path(a.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
