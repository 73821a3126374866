#!/usr/bin/env python3
"""The cases of kernel_recurrent beside torch.nn.LSTM and GRU: recurrent.py BIN [--pairs N] [--seconds S] [--threads N]. BIN is the
folder of the benchmarks. Both run in turn (A B A B); a pair's ratio is that of its fastest steps, the table shows the median.
Forward without gradients for `lstm` and `gru`; forward and the gradients of all weights for `lstm_train` and `gru_train`.
"""
import argparse
import json
import statistics
import subprocess
import time
from pathlib import Path

import torch


def ours(folder, case, seconds):
    out = subprocess.run([Path(folder) / "kernel_recurrent", f"--benchmark_filter=^{case}/real_time$", f"--benchmark_min_time={seconds}",
                          "--benchmark_format=json"], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    row = json.loads(out)["benchmarks"][0]
    return row["us"]


def torch_step(name, batch, positions, width):
    kind = torch.nn.LSTM if name.startswith("lstm") else torch.nn.GRU
    net = kind(width, width, batch_first=True)
    x, dy = torch.rand(batch, positions, width) * 2 - 1, torch.rand(batch, positions, width)

    def infer():
        with torch.inference_mode():
            net(x)

    def train():
        y, _ = net(x)
        torch.autograd.grad(y, list(net.parameters()), dy)

    return train if name.endswith("_train") else infer


def fastest(step, seconds):
    for _ in range(5):
        step()
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        step()
        best = min(best, time.perf_counter() - start)
    return best * 1e6


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--threads", type=int, default=1)
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    print(f"{'case':28} {'ours us':>10} {'torch us':>10} {'ratio':>6}   torch {torch.__version__}, {a.threads} thread(s)")
    for width in (64, 128):
        for batch in (1, 16):
            for name in ("lstm", "lstm_train", "gru", "gru_train"):
                case, step = f"{name}/{batch}x64x{width}/threads:{a.threads}", torch_step(name, batch, 64, width)
                pairs = [(ours(a.bin, case, a.seconds), fastest(step, a.seconds)) for _ in range(a.pairs)]
                ratio = statistics.median(theirs / mine for mine, theirs in pairs)
                print(f"{name}/{batch}x64x{width:<12} {statistics.median(p[0] for p in pairs):10.1f} {statistics.median(p[1] for p in pairs):10.1f} {ratio:6.2f}", flush=True)


if __name__ == "__main__":
    main()
