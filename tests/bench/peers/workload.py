"""Shared by the peers' scripts: reads a workload of workloads/*.json with its rows, times steps, answers on standard input.

A script runs `serve(prepare)`, where prepare(workload, batch, threads) gives {name of a way: step(i)}, `i` counting up. It prints
{"name": "mlp_train/batch:64/threads:1", "how": the fastest way, "best": samples/s of the fastest step, "median": of the median one,
"resident": most MiB in memory during the steps} for every case, or, with --serve, for every line "BATCH THREADS SECONDS" that comes in: the ways are
tried when a case is first asked for, the fastest is kept.
"""
import argparse
import gzip
import json
import os
import re
import sys
import time
from pathlib import Path

import numpy

ROWS, BATCHES = 2048, 8  # as in our benchmarks: the minimum number of rows and of batches
SPREAD = 2  # seconds after which a scheduler has moved busy threads from the hyperthreads of one core to cores of their own
NARROW = "bf16 autocast"  # in the names of ways with another precision, which run only if named


def mnist_folder():
    return Path(os.environ.get("HARMONICS_TEST_DATA", Path(__file__).parents[3] / "../shared/data")) / "mnist"


def idx(name, rows):
    with gzip.open(mnist_folder() / name) as file:
        header = file.read(4)
        shape = [int.from_bytes(file.read(4), "big") for _ in range(header[3])]
        size = int(numpy.prod(shape[1:]))
        taken = numpy.frombuffer(file.read(size * min(rows, shape[0])), numpy.uint8)
    return numpy.resize(taken, (rows, size))


def rows_of(spec, rows, random):
    """Returns a stream's samples, [rows, shape...]: integers if it has classes, else numbers in [0, 1)."""
    shape, classes = [rows, *spec.get("shape", [])], spec.get("classes", 0)
    if spec["values"] == "mnist" and mnist_folder().is_dir():
        if classes:
            return idx("train-labels-idx1-ubyte.gz", rows).reshape(shape).astype(numpy.int64)
        return (idx("train-images-idx3-ubyte.gz", rows).astype(numpy.float32) / 255).reshape(shape)
    if spec["values"] == "mnist":
        print(f"no {mnist_folder()} (set HARMONICS_TEST_DATA): random numbers take its place", file=sys.stderr)
    return random.integers(0, classes, shape) if classes else random.random(shape, numpy.float32)


def data_of(workload, batch):
    """Returns {stream: [one array per batch]}."""
    rows = max(ROWS, BATCHES * batch) // batch * batch
    random = numpy.random.default_rng(workload["seed"])
    return {name: numpy.split(rows_of(spec, rows, random), rows // batch) for name, spec in workload["data"].items()}


def time_steps(step, seconds, least=5):
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < least:
        start = time.perf_counter()
        step(len(times))
        times.append(time.perf_counter() - start)
    return sorted(times)


def fastest(ways, seconds):
    """Returns the way with the fastest step in a trial of each, as long as a measurement. A way that fails is reported and
    excluded. A single way needs no trial."""
    if len(ways) == 1:
        how, make = next(iter(ways.items()))
        return how, make()
    best = {}
    for how, make in ways.items():
        try:
            step = make()
            time_steps(step, 0.2, 8)
            best[how] = (time_steps(step, seconds)[0], step)
        except Exception as e:  # a missing compiler must not hide the results of the others
            print(f"{how}: {type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}", file=sys.stderr)
    how = min(best, key=lambda h: best[h][0])
    return how, best[how][1]


def forget_peak():
    """Resets the process's peak memory."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_resident():
    return int(re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())[1]) / 1024


def row(workload, batch, threads, how, times):
    at = lambda q: batch / times[int(q * (len(times) - 1))]
    return {"name": f"{workload['name']}/batch:{batch}/threads:{threads}", "how": how, "best": at(0), "median": at(0.5),
            "resident": peak_resident()}


def serve(prepare):
    parser = argparse.ArgumentParser()
    parser.add_argument("workload")
    parser.add_argument("--batch", type=int, help="only this batch size")
    parser.add_argument("--threads", type=int, help="only this number of threads")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each case (default 1)")
    parser.add_argument("--least", type=int, default=5, help="steps of a measurement, at least (default 5)")
    parser.add_argument("--ways", help="only these, separated by semicolons")
    parser.add_argument("--serve", action="store_true")
    a = parser.parse_args()
    workload = json.loads(Path(a.workload).read_text())
    chosen = {}

    def answer(batch, threads, seconds):
        if (batch, threads) not in chosen:
            ways = prepare(workload, batch, threads)
            chosen[batch, threads] = fastest({h: w for h, w in ways.items() if (h in a.ways.split(";") if a.ways else NARROW not in h)}, seconds)
        else:
            prepare.threads(threads)
        how, step = chosen[batch, threads]
        time_steps(step, SPREAD if threads > 1 else 0.02, 3)
        forget_peak()
        print(json.dumps(row(workload, batch, threads, how, time_steps(step, seconds, a.least))), flush=True)

    if a.serve:
        for line in sys.stdin:
            batch, threads, seconds = line.split()
            answer(int(batch), int(threads), float(seconds))
        return
    for batch in workload["batches"]:
        for threads in workload["threads"]:
            if a.batch in (None, batch) and a.threads in (None, threads):
                answer(batch, threads, a.seconds)
