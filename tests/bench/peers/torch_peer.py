#!/usr/bin/env python3
"""Runs a workload of workloads/*.json in PyTorch: torch_peer.py WORKLOAD.json [--batch N] [--threads N] [--seconds S] [--ways "A;B"].

The same net, optimizer and rows as ours, in every way that is fast without being a trick: eager with the fused and with the foreach
step of the optimizer, compiled; inference eager, as a frozen TorchScript graph, compiled. The fastest counts. "compiled, fused optimizer,
bf16 autocast" has another precision and runs only if --ways names it. See workload.py.
"""
import torch
from torch import nn

from char_gpt import CharGpt
from workload import NARROW, data_of, serve

torch.set_flush_denormal(True)


def layer(kind, a):
    if kind == "linear":
        return nn.Linear(*a)
    if kind == "conv":
        return nn.Conv2d(a[0], a[1], a[2], padding=a[3])
    return {"relu": nn.ReLU, "gelu": nn.GELU, "maxpool": nn.MaxPool2d, "flatten": nn.Flatten}[kind](*a)


class Classifier(nn.Module):
    """Sequential layers, and cross entropy with the labels."""

    def __init__(self, workload):
        super().__init__()
        self.net = nn.Sequential(*(layer(*item) for entry in workload["net"]["layers"] for item in entry.items()))

    def forward(self, images):
        return self.net(images)

    def loss(self, images, labels):
        return nn.functional.cross_entropy(self.net(images), labels)


def net_of(workload):
    torch.manual_seed(workload["seed"])
    net = CharGpt(workload) if workload["net"].get("torch") == "char_gpt" else Classifier(workload)
    learned = sum(p.numel() for p in net.parameters())
    if learned != workload["net"]["parameters"]:
        raise SystemExit(f"{workload['name']}: the layers learn {learned} numbers, \"parameters\" says {workload['net']['parameters']}")
    return net


def optimizer_of(workload, net, **how):
    o = workload["optimizer"]
    if o["name"] == "sgd":
        return torch.optim.SGD(net.parameters(), lr=o["lr"], **how)
    if o["name"] == "adamw":
        return torch.optim.AdamW(net.parameters(), lr=o["lr"], betas=(o.get("beta1", 0.9), o.get("beta2", 0.999)), **how)
    raise SystemExit(f"{workload['name']}: optimizer {o['name']} is not known here")


def training(workload, batches, compiled, autocast=False, **how):
    def make():
        net = net_of(workload)
        optimizer = optimizer_of(workload, net, **how)
        loss_of = torch.compile(net.loss) if compiled else net.loss

        def step(i):
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                loss = loss_of(*batches[i % len(batches)])
            loss.backward()
            optimizer.step()

        return step

    return make


def inference(workload, batches, kind):
    def make():
        net = net_of(workload).eval()
        with torch.inference_mode():
            if kind == "frozen":
                net = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.trace(net, batches[0])))
            elif kind == "compiled":
                net = torch.compile(net)

        def step(i):
            with torch.inference_mode():
                net(*batches[i % len(batches)])

        return step

    return make


def prepare(workload, batch, threads):
    torch.set_num_threads(threads)
    data = data_of(workload, batch)
    batches = [tuple(map(torch.from_numpy, rows)) for rows in zip(*data.values())]
    if workload["mode"] == "infer":
        return {kind: inference(workload, batches, kind) for kind in ("eager", "frozen", "compiled")}
    return {"eager, fused optimizer": training(workload, batches, False, fused=True),
            "eager, foreach optimizer": training(workload, batches, False, foreach=True),
            "compiled, fused optimizer": training(workload, batches, True, fused=True),
            f"compiled, fused optimizer, {NARROW}": training(workload, batches, True, autocast=True, fused=True)}


prepare.threads = torch.set_num_threads

if __name__ == "__main__":
    serve(prepare)
