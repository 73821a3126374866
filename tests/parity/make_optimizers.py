#!/usr/bin/env python3
"""Writes golden/optimizers.safetensors, which test_optimizers.cpp compares with: make_optimizers.py [FOLDER].

Training runs of a small net of two layers in float64, from inputs and rates that float32 holds exactly. SGD, RMSProp, Adam
and AdamW are PyTorch's, so are gradients, clipping and schedules; LAMB, Lion and NorMuon are written here from their papers
(You et al. 2020, Chen et al. 2023, Li et al. 2025). Weight decay, LAMB's trust ratio and NorMuon leave vectors alone;
NorMuon also leaves the output layer to AdamW.

  data/x, data/y, initial/P
  run/NAME/loss (of each step), run/NAME/final/P       metadata run/NAME = {"optimizer", "clip", "clip_value"}
  schedule/NAME (the rate's factor at each step)       metadata schedule/NAME = {"schedule", "steps"}
"""
import json
import math
import sys
import warnings
from pathlib import Path

import torch
import torch.nn.functional as F

from make_golden import Draw, write_safetensors

STEPS = 24
LR = 2.0**-6


class Rule(torch.optim.Optimizer):
    """An optimizer given as one function (parameter, gradient, state, step, group)."""

    def __init__(self, params, update, **settings):
        super().__init__(params, settings)
        self.update = update

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                state["step"] = state.get("step", 0) + 1
                self.update(p, p.grad, state, group)


def moments(state, p, *names):
    return [state.setdefault(name, torch.zeros_like(p)) for name in names]


def lion(p, g, state, group):
    (m,) = moments(state, p, "m")
    direction = (group["beta1"] * m + (1 - group["beta1"]) * g).sign()
    m.copy_(group["beta2"] * m + (1 - group["beta2"]) * g)
    p -= group["lr"] * (direction + group["weight_decay"] * p)


def lamb(p, g, state, group):
    m, v = moments(state, p, "m", "v")
    t, beta1, beta2 = state["step"], group["beta1"], group["beta2"]
    m.copy_(beta1 * m + (1 - beta1) * g)
    v.copy_(beta2 * v + (1 - beta2) * g * g)
    r = (m / (1 - beta1**t)) / ((v / (1 - beta2**t)).sqrt() + group["epsilon"])
    direction = r + group["weight_decay"] * p
    ratio = 1.0
    if p.ndim >= 2 and p.norm() > 0 and direction.norm() > 0:
        ratio = p.norm() / direction.norm()
    p -= group["lr"] * ratio * direction


def newton_schulz(m):
    x = m.T if m.shape[0] > m.shape[1] else m
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.T if m.shape[0] > m.shape[1] else x


def normuon(p, g, state, group):
    if not group["hidden"]:
        m, v = moments(state, p, "m", "v")
        t, beta1, beta2 = state["step"], group["adam_beta1"], group["adam_beta2"]
        m.copy_(beta1 * m + (1 - beta1) * g)
        v.copy_(beta2 * v + (1 - beta2) * g * g)
        p -= group["lr"] * group["weight_decay"] * p
        p -= group["lr"] * (m / (1 - beta1**t)) / ((v / (1 - beta2**t)).sqrt() + group["epsilon"])
        return
    (m,) = moments(state, p, "m")
    v = state.setdefault("v", torch.zeros(p.shape[0], dtype=p.dtype))
    m.copy_(group["beta1"] * m + (1 - group["beta1"]) * g)
    o = newton_schulz(m)
    v.copy_(group["beta2"] * v + (1 - group["beta2"]) * (o * o).mean(1))
    o = o / (v.sqrt() + group["epsilon"])[:, None]
    rate = 0.2 * group["lr"] * math.sqrt(p.numel()) / (o.norm() + 1e-10)
    p -= group["lr"] * group["weight_decay"] * p
    p -= rate * o


TORCH = {  # torch's names of settings with different names here
    "rmsprop": (torch.optim.RMSprop, {"epsilon": "eps"}),
    "sgd": (torch.optim.SGD, {}),
    "adam": (torch.optim.Adam, {"epsilon": "eps"}),
    "adamw": (torch.optim.AdamW, {"epsilon": "eps"}),
}
OWN = {  # with the defaults
    "lion": (lion, {"beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0}),
    "lamb": (lamb, {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-6, "weight_decay": 0.01}),
    "normuon": (normuon, {"beta1": 0.95, "beta2": 0.95, "epsilon": 1e-8, "weight_decay": 0.01, "adam_beta1": 0.9,
                          "adam_beta2": 0.999}),
}

RUNS = {  # name -> optimizer, settings, clipping
    "sgd": ("sgd", {"weight_decay": 0.125}, {}),
    "momentum": ("sgd", {"momentum": 0.9, "weight_decay": 0.125}, {}),
    "nesterov": ("sgd", {"momentum": 0.75, "nesterov": True, "weight_decay": 0.125}, {}),
    "rmsprop": ("rmsprop", {}, {}),
    "rmsprop_settings": ("rmsprop", {"alpha": 0.9, "epsilon": 1e-3, "weight_decay": 0.125}, {}),
    "rmsprop_momentum": ("rmsprop", {"momentum": 0.5}, {}),
    "rmsprop_centered": ("rmsprop", {"alpha": 0.75, "epsilon": 1e-2, "centered": True}, {}),
    "rmsprop_all": ("rmsprop", {"alpha": 0.75, "epsilon": 1e-2, "momentum": 0.5, "centered": True,
                                "weight_decay": 0.125}, {}),
    "adam": ("adam", {}, {}),
    "adam_settings": ("adam", {"beta1": 0.75, "beta2": 0.9, "epsilon": 1e-3, "weight_decay": 0.125}, {}),
    "adamw": ("adamw", {}, {}),
    "adamw_settings": ("adamw", {"beta1": 0.75, "beta2": 0.9, "epsilon": 1e-3, "weight_decay": 0.5}, {}),
    "lamb": ("lamb", {}, {}),
    "lamb_settings": ("lamb", {"beta1": 0.75, "beta2": 0.9, "epsilon": 1e-3, "weight_decay": 0.5}, {}),
    "lion": ("lion", {}, {}),
    "lion_settings": ("lion", {"beta1": 0.75, "beta2": 0.9, "weight_decay": 0.5}, {}),
    "normuon": ("normuon", {}, {}),
    "normuon_settings": ("normuon", {"beta1": 0.75, "beta2": 0.9, "epsilon": 1e-3, "weight_decay": 0.5,
                                     "adam_beta1": 0.75, "adam_beta2": 0.9}, {}),
    "clip": ("sgd", {"momentum": 0.5}, {"clip": 0.25}),
    "clip_value": ("sgd", {"momentum": 0.5}, {"clip_value": 0.0625}),
    "clip_both": ("adam", {}, {"clip": 0.25, "clip_value": 0.125}),
    "clip_nothing": ("sgd", {}, {"clip": 1000.0}),
}


def loss_of(p, x, y):
    h = torch.tanh(F.linear(x, p["hidden.weight"], p["hidden.bias"]))
    return F.cross_entropy(F.linear(h, p["output.weight"], p["output.bias"]), y)


def make(name, settings, parameters):
    decay = settings.get("weight_decay", OWN[name][1]["weight_decay"] if name in OWN else
                         0.01 if name == "adamw" else 0.0)
    groups = [{"params": [p], "weight_decay": decay if p.ndim >= 2 else 0.0, "hidden": path == "hidden.weight"}
              for path, p in parameters.items()]
    settings = {key: value for key, value in settings.items() if key != "weight_decay"}
    if name in OWN:
        update, defaults = OWN[name]
        return Rule(groups, update, **{"lr": LR, **defaults, **settings})
    kind, renamed = TORCH[name]
    if "beta1" in settings:
        settings["betas"] = (settings.pop("beta1"), settings.pop("beta2"))
    return kind(groups, lr=LR, **{renamed.get(key, key): value for key, value in settings.items()})


def text_of(name, settings):
    values = {"lr": LR, **settings}
    return f"{name}({', '.join(f'{k}={str(v).lower()}' for k, v in values.items())})"


def train(tensors, metadata, case, initial, x, y):
    name, settings, clipping = RUNS[case]
    p = {path: torch.nn.Parameter(value.clone()) for path, value in initial.items()}
    optimizer, losses = make(name, dict(settings), p), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(p, x, y)
        loss.backward()
        losses.append(loss.detach())
        if "clip_value" in clipping:
            torch.nn.utils.clip_grad_value_(p.values(), clipping["clip_value"])
        if "clip" in clipping:
            torch.nn.utils.clip_grad_norm_(p.values(), clipping["clip"])
        optimizer.step()
    tensors[f"run/{case}/loss"] = torch.stack(losses)
    for path, value in p.items():
        tensors[f"run/{case}/final/{path}"] = value.detach().clone()
    metadata[f"run/{case}"] = json.dumps({"optimizer": text_of(name, settings), **clipping})


def scheduled(text, steps, warmup, after):
    """Learning rate factors: linear for `warmup` steps, then each (length, schedule of the optimizer) in turn."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(()))], lr=1.0)
    s = torch.optim.lr_scheduler
    parts, milestones, at = [], [], 0
    if warmup:
        parts.append(s.LinearLR(optimizer, start_factor=1 / (warmup + 1), total_iters=warmup))
        at = warmup
    for length, make_part in after:
        if parts:
            milestones.append(at)
        parts.append(make_part(s, optimizer))
        at += length
    schedule = s.SequentialLR(optimizer, parts, milestones) if len(parts) > 1 else parts[0]
    factors = []
    for _ in range(steps):
        factors.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return torch.tensor(factors, dtype=torch.float64), json.dumps({"schedule": text, "steps": steps})


def schedules():
    def flat(s, o):
        return s.ConstantLR(o, factor=1.0, total_iters=0)

    def line(final, length):
        return lambda s, o: s.LinearLR(o, start_factor=1.0, end_factor=final, total_iters=length)

    def cosine(final, length):
        return lambda s, o: s.CosineAnnealingLR(o, T_max=length, eta_min=final)

    def step(every, factor):
        return lambda s, o: s.StepLR(o, step_size=every, gamma=factor)

    yield "constant", scheduled("constant", 8, 0, [(8, flat)])
    yield "constant_warmup", scheduled("constant(warmup=5)", 12, 5, [(7, flat)])
    yield "linear", scheduled("linear", 20, 0, [(20, line(1e-300, 20))])
    yield "linear_warmup", scheduled("linear(warmup=4, final=0.25)", 24, 4, [(20, line(0.25, 20))])
    yield "cosine", scheduled("cosine", 20, 0, [(20, cosine(0.0, 20))])
    yield "cosine_warmup", scheduled("cosine(warmup=5, final=0.1)", 25, 5, [(20, cosine(0.1, 20))])
    yield "cosine_part", scheduled("cosine(warmup=0.25, final=0.1)", 20, 5, [(15, cosine(0.1, 15))])
    yield "step", scheduled("step(every=7)", 24, 0, [(24, step(7, 0.1))])
    yield "step_warmup", scheduled("step(warmup=3, every=5, factor=0.5)", 24, 3, [(21, step(5, 0.5))])
    yield "step_part", scheduled("step(every=0.25, factor=0.5)", 24, 0, [(24, step(6, 0.5))])
    yield "wsd", scheduled("wsd", 20, 0, [(16, flat), (4, line(1e-300, 4))])
    yield "wsd_warmup", scheduled("wsd(warmup=4, decay=8, final=0.125)", 24, 4, [(12, flat), (8, line(0.125, 8))])


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "golden"
    warnings.simplefilter("ignore")
    d = Draw(20)
    x, y = d.normal(11, 6), d.whole(4, 11)
    initial = {"hidden.weight": d.normal(7, 6, scale=6**-0.5), "hidden.bias": d.normal(7, scale=0.25),
               "output.weight": d.normal(4, 7, scale=7**-0.5), "output.bias": d.normal(4, scale=0.25)}
    initial = {path: value.float().double() for path, value in initial.items()}
    tensors = {"data/x": x, "data/y": y, **{f"initial/{path}": value for path, value in initial.items()}}
    metadata = {}
    for case in RUNS:
        train(tensors, metadata, case, initial, x, y)
    for name, (factors, text) in schedules():
        tensors[f"schedule/{name}"], metadata[f"schedule/{name}"] = factors, text
    path = folder / "optimizers.safetensors"
    write_safetensors(path, tensors, metadata)
    print(path.name, path.stat().st_size)


if __name__ == "__main__":
    main()
