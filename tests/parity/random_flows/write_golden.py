#!/usr/bin/env python3
"""Writes ../golden/random_flows.safetensors, which test_random_flows.cpp compares with: write_golden.py [FOLDER].

Small flows are chosen so that together they use as many functions, losses and settings as possible.
Metadata NAME = {"text", "seed", "shuffle", "classes": {STREAM}, "allowed": {PART: error}}; below NAME/
  train/S, test/S, infer/S (streams)
  loss (of each step), test_loss, test_accuracy (NaN: none)
  gradient/P (of the first samples in file order, drawn as in step 1)      weights/P, result/LAYER
"""
from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch

from compare import FACTOR, FLOOR, errors
from flow import Flow
from gradients import of_twin
from kinds import KINDS
from training import Outcome, run_twin

from make_golden import write_safetensors

COUNTS = {"mlp": 12, "conv": 10, "seq": 10, "tokens": 8}
TRIED = 150  # flows of each kind
MOST_NUMBERS = {"mlp": 1000, "conv": 3000, "seq": 2200, "tokens": 1500}
ROUGH = 2e-5  # flows with larger errors in float32 are excluded


def features(flow: Flow) -> set[str]:
    t = flow.training
    found = {f"clip {bool(t.clip)}", f"clip_value {bool(t.clip_value)}", f"accumulate {t.accumulate}",
             f"epochs {bool(t.epochs)}", f"shuffle {t.shuffle}", f"taps {len(flow.taps)}"}
    found |= {f"file {s.file}" for s in flow.streams.values()}
    calls = [c for x in flow.arrows for c in x.calls] + [c for x in flow.taps for c in x.losses]
    for c in [*calls, t.optimizer, t.schedule]:
        found |= {c.name} | {f"{c.name}.{k}" + (f"={v}" if isinstance(v, (str, bool)) and k != "name" else "")
                             for k, v in c.args.items() if k not in ("with", "memory", "tied")}
    return found


def numbers(flow: Flow, out: Outcome) -> int:
    data = sum(d.size for s in flow.streams.values() for d in s.data.values())
    return data + 2 * sum(w.size for w in out.weights.values())


def candidates(kind: str) -> list[tuple[Flow, Outcome, dict[str, float]]]:
    kept = []
    for seed in range(TRIED):
        flow = KINDS[kind](seed)
        flow.training.flags = frozenset()
        if flow.training.shuffle not in (None, 0) or numbers(flow, Outcome()) > MOST_NUMBERS[kind]:
            continue
        twin = run_twin(flow)
        if numbers(flow, twin) > MOST_NUMBERS[kind] or not np.isfinite([twin.test_loss, *twin.losses]).all():
            continue
        allowed = errors(run_twin(flow, torch.float32), twin)
        for i in range(2):
            disturbed = errors(run_twin(flow, disturbed=i), twin)
            allowed = {name: max(e, disturbed[name]) for name, e in allowed.items()}
        if max(allowed.values()) < ROUGH:
            kept.append((flow, twin, {k: FACTOR * max(v, FLOOR) for k, v in allowed.items()}))
    return kept


def choose(among: list, count: int, covered: set[str]) -> list:
    chosen = []
    while among and len(chosen) < count:
        best = max(among, key=lambda c: (len(features(c[0]) - covered), -numbers(c[0], c[1])))
        among.remove(best)
        chosen.append(best)
        covered |= features(best[0])
    return chosen


def add(tensors: dict[str, torch.Tensor], metadata: dict[str, str], flow: Flow, twin: Outcome,
        allowed: dict[str, float]) -> None:
    name = f"{flow.kind}_{flow.seed}"

    def put(path: str, x: np.ndarray, dtype=None) -> None:
        tensors[f"{name}/{path}"] = torch.from_numpy(np.ascontiguousarray(x if dtype is None else x.astype(dtype)))

    for s in flow.streams.values():
        for part, data in s.data.items():
            put(f"{part}/{s.name}", data, np.int32 if s.raw else None)
    put("loss", np.array(twin.losses))
    put("test_loss", np.array(twin.test_loss))
    put("test_accuracy", np.array(twin.test_accuracy))
    for path, w in twin.weights.items():
        put(f"weights/{path}", w, np.float32)
    rows = np.arange(min(flow.training.batch, len(next(iter(flow.streams.values())).data["train"])))
    for path, g in of_twin(flow, torch.float64, rows=rows).items():
        put(f"gradient/{path}", g)
    for layer, y in twin.results.items():
        put(f"result/{layer}", y, np.float32)
    classes = {s.name: s.classes for s in flow.streams.values() if s.raw}
    metadata[name] = json.dumps({"text": flow.text(), "seed": flow.training.seed, "batch": flow.training.batch,
                                 "shuffle": flow.training.shuffle is None, "classes": classes,
                                 "consumers": {x: flow.consumers.get(x, "") for x in flow.ends()},
                                 "allowed": {k: float(f"{v:.3g}") for k, v in allowed.items()}})


def main() -> None:
    torch.set_num_threads(1)
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent / "golden"
    tensors: dict[str, torch.Tensor] = {}
    metadata: dict[str, str] = {}
    covered: set[str] = set()
    for kind, count in COUNTS.items():
        for flow, twin, allowed in choose(candidates(kind), count, covered):
            add(tensors, metadata, flow, twin, allowed)
    path = folder / "random_flows.safetensors"
    write_safetensors(path, tensors, metadata)
    print(path.name, path.stat().st_size, len(metadata), "flows,", len(covered), "features")


if __name__ == "__main__":
    main()
