#!/usr/bin/env python3
"""Writes golden/primitives.safetensors, which tests/conformance/test_primitives.cpp compares with: make_primitives.py [FOLDER].

Results and gradients by PyTorch in float64 from inputs that float32 holds exactly. Made with PyTorch 2.13. For each case C:
  metadata C = the primitive             C/attribute/A   its attributes: I64 vectors and scalars, F64 scalars, BOOL scalars, texts as U8
  C/in0 ...   inputs                     C/out0 ...      results
  C/dout0     gradient of result 0       C/din0 ...      gradients of the inputs that have one
"""
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

import make_golden

make_golden.DTYPES.update({torch.int8: "I8", torch.bool: "BOOL"})

torch.manual_seed(20)
tensors, metadata = {}, {}


def numbers(*shape):
    return torch.randn(shape).double()


def case(name, op, attributes, inputs, reference, floats=None, differentiable=True):
    """reference(*inputs) -> tensor or tuple; `floats`: indices of the inputs with a gradient."""
    metadata[name] = op
    for key, value in attributes.items():
        if isinstance(value, str):
            tensors[f"{name}/attribute/{key}"] = torch.tensor(list(value.encode()), dtype=torch.uint8)
            continue
        kind = torch.bool if isinstance(value, bool) else torch.float64 if isinstance(value, float) else torch.int64
        tensors[f"{name}/attribute/{key}"] = torch.tensor(value, dtype=kind)
    floats = [i for i, x in enumerate(inputs) if x.is_floating_point()] if floats is None else floats
    leaves = [x.clone().requires_grad_(differentiable and i in floats) for i, x in enumerate(inputs)]
    results = reference(*leaves)
    results = results if isinstance(results, tuple) else (results,)
    for i, x in enumerate(inputs):
        tensors[f"{name}/in{i}"] = x
    for i, y in enumerate(results):
        tensors[f"{name}/out{i}"] = y.detach().contiguous()
    if differentiable:
        tensors[f"{name}/dout0"] = numbers(*results[0].shape)
        results[0].backward(tensors[f"{name}/dout0"])
        for i in floats:
            tensors[f"{name}/din{i}"] = leaves[i].grad.contiguous()


def dot(name, equation, shapes, lhs_batch, rhs_batch, lhs_contract, rhs_contract):
    case(name, "dot", dict(lhs_batch=lhs_batch, rhs_batch=rhs_batch, lhs_contract=lhs_contract, rhs_contract=rhs_contract),
         [numbers(*s) for s in shapes], lambda a, b: torch.einsum(equation, a, b))


dot("matrices", "ik,kj->ij", [(3, 5), (5, 4)], [], [], [1], [0])
dot("linear layer", "nti,oi->nto", [(2, 3, 5), (4, 5)], [], [], [2], [1])
dot("attention scores", "bhqd,bhkd->bhqk", [(2, 2, 3, 4), (2, 2, 5, 4)], [0, 1], [0, 1], [3], [3])
dot("mixed batch", "iabk,kjba->baij", [(3, 2, 4, 5), (5, 2, 4, 2)], [2, 1], [2, 3], [3], [0])
dot("two contractions", "acdb,dbea->ce", [(2, 3, 4, 5), (4, 5, 2, 2)], [], [], [0, 3, 2], [3, 1, 0])
dot("outer product", "i,jk->ijk", [(3,), (2, 2)], [], [], [], [])
dot("inner product", "ij,ij->", [(3, 4), (3, 4)], [], [], [0, 1], [0, 1])


def unfold(name, shape, kernel, stride, padding, dilation):
    def reference(x):
        columns = F.unfold(x, kernel, dilation, padding, stride)
        out = [(s + 2 * padding - dilation * (k - 1) - 1) // stride + 1 for s, k in zip(shape[2:], kernel)]
        return columns.reshape(shape[0], -1, *out)
    window = dict(kernel=list(kernel), strides=[stride] * 2, padding_low=[padding] * 2, padding_high=[padding] * 2,
                  dilation=[dilation] * 2)
    case(name, "patches", dict(window, fill=0.0), [numbers(*shape)], reference)
    columns = reference(torch.zeros(shape).double()).shape

    def fold(c):
        return F.fold(c.reshape(columns[0], columns[1], -1), shape[2:], kernel, dilation, padding, stride)
    case(name + " back", "unpatches", dict(window, fill=0.0, input_shape=list(shape)), [numbers(*columns)], fold)


unfold("3x3 window", (2, 3, 5, 6), (3, 3), 1, 1, 1)
unfold("strided window", (1, 2, 7, 8), (2, 3), 2, 1, 1)
unfold("dilated window", (1, 2, 7, 7), (3, 2), 1, 2, 2)

rows = numbers(4, 7)
case("top k", "top_k", dict(k=3), [rows], lambda x: tuple(torch.topk(x, 3)))
case("running sums", "cumsum", dict(axis=1), [numbers(2, 5, 3)], lambda x: torch.cumsum(x, 1))

where = torch.tensor([[2, 0, 1], [1, 1, 3]])
case("gather rows", "gather", dict(axis=0), [numbers(4, 3), where], lambda x, i: F.embedding(i, x), floats=[0])
case("gather columns", "gather", dict(axis=1), [numbers(2, 4, 2), where[0]], lambda x, i: torch.index_select(x, 1, i), floats=[0])
case("scatter", "scatter_add", dict(axis=1), [numbers(2, 4, 2), where.flatten(), numbers(2, 6, 2)],
     lambda x, i, u: torch.index_add(x, 1, i, u), floats=[0, 2])

ties = torch.tensor([[1.0, 3, 3, 2], [5, 5, 5, 5], [0, -1, -1, 0]]).double()
for keep in (False, True):
    axes = dict(axes=[1], keep=keep)
    name = " kept" if keep else ""
    case("max of ties" + name, "reduce_max", axes, [ties], lambda x: torch.amax(x, 1, keep))
    case("min of ties" + name, "reduce_min", axes, [ties], lambda x: torch.amin(x, 1, keep))
    case("sums" + name, "reduce_sum", dict(axes=[0, 2], keep=keep), [numbers(2, 3, 4)], lambda x: torch.sum(x, (0, 2), keep))
    zeros = torch.tensor([[1.5, 2, -3], [2, 0, 4], [0, 3, 0], [0, 0, 0]]).double()
    case("products with zeros" + name, "reduce_prod", axes, [zeros], lambda x: torch.prod(x, 1, keep))
nan = torch.tensor([[1.0, float("nan"), 3, float("nan")], [4, 2, 4, 1]]).double()
case("max of NaN", "reduce_max", dict(axes=[1], keep=False), [nan], lambda x: torch.amax(x, 1), differentiable=False)
case("argmax of NaN", "argmax", dict(axis=1), [nan], lambda x: torch.argmax(x, 1), differentiable=False)
case("argmin of NaN", "argmin", dict(axis=1), [nan], lambda x: torch.argmin(x, 1), differentiable=False)
case("top k of NaN", "top_k", dict(k=1), [nan], lambda x: tuple(torch.topk(x, 1)), differentiable=False)

case("flip", "reverse", dict(axes=[0, 2]), [numbers(2, 3, 2)], lambda x: torch.flip(x, (0, 2)))
case("steps of a slice", "slice", dict(starts=[1, 0], limits=[6, 3], strides=[2, 3]), [numbers(7, 4)], lambda x: x[1:6:2, 0:3:3])
case("padded", "pad", dict(low=[1, 0], high=[2, 3], interior=[0, 0], value=0.5), [numbers(2, 3)],
     lambda x: F.pad(x, (0, 3, 1, 2), value=0.5))
case("stretched", "broadcast", dict(shape=[2, 3, 4]), [numbers(3, 1)], lambda x: torch.broadcast_to(x, (2, 3, 4)))

# PyTorch rounds half to even after adding the zero point, ONNX (and Harmonics) before: equal for even zero points.
steps = torch.tensor([0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 300, -300]).double()
case("quantized", "quantize", dict(axis=0, dtype=2), [steps, torch.tensor(1.0).double(), torch.tensor(4).to(torch.int8)],
     lambda x, s, z: torch.quantize_per_tensor(x.float(), 1.0, 4, torch.qint8).int_repr(), differentiable=False)

inside = torch.tensor([-0.875, -0.5, -0.0625, 0.125, 0.625, 0.9375]).double()
anywhere = torch.tensor([-3.5, -1.0, -0.0625, 0.0, 0.75, 2.5]).double()
for name, x in (("tan", inside), ("asin", inside), ("acos", inside), ("atanh", inside), ("atan", anywhere), ("sinh", anywhere),
                ("cosh", anywhere), ("asinh", anywhere), ("acosh", anywhere.abs() + 1.25)):
    case(name, name, {}, [x], getattr(torch, name))
case("angles", "atan2", {}, [anywhere, torch.tensor([1.0, -2, 0.5, 0, -0.25, 3]).double()], torch.atan2)
odd = torch.tensor([1.0, float("nan"), float("inf"), -float("inf"), 0]).double()
case("not numbers", "is_nan", {}, [odd], torch.isnan, differentiable=False)
case("infinite", "is_inf", {}, [odd], torch.isinf, differentiable=False)
bits, other = torch.tensor([-7, 12, 1 << 40, -(1 << 50), 0]), torch.tensor([3, 10, 9, 63, 1])
for name, op in (("and", torch.bitwise_and), ("or", torch.bitwise_or), ("xor", torch.bitwise_xor)):
    case("bits " + name, "bit_" + name, {}, [bits, other], op, differentiable=False)
case("shifted left", "shift_left", {}, [bits, other], torch.bitwise_left_shift, differentiable=False)
case("shifted right", "shift_right_arithmetic", {}, [bits, other], torch.bitwise_right_shift, differentiable=False)
case("shifted right with zeros", "shift_right_logical", {}, [bits.abs(), other], torch.bitwise_right_shift, differentiable=False)

for descending in (False, True):
    for name, x, axis, smooth in (("sorted", numbers(3, 5, 2), 1, True), ("sorted ties", torch.cat([nan, ties[:2]]), 1, False)):
        case(name + (" down" if descending else ""), "sort", dict(axis=axis, descending=descending), [x],
             lambda x, axis=axis, descending=descending: tuple(torch.sort(x, stable=True, dim=axis, descending=descending)), differentiable=smooth)

table, pairs = numbers(3, 4, 2), torch.tensor([[2, 1], [0, 3], [1, 0]])
case("gather at pairs", "gather_nd", dict(batch_axes=0), [table, pairs], lambda x, i: x[i[:, 0], i[:, 1]], floats=[0])
case("gather in batches", "gather_nd", dict(batch_axes=1), [table, pairs[:, :1]], lambda x, i: x[torch.arange(3), i[:, 0]], floats=[0])
repeated = torch.tensor([[2, 1], [0, 3], [2, 1], [1, 0]])
for name, reduction, places in (("set", "set", pairs), ("add", "add", repeated)):
    case("scatter at pairs, " + name, "scatter_nd", dict(batch_axes=0, reduction=reduction), [table, places, numbers(len(places), 2)],
         lambda x, i, u, add=reduction == "add": torch.index_put(x, (i[:, 0], i[:, 1]), u, accumulate=add), floats=[0, 2])
line, spots = torch.tensor([1.0, 5, -2, 0]).double(), torch.tensor([[1], [1], [2], [1], [0]])
for name, reduction in (("max", "amax"), ("min", "amin")):
    case("scatter of ties, " + name, "scatter_nd", dict(batch_axes=0, reduction=name), [line, spots, torch.tensor([5.0, 3, -2, 5, 4]).double()],
         lambda x, i, u, reduction=reduction: torch.scatter_reduce(x, 0, i[:, 0], u, reduction), floats=[0, 2])

grid = dict(window=[1, 1, 3, 2], strides=[1, 1, 2, 1], padding_low=[0, 0, 1, 0], padding_high=[0, 0, 1, 0], dilation=[1, 1, 1, 2])
image = numbers(2, 2, 6, 5)
case("windows of maxima", "reduce_window", dict(grid, reduction="max"), [image], lambda x: F.max_pool2d(x, (3, 2), (2, 1), (1, 0), (1, 2)))
case("windows of minima", "reduce_window", dict(grid, reduction="min"), [image], lambda x: -F.max_pool2d(-x, (3, 2), (2, 1), (1, 0), (1, 2)))
plain = dict(grid, strides=[1, 1, 2, 3], dilation=[1, 1, 1, 1])
case("windows of sums", "reduce_window", dict(plain, reduction="sum"), [image],
     lambda x: F.avg_pool2d(x, (3, 2), (2, 3), (1, 0), divisor_override=1))

folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "golden"
make_golden.write_safetensors(folder / "primitives.safetensors", tensors, metadata)
print(len(metadata), "cases")
