"""Gradients of a flow's first batch: SGD keeps the first one as its momentum, which a checkpoint holds."""
from __future__ import annotations

import numpy as np
import torch

from compare import DISTURBED, FACTOR, FLOOR, Verdict
from engine import Engine
from flow import Flow
from training import Trainer, batches_of_epoch

SHARE = 0.1  # a tensor's scale is at least this share of the largest gradient: some are zero except for rounding


def of_twin(flow: Flow, dtype: torch.dtype, disturbed: int | None = None,
            rows: np.ndarray | None = None) -> dict[str, np.ndarray]:
    trainer = Trainer(flow, dtype, disturbed)
    trainer.prepare()
    trainer.disturb()
    for p in trainer.net.trained().values():
        p.grad = torch.zeros_like(p)
    trainer.group([batches_of_epoch(flow, trainer.samples("train"), 0)[0] if rows is None else rows], 1)
    return {path: p.grad.numpy() for path, p in trainer.net.trained().items()}


def errors(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> dict[str, float]:
    largest = max(float(np.abs(g).max()) for g in expected.values())
    return {f"weights {path}": float(np.abs(found[path].astype(np.float64) - g).max())
            / max(float(np.abs(g).max()), SHARE * largest, 1e-30) if path in found else float("inf")
            for path, g in expected.items()}


def judge_gradients(flow: Flow, engine: Engine) -> Verdict:
    v, expected = Verdict(), of_twin(flow, torch.float64)
    v.worst = errors(engine.gradients(), expected)
    v.torch32 = errors(of_twin(flow, torch.float32), expected)
    allowed = {name: max(e, FLOOR) for name, e in v.torch32.items()}
    for seed in range(DISTURBED):
        if all(e <= FACTOR * allowed[name] for name, e in v.worst.items()):
            break
        v.chaotic = True
        for name, e in errors(of_twin(flow, torch.float32 if seed % 2 else torch.float64, seed), expected).items():
            allowed[name] = max(allowed[name], e)
    v.mismatches = [f"{name}: error {e:.2g}, allowed {FACTOR * allowed[name]:.2g}" for name, e in v.worst.items()
                    if not e <= FACTOR * allowed[name]]
    return v
