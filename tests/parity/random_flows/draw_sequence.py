"""Flows over sequences of numbers."""
from __future__ import annotations

from typing import Any

import numpy as np

from builder import At, Builder
from draw_head import add_head
from draw_mlp import hidden
from draw_training import draw_training
from flow import Call, Flow, Ref


def sequence(b: Builder, name: str, positions: int, width: int) -> At:
    flat = b.chance(0.4)

    def make(n: int) -> np.ndarray:
        return b.rng.normal(size=(n, positions * width) if flat else (n, positions, width)).astype(np.float32)

    b.stream(name, "{*, %d}" % width, make, (width,), True)
    return At(name, (width,), positions)


def draw_recurrent(b: Builder, at: At, may_end: bool) -> At:
    width = b.whole(1, min(b.most, 24))
    both, last = b.chance(0.3), may_end and b.chance(0.3)
    args: dict[str, Any] = {"width": width}
    if b.chance(0.25):
        args["layers"] = 2
        if b.chance(0.4):
            args["dropout"] = 0.25
    for name, on in (("bidirectional", both), ("last", last)):
        if on:
            args[name] = True
    if b.chance(0.2):
        args["bias"] = False
    features = (width * (2 if both else 1),)
    declare = b.chance(0.5)
    if declare and b.chance(0.5):
        del args["width"]
    return b.layer(at, [Call(b.pick(["lstm", "gru"]), args)], features, 0 if last else None, declare)


def draw_attention(b: Builder, width: int, memory: str | None = None) -> Call:
    heads = b.pick([h for h in (1, 2, 3, 4) if width % h == 0])
    args: dict[str, Any] = {"heads": heads} if heads > 1 or b.chance(0.5) else {}
    if b.chance(0.3):
        args["kv_heads"] = b.pick([k for k in (1, 2, 3, 4) if heads % k == 0])
    if memory:
        args["memory"] = Ref(memory)
    if b.chance(0.25 if memory else 0.5):
        args["causal"] = True
    if not memory and (width // heads) % 2 == 0 and b.chance(0.4):
        args["rope"] = True
    if b.chance(0.15):
        args["bias"] = False
    return Call("attention", args)


def block(b: Builder, at: At) -> At:
    """Adds a layer over a sequence."""
    kind = b.pick(["recurrent", "attention", "residual attention", "feed-forward", "map", "norm"], [3, 2, 2, 2, 2, 1])
    if kind == "recurrent":
        return draw_recurrent(b, at, False)
    if kind == "attention":
        return b.layer(at, [draw_attention(b, at.width)], at.features, declare=b.chance(0.5))
    if kind == "residual attention":
        calls = [b.norm(at, ["layer", "rms"]), draw_attention(b, at.width)]
        to = b.layer(at, calls + ([b.dropout()] if b.chance(0.2) else []), at.features)
        b.arrow(at, to, [Call("skip")])
        return to
    if kind == "feed-forward":
        calls = [b.norm(at, ["layer", "rms"]), Call("affine", {"width": b.width()}), b.activation(), Call("affine")]
        to = b.layer(at, calls, at.features)
        b.arrow(at, to, [Call("skip")])
        return to
    if kind == "norm":
        return b.layer(at, [b.norm(at), b.activation()], at.features, declare=b.chance(0.5))
    return b.layer(at, [b.activation()], (b.width(),))


def pooled(b: Builder, at: At) -> At:
    kind = b.pick(["last", "mean", "recurrent"])
    if kind == "recurrent":
        width = b.width()
        return b.layer(at, [Call(b.pick(["lstm", "gru"]), {"width": width, "last": True})], (width,), 0, False)
    return b.layer(at, [Call(kind)], at.features, 0, False)


def finish(b: Builder, at: At) -> Flow:
    if at.positions and b.chance(0.5):
        at = pooled(b, at)
        if b.chance(0.3):
            at = hidden(b, at, [at])
    add_head(b, at, [b.norm(at, ["layer", "rms"])] if b.chance(0.25) else None)
    return b.flow(draw_training(b))


def draw_sequence(seed: int) -> Flow:
    b = Builder("seq", seed)
    b.few_samples(12, 30)
    positions = b.pick([1, b.whole(2, 12), 20], [0.6, 9, 0.5])
    at = sequence(b, "x", positions, b.whole(1, 8))
    if b.chance(0.15):
        other = sequence(b, "m", b.whole(1, positions + 6), b.whole(1, 8))
        at = b.layer(at, [b.activation()], (b.width(),))
        other = b.layer(other, [b.activation()], (b.width(),))
        at = b.layer(at, [draw_attention(b, at.width, other.name)], at.features)
    for _ in range(b.whole(1, 3)):
        at = block(b, at)
    return finish(b, at)
