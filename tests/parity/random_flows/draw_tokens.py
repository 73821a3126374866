"""Flows over symbols: text, tokens, integer arrays."""
from __future__ import annotations

import numpy as np

from builder import PARTS, At, Builder
from draw_head import add_head
from draw_sequence import block, pooled
from draw_training import draw_training
from flow import Call, Flow, Ref, Stream, Tap

LETTERS = "abcdefghijklmnopqrstuvwxyz .,\nABC\u00e9\u4e2d"


def windows(symbols: np.ndarray, window: int, shift: int) -> np.ndarray:
    return np.stack([symbols[i : i + window] for i in range(0, len(symbols) - window + 1, shift)])


def draw_words(b: Builder) -> At:
    """A stream of windows, stored as text, tokens or an array."""
    file = b.pick(["text", "tokens", "npy"], [2, 1, 1])
    symbols = b.whole(2, 14)
    window, shift = b.whole(2, 14), b.whole(1, 14)
    if file == "npy":
        b.stream("words", "{*, %d}" % symbols, lambda n: b.rng.integers(0, symbols, (n, window)).astype(np.int32), (),
                 True, symbols)
        return At("words", (), window)
    data = {}
    for part in PARTS:
        size = window + shift * (b.samples[part] - 1) + b.whole(0, shift - 1)
        data[part] = np.concatenate([np.arange(symbols), b.rng.integers(0, symbols, size)])
    alphabet = "".join(sorted(b.rng.choice(list(LETTERS), symbols, replace=False)))
    options = f"window={window}&shift={shift}" + (f"&vocab={symbols}" if file == "tokens" else "")
    s = Stream("words", "", {p: windows(v, window, shift) for p, v in data.items()}, (), True, symbols, file, options)
    s.raw = {p: "".join(alphabet[i] for i in v).encode() if file == "text" else v.astype("<u2").tobytes()
             for p, v in data.items()}
    b.samples = {p: len(v) for p, v in s.data.items()}
    b.streams["words"] = s
    return At("words", (), window)


def draw_tokens(seed: int) -> Flow:
    b = Builder("tokens", seed)
    b.few_samples(12, 24)
    words = draw_words(b)
    symbols, width = b.streams["words"].classes, b.whole(1, 12)
    args = {"deviation": b.number(0.02, 1)} if b.chance(0.7) else {}
    if b.chance(0.5):
        args = {"width": width, **args}
    at = b.layer(words, [Call("embed", args)], (width,), words.positions)
    for _ in range(b.whole(1, 3)):
        at = block(b, at)
    if b.chance(0.65):
        args = {"ignore_index": b.whole(0, symbols - 1)} if b.chance(0.2) else {}
        end = b.pick([[], [Call("softmax")]], [3, 1])
        if at.width == width and not end and b.chance(0.4):
            calls = [Call("affine", {"tied": Ref(next(iter(b.layers))), "bias": b.chance(0.5)})]
        else:
            calls = end if b.chance(0.5) else [b.norm(at, ["layer", "rms"]), Call("affine"), *end]
        out = b.layer(at, calls, (symbols,), declare=bool(end) or b.chance(0.5))
        b.taps.append(Tap(out.name, "words", [Call("next_token", args)]))
        return b.flow(draw_training(b))
    if b.chance(0.5):
        at = pooled(b, at)
    add_head(b, at)
    return b.flow(draw_training(b))
