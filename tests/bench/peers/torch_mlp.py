#!/usr/bin/env python3
"""Runs a workload of workloads/*.json in PyTorch: torch_mlp.py WORKLOAD.json [--batch N] [--threads N] [--seconds S].

One JSON object a line, named as our benchmarks name theirs: {"name": "mlp_train/batch:64/threads:1", "best": samples/s of
the fastest step, "median": of the median one}. The same net, optimizer and random data as ours; SGD's fused
step, and inference by a frozen TorchScript graph: the fastest PyTorch has without compiling.
"""
import argparse
import json
import time

import torch
from torch import nn


def layer(kind, a):
    if kind == "linear":
        return nn.Linear(*a)
    if kind == "conv":
        return nn.Conv2d(a[0], a[1], a[2], padding=a[2] // 2)
    return {"relu": nn.ReLU, "maxpool": nn.MaxPool2d, "flatten": nn.Flatten}[kind](*a)


def net_of(workload):
    net = nn.Sequential(*(layer(*item) for entry in workload["net"]["layers"] for item in entry.items()))
    learned = sum(p.numel() for p in net.parameters())
    if learned != workload["net"]["parameters"]:
        raise SystemExit(f"{workload['name']}: the layers learn {learned} numbers, \"parameters\" says {workload['net']['parameters']}")
    return net


def batches_of(workload, batch):
    data = workload["data"]
    return [(torch.rand(batch, *data["images"]["shape"]),
             torch.randint(0, data["labels"]["classes"], (batch,)) if "labels" in data else None) for _ in range(8)]


def training_step(workload, batch):
    net, loss_of = net_of(workload), nn.CrossEntropyLoss()
    if workload["optimizer"]["name"] != "sgd":
        raise SystemExit(f"{workload['name']}: optimizer {workload['optimizer']['name']} is not known here")
    optimizer = torch.optim.SGD(net.parameters(), lr=workload["optimizer"]["lr"], fused=True)

    def step(x, y):
        optimizer.zero_grad(set_to_none=True)
        loss_of(net(x), y).backward()
        optimizer.step()

    return step


def inference_step(workload, batch):
    net = net_of(workload).eval()
    shape = workload["data"]["images"]["shape"]
    with torch.inference_mode():
        net = torch.jit.freeze(torch.jit.trace(net, torch.rand(batch, *shape)))

    def step(x, _):
        with torch.inference_mode():
            net(x)

    return step


def measure(workload, batch, threads, seconds):
    torch.set_num_threads(threads)
    torch.manual_seed(workload["seed"])
    step = (training_step if workload["mode"] == "train" else inference_step)(workload, batch)
    batches = batches_of(workload, batch)
    for x, y in batches:
        step(x, y)
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 10:
        x, y = batches[len(times) % len(batches)]
        start = time.perf_counter()
        step(x, y)
        times.append(time.perf_counter() - start)
    times.sort()
    at = lambda q: batch / times[int(q * (len(times) - 1))]
    return {"name": f"{workload['name']}/batch:{batch}/threads:{threads}", "best": at(0), "median": at(0.5)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload")
    parser.add_argument("--batch", type=int, help="only this batch size")
    parser.add_argument("--threads", type=int, help="only this number of threads")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each case (default 1)")
    a = parser.parse_args()
    with open(a.workload) as file:
        workload = json.load(file)
    for batch in workload["batches"]:
        for threads in workload["threads"]:
            if a.batch in (None, batch) and a.threads in (None, threads):
                print(json.dumps(measure(workload, batch, threads, a.seconds)), flush=True)


if __name__ == "__main__":
    main()
