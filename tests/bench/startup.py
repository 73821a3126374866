#!/usr/bin/env python3
"""What starting costs: startup.py HARMONICS [--runs N] [--json FILE]. Whole processes, from exec to exit, one line each:

  version    'harmonics version'
  idx        'harmonics run' of samples/mnist.hmx over one step, from IDX files that are mapped
  gz         the same from compressed ones
  epoch      'harmonics run' over a whole epoch of IDX, for its peak resident memory

The fastest and the median run, and the limit. MNIST's training set (HARMONICS_TEST_DATA names the folder above mnist/); without it
random files of the same size and shape.
"""
import argparse
import gzip
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMES = ["train-images-idx3-ubyte", "train-labels-idx1-ubyte"]
LIMITS = {"version": 8, "idx": 200, "gz": 300}
RESIDENT = 100


def random_idx(name, dims, below):
    count = 1
    for d in dims:
        count *= d
    header = bytes([0, 0, 8, len(dims)]) + b"".join(d.to_bytes(4, "big") for d in dims)
    return header + bytes(random.Random(name).choices(range(below), k=count))


def prepare(folder):
    """Writes both files, plain and compressed, to `folder`."""
    given = Path(os.environ.get("HARMONICS_TEST_DATA", ROOT / "../shared/data")) / "mnist"
    for name, dims, below in zip(NAMES, ([60000, 28, 28], [60000]), (256, 10)):
        if given.is_dir():
            shutil.copy(given / f"{name}.gz", folder)
            (folder / name).write_bytes(gzip.decompress((given / f"{name}.gz").read_bytes()))
        else:
            (folder / name).write_bytes(random_idx(name, dims, below))
            (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes(), 6))
    if not given.is_dir():
        print(f"no {given} (set HARMONICS_TEST_DATA): random files take its place", file=sys.stderr)


def run(command):
    """Returns seconds and peak resident MiB of one process."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\nended with {process.returncode}: {errors.decode()}")
    return seconds, usage.ru_maxrss / 1024


def measure(name, command, runs):
    times = [run(command) for _ in range(runs)]
    row = {"name": name, "best_ms": min(t for t, _ in times) * 1e3, "median_ms": statistics.median(t for t, _ in times) * 1e3,
           "resident_mib": max(m for _, m in times), "limit_ms": LIMITS.get(name), "limit_mib": RESIDENT if name != "version" else None}
    limit = f"limit {row['limit_ms']} ms" if row["limit_ms"] else ""
    print(f"{name:<10} {row['best_ms']:>9.1f} ms {row['median_ms']:>9.1f} ms median {row['resident_mib']:>7.1f} MiB  {limit}", flush=True)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("harmonics")
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--json", help="write the rows here as well")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        # In a separate process: a child's peak memory starts with its parent's.
        maker = os.fork()
        if not maker:
            prepare(Path(folder))
            os._exit(0)
        if os.waitpid(maker, 0)[1]:
            raise SystemExit("the files could not be made")
        flow = [a.harmonics, "run", ROOT / "samples/mnist.hmx", "-q"]
        streams = lambda ending: [f"-p{folder}/{name}{ending}" for name in NAMES]
        rows = [measure("version", [a.harmonics, "version"], 2 * a.runs),
                measure("idx", flow + streams("") + ["--steps", "1"], a.runs),
                measure("gz", flow + streams(".gz") + ["--steps", "1"], a.runs),
                measure("epoch", flow + streams("") + ["--epochs", "1"], 2)]
    if a.json:
        Path(a.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
