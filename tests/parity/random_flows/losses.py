"""Losses of docs/hmx.md: the sum over a batch, and the number of samples or positions to divide by."""
from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from flow import Call
from functions import Value

CLASS_LOSSES = {"cross_entropy", "nll", "hinge", "binary_cross_entropy"}


def as_numbers(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Bytes are scaled to [0, 1]."""
    return x.to(dtype) / 255 if x.dtype == torch.uint8 else x.to(dtype)


def counts(call: Call, target: Tensor, positions: int) -> int:
    """Number of target positions that count."""
    if call.name == "next_token":
        target = target[:, 1:]
    if "ignore_index" in call.args:
        return int((target != call.get("ignore_index")).sum())
    return target.shape[0] * (target.shape[1] if positions else 1)


def takes_classes(call: Call, y: Tensor, target: Tensor) -> bool:
    return call.name in CLASS_LOSSES and not target.is_floating_point() and target.ndim + 1 == y.ndim


def class_rows(logits: Tensor, target: Tensor, call: Call, loss) -> Tensor:
    rows, classes = logits.reshape(-1, logits.shape[-1]), target.reshape(-1).long()
    if "ignore_index" in call.args:
        keep = classes != call.get("ignore_index")
        rows, classes = rows[keep], classes[keep]
    return loss(rows, classes).sum() if len(classes) else (logits * 0).sum()


def one_hot(classes: Tensor, like: Tensor) -> Tensor:
    return F.one_hot(classes, like.shape[-1]).to(like.dtype)


def cross_entropy(before: Tensor, activation: str, target: Tensor, classes: bool, call: Call) -> Tensor:
    smoothing = call.get("label_smoothing", 0.0)
    if activation == "sigmoid":
        def each(x: Tensor, y: Tensor) -> Tensor:
            return F.binary_cross_entropy_with_logits(x, y, reduction="none")
        if classes:
            return class_rows(before, target, call, lambda x, y: each(x, one_hot(y, x)))
        return each(before, target)
    if classes:
        return class_rows(before, target, call,
                          lambda x, y: F.cross_entropy(x, y, label_smoothing=smoothing, reduction="none"))
    k = before.shape[-1]
    return F.cross_entropy(before.reshape(-1, k), target.reshape(-1, k), label_smoothing=smoothing, reduction="none")


def binary(v: Value, before: Tensor, activation: str, target: Tensor, classes: bool) -> Tensor:
    if classes:
        target = target[..., None].to(before.dtype) if before.shape[-1] == 1 else one_hot(target.long(), before)
    if activation == "sigmoid":
        return F.binary_cross_entropy_with_logits(before, target, reduction="none")
    return F.binary_cross_entropy(v.tensor, target, reduction="none")


def total(call: Call, v: Value, before: Tensor, activation: str, target: Tensor) -> Tensor:
    """Loss of a layer's value against a target, summed over samples, positions and outputs."""
    y, name = v.tensor, call.name
    classes = takes_classes(call, y, target)
    if name == "next_token":
        return class_rows(before[:, :-1], target[:, 1:], call, lambda x, t: F.cross_entropy(x, t, reduction="none"))
    if not classes:
        target = as_numbers(target, y.dtype).reshape(y.shape)
    if name == "cross_entropy":
        return cross_entropy(before, activation, target, classes, call).sum()
    if name == "nll":
        return class_rows(y, target, call, lambda x, t: F.nll_loss(x, t, reduction="none"))
    if name == "hinge":
        margin, power = call.get("margin", 1.0), call.get("power", 1)
        if classes:
            return class_rows(y, target, call,
                              lambda x, t: F.multi_margin_loss(x, t, p=power, margin=margin, reduction="none"))
        return ((margin - target * y).clamp(min=0) ** power).sum()
    if name == "binary_cross_entropy":
        return binary(v, before, activation, target, classes).sum()
    if name == "kl_div":
        log = F.log_softmax(before, -1)
        return F.kl_div(log, target, reduction="sum")
    if name == "huber":
        return F.huber_loss(y, target, delta=call.get("delta", 1.0), reduction="sum")
    if name == "smooth_l1":
        return F.smooth_l1_loss(y, target, beta=call.get("beta", 1.0), reduction="sum")
    return {"mse": F.mse_loss, "mae": F.l1_loss}[name](y, target, reduction="sum")
