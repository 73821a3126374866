"""Flows over flat samples."""
from __future__ import annotations

import numpy as np

from builder import At, Builder
from draw_head import add_head
from flow import Call, Flow, Ref
from draw_training import draw_training


def numbers(b: Builder, name: str, width: int, declared: str | None = None) -> At:
    dtype = b.pick([np.float32, np.uint8, np.int32], [8, 1, 0.5])

    def make(n: int) -> np.ndarray:
        if dtype == np.uint8:
            return b.rng.integers(0, 256, (n, width)).astype(dtype)
        if dtype == np.int32:
            return b.rng.integers(-3, 4, (n, width)).astype(dtype)
        return b.rng.normal(size=(n, width)).astype(dtype)

    b.stream(name, "{%d}" % width if declared is None else declared, make, (width,))
    return At(name, (width,))


def hidden(b: Builder, at: At, earlier: list[At]) -> At:
    """Adds a layer over flat features."""
    width = b.width()
    same = [e for e in earlier if e.width == at.width and e.name != at.name]
    kind = b.pick(["map", "written", "normed", "glu", "residual", "concat", "mul", "two sources", "prelu", "frozen",
                   "shared"], [5, 2, 3, 1, 2, 1, 1, 1, 1, 0.7, 0.7])
    act = b.activation()
    if kind == "map":
        if b.chance(0.2):
            act.args["bias"] = False
        calls = [[], [act], [act, b.dropout()], [b.dropout()]][b.whole(0, 3) if b.chance(0.6) else 1]
        return b.layer(at, calls, (width,))
    if kind == "written":
        middle = b.width()
        calls = [Call("affine", {"width": middle, **({"bias": False} if b.chance(0.3) else {})}), act, Call("affine")]
        return b.layer(at, calls + ([b.activation()] if b.chance(0.5) else []), (width,))
    if kind == "normed":
        calls = [b.norm(at), Call("affine"), act] if b.chance(0.5) else [Call("affine"), b.norm(At("", (width,))), act]
        return b.layer(at, calls, (width,))
    if kind == "glu":
        return b.layer(at, [Call("affine", {"width": 2 * width}), Call("glu")], (width,), declare=b.chance(0.5))
    if kind == "residual":
        to = b.layer(at, [act] if b.chance(0.5) else [b.norm(at), Call("affine"), act, Call("affine")], at.features)
        b.arrow(at, to, [Call("skip")])
        return to
    if kind == "concat" and len(earlier) > 1:
        other = b.pick([e for e in earlier if e.name != at.name])
        calls = [Call("concat", {"with": Ref(other.name)})]
        return b.layer(at, calls, (at.width + other.width,), declare=b.chance(0.5))
    if kind == "mul" and same:
        return b.layer(at, [Call("mul", {"with": Ref(b.pick(same).name)})], at.features, declare=b.chance(0.5))
    if kind == "two sources" and len(earlier) > 1:
        to = b.layer(at, [act], (width,))
        b.arrow(b.pick([e for e in earlier if e.name != at.name]), to, [b.activation()])
        return to
    if kind == "prelu":
        return b.layer(at, [Call("prelu", {"channels": True} if b.chance(0.5) else {})], (width,))
    if kind == "frozen":
        return b.layer(at, [Call("affine", {"freeze": True}), act], (width,))
    if kind == "shared":
        calls = [Call("affine", {"width": at.width, "name": f"shared{len(b.layers)}"}), act]
        if b.chance(0.4):
            calls.insert(1, b.norm(at))
            calls[1].args["name"] = f"norm{len(b.layers)}"
        return b.layer(b.layer(at, calls, at.features), calls, at.features)
    return b.layer(at, [act], (width,))


def draw_mlp(seed: int) -> Flow:
    b = Builder("mlp", seed)
    width = b.width()
    at = numbers(b, "x", width, "" if b.chance(0.2) else None)
    earlier = [at]
    if b.chance(0.15):
        other = numbers(b, "z", b.width())
        at = b.layer(at, [b.activation()], (b.width(),))
        b.arrow(other, at, [b.activation()])
        earlier += [other, at]
    for _ in range(b.whole(0, 4)):
        at = hidden(b, at, earlier)
        earlier.append(at)
    add_head(b, at, [b.norm(at)] if b.chance(0.15) else None)
    layers = [e for e in earlier if e.name in b.layers]
    if layers and b.chance(0.15):
        add_head(b, b.pick(layers))
    return b.flow(draw_training(b))
