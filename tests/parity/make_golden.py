#!/usr/bin/env python3
"""Writes the values that test_parity.cpp compares with: make_golden.py [FOLDER] (default: golden/ beside this file).

Everything is computed by PyTorch in float64 from inputs that float32 holds exactly, so one file serves both types and the
difference seen in float32 is Harmonics' own rounding. Made with PyTorch 2.13; any later version gives the same numbers to
about 1e-12. Tensors stored as F64 take the tested type; others keep theirs.

functionals.safetensors, updates.safetensors, fused.safetensors, for each case C
(metadata C = {"functional", "attributes"}):
  C/in0 ...   inputs         C/out0 ...  results
  C/dout0 ... gradients of results that are given          C/din0 ...  gradients of inputs that must come out
nets.safetensors: a training run of NET by OPTIMIZER
  NET/data/x, NET/data/y, NET/initial/P, NET/gradient/P (first step)
  NET/OPTIMIZER/loss (of ten steps), NET/OPTIMIZER/final/P
"""
import json
import math
import struct
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

torch.use_deterministic_algorithms(True)
torch.set_num_threads(1)

DTYPES = {torch.float64: "F64", torch.float32: "F32", torch.int64: "I64", torch.int32: "I32", torch.uint8: "U8",
          torch.bool: "BOOL"}


def write_safetensors(path, tensors, metadata):
    header, offset = {"__metadata__": metadata}, 0
    for name in sorted(tensors):
        size = tensors[name].numel() * tensors[name].element_size()
        header[name] = {"dtype": DTYPES[tensors[name].dtype], "shape": list(tensors[name].shape),
                        "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":"), sort_keys=True).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in sorted(tensors):
            file.write(tensors[name].detach().contiguous().numpy().tobytes())


class Draw:
    """Reproducible inputs, exact in float32."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape, scale=1.0):
        return (torch.randn(shape, generator=self.generator) * scale).double()

    def uniform(self, *shape):  # float32: random numbers keep this type
        return torch.rand(shape, generator=self.generator)

    def whole(self, limit, *shape, dtype=torch.int64):
        return torch.randint(0, limit, shape, generator=self.generator).to(dtype)


def number(value, dtype):
    return torch.tensor(value, dtype=dtype)


class Functionals:
    def __init__(self):
        self.tensors, self.metadata = {}, {}

    def add(self, case, inputs, compute, attributes=None, differentiate=True, given=(0,)):
        """compute(*inputs) -> result or list; gradients of the results `given` flow back to all float64 inputs."""
        draw = Draw(len(self.metadata) + 1000)
        inputs = [x.float().double() if x.dtype == torch.float64 else x for x in inputs]
        leaves = [x.clone().requires_grad_(differentiate and x.dtype == torch.float64) for x in inputs]
        results = compute(*leaves)
        results = list(results) if isinstance(results, (list, tuple)) else [results]
        self.metadata[case] = json.dumps({"functional": case.split("/")[0], "attributes": attributes or {}})
        for i, x in enumerate(inputs):
            self.tensors[f"{case}/in{i}"] = x
        for i, y in enumerate(results):
            self.tensors[f"{case}/out{i}"] = y.detach()
        if not differentiate:
            return
        upstream = {i: draw.normal(*results[i].shape) for i in given}
        torch.autograd.backward([results[i] for i in upstream], list(upstream.values()))
        for i, d in upstream.items():
            self.tensors[f"{case}/dout{i}"] = d
        for i, x in enumerate(leaves):
            if x.grad is not None:
                self.tensors[f"{case}/din{i}"] = x.grad


def add_activations(f):
    x = Draw(1).normal(3, 5, 3, scale=2)
    f.add("relu/plain", [x], F.relu)
    f.add("leaky_relu/slope", [x], lambda x: F.leaky_relu(x, 0.2), {"slope": 0.2})
    f.add("gelu/exact", [x], F.gelu)
    f.add("gelu/tanh", [x], lambda x: F.gelu(x, approximate="tanh"), {"approximate": "tanh"})
    f.add("silu/plain", [x], F.silu)
    f.add("elu/alpha", [x], lambda x: F.elu(x, 1.3), {"alpha": 1.3})
    f.add("softplus/plain", [x], F.softplus)
    f.add("softmax/rows", [x], lambda x: F.softmax(x, -1))
    f.add("softmax/large", [x * 100], lambda x: F.softmax(x, -1))
    f.add("log_softmax/rows", [x], lambda x: F.log_softmax(x, -1))


def add_linear(f):
    d = Draw(2)
    x, w, b = d.normal(2, 3, 11), d.normal(5, 11), d.normal(5)
    f.add("linear/plain", [x, w], F.linear)
    f.add("linear/bias", [x, w, b], F.linear)
    f.add("linear/vector", [x[0, 0], w, b], F.linear)
    for name, function in {"relu": F.relu, "tanh": torch.tanh, "logistic": torch.sigmoid, "gelu": F.gelu}.items():
        f.add(f"linear/{name}", [x, w, b], lambda x, w, b, function=function: function(F.linear(x, w, b)),
              {"activation": name})


def add_linear_updates(f):
    d = Draw(40)
    w, x, dy = d.normal(7, 5), d.normal(2, 3, 7), d.normal(2, 3, 5)
    lr = number(0.125, torch.float32)

    def descend(w, x, dy, lr):
        return w - lr.double() * x.flatten(0, 1).T @ dy.flatten(0, 1)

    f.add("sgd_outer/plain", [w, x, dy, lr], descend)
    f.add("sgd_outer/slope", [w, x, dy, lr], lambda *a: [descend(*a), a[2] @ a[0].T], {"slope": "all"}, given=(0, 1))
    f.add("sgd_outer/active", [w, x, dy, lr], lambda *a: [descend(*a), (a[2] @ a[0].T) * (a[1] > 0)],
          {"slope": "active"}, given=(0, 1))
    s, a, b = d.normal(7, 5), d.normal(11, 7), d.normal(11, 5)
    f.add("dot_add/slope", [s, a, b], lambda s, a, b: torch.addmm(s, a.T, b),
          {"lhs_contract": [0], "rhs_contract": [0], "lhs_batch": [], "rhs_batch": []})
    f.add("fused_reduce/squares", [d.normal(7, 5), d.normal(5)], lambda x, y: [x - y, ((x - y) ** 2).sum(0)],
          {"chain": "sub(0,1):f32 mul(2,2):f32", "outputs": [2, 3], "shape": [7, 5], "reduction": "reduce_sum", "axes": [0]},
          given=(0, 1))
    f.add("dot_sum/slopes", [d.normal(11, 7), d.normal(11, 5)], lambda a, b: [a.T @ b, b.sum(0)],
          {"lhs_contract": [0], "rhs_contract": [0], "sum": 1}, given=(0, 1))


def layer_norm(x, gain, bias, epsilon, axes):
    over = tuple(range(x.ndim - axes, x.ndim))
    mean, variance = x.mean(over), x.var(over, unbiased=False)
    return F.layer_norm(x, x.shape[-axes:], gain, bias, epsilon), mean, torch.rsqrt(variance + epsilon)


def batch_norm(x, gain, bias, epsilon):
    over = tuple(i for i in range(x.ndim) if i != 1)
    rstd = torch.rsqrt(x.var(over, unbiased=False) + epsilon)
    return F.batch_norm(x, None, None, gain, bias, training=True, eps=epsilon), x.mean(over), rstd


def add_norms(f):
    d = Draw(3)
    x, gain, bias = d.normal(3, 5, 7) + 0.5, d.normal(7), d.normal(7)
    f.add("layer_norm/last", [x, gain, bias], lambda x, g, b: layer_norm(x, g, b, 1e-5, 1), {"epsilon": 1e-5})
    f.add("layer_norm/two", [x, d.normal(5, 7), d.normal(5, 7)], lambda x, g, b: layer_norm(x, g, b, 1e-3, 2),
          {"epsilon": 1e-3, "norm_axes": 2})
    f.add("layer_norm/statistics", [x, gain, bias], lambda x, g, b: layer_norm(x, g, b, 1e-5, 1), {"epsilon": 1e-5},
          given=(0, 1, 2))
    f.add("rms_norm/last", [x, gain],
          lambda x, g: (F.rms_norm(x, (7,), g, 1e-6), torch.rsqrt((x * x).mean(-1) + 1e-6)), {"epsilon": 1e-6})
    f.add("batch_norm/images", [d.normal(2, 3, 4, 5) + 0.5, d.normal(3), d.normal(3)],
          lambda x, g, b: batch_norm(x, g, b, 1e-5), {"epsilon": 1e-5})
    f.add("batch_norm/rows", [d.normal(9, 5), d.normal(5), d.normal(5)], lambda x, g, b: batch_norm(x, g, b, 1e-5),
          {"epsilon": 1e-5})


def add_losses(f):
    d = Draw(4)
    logits = d.normal(2, 5, 7, scale=3)

    def cross_entropy(x, labels):
        flat = F.cross_entropy(x.reshape(-1, x.shape[-1]), labels.long().reshape(-1), reduction="none")
        return flat.reshape(labels.shape), torch.logsumexp(x, -1)

    for dtype, name in ((torch.int64, "i64"), (torch.int32, "i32"), (torch.uint8, "u8")):
        f.add(f"softmax_cross_entropy/{name}", [logits, d.whole(7, 2, 5, dtype=dtype)], cross_entropy)
    f.add("softmax_cross_entropy/lse", [logits, d.whole(7, 2, 5)], cross_entropy, given=(0, 1))
    f.add("softmax_cross_entropy/large", [logits * 100, d.whole(7, 2, 5)], cross_entropy)
    soft = d.uniform(2, 5, 7).double()
    f.add("sigmoid_cross_entropy/soft", [logits, soft],
          lambda x, t: F.binary_cross_entropy_with_logits(x, t, reduction="none"))
    f.add("sigmoid_cross_entropy/large", [logits * 100, (soft > 0.5).double()],
          lambda x, t: F.binary_cross_entropy_with_logits(x, t, reduction="none"))
    target = d.normal(2, 5, 7)
    f.add("mse/plain", [logits, target], lambda x, t: F.mse_loss(x, t, reduction="none"))
    f.add("mae/plain", [logits, target], lambda x, t: F.l1_loss(x, t, reduction="none"))
    f.add("huber/delta", [logits, target], lambda x, t: F.huber_loss(x, t, reduction="none", delta=0.7), {"delta": 0.7})
    f.add("one_hot/u8", [d.whole(7, 3, 5, dtype=torch.uint8)], lambda t: F.one_hot(t.long(), 7).float(),
          {"classes": 7}, differentiate=False)


def padded_conv(x, w, b=None, strides=(1, 1), low=(0, 0), high=(0, 0), dilation=(1, 1), groups=1, activation=None):
    pads = [p for pair in reversed(list(zip(low, high))) for p in pair]
    function = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}[x.ndim]
    y = function(F.pad(x, pads), w, b, stride=strides, dilation=dilation, groups=groups)
    return activation(y) if activation else y


def add_convolutions(f):
    d = Draw(5)
    x, w, b = d.normal(2, 4, 7, 5), d.normal(6, 4, 3, 2), d.normal(6)
    f.add("conv/plain", [x, w], padded_conv)
    f.add("conv/bias", [x, w, b], padded_conv)
    f.add("conv/window", [x, w, b],
          lambda x, w, b: padded_conv(x, w, b, (2, 3), (1, 0), (2, 1), (2, 1)),
          {"strides": [2, 3], "padding_low": [1, 0], "padding_high": [2, 1], "dilation": [2, 1]})
    f.add("conv/groups", [x, d.normal(6, 2, 3, 3), b],
          lambda x, w, b: padded_conv(x, w, b, (1, 2), (1, 1), (1, 1), groups=2),
          {"strides": [1, 2], "padding_low": [1, 1], "padding_high": [1, 1], "groups": 2})
    f.add("conv/depthwise", [x, d.normal(4, 1, 3, 3)],
          lambda x, w: padded_conv(x, w, None, (1, 1), (1, 1), (1, 1), groups=4),
          {"padding_low": [1, 1], "padding_high": [1, 1], "groups": 4})
    f.add("conv/one_axis", [d.normal(3, 5, 11), d.normal(7, 5, 3), d.normal(7)],
          lambda x, w, b: padded_conv(x, w, b, (2,), (1,), (1,), (1,)),
          {"strides": [2], "padding_low": [1], "padding_high": [1]})
    f.add("conv/three_axes", [d.normal(1, 2, 4, 5, 3), d.normal(3, 2, 2, 3, 2)],
          lambda x, w: padded_conv(x, w, None, (1, 2, 1), (0, 1, 1), (1, 1, 0), (1, 1, 1)),
          {"strides": [1, 2, 1], "padding_low": [0, 1, 1], "padding_high": [1, 1, 0]})
    for name, function in {"relu": F.relu, "tanh": torch.tanh, "logistic": torch.sigmoid, "gelu": F.gelu}.items():
        f.add(f"conv/{name}", [x, w, b],
              lambda x, w, b, function=function: padded_conv(x, w, b, activation=function), {"activation": name})


def add_pools(f):
    x = Draw(6).normal(2, 3, 9, 7)
    plain = {"kernel": [2, 2], "strides": [2, 2]}
    padded = {"kernel": [3, 2], "strides": [2, 1], "padding_low": [1, 1], "padding_high": [1, 1]}

    def max_pool(x, *args, **more):
        y, indices = F.max_pool2d(x, *args, return_indices=True, **more)
        return y, indices.to(torch.int32)

    f.add("max_pool/plain", [x], lambda x: max_pool(x, 2), plain)
    f.add("max_pool/padded", [x], lambda x: max_pool(x, (3, 2), (2, 1), (1, 1)), padded)
    f.add("max_pool/dilated", [x], lambda x: max_pool(x, (3, 2), (1, 2), (0, 0), dilation=(2, 3)),
          {"kernel": [3, 2], "strides": [1, 2], "dilation": [2, 3]})
    d, pooled = Draw(61), {"pool_kernel": [2, 3], "pool_strides": [2, 3], "padding_low": [1, 0], "padding_high": [1, 0]}
    f.add("conv_max_pool/plain", [d.normal(2, 3, 9, 8), d.normal(5, 3, 3, 2)],
          lambda x, w: max_pool(F.conv2d(x, w, padding=(1, 0)), (2, 3)), pooled)
    f.add("conv_max_pool/relu", [d.normal(2, 3, 9, 8), d.normal(5, 3, 3, 2), d.normal(5)],
          lambda x, w, b: max_pool(F.relu(F.conv2d(x, w, b, padding=(1, 0))), (2, 3)), {**pooled, "activation": "relu"})
    f.add("avg_pool/plain", [x], lambda x: F.avg_pool2d(x, 2), plain)
    f.add("avg_pool/padded", [x], lambda x: F.avg_pool2d(x, (3, 2), (2, 1), (1, 1), count_include_pad=False),
          {**padded, "count_include_pad": False})
    f.add("avg_pool/include_pad", [x], lambda x: F.avg_pool2d(x, (3, 2), (2, 1), (1, 1), count_include_pad=True),
          {**padded, "count_include_pad": True})


def add_lookups(f):
    d = Draw(7)
    f.add("embedding/repeated", [d.normal(5, 7), d.whole(5, 3, 11)], lambda t, ids: F.embedding(ids, t))
    f.add("embedding/i32", [d.normal(5, 7), d.whole(5, 9, dtype=torch.int32)], lambda t, ids: F.embedding(ids, t))
    f.add("dropout/third", [d.normal(3, 5, 7), d.uniform(3, 5, 7)],
          lambda x, r: torch.where(r < 0.375, 0, x / (1 - 0.375)), {"rate": 0.375})


def rope(x, base, offset, inverse):
    """Like Llama's rotate_half."""
    t, half = x.shape[-2], x.shape[-1] // 2
    rate = base ** (-torch.arange(half).double() / half)
    angle = (torch.arange(t).double() + offset)[:, None] * rate
    cos, sin = torch.cat([angle.cos()] * 2, -1), torch.cat([angle.sin()] * 2, -1)
    rotated = torch.cat([-x[..., half:], x[..., :half]], -1)
    return x * cos + rotated * (-sin if inverse else sin)


def attention(q, k, v, causal=False, scale=None):
    t, s = q.shape[2], k.shape[2]
    mask = torch.ones(t, s, dtype=torch.bool).tril(s - t) if causal else None
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=True)
    wide_k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    scores = q @ wide_k.transpose(-1, -2) * (scale or 1 / math.sqrt(q.shape[-1]))
    if causal:
        scores = scores.masked_fill(~mask, -math.inf)
    return out, torch.logsumexp(scores, -1)


def add_attention(f):
    d = Draw(8)
    x = d.normal(1, 3, 5, 6)
    f.add("rope/plain", [x], lambda x: rope(x, 10000, 0, False), {"base": 10000})
    f.add("rope/offset", [x], lambda x: rope(x, 500, 1234, False), {"base": 500, "offset": 1234})
    f.add("rope/inverse", [x], lambda x: rope(x, 10000, 3, True), {"base": 10000, "offset": 3, "inverse": True})
    q, k, v = d.normal(2, 4, 5, 3), d.normal(2, 4, 5, 3), d.normal(2, 4, 5, 3)
    f.add("attention/plain", [q, k, v], attention)
    f.add("attention/causal", [q, k, v], lambda *a: attention(*a, causal=True), {"causal": True})
    f.add("attention/lse", [q, k, v], lambda *a: attention(*a, causal=True), {"causal": True}, given=(0, 1))
    k, v = d.normal(2, 2, 7, 3), d.normal(2, 2, 7, 3)
    f.add("attention/grouped", [q, k, v], lambda *a: attention(*a, scale=0.3), {"scale": 0.3})
    f.add("attention/longer_keys", [q, k, v], lambda *a: attention(*a, causal=True), {"causal": True})


OPTIMIZERS = {  # name -> functional, attributes, PyTorch's optimizer for a parameter with this number of axes
    "sgd": ("sgd", {}, lambda p, lr, decay: torch.optim.SGD(p, lr, weight_decay=decay)),
    "momentum": ("sgd", {"momentum": 0.9},
                 lambda p, lr, decay: torch.optim.SGD(p, lr, momentum=0.9, weight_decay=decay)),
    "nesterov": ("sgd", {"momentum": 0.9, "nesterov": True},
                 lambda p, lr, decay: torch.optim.SGD(p, lr, momentum=0.9, nesterov=True, weight_decay=decay)),
    "adam": ("adam", {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8},
             lambda p, lr, decay: torch.optim.Adam(p, lr, weight_decay=decay)),
    "adamw": ("adamw", {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8},
              lambda p, lr, decay: torch.optim.AdamW(p, lr, weight_decay=decay)),
}


def add_optimizers(f):
    """The third step of each, with and without decay. lr is exact in float32."""
    d = Draw(9)
    for name, (functional, attributes, make) in OPTIMIZERS.items():
        for decay in (0.0, 0.125):
            w = torch.nn.Parameter(d.normal(3, 5))
            optimizer = make([w], 2.0**-7, decay)
            for step in range(1, 4):
                w.grad = d.normal(3, 5)
                state = optimizer.state[w]
                keys = ["momentum_buffer"] if functional == "sgd" and "momentum" in attributes else (
                    [] if functional == "sgd" else ["exp_avg", "exp_avg_sq"])
                for held in [w.data] + [state[key] for key in keys if key in state]:
                    held.copy_(held.float())  # the input is exact in float32
                before = [w.detach().clone(), w.grad.clone()]
                before += [state[key].clone() if key in state else torch.zeros(3, 5).double() for key in keys]
                optimizer.step()
            before.append(number(2.0**-7, torch.float32))
            if functional != "sgd":
                before.append(number(3, torch.int64))
            after = [w.detach().clone()] + [optimizer.state[w][key].clone() for key in keys]
            case = f"{functional}/{name}_{'decay' if decay else 'plain'}"
            f.add(case, before, lambda *_, after=after: after, {**attributes, "weight_decay": decay}, differentiate=False)
    add_joined(f, d)


def add_joined(f, d):
    """The third step of two parameters by one optimizer."""
    functional, attributes, make = OPTIMIZERS["adamw"]
    both = [torch.nn.Parameter(d.normal(3, 5)), torch.nn.Parameter(d.normal(4))]
    optimizers = [make([p], 2.0**-7, 0.125) for p in both]
    keys = ["exp_avg", "exp_avg_sq"]
    for step in range(1, 4):
        before, after = [], []
        for p, optimizer in zip(both, optimizers):
            p.grad = d.normal(*p.shape)
            state = optimizer.state[p]
            for held in [p.data] + [state[key] for key in keys if key in state]:
                held.copy_(held.float())
            before += [p.detach().clone(), p.grad.clone()]
            before += [state[key].clone() if key in state else torch.zeros_like(p.data) for key in keys]
            optimizer.step()
            after += [p.detach().clone()] + [optimizer.state[p][key].clone() for key in keys]
    before += [number(2.0**-7, torch.float32), number(3, torch.int64)]
    f.add("update_all/adamw", before, lambda *_: after,
          {**attributes, "weight_decay": 0.125, "update": functional, "parameters": 2}, differentiate=False)


def add_factored(f):
    """The third AdamW step of an affine map's weight whose gradient is x^T dy, for one and for six samples."""
    functional, attributes, make = OPTIMIZERS["adamw"]
    for case, lead in {"sample": (1,), "batch": (2, 3)}.items():
        d = Draw(60)
        w = torch.nn.Parameter(d.normal(7, 5))
        optimizer = make([w], 2.0**-7, 0.125)
        for step in range(1, 4):
            x, dy = d.normal(*lead, 7), d.normal(*lead, 5)
            x, dy = x.float().double(), dy.float().double()
            w.grad = x.reshape(-1, 7).T @ dy.reshape(-1, 5)
            state = optimizer.state[w]
            keys = ["exp_avg", "exp_avg_sq"]
            for held in [w.data] + [state[key] for key in keys if key in state]:
                held.copy_(held.float())
            before = [w.detach().clone(), x, dy] + [state[key].clone() if key in state else torch.zeros(7, 5).double() for key in keys]
            optimizer.step()
        before += [number(2.0**-7, torch.float32), number(3, torch.int64)]
        after = [w.detach().clone()] + [optimizer.state[w][key].clone() for key in keys]
        dx = (dy @ before[0].T) * (x > 0)
        f.add(f"update_outer/{case}", before, lambda *_: after + [dx],
              {**attributes, "weight_decay": 0.125, "update": functional, "input_gradient": "active"}, differentiate=False)


def gelu_derivative(x):
    return (1 + torch.erf(x / math.sqrt(2))) / 2 + x * torch.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def rms_norm_codes(x, gain, epsilon, dtype, largest):
    """Codes as float64; rows of zeros have codes of zero."""
    y = F.rms_norm(x, (x.shape[-1],), gain, epsilon)
    scale = y.abs().amax(-1).clamp(min=1e-30) / largest
    codes = y / scale[..., None]
    codes = codes.round() if dtype == torch.int8 else codes
    return codes.to(dtype).double(), scale


def add_fused(f):
    """Products that end in elementwise operations, and rows as codes: several calls of PyTorch for each."""
    d = Draw(70)
    a, b, bias, factor = d.normal(7, 5), d.normal(5, 6), d.normal(6), d.normal(7, 6)
    product = {"lhs_contract": [1], "rhs_contract": [0]}
    f.add("fused_dot/gelu", [a, b, bias], lambda a, b, bias: [F.gelu(a @ b + bias), a @ b + bias],
          {**product, "steps": "add(0,1) gelu(2)", "stored": [3, 2]}, given=(0, 1))

    def scaled_derivative(a, b, bias, factor):
        scaled = (a @ b + bias) * factor
        return [factor * gelu_derivative(scaled), a @ b, scaled]

    f.add("fused_dot/gelu_grad", [a, b, bias, factor], scaled_derivative,
          {**product, "steps": "add(0,1) mul(3,2) gelu_grad(4,2)", "stored": [5, 0, 4]}, differentiate=False)
    x = d.normal(3, 5, 19, scale=2)
    f.add("abs_max/all", [x], lambda x: x.abs().amax())
    f.add("abs_max/rows", [x], lambda x: x.abs().amax(-1), {"rows": True})
    x[1, 2] = 0
    for name, dtype, largest in (("i8", torch.int8, 127), ("f8_e4m3", torch.float8_e4m3fn, 448)):
        f.add(f"rms_norm_quantize/{name}", [x, d.normal(19)],
              lambda x, g, dtype=dtype, largest=largest: rms_norm_codes(x, g, 1e-3, dtype, largest),
              {"epsilon": 1e-3, "out_dtype": name}, differentiate=False)


def add_saturated(f):
    """Values so large, or so close to a limit, that a formula may lose precision or divide by zero."""
    d = Draw(50)
    near = torch.tensor([0.0, 1.0, 1e-38, 1e-30, 1e-12, 1e-7, 1 - 2.0**-24, 1 - 2.0**-20, 0.5, 0.25]).double()
    p, t = near.repeat_interleave(3), torch.tensor([0.0, 1.0, 0.375]).double().repeat(10)
    f.add("binary_cross_entropy/bounds", [p, t],
          lambda p, t: F.binary_cross_entropy(p, t.detach(), reduction="none"))  # of which PyTorch's gradient is infinite
    soft = d.uniform(2, 5, 7).double()
    f.add("binary_cross_entropy/soft", [d.uniform(2, 5, 7).double(), soft],
          lambda p, t: F.binary_cross_entropy(p, t, reduction="none"))

    def cross_entropy(x, labels):
        return F.cross_entropy(x, labels, reduction="none"), torch.logsumexp(x, -1)

    offsets = torch.tensor([1e3, -1e3, 1e4, -1e4, 1e5, 1e6, -1e6, 1e7, 1e8, -1e8, 1e30, -1e30]).double()[:, None]
    f.add("softmax_cross_entropy/equal", [offsets.expand(12, 2), d.whole(2, 12)], cross_entropy)
    for classes in (7, 70):
        small = d.whole(16, 7, classes).double() / 4
        f.add(f"softmax_cross_entropy/offset{classes}", [small + offsets[:7], d.whole(classes, 7)], cross_entropy)
    f.add("log_softmax/offset", [small + offsets[:7]], lambda x: F.log_softmax(x, -1))
    f.add("softmax/offset", [small + offsets[:7]], lambda x: F.softmax(x, -1))

    # Integer scores, exact in float32, slightly above 65,536.
    def far(batch, heads, positions, others):
        x = torch.stack([torch.full((batch, heads, positions), 256.0).double(), others.double()], -1)
        return torch.cat([x, torch.zeros_like(x)], -1)

    for name, heads, shared, queries, keys in (("far", 2, 2, 5, 7), ("far_grouped", 2, 1, 33, 140)):
        q = far(1, heads, queries, d.whole(3, 1, heads, queries))
        k = far(1, shared, keys, d.whole(3, 1, shared, keys))
        v = d.normal(1, shared, keys, 3)
        for causal in (False, True):
            f.add(f"attention/{name}{'_causal' if causal else ''}", [q, k, v],
                  lambda *a, c=causal: attention(*a, causal=c, scale=1.0), {"causal": causal, "scale": 1.0})
    for name, queries, keys, causal in (("one_key", 3, 1, False), ("one_position", 1, 1, True), ("first_row", 5, 5, True)):
        f.add(f"attention/{name}", [d.normal(2, 4, queries, 5), d.normal(2, 2, keys, 5), d.normal(2, 2, keys, 7)],
              lambda *a, c=causal: attention(*a, causal=c), {"causal": causal})


def add_offset_norms(f):
    """The float32 mean of values around 10,000 has an error of up to 5e-4."""
    d = Draw(51)
    for size in (0, 1e4):
        name = "offset" if size else "centred"
        x = (d.normal(3, 5, 7) + size, d.normal(7), d.normal(7))
        f.add(f"layer_norm/{name}", x, lambda x, g, b: layer_norm(x, g, b, 1e-5, 1), {"epsilon": 1e-5}, differentiate=False)
        for kind, shape in (("images", (6, 3, 4, 5)), ("rows", (33, 5))):
            x = (d.normal(*shape) + size, d.normal(shape[1]), d.normal(shape[1]))
            f.add(f"batch_norm/{name}_{kind}", x, lambda x, g, b: batch_norm(x, g, b, 1e-5), {"epsilon": 1e-5},
                  differentiate=False)


# ---- nets ---------------------------------------------------------------------------------------------------------------


def mlp_loss(p, x, y):  # sigmoid and binary cross entropy on one-hot labels: summed over outputs, mean over samples
    h = F.relu(F.linear(x, p["hidden.weight"], p["hidden.bias"]))
    logits = F.linear(h, p["output.weight"], p["output.bias"])
    loss = F.binary_cross_entropy_with_logits(logits, F.one_hot(y, 5).double(), reduction="none")
    return loss.sum(1).mean()


def cnn_loss(p, x, y):
    h = F.relu(F.conv2d(x, p["conv1.weight"], p["conv1.bias"], padding=1))
    h = F.max_pool2d(h, 2)
    h = F.conv2d(h, p["conv2.weight"], stride=2, padding=1)  # batch_norm takes a bias out again
    h = F.relu(F.batch_norm(h, None, None, p["norm.gain"], p["norm.bias"], training=True))
    h = F.avg_pool2d(h, 2).flatten(1)
    return F.cross_entropy(F.linear(h, p["output.weight"], p["output.bias"]), y)


def transformer_loss(p, x, y):  # one block, two heads, next symbol
    h = F.embedding(x, p["embed.table"])
    n = F.layer_norm(h, (8,), p["norm1.gain"], p["norm1.bias"])
    q, k, v = (F.linear(n, p[f"{w}.weight"]).unflatten(-1, (2, 4)).transpose(1, 2) for w in ("q", "k", "v"))
    a, _ = attention(rope(q, 10000, 0, False), rope(k, 10000, 0, False), v, causal=True)
    h = h + F.linear(a.transpose(1, 2).flatten(2), p["proj.weight"], p["proj.bias"])
    n = F.rms_norm(h, (8,), p["norm2.gain"], 1e-5)
    h = h + F.linear(F.gelu(F.linear(n, p["up.weight"], p["up.bias"])), p["down.weight"], p["down.bias"])
    logits = F.linear(h, p["head.weight"])
    return F.cross_entropy(logits.flatten(0, 1), y.flatten())


def nets():
    d = Draw(10)

    def affine(name, out, width):
        return {f"{name}.weight": d.normal(out, width, scale=width**-0.5), f"{name}.bias": d.normal(out, scale=0.1)}

    def gain(name, width):
        return {f"{name}.gain": 1 + d.normal(width, scale=0.1)}

    def matrix(name, out, width):
        return {f"{name}.weight": d.normal(out, width, scale=width**-0.5)}

    def kernel(name, out, channels):
        return {f"{name}.weight": d.normal(out, channels, 3, 3, scale=0.3), f"{name}.bias": d.normal(out, scale=0.1)}

    def rounded(p):
        return {name: value.float().double() for name, value in p.items()}

    yield ("mlp", mlp_loss, rounded({**affine("hidden", 7, 12), **affine("output", 5, 7)}), d.normal(9, 12),
           d.whole(5, 9))
    yield ("cnn", cnn_loss,
           rounded({**kernel("conv1", 4, 1), "conv2.weight": d.normal(6, 4, 3, 3, scale=0.3), **gain("norm", 6), "norm.bias": d.normal(6, scale=0.1),
                    **affine("output", 5, 6)}), d.normal(6, 1, 10, 10), d.whole(5, 6))
    text = d.whole(11, 3, 8)
    yield ("transformer", transformer_loss,
           rounded({"embed.table": d.normal(11, 8), **gain("norm1", 8), "norm1.bias": d.normal(8, scale=0.1),
                    **matrix("q", 8, 8), **matrix("k", 8, 8), **matrix("v", 8, 8), **affine("proj", 8, 8),
                    **gain("norm2", 8), **affine("up", 16, 8), **affine("down", 8, 16), **matrix("head", 11, 8)}),
           text[:, :-1].contiguous(), text[:, 1:].contiguous())


DECAY = 0.0625  # adamw, on matrices only; with lr exact in float32
RATE = {"sgd": 2.0**-4, "momentum": 2.0**-6, "nesterov": 2.0**-6, "adam": 2.0**-8, "adamw": 2.0**-8}


def train(tensors, net, loss_of, initial, x, y):
    tensors[f"{net}/data/x"], tensors[f"{net}/data/y"] = x, y
    for name, value in initial.items():
        tensors[f"{net}/initial/{name}"] = value
    for optimizer, (_, _, make) in OPTIMIZERS.items():
        p = {name: torch.nn.Parameter(value.clone()) for name, value in initial.items()}
        groups = [{"params": [v], "weight_decay": DECAY if optimizer == "adamw" and v.ndim >= 2 else 0.0} for v in p.values()]
        steps, losses = make(groups, RATE[optimizer], 0.0), []
        for step in range(1, 11):
            steps.zero_grad()
            loss = loss_of(p, x, y)
            loss.backward()
            losses.append(loss.detach())
            if optimizer == "sgd" and step == 1:
                for name, value in p.items():
                    tensors[f"{net}/gradient/{name}"] = value.grad.clone()
            steps.step()
            if step == 10:
                for name, value in p.items():
                    tensors[f"{net}/{optimizer}/final/{name}"] = value.detach().clone()
        tensors[f"{net}/{optimizer}/loss"] = torch.stack(losses)


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "golden"
    folder.mkdir(parents=True, exist_ok=True)
    f = Functionals()
    for add in (add_activations, add_linear, add_norms, add_losses, add_convolutions, add_pools, add_lookups,
                add_attention, add_optimizers, add_linear_updates, add_saturated, add_offset_norms):
        add(f)
    write_safetensors(folder / "functionals.safetensors", f.tensors, f.metadata)
    f = Functionals()
    add_factored(f)
    write_safetensors(folder / "updates.safetensors", f.tensors, f.metadata)
    f = Functionals()
    add_fused(f)
    write_safetensors(folder / "fused.safetensors", f.tensors, f.metadata)
    tensors = {}
    for net in nets():
        train(tensors, *net)
    write_safetensors(folder / "nets.safetensors", tensors, {"torch": torch.__version__})
    for path in sorted(folder.glob("*.safetensors")):
        print(path.name, path.stat().st_size)


if __name__ == "__main__":
    main()
