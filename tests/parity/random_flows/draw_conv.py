"""Flows over images."""
from __future__ import annotations

from typing import Any

import numpy as np

from builder import At, Builder
from draw_head import add_head
from draw_mlp import hidden
from draw_training import draw_training
from flow import Call, Flow, Ref


def convolved(size: int, kernel: int, stride: int, dilation: int, padding: Any) -> int:
    reach = dilation * (kernel - 1) + 1
    if padding == "same":
        return -(-size // stride)
    return (size + 2 * (0 if padding == "valid" else int(padding)) - reach) // stride + 1


def draw_convolution(b: Builder, at: At) -> tuple[Call, tuple[int, ...]]:
    c, h, w = at.features
    groups = b.pick([g for g in (1, 2, 3) if c % g == 0], None)
    channels = groups * b.whole(1, max(1, 8 // groups))
    args: dict[str, Any] = {"channels": channels}
    kernel = b.pick([1, 2, 3, 5], [1, 1, 4, 1])
    stride, dilation = b.pick([1, 2, 3], [6, 2, 1]), b.pick([1, 2], [5, 1])
    padding = b.pick(["same", "valid", "1", "2"], [5, 2, 1, 1])
    if min(convolved(n, kernel, 1, dilation, padding) for n in (h, w)) < 1:
        kernel, dilation, padding = 3, 1, "same"
    kernels = (kernel, b.pick([1, 2, 3])) if padding == "same" and b.chance(0.15) else (kernel, kernel)
    if kernels != (3, 3) or b.chance(0.3):
        args["kernel"] = kernel if kernels[0] == kernels[1] else list(kernels)
    for name, value in (("stride", stride), ("dilation", dilation), ("groups", groups)):
        if value != 1:
            args[name] = value
    if padding != "same":
        args["padding"] = padding
    if b.chance(0.25):
        args["bias"] = False
    size = tuple(convolved(n, k, stride, dilation, padding) for n, k in zip((h, w), kernels))
    return Call("conv", args), (channels, *size)


def draw_pool(b: Builder, features: tuple[int, ...]) -> tuple[Call, tuple[int, ...]] | None:
    c, h, w = features
    size = b.pick([2, 3], [3, 1])
    stride = b.pick([None, 1, 2], [4, 1, 1])
    padding = b.pick([0, 1], [4, 1])
    if min(h, w) + 2 * padding < size:
        return None
    args: dict[str, Any] = {} if size == 2 and b.chance(0.3) else {"size": size}
    if stride:
        args["stride"] = stride
    if padding:
        args["padding"] = padding
    out = [(n + 2 * padding - size) // (stride or size) + 1 for n in (h, w)]
    return Call(b.pick(["maxpool", "avgpool"], [2, 1]), args), (c, *out)


def block(b: Builder, at: At) -> At:
    c = at.features[0]
    if b.chance(0.15):  # a residual block
        calls = [Call("conv", {"channels": c}), b.norm(at, ["batch", "group", "instance"]), b.activation()]
        to = b.layer(at, calls, at.features, declare=False)
        b.arrow(at, to, [Call("skip")])
        return to
    if b.chance(0.08):
        first = Call("prelu", {"channels": True}) if b.chance(0.5) else b.activation()
        return b.layer(at, [first, Call("skip")], at.features, declare=False)
    if c % 2 == 0 and b.chance(0.06):
        return b.layer(at, [Call("glu")], (c // 2, *at.features[1:]), declare=False)
    conv, shape = draw_convolution(b, at)
    calls = [conv]
    order = ["norm"] * b.chance(0.35) + ["act"] * b.chance(0.85) + ["pool"] * b.chance(0.5) + ["drop"] * b.chance(0.1)
    if b.chance(0.2):
        b.rng.shuffle(order)
    for what in order:
        if what == "norm":
            calls.append(b.norm(At("", shape), ["batch", "batch", "group", "instance", "layer", "rms"]))
        elif what == "act":
            prelu = Call("prelu", {"channels": True})
            calls.append(Call("relu") if b.chance(0.4) else b.activation() if b.chance(0.85) else prelu)
        elif what == "drop":
            calls.append(b.dropout())
        elif pool := draw_pool(b, shape):
            calls.append(pool[0])
            shape = pool[1]
    return b.layer(at, calls, shape, declare=False)


def draw_conv(seed: int) -> Flow:
    b = Builder("conv", seed)
    side = 20 if b.most > 16 else 10
    c, h, w = b.whole(1, 4), b.whole(3, side), b.whole(3, side)
    b.few_samples(12, 30)
    u8 = b.chance(0.25)

    def make(n: int) -> np.ndarray:
        flat = (n, h, w) if c == 1 and u8 else (n, c, h, w)
        return b.rng.integers(0, 256, flat).astype(np.uint8) if u8 else b.rng.normal(size=flat).astype(np.float32)

    b.stream("x", "{%d, %d, %d}" % (c, h, w), make, (c, h, w))
    at = At("x", (c, h, w))
    for _ in range(b.whole(1, 3)):
        before, at = at, block(b, at)
        if before.name in b.layers and before.features[1:] == at.features[1:] and b.chance(0.15):
            at = b.layer(at, [Call("concat", {"with": Ref(before.name)})],
                         (at.features[0] + before.features[0], *at.features[1:]), declare=False)
    if b.chance(0.2):
        at = b.layer(at, [Call("flatten")], (at.width,), declare=False)
    for _ in range(b.whole(0, 1)):
        at = b.layer(at, [b.activation()] if b.chance(0.7) else [b.activation(), b.dropout()], (b.width(),))
        if b.chance(0.3):
            at = hidden(b, at, [at])
    add_head(b, at)
    return b.flow(draw_training(b))
