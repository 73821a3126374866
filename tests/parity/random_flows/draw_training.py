"""How a random flow is trained: optimizer, schedule, clipping, groups of batches, order."""
from __future__ import annotations

from typing import Any

from builder import Builder
from flow import Call, Training

RATES = {"sgd": (3e-3, 0.1), "adam": (1e-3, 2e-2), "adamw": (1e-3, 2e-2), "rmsprop": (1e-3, 1e-2), "lamb": (1e-3, 3e-2),
         "lion": (1e-4, 3e-3), "normuon": (1e-3, 2e-2)}


def optimizer(b: Builder) -> Call:
    name = b.pick(list(RATES), [3, 2, 2, 2, 2, 1.5, 1.5])
    args: dict[str, Any] = {"lr": b.number(*RATES[name])} if b.chance(0.9) else {}

    def maybe(key: str, low: float, high: float, p: float = 0.35) -> None:
        if b.chance(p):
            args[key] = b.number(low, high)

    if name in ("sgd", "rmsprop"):
        maybe("momentum", 0.3, 0.95, 0.5)
    if name == "sgd" and "momentum" in args and b.chance(0.5):
        args["nesterov"] = True
    if name == "rmsprop":
        maybe("alpha", 0.8, 0.99)
        if b.chance(0.3):
            args["centered"] = True
    if name not in ("sgd", "rmsprop"):
        maybe("beta1", 0.7, 0.95)
        maybe("beta2", 0.9, 0.999)
    if name not in ("sgd", "lion"):
        maybe("epsilon", 1e-8, 1e-4)
    maybe("weight_decay", 1e-3, 0.3)
    return Call(name, args)


def part_or_steps(b: Builder, steps: int, most: float) -> float:
    return float(f"{b.rng.uniform(0.05, most):.2g}") if b.chance(0.5) else b.whole(1, max(1, int(most * steps)))


def schedule(b: Builder, steps: int) -> Call:
    name = b.pick(["constant", "linear", "cosine", "step", "wsd"], [3, 1, 1.3, 1, 1])
    args: dict[str, Any] = {}
    if b.chance(0.5):
        args["warmup"] = part_or_steps(b, steps, 0.4)
    if name == "step":
        if b.chance(0.7):
            args["every"] = part_or_steps(b, steps, 0.5)
        if b.chance(0.5):
            args["factor"] = b.number(0.05, 0.9)
    if name == "wsd" and b.chance(0.7):
        args["decay"] = part_or_steps(b, steps, 0.5)
    if name in ("linear", "cosine", "wsd") and b.chance(0.5):
        args["final"] = b.number(0.01, 0.8)
    return Call(name, args)


def draw_training(b: Builder) -> Training:
    accumulate = b.pick([1, 2, 3], [3, 1, 1])
    while b.takes_batch_norm and b.samples["train"] % b.batch == 1:
        b.batch += 1  # batch norm refuses a batch of one
    groups = -(-(-(-b.samples["train"] // b.batch)) // accumulate)
    t = Training(optimizer(b), Call("constant"), b.batch, b.whole(0, 10**6), accumulate)
    if b.chance(0.6):
        t.steps = b.whole(1, 30)
    else:
        t.epochs = b.whole(1, max(1, min(4, 30 // groups)))
        if b.chance(0.3):
            t.steps = b.whole(1, 30)
    steps = min(s for s in (t.steps, t.epochs * groups) if s)
    t.schedule = schedule(b, steps)
    if b.chance(0.3):
        t.clip = b.number(0.05, 5)
    if b.chance(0.2):
        t.clip_value = b.number(0.01, 1)
    if b.chance(0.35):
        t.shuffle = b.pick([0, b.whole(2, 20)])
    t.flags = frozenset(name for name in ("optimizer", "schedule", "batch", "seed", "accumulate", "clip", "clip_value",
                                          "steps", "epochs") if b.chance(0.25))
    return t
