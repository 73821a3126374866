#!/usr/bin/env python3
"""The cases of bench_gpu.cpp in PyTorch: peer.py [--seconds S] [--only NAME] prints the same lines, the fastest of eager, compiled and
compiled with CUDA graphs. f32 is exact f32 where the case says so, TF32 where it says that."""
import argparse
import json
import sys
import time
from pathlib import Path

import torch
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1] / "peers"))
import torch_peer  # noqa: E402
from workload import data_of  # noqa: E402


def seconds_of(call, seconds):
    def run(times):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(times):
            call()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / times

    run(3)
    times = max(1, int(0.05 * seconds / run(1)))
    found, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(found) < 5:
        found.append(run(times))
    return sorted(found)[len(found) // 2]


def fastest(ways, seconds):
    found = {}
    for name, way in ways.items():
        try:
            found[name] = seconds_of(way(), seconds)
        except Exception as e:  # a method that fails here is skipped with a message
            print(f"{name}: {e}", file=sys.stderr)
    how = min(found, key=found.get)
    return found[how], how


def ways_of(function, *inputs):
    def make(compiled):
        f = compiled(function)
        return lambda: f(*inputs)

    return {"eager": lambda: make(lambda f: f), "compiled": lambda: make(torch.compile),
            "graphs": lambda: make(lambda f: torch.compile(f, mode="reduce-overhead"))}


ONLY = ""


def report(name, work, ways, seconds):
    if not name.startswith(ONLY):
        return
    took, how = fastest(ways, seconds)
    print(json.dumps({"id": name, "seconds": took, "work": work, "how": how}), flush=True)


def numbers(*shape, dtype=torch.float32, grad=False):
    return torch.rand(*shape, device="cuda", dtype=dtype).requires_grad_(grad)


def backward_of(function, *inputs):
    """Only the backward pass; gradients are computed anew in each call."""
    y = function(*inputs)
    dy = torch.rand_like(y)
    wanted = [x for x in inputs if x.requires_grad]
    return lambda: torch.autograd.grad(y, wanted, dy, retain_graph=True)


def products(seconds):
    for m, k, n in ((64, 784, 392), (8192, 1024, 4096), (8192, 8192, 8192)):
        x, w, b, flops, shape = numbers(m, k), numbers(n, k), numbers(n), 2.0 * m * k * n, f"{m}x{k}x{n}"
        torch.backends.cuda.matmul.allow_tf32 = False
        report(f"gemm_f32/{shape}", flops, {"eager": lambda: lambda: F.linear(x, w)}, seconds)
        torch.backends.cuda.matmul.allow_tf32 = True
        report(f"gemm_tf32/{shape}", flops, {"eager": lambda: lambda: F.linear(x, w)}, seconds)
        report(f"gemm_bias_relu_tf32/{shape}", flops, ways_of(lambda x, w, b: F.relu(F.linear(x, w, b)), x, w, b), seconds)
        torch.backends.cuda.matmul.allow_tf32 = False
        xh, wh = x.bfloat16(), w.bfloat16()
        report(f"gemm_bf16/{shape}", flops, {"eager": lambda: lambda: F.linear(xh, wh)}, seconds)


def rows(seconds):
    m, n, classes, tokens = 16384, 4096, 50304, 4096
    x, y, gain, bias, size = numbers(m, n, grad=True), numbers(m, n), numbers(n, grad=True), numbers(n, grad=True), m * n * 4
    logits, labels = numbers(tokens, classes, grad=True), torch.zeros(tokens, device="cuda", dtype=torch.int64)
    rms = lambda x, g: F.rms_norm(x, (n,), g, 1e-5)  # noqa: E731
    layer = lambda x, g, b: F.layer_norm(x, (n,), g, b)  # noqa: E731
    loss = lambda x: F.cross_entropy(x, labels, reduction="none")  # noqa: E731
    with torch.no_grad():
        report("rms_norm", 2 * size, ways_of(rms, x, gain), seconds)
        report("layer_norm", 2 * size, ways_of(layer, x, gain, bias), seconds)
        report("softmax", 2 * size, ways_of(lambda x: F.softmax(x, -1), x), seconds)
        report("cross_entropy", tokens * classes * 4, ways_of(loss, logits), seconds)
        report("add", 3 * size, ways_of(torch.add, x, y), seconds)
        report("bias_gradient", size, ways_of(lambda x: x.sum(0), x), seconds)
        report("transpose", 2 * size, ways_of(lambda x: x.t().contiguous(), x), seconds)
    for name, work, function, inputs in (("rms_norm_grad", 3 * size, rms, (x, gain)), ("layer_norm_grad", 3 * size, layer, (x, gain, bias)),
                                         ("cross_entropy_grad", 2 * tokens * classes * 4, loss, (logits,))):
        report(name, work, {"eager": lambda: backward_of(function, *inputs), "compiled": lambda: backward_of(torch.compile(function), *inputs)}, seconds)
    w = numbers(m, n, grad=True)
    w.grad = numbers(m, n)
    optimizer = torch.optim.AdamW([w], weight_decay=0.01, fused=True)
    report("adamw", 7 * size, {"fused": lambda: optimizer.step}, seconds)


def training_step(workload, batches, mode, autocast):
    """A typical PyTorch step, with the loss compiled in this mode, or not compiled."""
    net = torch_peer.net_of(workload).cuda()
    optimizer = torch_peer.optimizer_of(workload, net, fused=True)
    loss_of = torch.compile(net.loss, mode=mode) if mode else net.loss
    count = [0]

    def step():
        count[0] += 1
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=autocast):
            loss = loss_of(*batches[count[0] % len(batches)])
        loss.backward()
        optimizer.step()

    return step


def captured_step(workload, batches, autocast):
    """The whole step with the optimizer, captured manually as one CUDA graph over fixed inputs."""
    net = torch_peer.net_of(workload).cuda()
    more = {} if workload["optimizer"]["name"] == "sgd" else {"capturable": True}
    optimizer = torch_peer.optimizer_of(workload, net, fused=True, **more)
    loss_of, inputs, count = torch.compile(net.loss), [x.clone() for x in batches[0]], [0]

    def whole():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=autocast):
            loss = loss_of(*inputs)
        loss.backward()
        optimizer.step()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            whole()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        whole()

    def step():
        count[0] += 1
        for to, batch in zip(inputs, batches[count[0] % len(batches)]):
            to.copy_(batch)
        graph.replay()

    return step


def steps(seconds):
    for name in ("mlp_train", "cnn_train", "char_gpt_train", "gpt_train", "llama_train"):
        workload = json.loads((Path(__file__).parents[3] / "workloads" / f"{name}.json").read_text())
        batch = workload["batches"][1] if len(workload["batches"]) > 1 else workload["batches"][0]
        batches = [tuple(torch.from_numpy(r).cuda() for r in rows) for rows in zip(*data_of(workload, batch).values())]
        for kind, autocast in (("step", False), ("step_bf16", True)):
            if autocast and name not in ("gpt_train", "llama_train"):
                continue
            ways = {mode or "eager": lambda mode=mode: training_step(workload, batches, mode, autocast)
                    for mode in (None, "default", "reduce-overhead")}
            ways["captured"] = lambda: captured_step(workload, batches, autocast)
            report(f"{kind}/{name}/batch:{batch}", 0, ways, seconds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--only", default="", help="rows whose names begin so")
    a = parser.parse_args()
    ONLY = a.only
    if not torch.cuda.is_available():
        raise SystemExit("peer.py: this PyTorch sees no CUDA device")
    one, other = (torch.empty(1 << 30, device="cuda", dtype=torch.uint8) for _ in range(2))
    report("copy", 2 << 30, {"copy": lambda: lambda: other.copy_(one)}, a.seconds)
    del one, other
    if not ONLY.startswith("step"):
        products(a.seconds)
        rows(a.seconds)
    steps(a.seconds)
