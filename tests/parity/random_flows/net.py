"""A flow's PyTorch model: its parameters and the value of every layer, in float32 or float64."""
from __future__ import annotations


import numpy as np
import torch
from torch import Tensor

import losses
import philox
from flow import ACTIVATIONS, Arrow, Call, Flow, Ref, Tap, implies_map
from functions import FUNCTIONS, Value, activation

NO_PARAMETERS = {"dropout", "noise", "skip", "concat", "mul", "glu", "flatten", "last", "mean", "maxpool", "avgpool"}


class Net:
    def __init__(self, flow: Flow, dtype: torch.dtype):
        self.flow, self.dtype = flow, dtype
        self.parameters: dict[str, Tensor] = {}
        self.states: dict[str, Tensor] = {}
        self.frozen: set[str] = set()
        self.outer: set[str] = set()  # of arrows into tapped layers
        self.tables: set[str] = set()
        self.order = self._order()

    def _order(self) -> list[str]:
        """Layers in topological order."""
        needs: dict[str, set[str]] = {name: set() for name in self.flow.layers}
        for a in self.flow.arrows:
            refs = {str(v) for c in a.calls for k, v in c.args.items() if isinstance(v, Ref) and k != "tied"}
            needs[a.target] |= ({a.source} | refs) & set(needs)
        order: list[str] = []
        while needs:
            ready = next(n for n, before in needs.items() if before <= set(order))
            order.append(ready)
            del needs[ready]
        return order

    def hidden_matrix(self, path: str) -> bool:
        return self.parameters[path].ndim == 2 and path not in self.outer and path not in self.tables

    def trained(self) -> dict[str, Tensor]:
        return {path: p for path, p in self.parameters.items() if path not in self.frozen}

    def run(self, batch: dict[str, Tensor], training: bool, step: int) -> "Pass":
        return Pass(self, batch, training, step)


class Pass:
    """The values of one batch."""

    def __init__(self, net: Net, batch: dict[str, Tensor], training: bool, step: int):
        self.net, self.training, self.step = net, training, step
        self.values: dict[str, Value] = {}
        self.before: dict[str, tuple[Tensor, str]] = {}  # a layer's activation and what it was given
        for name, tensor in batch.items():
            s = net.flow.streams[name]
            self.values[name] = Value(tensor, int(s.positions), s.classes)
        for name in net.order:
            self._layer(name)

    def _layer(self, name: str) -> None:
        arrows = [a for a in self.net.flow.arrows if a.target == name]
        value, before, last = None, None, ""
        for a in arrows:
            v, b, act = ArrowScope(self, a).run()
            if value is None:
                value, before, last = v, b, act
            else:
                value = Value(value.tensor + v.tensor, v.positions)
                before, last = value.tensor, "mixed" if last or act else ""
        self.values[name], self.before[name] = value, (before, last)

    def loss(self, tap: Tap, call: Call) -> Tensor:
        before, act = self.before[tap.layer]
        target = self.values[tap.target].tensor
        return losses.total(call, self.values[tap.layer], before, act, target)

    def hits(self, tap: Tap, call: Call) -> Tensor | None:
        """Mask of correct classes among those that count; None if targets are not classes."""
        value, target = self.values[tap.layer].tensor, self.values[tap.target].tensor
        if not losses.takes_classes(call, value, target):
            return None
        second = call.name == "binary_cross_entropy" and value.shape[-1] == 1  # its probability
        best = (value > 0.5).long().squeeze(-1) if second else self.before[tap.layer][0].argmax(-1)
        counts = target != call.get("ignore_index", -1)
        return (best == target)[counts]


class ArrowScope:
    """Context of a function on an arrow."""

    def __init__(self, run: Pass, arrow: Arrow):
        self.run_, self.net, self.arrow = run, run.net, arrow
        self.training = run.training
        self.width = run.net.flow.layers[arrow.target].width
        self.into_tap = any(t.layer == arrow.target for t in run.net.flow.taps)

    def calls(self) -> list[Call]:
        calls = self.arrow.calls
        if not implies_map(calls):
            return calls
        source = self.arrow.source
        target = self.net.flow.layers[self.arrow.target]
        if not calls and source in self.net.flow.streams and not target.declared and target.width == 0:
            return calls  # the layer is the stream
        first = next((c for c in calls if c.name in ACTIVATIONS), None)
        bias = first is None or first.get("bias", True)
        return [Call("affine", {} if bias else {"bias": False}), *calls]

    def run(self) -> tuple[Value, Tensor, str]:
        v = self.layer(self.arrow.source)
        raw = self.run_.values[self.arrow.source]
        before, act, seen = v.tensor, "", {}
        for call in self.calls():
            if call.name in ACTIVATIONS:
                before, act = v.tensor, "" if call.name == "identity" else call.name
                v = v.with_tensor(activation(v.tensor, call))
                continue
            self.call, self.draws = call, 0
            own = call.get("name")
            if not own:
                seen[call.name] = seen.get(call.name, 0) + 1
            number = seen.get(call.name, 1)
            path = f"{self.arrow.source}.{self.arrow.target}.{call.name}"
            self.prefix = own or (f"{path}.{number}" if number > 1 else path)
            v = FUNCTIONS[call.name](self, raw if call.name == "embed" else v, call)
            before, act = v.tensor, ""
        return v, before, act

    def layer(self, name: str) -> Value:
        v = self.run_.values[name]
        return Value(losses.as_numbers(v.tensor, self.net.dtype), v.positions)

    def _first(self, name: str, make) -> Tensor:
        path = f"{self.prefix}.{name}"
        tied = self.call.get("tied")
        if tied and name == "weight":
            path = self._tied_path(tied)
        if path not in self.net.parameters:
            first = torch.from_numpy(np.ascontiguousarray(make(path), dtype=np.float64).astype(np.float32))
            self.net.parameters[path] = first.to(self.net.dtype).requires_grad_(True)
        if self.call.get("freeze", False):
            self.net.frozen.add(path)
        if self.into_tap:
            self.net.outer.add(path)
        return self.net.parameters[path]

    def _tied_path(self, layer: str) -> str:
        for a in self.net.flow.arrows:
            for c in a.calls:
                if a.target == layer and c.name not in ACTIVATIONS | NO_PARAMETERS:
                    return f"{c.get('name') or f'{a.source}.{a.target}.{c.name}'}.weight"
            if a.target == layer and implies_map(a.calls):
                return f"{a.source}.{a.target}.affine.weight"
        raise ValueError(f"no arrow into {layer} has a weight")

    @property
    def seed(self) -> int:
        return self.net.flow.training.seed

    def parameter(self, name: str, shape: tuple[int, ...], bound: float) -> Tensor:
        return self._first(name, lambda path: philox.first_uniform(self.seed, path, tuple(shape), -bound, bound))

    def normal(self, name: str, shape: tuple[int, ...], deviation: float) -> Tensor:
        table = self._first(name, lambda path: philox.first_normal(self.seed, path, shape, 0, deviation))
        self.net.tables.add(next(p for p, t in self.net.parameters.items() if t is table))
        return table

    def constant(self, name: str, shape: tuple[int, ...], value: float) -> Tensor:
        return self._first(name, lambda path: np.full(tuple(shape), value))

    def state(self, name: str, shape: tuple[int, ...], value: float) -> Tensor:
        path = f"{self.prefix}.{name}"
        return self.net.states.setdefault(path, torch.full(tuple(shape), value, dtype=self.net.dtype))

    def random(self, like: Tensor) -> Tensor:
        path = f"{self.prefix}.random.{self.draws}"
        self.draws += 1
        u = philox.layer_uniforms(self.seed, path, self.run_.step, like.numel())
        return torch.from_numpy(u).reshape(like.shape)
