"""Functions of arrows in PyTorch: activations, layers with parameters, layers with several sources."""
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flow import Call

if TYPE_CHECKING:
    from net import ArrowScope


@dataclass
class Value:
    tensor: Tensor  # [samples, positions if there are any, features...]
    positions: int = 0
    classes: int = 0

    @property
    def leading(self) -> int:
        return 1 + self.positions

    def flat(self) -> Tensor:
        return self.tensor.flatten(self.leading) if self.tensor.ndim > self.leading else self.tensor.unsqueeze(-1)

    def with_tensor(self, tensor: Tensor, positions: int | None = None) -> "Value":
        return Value(tensor, self.positions if positions is None else positions)


def activation(x: Tensor, call: Call) -> Tensor:
    get = call.get
    if call.name == "celu":  # torch rounds alpha to float32
        a = get("alpha", 1)
        return torch.where(x > 0, x, a * torch.expm1(torch.where(x > 0, torch.zeros_like(x), x) / a))
    if call.name == "hardsigmoid":  # torch rounds 1/6 to float32 in the backward pass
        return torch.where(x <= -3, torch.zeros_like(x), torch.where(x >= 3, torch.ones_like(x), x / 6 + 0.5))
    simple: dict[str, Callable[[Tensor], Tensor]] = {
        "relu": F.relu, "relu6": F.relu6, "selu": F.selu, "softplus": F.softplus, "gelu": F.gelu, "silu": F.silu,
        "mish": F.mish, "hardswish": F.hardswish, "sigmoid": torch.sigmoid, "tanh": torch.tanh,
        "softsign": F.softsign, "logsigmoid": F.logsigmoid, "identity": lambda x: x,
        "softmax": lambda x: F.softmax(x, -1), "log_softmax": lambda x: F.log_softmax(x, -1),
        "leaky_relu": lambda x: F.leaky_relu(x, get("slope", 0.01)), "elu": lambda x: F.elu(x, get("alpha", 1)),
        "hardtanh": lambda x: F.hardtanh(x, get("low", -1), get("high", 1)),
    }
    return simple[call.name](x)


def project(scope: "ArrowScope", x: Tensor, name: str, width: int, bias: bool) -> Tensor:
    bound = x.shape[-1] ** -0.5
    dot = name + "." if name else ""
    weight = scope.parameter(f"{dot}weight", (width, x.shape[-1]), bound)
    return F.linear(x, weight, scope.parameter(f"{dot}bias", (width,), bound) if bias else None)


def affine(scope: "ArrowScope", v: Value, call: Call) -> Value:
    return v.with_tensor(project(scope, v.flat(), "", call.get("width", scope.width), call.get("bias", True)))


def pair(value) -> tuple[int, int]:
    return tuple(value) if isinstance(value, (list, tuple)) else (value, value)


def same_padding(size: int, kernel: int, stride: int, dilation: int) -> tuple[int, int]:
    total = max((-(-size // stride) - 1) * stride + dilation * (kernel - 1) + 1 - size, 0)
    return total // 2, total - total // 2


def conv(scope: "ArrowScope", v: Value, call: Call) -> Value:
    x, channels, groups = v.tensor, call.get("channels"), call.get("groups", 1)
    kernel, stride, dilation = (pair(call.get(n, d)) for n, d in (("kernel", 3), ("stride", 1), ("dilation", 1)))
    padding = call.get("padding", "same")
    if padding == "same":
        low_high = [same_padding(x.shape[2 + i], kernel[i], stride[i], dilation[i]) for i in (1, 0)]
        x = F.pad(x, (*low_high[0], *low_high[1]))
    elif padding != "valid":
        x = F.pad(x, (int(padding),) * 4)
    fan_in = x.shape[1] // groups * kernel[0] * kernel[1]
    weight = scope.parameter("weight", (channels, x.shape[1] // groups, *kernel), fan_in**-0.5)
    bias = scope.parameter("bias", (channels,), fan_in**-0.5) if call.get("bias", True) else None
    return v.with_tensor(F.conv2d(x, weight, bias, stride, 0, dilation, groups))


def pool(scope: "ArrowScope", v: Value, call: Call) -> Value:
    size = pair(call.get("size", 2))
    stride, padding = pair(call.get("stride", list(size))), pair(call.get("padding", 0))
    if call.name == "maxpool":
        return v.with_tensor(F.max_pool2d(v.tensor, size, stride, padding))
    return v.with_tensor(F.avg_pool2d(v.tensor, size, stride, padding, count_include_pad=False))


def norm(scope: "ArrowScope", v: Value, call: Call) -> Value:
    kind, epsilon, x = call.get("kind", "layer"), call.get("epsilon", 1e-5), v.tensor
    own = tuple(x.shape[v.leading:])
    if kind == "layer":
        gain, bias = scope.constant("gain", own, 1), scope.constant("bias", own, 0)
        return v.with_tensor(F.layer_norm(x, own, gain, bias, epsilon))
    if kind == "rms":
        rows = v.flat()
        gain = scope.constant("gain", rows.shape[-1:], 1)
        return v.with_tensor(F.rms_norm(rows, rows.shape[-1:], gain, epsilon).reshape(x.shape))
    rows, channels = x.flatten(0, v.leading - 1), own[:1]
    gain, bias = scope.constant("gain", channels, 1), scope.constant("bias", channels, 0)
    if kind != "batch":
        groups = call.get("groups", channels[0])
        return v.with_tensor(torch.group_norm(rows, groups, gain, bias, epsilon).reshape(x.shape))
    mean, variance = scope.state("running_mean", channels, 0), scope.state("running_variance", channels, 1)
    y = F.batch_norm(rows, mean, variance, gain, bias, scope.training, call.get("momentum", 0.1), epsilon)
    return v.with_tensor(y.reshape(x.shape))


def dropped(scope: "ArrowScope", x: Tensor, rate: float) -> Tensor:
    if not scope.training or rate == 0:
        return x
    return torch.where(scope.random(x) >= rate, x / (1 - rate), torch.zeros_like(x))


def dropout(scope: "ArrowScope", v: Value, call: Call) -> Value:
    return replace(v, tensor=dropped(scope, v.tensor, call.get("rate", 0.5)))


def noise(scope: "ArrowScope", v: Value, call: Call) -> Value:
    """Box-Muller from two random numbers per element."""
    if not scope.training:
        return v
    u, turn = scope.random(v.tensor), scope.random(v.tensor)
    drawn = call.get("deviation", 0.1) * torch.sqrt(-2 * torch.log(1 - u)) * torch.cos(2 * torch.pi * turn)
    return replace(v, tensor=v.tensor + drawn.to(v.tensor.dtype))


def flatten(scope: "ArrowScope", v: Value, call: Call) -> Value:
    return v.with_tensor(v.flat())


def embed(scope: "ArrowScope", v: Value, call: Call) -> Value:
    shape = (call.get("vocabulary", v.classes), call.get("width", scope.width))
    table = scope.normal("weight", shape, call.get("deviation", 0.02))
    return Value(F.embedding(v.tensor, table), v.positions)


def turned(x: Tensor) -> Tensor:
    """Rotary positions of [samples, heads, positions, d]: feature i is paired with i + d/2 (Su et al. 2021)."""
    half = x.shape[-1] // 2
    rate = 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(x.shape[2], dtype=torch.float64)[:, None] * rate
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def attention(scope: "ArrowScope", v: Value, call: Call) -> Value:
    x, bias, heads = v.tensor, call.get("bias", True), call.get("heads", 1)
    memory = scope.layer(call.get("memory")).tensor if call.get("memory") else x
    kv_heads, size = call.get("kv_heads", heads), x.shape[-1] // heads

    def split(rows: Tensor, n: int) -> Tensor:
        return rows.unflatten(-1, (n, size)).transpose(1, 2)

    q = split(project(scope, x, "query", x.shape[-1], bias), heads)
    k = split(project(scope, memory, "key", kv_heads * size, bias), kv_heads)
    u = split(project(scope, memory, "value", kv_heads * size, bias), kv_heads)
    if call.get("rope", False):
        q, k = turned(q), turned(k)
    k, u = (t.repeat_interleave(heads // kv_heads, 1) for t in (k, u))
    mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
    if call.get("causal", False):  # the last position attends to all
        mask = mask.tril(k.shape[2] - q.shape[2])
    sees = mask.any(-1, keepdim=True)
    y = F.scaled_dot_product_attention(q, k, u, attn_mask=mask | ~sees) * sees
    return v.with_tensor(project(scope, y.transpose(1, 2).flatten(2), "output", x.shape[-1], bias))


def recurrent(scope: "ArrowScope", v: Value, call: Call) -> Value:
    """One torch module per layer, so that dropout between them uses our random numbers."""
    kind, gates = (nn.LSTM, 4) if call.name == "lstm" else (nn.GRU, 3)
    both, bias, layers = call.get("bidirectional", False), call.get("bias", True), call.get("layers", 1)
    width = call.get("width") or scope.width // (2 if both else 1)
    y = v.flat()
    for i in range(layers):
        if i > 0:
            y = dropped(scope, y, call.get("dropout", 0))
        weights = []
        for suffix in [f"l{i}", f"l{i}_reverse"][: 2 if both else 1]:
            weights += [scope.parameter(f"weight_ih_{suffix}", (gates * width, y.shape[-1]), width**-0.5),
                        scope.parameter(f"weight_hh_{suffix}", (gates * width, width), width**-0.5)]
            if bias:
                weights += [scope.parameter(f"bias_{x}_{suffix}", (gates * width,), width**-0.5) for x in ("ih", "hh")]
        state = y.new_zeros(2 if both else 1, y.shape[0], width)
        run = torch._VF.lstm if kind is nn.LSTM else torch._VF.gru  # what nn.LSTM and nn.GRU call
        y, h = run(y, (state, state) if kind is nn.LSTM else state, weights, bias, 1, 0.0, False, both, True)[:2]
    if call.get("last", False):
        return v.with_tensor(torch.cat(list(h), -1), 0)
    return v.with_tensor(y)


def prelu(scope: "ArrowScope", v: Value, call: Call) -> Value:
    channels = v.tensor.shape[v.leading] if call.get("channels", False) else 1
    slope = scope.constant("weight", (channels,), call.get("slope", 0.25))
    shape = [1] * v.leading + [channels] + [1] * (v.tensor.ndim - v.leading - 1)
    return v.with_tensor(torch.where(v.tensor > 0, v.tensor, v.tensor * slope.reshape(shape)))


FUNCTIONS: dict[str, Callable[["ArrowScope", Value, Call], Value]] = {
    "affine": affine, "conv": conv, "maxpool": pool, "avgpool": pool, "norm": norm, "dropout": dropout, "noise": noise,
    "flatten": flatten, "embed": embed, "attention": attention, "lstm": recurrent, "gru": recurrent, "prelu": prelu,
    "last": lambda scope, v, call: v.with_tensor(v.tensor[:, -1], 0),
    "mean": lambda scope, v, call: v.with_tensor(v.tensor.mean(1), 0),
    "glu": lambda scope, v, call: v.with_tensor(F.glu(v.tensor, v.leading)),
    "skip": lambda scope, v, call: v.with_tensor(v.tensor),
    "concat": lambda scope, v, call: v.with_tensor(
        torch.cat([v.tensor, scope.layer(call.get("with")).tensor], v.leading)),
    "mul": lambda scope, v, call: v.with_tensor(v.tensor * scope.layer(call.get("with")).tensor),
}
