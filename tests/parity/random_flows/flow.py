"""A flow as plain data, its text in the flow language, and the options of its runs."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

# The positional argument of functions that have one.
FIRST = {"affine": "width", "conv": "channels", "maxpool": "size", "avgpool": "size", "norm": "kind", "lstm": "width",
         "gru": "width", "dropout": "rate", "noise": "deviation", "concat": "with", "mul": "with", "embed": "width"}
ACTIVATIONS = {"relu", "relu6", "leaky_relu", "elu", "celu", "selu", "softplus", "gelu", "silu", "mish", "hardswish",
               "sigmoid", "tanh", "hardsigmoid", "hardtanh", "softsign", "softmax", "log_softmax", "logsigmoid",
               "identity"}


class Ref(str):
    """The name of a layer as an argument."""


def text_of(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(text_of(v) for v in value) + "]"
    if isinstance(value, str) and not isinstance(value, Ref):
        return f'"{value}"'
    return str(value)


@dataclass
class Call:
    name: str
    args: dict[str, Any] = field(default_factory=dict)

    def get(self, name: str, otherwise: Any = None) -> Any:
        return self.args.get(name, otherwise)

    def text(self) -> str:
        first = FIRST.get(self.name)
        words = [text_of(v) if i == 0 and k == first else f"{k}={text_of(v)}"
                 for i, (k, v) in enumerate(self.args.items())]
        return f"{self.name}({', '.join(words)})" if words else self.name


def implies_map(calls: list[Call]) -> bool:
    return all(c.name in ACTIVATIONS or c.name in ("prelu", "dropout", "noise") for c in calls)


@dataclass
class Stream:
    """A producer with the data of three runs: training, test and inference."""
    name: str
    declared: str  # "{3, 8, 8}", "{*, 5}" or ""
    data: dict[str, np.ndarray]  # samples first; whole numbers are classes or symbols unless `numbers`
    sample: tuple[int, ...]  # arranged: without the sequence's axis where there is one
    positions: bool = False
    classes: int = 0
    file: str = "npy"
    options: str = ""  # of the address: "window=8&shift=3"
    raw: dict[str, bytes] = field(default_factory=dict)  # the contents of text and token files


@dataclass
class Layer:
    name: str
    declared: str
    width: int  # features at one position


@dataclass
class Arrow:
    source: str
    target: str
    calls: list[Call]

    def text(self) -> str:
        calls = f"-({', '.join(c.text() for c in self.calls)})->" if self.calls else "->"
        return f"{self.source} {calls} {self.target};"


@dataclass
class Tap:
    layer: str
    target: str
    losses: list[Call]

    def text(self) -> str:
        return f"{self.layer} <-({', '.join(c.text() for c in self.losses)})- {self.target};"


@dataclass
class Training:
    optimizer: Call
    schedule: Call
    batch: int
    seed: int = 0
    accumulate: int = 1
    clip: float = 0
    clip_value: float = 0
    steps: int = 0
    epochs: int = 0
    shuffle: int | None = None  # None: the default of training
    flags: frozenset[str] = frozenset()  # settings given as flags, not in the flow


@dataclass
class Flow:
    kind: str
    seed: int
    streams: dict[str, Stream]
    layers: dict[str, Layer]
    arrows: list[Arrow]
    taps: list[Tap]
    training: Training
    consumers: dict[str, str] = field(default_factory=dict)  # by the layer they take

    def ends(self) -> list[str]:
        """Layers without readers: the outputs of inference."""
        read = {a.source for a in self.arrows} | {str(v) for a in self.arrows for c in a.calls for v in c.args.values()
                                                  if isinstance(v, Ref) and v in self.layers}
        return [name for name in self.layers if name not in read]

    def inputs(self, taps: bool) -> list[str]:
        used = {a.source for a in self.arrows} | ({t.target for t in self.taps} if taps else set())
        return [name for name in self.streams if name in used]

    def settings(self) -> dict[str, str]:
        t = self.training
        s = {"batch": str(t.batch), "seed": str(t.seed), "optimizer": t.optimizer.text(), "schedule": t.schedule.text()}
        for name in ("accumulate", "clip", "clip_value", "steps", "epochs"):
            value = getattr(t, name)
            if value and not (name == "accumulate" and value == 1):
                s[name] = str(value)
        return s

    def text(self) -> str:
        settings = [(k, v) for k, v in self.settings().items() if k not in self.training.flags]
        inside = ", ".join(f"{k} {v}" if k in ("steps", "epochs") else f'{k}="{v}"' if k in ("optimizer", "schedule")
                           else f"{k}={v}" for k, v in settings)
        declarations = [f"producer {s.name} {s.declared}" for s in self.streams.values()]
        declarations += [f"layer {x.name} {x.declared}" for x in self.layers.values()]
        declarations += [f"consumer {name}" for name in self.consumers.values()]
        head = "".join(f"  {d.strip()};\n" for d in declarations)
        given = [Arrow(layer, name, []) for layer, name in self.consumers.items()]
        body = "".join(f"    {x.text()}\n" for x in [*self.arrows, *given, *self.taps])
        return f"harmonic {self.kind}_{self.seed} {{\n{head}  cycle ({inside}) {{\n{body}  }}\n}}\n"
