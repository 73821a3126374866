"""Checks whether rounding explains the difference from float64. Errors are relative to a tensor's largest value."""
from __future__ import annotations

from typing import Iterator

import numpy as np
import torch

from flow import Flow
from training import Outcome, run_twin

FACTOR = 20.0
FLOOR = 1.5e-7  # times FACTOR: an error below 3e-6 is never a mismatch
DISTURBED = 6
ROUGH = 1e-5  # beyond this error, samples may change their class


def parts(out: Outcome) -> Iterator[tuple[str, np.ndarray]]:
    yield "losses", np.array(out.losses)
    yield "test loss", np.array(out.test_loss)
    yield "test accuracy", np.array(out.test_accuracy)
    for path, w in out.weights.items():
        yield f"weights {path}", w
    for name, y in out.results.items():
        yield f"infer {name}", y


def error(found: np.ndarray, expected: np.ndarray) -> float:
    if np.size(found) != np.size(expected):
        return float("inf")
    f, e = np.asarray(found, np.float64).ravel(), np.asarray(expected, np.float64).ravel()
    same = (f == e) | (np.isnan(f) & np.isnan(e))
    if same.all():
        return 0.0
    worst = float(np.abs(np.where(same, 0, f - e)).max() / max(float(np.abs(e).max()), 1e-30))
    return float("inf") if np.isnan(worst) else worst


def errors(found: Outcome, expected: Outcome) -> dict[str, float]:
    f, e = dict(parts(found)), dict(parts(expected))
    return {name: error(f[name], e[name]) if name in f and name in e else float("inf") for name in {**f, **e}}


class Verdict:
    def __init__(self) -> None:
        self.worst: dict[str, float] = {}  # of the engine
        self.torch32: dict[str, float] = {}
        self.mismatches: list[str] = []
        self.chaotic = False
        self.diverges = False


def judge(flow: Flow, twin: Outcome, found: Outcome) -> Verdict:
    v = Verdict()
    v.worst, v.torch32 = errors(found, twin), errors(run_twin(flow, torch.float32), twin)
    allowed = {name: max(v.torch32.get(name, 0.0), FLOOR) for name in v.worst}

    def beyond() -> list[str]:
        return [name for name, e in v.worst.items() if not e <= FACTOR * allowed[name]]

    for seed in range(DISTURBED):
        if not beyond():
            break
        v.chaotic = True
        disturbed = run_twin(flow, torch.float32 if seed % 2 else torch.float64, seed)
        for name, e in errors(disturbed, twin).items():
            allowed[name] = max(allowed.get(name, FLOOR), e)
    if max(allowed.values()) > ROUGH:
        allowed["test accuracy"] = float("inf")
    v.mismatches = [f"{name}: error {v.worst[name]:.2g}, allowed {FACTOR * allowed[name]:.2g}" for name in beyond()]
    return v
