#!/usr/bin/env python3
"""Writes reference values for experts, documents and the last map with its loss: make_experts.py [FOLDER] (default:
golden/ beside this file). See make_golden.py for how numbers are made and for the format of experts.safetensors.
"""
import math
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

from make_golden import Draw, Functionals, write_safetensors


def route(scores, used, scoring="softmax", normalized=False, scale=1.0, capacity=0):
    """Selects experts like Mixtral and Qwen 3 (softmax) or DeepSeek 3 (sigmoid), and with a capacity like Switch."""
    shares = torch.sigmoid(scores) if scoring == "sigmoid" else F.softmax(scores, -1)
    weights, experts = shares.topk(used, -1)
    if normalized:
        weights = weights / weights.sum(-1, keepdim=True)
    weights, experts = weights * scale, experts.int()
    if capacity:
        taken, kept = [0] * scores.shape[-1], torch.zeros_like(experts, dtype=torch.bool)
        for choice in range(used):
            for row in range(scores.shape[0]):
                e = int(experts[row, choice])
                taken[e] += 1
                kept[row, choice] = taken[e] <= capacity
        weights = torch.where(kept, weights, torch.zeros_like(weights))
        experts = torch.where(kept, experts, torch.full_like(experts, scores.shape[-1]))
    return weights, experts


def route_in_groups(scores, bias=None, used=0, groups=1, used_groups=0, scoring="softmax", normalized=False, scale=1.0):
    """Selects like DeepSeek 3 in transformers: the best groups by their two best experts, then experts in those."""
    shares = torch.sigmoid(scores) if scoring == "sigmoid" else F.softmax(scores, -1)
    preferred = shares if bias is None else shares + bias.detach()
    best = preferred.view(-1, groups, scores.shape[-1] // groups).topk(2, dim=-1)[0].sum(dim=-1)
    mask = torch.zeros_like(best).scatter_(1, best.topk(used_groups, dim=-1)[1], 1)
    mask = mask.unsqueeze(-1).expand(-1, -1, scores.shape[-1] // groups).reshape(-1, scores.shape[-1])
    experts = preferred.masked_fill(~mask.bool(), float("-inf")).topk(used, dim=-1)[1]
    weights = shares.gather(1, experts)
    if normalized:
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    return weights * scale, experts.int()


def sort_rows(x, experts, count):
    order = torch.argsort(experts.flatten(), stable=True)
    offsets = torch.tensor([int((experts < e).sum()) for e in range(count + 1)], dtype=torch.int32)
    return x.reshape(-1, x.shape[-1])[order // experts.shape[-1]], order.int(), offsets


def join_rows(rows, order, weights):
    each = rows[torch.argsort(order)].reshape(*weights.shape, rows.shape[-1])
    return (each * weights[..., None]).sum(-2)


def map_groups(x, offsets, *weights, transposed=False):
    matrices = weights[0] if len(weights) == 1 and weights[0].ndim == 3 else weights
    width = matrices[0].shape[1 if transposed else 0]
    parts = [x.new_zeros(int(offsets[0]), width)]
    for e, w in enumerate(matrices):
        parts.append(x[offsets[e]:offsets[e + 1]] @ (w if transposed else w.T))
    parts.append(x.new_zeros(x.shape[0] - int(offsets[-1]), width))
    return torch.cat(parts)


def outer_groups(a, b, offsets):
    return torch.stack([a[i:j].T @ b[i:j] for i, j in zip(offsets.tolist(), offsets.tolist()[1:])])


def balance(shares, experts):
    """load_balancing_loss_func of transformers, given probabilities."""
    chosen = F.one_hot(experts.long(), shares.shape[-1]).to(shares.dtype)
    return (chosen.mean(0) * shares.mean(0)).sum() * shares.shape[-1]


def head(x, weight, labels, bias=None, softcap=0.0, ignored=-100):
    scores = F.linear(x, weight, bias)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    loss = F.cross_entropy(scores.flatten(0, -2), labels.long().flatten(), ignore_index=ignored, reduction="none")
    return loss.reshape(labels.shape), torch.logsumexp(scores, -1)


def head_step(x, weight, labels, dloss, bias=None):
    leaves = [t.detach().requires_grad_() for t in ([x, weight] if bias is None else [x, weight, bias])]
    loss, _ = head(leaves[0], leaves[1], labels, *leaves[2:])
    return [loss.detach(), *torch.autograd.grad(loss, leaves, dloss.detach())]


def attend_within(q, k, v, documents, causal=True, window=0):
    t, group = q.shape[2], q.shape[1] // k.shape[1]
    seen = (documents[:, :, None] == documents[:, None, :])[:, None]
    if causal:
        seen = seen & torch.ones(t, t, dtype=torch.bool).tril()
    if window:
        seen = seen & ~torch.ones(t, t, dtype=torch.bool).tril(-window)
    keys, values = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = (q @ keys.transpose(-1, -2) / math.sqrt(q.shape[-1])).masked_fill(~seen, -math.inf)
    return F.softmax(scores, -1) @ values, torch.logsumexp(scores, -1)


def add_experts(f):
    d = Draw(80)
    scores = d.normal(9, 5)
    for name, how in (("softmax", {}), ("normalized", {"normalized": True}),
                      ("sigmoid", {"scoring": "sigmoid", "normalized": True, "scale": 2.5}),
                      ("capacity", {"capacity": 3})):
        attributes = dict(how, used=2)
        f.add(f"router/{name}", [scores], lambda s, a=attributes: route(s, **a), attributes)
    f.add("router/switch", [scores], lambda s: route(s, 1, capacity=2), {"used": 1, "capacity": 2})
    f.add("expert_choice/rows", [scores],
          lambda s: [(best := F.softmax(s, -1).T.topk(4, -1)).values, best.indices.int()], {"capacity": 4})
    x, chosen = d.normal(9, 6), d.whole(6, 9, 2, dtype=torch.int32)  # 5: no expert
    f.add("dispatch/rows", [x, chosen], lambda x, e: sort_rows(x, e, 5), {"count": 5})
    rows, order = d.normal(18, 6), torch.argsort(d.normal(18)).int()
    f.add("combine/rows", [rows, order, d.normal(9, 2)], join_rows)
    offsets = torch.tensor([0, 4, 4, 11, 17], dtype=torch.int32)
    stacked = d.normal(4, 7, 6)
    f.add("grouped_linear/stacked", [rows, offsets, stacked], map_groups)
    f.add("grouped_linear/matrices", [rows, offsets, *stacked.transpose(1, 2).contiguous()],
          lambda *all: map_groups(*all, transposed=True), {"transposed": True})
    f.add("grouped_outer/rows", [rows, d.normal(18, 5), offsets], outer_groups)
    f.add("load_balance_loss/rows", [F.softmax(scores, -1), d.whole(5, 9, 2, dtype=torch.int32)], balance)
    f.add("router_z_loss/rows", [scores], lambda s: torch.logsumexp(s, -1).square().mean())


def add_heads(f):
    d = Draw(81)
    x, weight, bias = d.normal(2, 7, 6), d.normal(11, 6), d.normal(11)
    labels = d.whole(11, 2, 7, dtype=torch.int32)
    f.add("linear_cross_entropy/chunks", [x, weight, labels, bias], head, {"chunk": 3}, given=(0, 1))
    f.add("linear_cross_entropy/cap", [x, weight, labels], lambda x, w, l: head(x, w, l, softcap=2.0, ignored=4),
          {"softcap": 2.0, "ignored": 4})
    f.add("linear_cross_entropy_step/chunks", [x, weight, labels, d.normal(2, 7), bias], head_step, {"chunk": 5},
          differentiate=False)


def add_documents(f):
    d = Draw(82)
    q, k, v = d.normal(2, 4, 9, 6), d.normal(2, 2, 9, 6), d.normal(2, 2, 9, 5)
    documents = torch.tensor([[0, 0, 0, 1, 2, 2, 2, 2, 2], [3, 3, 3, 3, 3, 3, 4, 4, 5]], dtype=torch.int32)
    for name, how in (("causal", {"causal": True}), ("whole", {"causal": False}), ("window", {"causal": True, "window": 2})):
        f.add(f"attention/documents_{name}", [q, k, v, documents], lambda *all, how=how: attend_within(*all, **how),
              dict(how, operands="documents"), given=(0, 1))


def add_groups(f):
    d = Draw(83)
    scores, bias = d.normal(11, 12), d.uniform(12).double()
    for name, inputs, how in (("groups", [scores], {"scoring": "softmax"}),
                              ("groups_bias", [scores, bias], {"scoring": "sigmoid", "normalized": True, "scale": 2.5})):
        attributes = dict(how, used=5, groups=4, used_groups=2)
        f.add(f"router/{name}", inputs, lambda *all, a=attributes: route_in_groups(*all, **a), attributes)


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "golden"
    folder.mkdir(parents=True, exist_ok=True)
    f = Functionals()
    add_experts(f)
    add_heads(f)
    add_documents(f)
    add_groups(f)
    write_safetensors(folder / "experts.safetensors", f.tensors, f.metadata)


if __name__ == "__main__":
    main()
