"""The head of a random flow: a layer with a loss, and matching targets."""
from __future__ import annotations

from typing import Any

import numpy as np

from builder import At, Builder
from flow import Call, Tap

HEADS = ["classes", "classes", "shares", "nll", "signs", "hinge", "each", "binary", "binary_classes", "two", "kl",
         "numbers", "numbers"]


def target(b: Builder, at: At, width: int, make, dtype=np.float32) -> str:
    """A stream of floats with the width of the output."""
    name = f"y{len(b.taps)}"
    inner = (at.positions, width) if at.positions else (width,)
    declared = ("{*, %d}" if at.positions else "{%d}") % width
    b.stream(name, declared, lambda n: make((n, *inner)).astype(dtype), (width,), bool(at.positions))
    return name


def classes(b: Builder, at: At, count: int, ignore: int | None = None) -> str:
    name = f"y{len(b.taps)}"
    dtype = b.pick([np.int32, np.int64] if ignore is not None and ignore < 0 else [np.int32, np.int64, np.uint8])

    def make(n: int) -> np.ndarray:
        y = b.rng.integers(0, count, (n, at.positions) if at.positions else (n,))
        return (y if ignore is None else np.where(b.rng.random(y.shape) < ignored, ignore, y)).astype(dtype)

    ignored = b.pick([0.2, 0.5, 0.9])
    b.stream(name, ("{*, %d}" if at.positions else "{%d}") % count, make, (), bool(at.positions), count)
    return name


def shares(b: Builder):
    def make(shape: tuple[int, ...]) -> np.ndarray:
        x = np.exp(b.rng.normal(size=shape))
        return x / x.sum(-1, keepdims=True)
    return make


def softmax(b: Builder) -> list[Call]:
    return b.pick([[], [Call("softmax")], [Call("log_softmax")]])


def draw_loss(b: Builder, kind: str, at: At) -> tuple[int, list[Call], list[Call], str]:
    """Width of the output, final functions of the arrow, losses, stream of targets."""
    args: dict[str, Any] = {}
    ignore = b.pick([None, -100, 0], [3, 1.5, 0.7]) if kind in ("classes", "nll", "each") else None
    if ignore is not None:
        args["ignore_index"] = ignore
    k = b.whole(2, 8)
    if kind == "classes":
        if b.chance(0.35):
            args["label_smoothing"] = b.number(0.02, 0.5)
        return k, softmax(b), [Call("cross_entropy", args)], classes(b, at, k, ignore)
    if kind == "shares":
        if b.chance(0.35):
            args["label_smoothing"] = b.number(0.02, 0.5)
        return k, softmax(b), [Call("cross_entropy", args)], target(b, at, k, shares(b))
    if kind == "nll":
        return k, [Call("log_softmax")], [Call("nll", args)], classes(b, at, k, ignore)
    if kind in ("signs", "hinge"):
        args = {"margin": b.number(0.3, 2)} if b.chance(0.5) else {}
        if b.chance(0.4):
            args["power"] = b.whole(1, 2)
        if kind == "hinge":
            return k, [], [Call("hinge", args)], classes(b, at, k)
        w, end = b.whole(1, 5), b.pick([[], [Call("tanh")]])
        return w, end, [Call("hinge", args)], target(b, at, w, lambda s: b.rng.choice([-1, 1], s))
    if kind == "each":
        return k, [Call("sigmoid")], [Call("cross_entropy", args)], classes(b, at, k, ignore)
    if kind == "binary":
        w = b.whole(1, 5)
        end = b.pick([Call("sigmoid"), Call("softmax"), Call("hardsigmoid")], [4, 1, 1])
        whole = b.chance(0.5)
        return w, [end], [Call("binary_cross_entropy")], target(
            b, at, w, lambda s: b.rng.integers(0, 2, s) if whole else b.rng.random(s))
    if kind == "binary_classes":
        k = max(k, 3)  # two classes are one output
        end = b.pick([Call("sigmoid"), Call("softmax")], [3, 1])
        return k, [end], [Call("binary_cross_entropy")], classes(b, at, k)
    if kind == "two":
        return 1, [Call("sigmoid")], [Call("binary_cross_entropy")], classes(b, at, 2)
    if kind == "kl":
        return k, [b.pick([Call("softmax"), Call("log_softmax")])], [Call("kl_div")], target(b, at, k, shares(b))
    w = b.whole(1, 5)
    loss = b.pick([Call("mse"), Call("mae"), Call("huber"), Call("huber", {"delta": b.number(0.3, 2)}),
                   Call("smooth_l1"), Call("smooth_l1", {"beta": b.number(0.3, 2)})])
    more = [Call("mae", {"weight": b.number(0.1, 1)})] if loss.name == "mse" and b.chance(0.2) else []
    return w, b.pick([[], [b.activation()]], [4, 1]), [loss, *more], target(b, at, w, lambda s: b.rng.normal(size=s))


def add_head(b: Builder, at: At, calls: list[Call] | None = None) -> At:
    """calls: functions before the output's map, which is then written explicitly."""
    kind = b.pick(HEADS)
    width, end, losses, stream = draw_loss(b, kind, at)
    if b.taps and b.chance(0.8):
        losses[0].args["weight"] = b.number(0.1, 2)
    functions = [*(calls or []), Call("affine"), *end] if calls or b.chance(0.15) else end
    declare = kind != "numbers" or b.chance(0.5)
    declare |= kind == "two" or at.name in b.streams or bool(functions and not end)
    output = b.layer(at, functions, (width,), declare=declare)
    b.taps.append(Tap(output.name, stream, losses))
    return output
