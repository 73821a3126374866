"""The random numbers of docs/numerics.md: Philox 4x32-10, keyed by seed and stream name."""
from __future__ import annotations

import numpy as np

MASK = (1 << 64) - 1
LOW = np.uint64(0xFFFFFFFF)
SHIFT = np.uint64(32)


def splitmix64(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def stream_of(text: str) -> int:
    h = 0xCBF29CE484222325
    for byte in text.encode():
        h = ((h ^ byte) * 0x100000001B3) & MASK
    return h


def philox(counters: list[np.ndarray], seed: int, stream: int) -> np.ndarray:
    """Four words per counter: [n, 4]."""
    key = splitmix64(seed ^ splitmix64(stream))
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    c0, c1, c2, c3 = (np.asarray(c, np.uint64) for c in counters)
    for _ in range(10):
        a, b = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (b >> SHIFT) ^ c1 ^ np.uint64(k0), b & LOW, (a >> SHIFT) ^ c3 ^ np.uint64(k1), a & LOW
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack(np.broadcast_arrays(c0, c1, c2, c3), -1)


def blocks(n: int) -> np.ndarray:
    return np.arange((n + 3) // 4, dtype=np.uint64)


def first_words(seed: int, name: str, n: int) -> np.ndarray:
    i, zero = blocks(n), np.uint64(0)
    return philox([i & LOW, i >> SHIFT, zero, zero], seed, stream_of(name)).reshape(-1)[: (n + 3) // 4 * 4]


def uniform_of(words: np.ndarray) -> np.ndarray:
    return (words >> np.uint64(8)).astype(np.float64) * 2.0**-24


def layer_uniforms(seed: int, path: str, step: int, n: int) -> np.ndarray:
    """The random numbers of a layer in a step."""
    i = blocks(n)
    words = philox([np.uint64(step & 0xFFFFFFFF), np.uint64(step >> 32), i & LOW, i >> SHIFT], seed, stream_of(path))
    return uniform_of(words.reshape(-1)[:n])


def first_uniform(seed: int, name: str, shape: tuple[int, ...], low: float, high: float) -> np.ndarray:
    n = int(np.prod(shape))
    return (low + (high - low) * uniform_of(first_words(seed, name, n)[:n])).reshape(shape)


def first_normal(seed: int, name: str, shape: tuple[int, ...], mean: float, deviation: float) -> np.ndarray:
    n = int(np.prod(shape))
    pairs = first_words(seed, name, n).reshape(-1, 2).astype(np.float64)
    radius = np.sqrt(-2 * np.log((pairs[:, 0] + 1) * 2.0**-32))
    angle = 2 * np.pi * pairs[:, 1] * 2.0**-32
    both = np.stack([radius * np.cos(angle), radius * np.sin(angle)], -1).reshape(-1)[:n]
    return (mean + deviation * both).reshape(shape)


def shuffled_order(n: int, seed: int, epoch: int, block: int) -> np.ndarray:
    """Fisher-Yates from the last index down, numbers below i by Lemire's method (include/harmonics/philox.hpp)."""
    stream = stream_of("shuffle") ^ splitmix64(epoch)
    draws = blocks(4 * (2 * n + 16))
    words = iter(philox([draws, np.uint64(block & 0xFFFFFFFF), np.uint64(block >> 32), np.uint64(0)], seed, stream)
                 .reshape(-1).tolist())
    order = list(range(n))
    for i in range(n, 1, -1):
        least = (1 << 32) % i
        m = next(words) * i
        while m & 0xFFFFFFFF < least:
            m = next(words) * i
        j = m >> 32
        order[j], order[i - 1] = order[i - 1], order[j]
    return np.array(order, dtype=np.int64)
