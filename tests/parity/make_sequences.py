#!/usr/bin/env python3
"""Writes reference values for functionals of sequences that grow: make_sequences.py [FOLDER] (default: golden/ beside
this file). See make_golden.py for how numbers are made and for the format of sequences.safetensors.
"""
import math
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

from make_golden import Draw, Functionals, write_safetensors


def turn(x, positions, rate, interleaved=False, turned=None, positions_first=False):
    """Like Llama (rotate_half) or, interleaved, GPT-J (rotate_every_two); x [B, heads, T, D], positions [T] or [B, T]."""
    if positions_first:
        return turn(x.transpose(1, 2), positions, rate, interleaved, turned).transpose(1, 2)
    turned = turned or x.shape[-1]
    angle = (positions.double()[..., None] * rate).reshape(-1, 1, x.shape[2], turned // 2)
    part, rest = x[..., :turned], x[..., turned:]
    if interleaved:
        cos, sin = angle.cos().repeat_interleave(2, -1), angle.sin().repeat_interleave(2, -1)
        rotated = torch.stack([-part[..., 1::2], part[..., 0::2]], -1).flatten(-2)
    else:
        cos, sin = torch.cat([angle.cos()] * 2, -1), torch.cat([angle.sin()] * 2, -1)
        rotated = torch.cat([-part[..., turned // 2:], part[..., :turned // 2]], -1)
    return torch.cat([part * cos + rotated * sin, rest], -1)


def attend(q, k, v, lengths=None, mask=None, bias=None, sinks=None, causal=False, window=0, softcap=0.0):
    """Attends one batch item at a time, to valid keys only, with Gemma's score caps and gpt-oss's sinks."""
    outs, lses = [], []
    for b in range(q.shape[0]):
        n = k.shape[2] if lengths is None else int(lengths[b])
        t, group = q.shape[2], q.shape[1] // k.shape[1]
        keys, values = k[b, :, :n].repeat_interleave(group, 0), v[b, :, :n].repeat_interleave(group, 0)
        seen = torch.ones(t, n, dtype=torch.bool)
        if causal:
            seen = seen.tril(n - t)
        if window:
            seen = seen & ~torch.ones(t, n, dtype=torch.bool).tril(n - t - window)
        if mask is not None:
            seen = seen & (mask if mask.ndim == 2 else mask[b])[..., :n]
        scores = q[b] @ keys.transpose(-1, -2) / math.sqrt(q.shape[-1])
        if softcap:
            scores = softcap * torch.tanh(scores / softcap)
        if bias is not None:
            scores = scores + (bias if bias.ndim == 2 else bias[b])[..., :n]
        scores = scores.masked_fill(~seen, -math.inf)
        if sinks is not None:
            scores = torch.cat([scores, sinks[:, None, None].expand(-1, t, 1)], -1)
        outs.append(F.softmax(scores, -1)[..., :n] @ values)
        lses.append(torch.logsumexp(scores, -1))
    return torch.stack(outs), torch.stack(lses)


def append(cache, rows, start):
    result = cache.clone()
    for b, at in enumerate(start.tolist()):
        at = max(0, min(at, cache.shape[1] - rows.shape[1]))
        result[b, at:at + rows.shape[1]] = rows[b]
    return result


def add_sequences(f):
    d = Draw(60)
    x, own, shared = d.normal(2, 3, 5, 8), d.whole(4000, 2, 5, dtype=torch.int32), d.whole(90, 5, dtype=torch.int32)
    given = d.uniform(3)
    rate = lambda half, base=10000: base ** (-torch.arange(half).double() / half)
    f.add("rope/positions", [x, shared], lambda x, p: turn(x, p, rate(4)), {"operands": "positions"})
    f.add("rope/own_positions", [x.transpose(1, 2).contiguous(), own],
          lambda x, p: turn(x, p, rate(4, 500), positions_first=True),
          {"operands": "positions", "positions_first": True, "base": 500})
    f.add("rope/interleaved", [x, own], lambda x, p: turn(x, p, rate(4), True),
          {"operands": "positions", "pairing": "interleaved"})
    f.add("rope/partial", [x, own, given], lambda x, p, r: turn(x, p, r.double(), False, 6),
          {"operands": "positions,frequencies", "rotary_dims": 6})
    f.add("rope/partial_interleaved", [x, given], lambda x, r: turn(x, torch.arange(5) + 7, r.double(), True, 6),
          {"operands": "frequencies", "rotary_dims": 6, "pairing": "interleaved", "offset": 7})
    q, k, v = d.normal(3, 4, 3, 5), d.normal(3, 2, 7, 5), d.normal(3, 2, 7, 6)
    lengths = torch.tensor([7, 3, 5], dtype=torch.int32)
    bias, sinks = d.normal(3, 4, 3, 7), d.normal(4)
    mask = (d.whole(3, 3, 1, 3, 7) > 0).index_fill(3, torch.tensor([1]), True)  # key 1 is visible to all
    for name, operands, settings in (
            ("lengths", "lengths", {}), ("lengths_causal", "lengths", {"causal": True}),
            ("window", "lengths", {"causal": True, "window": 2}), ("window_whole", "", {"causal": True, "window": 3}),
            ("softcap", "lengths", {"causal": True, "softcap": 1.5}), ("sinks", "lengths,sinks", {"causal": True}),
            ("mask", "mask", {}), ("mask_lengths", "lengths,mask", {}), ("bias", "bias", {"causal": True}),
            ("all", "bias,lengths,sinks,mask", {"softcap": 2.5, "window": 6})):
        names = operands.split(",") if operands else []
        every = {"lengths": lengths, "mask": mask, "bias": bias, "sinks": sinks}
        attributes = dict(settings, **({"operands": operands} if operands else {}))
        f.add(f"attention/{name}", [q, k, v] + [every[n] for n in names],
              lambda q, k, v, *more, names=names, settings=settings: attend(q, k, v, **dict(zip(names, more)), **settings),
              attributes, given=(0, 1))
    cache, rows, start = d.normal(3, 6, 2, 5), d.normal(3, 2, 2, 5), torch.tensor([0, 3, 9], dtype=torch.int32)
    f.add("cache_append/clamped", [cache, rows, start], append)


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "golden"
    folder.mkdir(parents=True, exist_ok=True)
    f = Functionals()
    add_sequences(f)
    write_safetensors(folder / "sequences.safetensors", f.tensors, f.metadata)


if __name__ == "__main__":
    main()
