"""A run of the PyTorch model: batches in documented order, accumulation, clipping, test and inference."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Iterable

import numpy as np
import torch
from torch import Tensor

import losses
import optimizers
import philox
import schedules
from flow import Flow
from net import Net, Pass


@dataclass
class Outcome:
    weights: dict[str, np.ndarray] = field(default_factory=dict)  # and running statistics
    losses: list[float] = field(default_factory=list)  # of each step
    gradients: dict[str, np.ndarray] = field(default_factory=dict)  # of the first step, before clipping
    initial: dict[str, np.ndarray] = field(default_factory=dict)
    results: dict[str, np.ndarray] = field(default_factory=dict)  # of inference, by layer
    test_loss: float = 0.0
    test_accuracy: float = 0.0  # of the first layer that has one; NaN: none


def sum_of_means(sums: Iterable[tuple[float, int]]) -> float:
    """NaN if nothing counts."""
    means = [s / n for s, n in sums if n]
    return sum(means) if means else float("nan")


def batches_of_epoch(flow: Flow, n: int, epoch: int) -> list[np.ndarray]:
    t, block = flow.training, flow.training.shuffle
    block = n if block is None else block
    order = np.arange(n)
    if block > 1:
        parts = [order[i : i + block] for i in range(0, n, block)]
        order = np.concatenate([p[philox.shuffled_order(len(p), t.seed, epoch, b)] for b, p in enumerate(parts)])
    return [order[i : i + t.batch] for i in range(0, n, t.batch)]


def length(flow: Flow, n: int) -> tuple[int, int]:
    """Steps of an epoch, and of the run."""
    t = flow.training
    groups = -(-(-(-n // t.batch)) // t.accumulate)
    ends = ([t.steps] if t.steps else []) + ([t.epochs * groups] if t.epochs else [])
    return groups, min(ends or [10 * groups])


class Trainer:
    def __init__(self, flow: Flow, dtype: torch.dtype, disturbed: int | None = None):
        self.flow, self.net = flow, Net(flow, dtype)
        self.draw = None if disturbed is None else torch.Generator().manual_seed(disturbed)
        self.loss = float("nan")  # of the last step

    def tensors(self, part: str, rows: np.ndarray | None, taps: bool) -> dict[str, Tensor]:
        batch = {}
        for name in self.flow.inputs(taps):
            s = self.flow.streams[name]
            data = s.data[part] if rows is None else s.data[part][rows]
            if s.sample:
                data = data.reshape(len(data), *([-1] if s.positions else []), *s.sample)
            x = torch.from_numpy(np.ascontiguousarray(data))
            if x.is_floating_point():
                x = x.to(self.net.dtype)
            elif s.classes:
                x = x.long()
            batch[name] = x
        return batch

    def samples(self, part: str) -> int:
        return len(self.flow.streams[self.flow.inputs(True)[0]].data[part])

    def terms(self):
        for i, tap in enumerate(self.flow.taps):
            for j, call in enumerate(tap.losses):
                yield (i, j), tap, call, call.get("weight", 1.0)

    def count(self, batch: dict[str, Tensor], key: tuple[int, int]) -> int:
        tap = self.flow.taps[key[0]]
        positions = self.positions[tap.layer]
        return losses.counts(tap.losses[key[1]], batch[tap.target], positions)

    def disturb(self) -> None:
        if self.draw is None:
            return
        with torch.no_grad():
            for p in self.net.trained().values():
                p *= 1 + 6e-8 * torch.randn(p.shape, generator=self.draw, dtype=p.dtype)

    def disturb_terms(self, run: Pass) -> None:
        """A gradient is a sum over samples and positions: rounding errors remain where terms cancel."""
        if self.draw is None:
            return
        tensors = [v.tensor for v in run.values.values()] + [before for before, _ in run.before.values()]
        for t in {id(t): t for t in tensors if t.requires_grad}.values():
            t.register_hook(lambda g: g * (1 + 6e-8 * torch.randn(g.shape, generator=self.draw, dtype=g.dtype)))

    def disturb_gradients(self) -> None:
        if self.draw is None:
            return
        for p in self.net.trained().values():
            noise = torch.randn(p.shape, generator=self.draw, dtype=p.dtype)
            p.grad += 6e-8 * p.grad.abs().max() * noise

    def prepare(self) -> None:
        """Creates the parameters and finds which layers are sequences."""
        rows = np.arange(min(2, self.samples("train")))
        with torch.no_grad():
            first = self.net.run(self.tensors("train", rows, True), False, 0)
        self.positions = {name: first.values[name].positions for name in self.flow.layers}

    def group(self, batches: list[np.ndarray], counter: int) -> None:
        """Gradients of several batches as of one, and the losses of the step."""
        data = [self.tensors("train", rows, True) for rows in batches]
        counts = {key: [self.count(b, key) for b in data] for key, *_ in self.terms()}
        sums = {key: 0.0 for key in counts}
        for i, batch in enumerate(data):
            run, loss = self.net.run(batch, True, counter + i), 0
            self.disturb_terms(run)
            for key, tap, call, weight in self.terms():
                if sum(counts[key]) == 0:
                    continue
                total = run.loss(tap, call)
                sums[key] += weight * float(total.detach())
                loss = loss + weight * total / sum(counts[key])
            if isinstance(loss, Tensor):
                loss.backward()
        self.loss = sum_of_means((sums[key], sum(counts[key])) for key in counts)

    def train(self, out: Outcome) -> None:
        t, n = self.flow.training, self.samples("train")
        per_epoch, steps = length(self.flow, n)
        self.prepare()
        out.initial = self.numpy()
        self.disturb()
        trained = self.net.trained()
        optimizer = optimizers.make(t.optimizer, self.net)
        lr = t.optimizer.get("lr", optimizers.RATES[t.optimizer.name])
        step, counter, epoch = 0, 1, 0
        while step < steps:
            batches = batches_of_epoch(self.flow, n, epoch)
            for i in range(0, len(batches), t.accumulate):
                if step == steps:
                    break
                for p in trained.values():
                    p.grad = torch.zeros_like(p)
                group = batches[i : i + t.accumulate]
                self.group(group, counter)
                counter += len(group)
                if step == 0:
                    out.gradients = {path: p.grad.numpy().copy() for path, p in trained.items()}
                self.disturb_gradients()
                if t.clip_value:
                    torch.nn.utils.clip_grad_value_(trained.values(), t.clip_value)
                if t.clip:
                    torch.nn.utils.clip_grad_norm_(trained.values(), t.clip)
                for g in optimizer.param_groups:
                    g["lr"] = schedules.rate(t.schedule, lr, step, steps)
                optimizer.step()
                self.disturb()
                out.losses.append(self.loss)
                step += 1
            epoch += 1

    def numpy(self) -> dict[str, np.ndarray]:
        return {path: p.detach().numpy().copy() for path, p in {**self.net.parameters, **self.net.states}.items()}

    def test(self, out: Outcome) -> None:
        batch = self.tensors("test", None, True)
        run = self.net.run(batch, False, 0)
        right = (run.hits(tap, call) for _, tap, call, _ in self.terms())
        hits = next((h for h in right if h is not None), None)
        out.test_accuracy = float("nan") if hits is None or not len(hits) else float(hits.double().mean())
        out.test_loss = sum_of_means([(weight * float(run.loss(tap, call)), self.count(batch, key))
                             for key, tap, call, weight in self.terms()])

    def infer(self) -> dict[str, np.ndarray]:
        run = self.net.run(self.tensors("infer", None, False), False, 0)
        return {name: run.values[name].tensor.numpy() for name in self.flow.ends()}


def run_twin(flow: Flow, dtype: torch.dtype = torch.float64, disturbed: int | None = None) -> Outcome:
    out, trainer = Outcome(), Trainer(flow, dtype, disturbed)
    trainer.train(out)
    out.weights = trainer.numpy()
    with torch.no_grad():
        trainer.test(out)
        out.results = trainer.infer()
    return out
