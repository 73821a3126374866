#!/usr/bin/env python3
"""Writes golden/block_types.safetensors, which test_block_types.cpp compares with: make_block_types.py [FOLDER].

Blocks by the quants of the gguf package of Python (pip install gguf numpy), the reference of the format. For each
type T:
  T/bytes   U8 [rows, bytes of a row]    T/numbers   F32 [rows, columns], T/bytes decoded
  T/from    F32 [rows, columns], what T/bytes was quantised from; only of types whose quantisation is a rule
  T/error   F32 [], root mean square of what ggml's own quantiser loses of searched/numbers; only of types whose scales
            are searched for (pip install ggml-py, whose library has the reference)
  T/weighted_error  F32 [], likewise, weighed by searched/importance, which the quantiser gets
searched/numbers     F32 [rows, columns], normal, one-sided and heavy-tailed rows
searched/importance  F32 [columns]
"""
import ctypes
import importlib.util
import json
import struct
import sys
from pathlib import Path

import numpy as np
from gguf import quants

random = np.random.default_rng(42)
tensors = {}


def write(path):
    order = sorted(tensors, key=lambda name: (tensors[name].dtype.itemsize == 1, name))
    header, at = {}, 0
    for name in order:
        t = tensors[name]
        kind = "U8" if t.dtype == np.uint8 else "F32"
        header[name] = {"dtype": kind, "shape": list(t.shape), "data_offsets": [at, at + t.nbytes]}
        at += t.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(tensors[name].tobytes() for name in order))


def numbers():
    """Returns rows of several magnitudes, zeros, rounding ties, and largest magnitudes of either sign."""
    x = random.normal(size=(8, 128)).astype(np.float32)
    x[1] *= 1e-3
    x[2] *= 300
    x[3, :32] = 0
    x[4, :32] = np.arange(32) - 15.5  # half steps
    x[4, 32:64] = (np.arange(32) - 16) / 2
    x[5, :32] = np.linspace(-8, 8, 32)
    x[6] = np.abs(x[6])
    x[7] = np.round(x[7] * 4) / 4
    return x


RULES = (("q8_0", quants.Q8_0), ("q4_0", quants.Q4_0), ("q4_1", quants.Q4_1), ("q5_0", quants.Q5_0),
         ("q5_1", quants.Q5_1), ("mxfp4", quants.MXFP4))
for name, kind in RULES:
    x = numbers()
    packed = kind.quantize(x)
    tensors[f"{name}/from"] = x
    tensors[f"{name}/bytes"] = packed
    tensors[f"{name}/numbers"] = kind.dequantize(packed)

SEARCHED = (("q4_k", quants.Q4_K, 144, (0, 2)), ("q6_k", quants.Q6_K, 210, (208,)), ("q2_k", quants.Q2_K, 84, (80, 82)),
            ("q3_k", quants.Q3_K, 110, (108,)), ("q5_k", quants.Q5_K, 176, (0, 2)), ("iq4_nl", quants.IQ4_NL, 18, (0,)))
ADDED = (("iq4_xs", quants.IQ4_XS, 136, (0,)),)  # last, so that the random numbers above do not change


def add_blocks(name, kind, size, scales):
    packed = random.integers(0, 256, size=(3, 2 * size), dtype=np.uint8)
    for block in (0, size):
        for at in scales:
            halves = (random.normal(size=3) * 0.01).astype(np.float16)
            packed[:, block + at:block + at + 2] = halves.view(np.uint8).reshape(3, 2)
    tensors[f"{name}/bytes"] = packed
    tensors[f"{name}/numbers"] = kind.dequantize(packed)


for row in SEARCHED:
    add_blocks(*row)

x = np.concatenate([random.normal(size=(2, 1024)), random.uniform(0, 1, size=(2, 1024)),
                    random.standard_t(3, size=(2, 1024))])
x = x.astype(np.float32)
tensors["searched/numbers"] = x
for row in ADDED:
    add_blocks(*row)
WEIGHTED = SEARCHED + ADDED + tuple((name, kind, kind.type_size, ()) for name, kind in RULES
                                    if name in ("q4_0", "q4_1", "q5_0", "q5_1"))
importance = np.exp(random.normal(size=1024) * 1.5).astype(np.float32)
importance[::97] = 0
tensors["searched/importance"] = importance
reference = ctypes.CDLL(str(Path(importlib.util.find_spec("ggml").origin).parent / "lib" / "libggml-base.so"))
reference.ggml_quantize_chunk.restype = ctypes.c_size_t


def squares_lost(kind, size, weights):
    """Returns the squared errors of ggml's own quantiser. `weights`: the importance of columns, or None."""
    packed = np.zeros((x.size // kind.block_size, size), np.uint8)
    pointer = lambda array: None if array is None else array.ctypes.data_as(ctypes.c_void_p)
    reference.ggml_quantize_chunk(ctypes.c_int(kind.qtype.value), pointer(x), pointer(packed), ctypes.c_int64(0),
                                  ctypes.c_int64(x.shape[0]), ctypes.c_int64(x.shape[1]), pointer(weights))
    return (kind.dequantize(packed).reshape(x.shape).astype(np.float64) - x) ** 2


for name, kind, size, _ in SEARCHED + ADDED:
    tensors[f"{name}/error"] = np.array(np.sqrt(np.mean(squares_lost(kind, size, None))), np.float32)
for name, kind, size, _ in WEIGHTED:
    weights = importance.astype(np.float64)
    lost = squares_lost(kind, size, importance) * weights
    tensors[f"{name}/weighted_error"] = np.array(np.sqrt(lost.sum() / (weights.sum() * len(x))), np.float32)

folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "golden"
write(folder / "block_types.safetensors")
