"""A flow under construction: random choices, and layers whose shapes are known as they are added."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Sequence

import numpy as np

from flow import Arrow, Call, Flow, Layer, Stream, Tap, Training

LARGE = 100000  # seeds from here on draw wider flows
PARTS = ("train", "test", "infer")


@dataclass(frozen=True)
class At:
    """A stream or a layer, and the shape of its samples."""
    name: str
    features: tuple[int, ...]
    positions: int = 0  # 0: no sequence

    @property
    def width(self) -> int:
        return int(np.prod(self.features))


class Builder:
    def __init__(self, kind: str, seed: int):
        self.kind, self.seed = kind, seed
        self.rng = np.random.default_rng([seed, sum(kind.encode())])
        self.streams: dict[str, Stream] = {}
        self.layers: dict[str, Layer] = {}
        self.arrows: list[Arrow] = []
        self.taps: list[Tap] = []
        self.most = 48 if self.chance(0.06) else 16  # the widest layer
        if seed >= LARGE:
            self.most = 96
        self.batch = self.whole(2, 24)
        self.samples = {"train": self.whole(4, 60), "test": self.whole(1, 30), "infer": self.whole(1, 9)}
        if seed >= LARGE:
            self.batch, self.samples["train"] = self.whole(8, 80), self.whole(20, 200)
        self.takes_batch_norm = False

    def few_samples(self, batch: int, samples: int) -> None:
        """For flows whose samples are expensive."""
        if self.seed < LARGE:
            self.batch, self.samples["train"] = self.whole(2, batch), self.whole(4, samples)
        self.samples["test"] = self.whole(1, 12)

    # ---- choices ----
    def whole(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def pick(self, among: Sequence[Any], weights: Sequence[float] | None = None) -> Any:
        p = None if weights is None else np.array(weights) / np.sum(weights)
        return among[int(self.rng.choice(len(among), p=p))]

    def number(self, low: float, high: float) -> float:
        """Log-uniform between two numbers, rounded to three digits."""
        return float(f"{np.exp(self.rng.uniform(np.log(low), np.log(high))):.3g}")

    def width(self) -> int:
        return self.whole(1, self.most)

    # ---- parts ----
    def stream(self, name: str, declared: str, make, sample: tuple[int, ...] = (), positions: bool = False,
               classes: int = 0, file: str = "npy", options: str = "") -> None:
        data = {part: make(self.samples[part]) for part in PARTS}
        self.streams[name] = Stream(name, declared, data, sample, positions, classes, file, options)

    def layer(self, source: At, calls: list[Call], features: tuple[int, ...], positions: int | None = None,
              declare: bool = True) -> At:
        """Adds a layer fed from a source; the caller gives the shape of its output."""
        at = At(f"l{len(self.layers)}", features, source.positions if positions is None else positions)
        sequence = "*, " if at.positions else ""
        shape = "{" + sequence + ", ".join(map(str, features)) + "}" if declare else ""
        self.layers[at.name] = Layer(at.name, shape, at.width)
        self.arrows.append(Arrow(source.name, at.name, calls))
        return at

    def arrow(self, source: At, target: At, calls: list[Call]) -> None:
        self.arrows.append(Arrow(source.name, target.name, calls))

    # ---- functions ----
    def activation(self) -> Call:
        name = self.pick(["relu", "tanh", "sigmoid", "gelu", "silu", "leaky_relu", "elu", "celu", "selu", "softplus",
                          "mish", "hardswish", "hardsigmoid", "hardtanh", "softsign", "relu6", "logsigmoid",
                          "identity"],
                         [6, 4, 2, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0.5])
        args: dict[str, Any] = {}
        if self.chance(0.5):
            args = {"leaky_relu": {"slope": self.number(0.01, 0.5)}, "elu": {"alpha": self.number(0.3, 2)},
                    "celu": {"alpha": self.number(0.3, 2)},
                    "hardtanh": {"low": -self.number(0.2, 2), "high": self.number(0.2, 2)}}.get(name, {})
        return Call(name, args)

    def norm(self, at: At, kinds: Sequence[str] | None = None) -> Call:
        kinds = kinds or ("layer", "rms", "batch", "group")
        kind = self.pick(kinds)
        args: dict[str, Any] = {} if kind == "layer" and self.chance(0.5) else {"kind": kind}
        if kind == "group":
            channels = at.features[0]
            least = 1 if len(at.features) > 1 else 2  # numbers in a group
            options = [g for g in range(1, channels + 1) if channels % g == 0 and channels // g >= least]
            if not options:
                return Call("norm", {"kind": "rms"})
            args["groups"] = self.pick(options)
        if kind == "batch":
            self.takes_batch_norm = True
            if self.chance(0.3):
                args["momentum"] = self.number(0.05, 0.5)
        if self.chance(0.3):
            args["epsilon"] = self.number(1e-5, 1e-2)
        return Call("norm", args)

    def dropout(self) -> Call:
        """Functions that act only in training."""
        if self.chance(0.25):
            return Call("noise", {"deviation": self.number(0.01, 0.5)} if self.chance(0.7) else {})
        return Call("dropout", {"rate": self.pick([0.1, 0.25, 0.5, 0.3])} if self.chance(0.8) else {})

    # ---- the whole ----
    def flow(self, training: Training) -> Flow:
        flow = Flow(self.kind, self.seed, self.streams, self.layers, self.arrows, self.taps, training)
        ends = flow.ends()
        if len(ends) > 1 or self.chance(0.1):
            flow.consumers = {name: f"c{i}" for i, name in enumerate(ends)}
        return flow
