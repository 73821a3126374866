"""Schedules of docs/hmx.md: the learning rate by step, rounded once to float32."""
from __future__ import annotations

import math

import numpy as np

from flow import Call


def span(value: float, steps: int) -> int:
    """A number of steps, or below 1 a fraction of the run."""
    return int(math.floor(value * steps + 0.5)) if value < 1 else int(value)


def factor(schedule: Call, t: int, steps: int) -> float:
    get = schedule.get
    warmup = span(get("warmup", 0), steps)
    if t < warmup:
        return (t + 1) / (warmup + 1)
    final, length = get("final", 0.0), max(steps - warmup, 1)
    if schedule.name == "linear":
        return 1 + (final - 1) * (t - warmup) / length
    if schedule.name == "cosine":
        return final + (1 - final) * 0.5 * (1 + math.cos(math.pi * (t - warmup) / length))
    if schedule.name == "step":
        return get("factor", 0.1) ** ((t - warmup) // max(span(get("every", 0.3), steps), 1))
    if schedule.name == "wsd":
        decay = span(get("decay", 0.2), steps)
        return 1 + (final - 1) * (t - (steps - decay)) / decay if t >= steps - decay and decay else 1.0
    return 1.0


def rate(schedule: Call, lr: float, t: int, steps: int) -> float:
    return float(np.float32(lr * factor(schedule, t, steps)))
