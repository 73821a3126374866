"""Optimizers by name: PyTorch's, or make_optimizers.py's implementations of the papers."""
from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import make_optimizers  # noqa: E402

from flow import Call  # noqa: E402
from net import Net  # noqa: E402

RATES = {"sgd": 1e-3, "rmsprop": 1e-2, "adam": 1e-3, "adamw": 1e-3, "lamb": 1e-3, "lion": 1e-4, "normuon": 1e-3}
DECAYS = {"adamw": 0.01, "lamb": 0.01, "normuon": 0.01}


def make(call: Call, net: Net) -> torch.optim.Optimizer:
    settings = {k: v for k, v in call.args.items() if k not in ("lr", "weight_decay")}
    decay = call.get("weight_decay", DECAYS.get(call.name, 0.0))
    groups = [{"params": [p], "weight_decay": decay if p.ndim >= 2 else 0.0, "hidden": net.hidden_matrix(path)}
              for path, p in net.trained().items()]
    lr = call.get("lr", RATES[call.name])
    if call.name in make_optimizers.OWN:
        update, defaults = make_optimizers.OWN[call.name]
        return make_optimizers.Rule(groups, update, **{"lr": lr, **defaults, **settings})
    kind, renamed = make_optimizers.TORCH[call.name]
    if "beta1" in settings or "beta2" in settings:
        settings["betas"] = (settings.pop("beta1", 0.9), settings.pop("beta2", 0.999))
    return kind(groups, lr=lr, **{renamed.get(k, k): v for k, v in settings.items()})
