#!/usr/bin/env python3
"""Compares random flows with equivalent PyTorch models: run.py --program FILE [--seeds FIRST-LAST].

Prints every mismatch with its flow and how to run it again, and at the end how far off everything was.
"""
from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

import numpy as np
import torch

from compare import Verdict, judge
from engine import Engine, EngineFailed
from flow import Flow
from gradients import judge_gradients
from kinds import draw_flow
from training import run_twin


def check(flow: Flow, engine: Engine, gradients: bool) -> Verdict:
    engine.write_files()
    if gradients:
        return judge_gradients(flow, engine)
    twin = run_twin(flow)
    verdict = Verdict()
    if not all(np.isfinite(w).all() for w in twin.weights.values()) or np.nanmax(np.abs([0, *twin.losses])) > 1e15:
        verdict.diverges = True
        return verdict
    try:
        found = engine.run()
    except EngineFailed as e:
        verdict.mismatches = [str(e)]
        return verdict
    return judge(flow, twin, found)


def quantiles(values: list[float]) -> str:
    if not values:
        return "none"
    return " / ".join(f"{q:.1e}" for q in np.quantile(values, [0.5, 0.9, 0.99], method="higher"))


def report(verdicts: dict[int, Verdict]) -> None:
    def gather(errors: str, prefix: str) -> list[float]:
        return [max(found) for v in verdicts.values()
                if (found := [e for name, e in getattr(v, errors).items() if name.startswith(prefix)])]
    print(f"{'error: median / 90 % / 99 %':32} {'engine':30} torch float32")
    for prefix in ("losses", "test loss", "weights", "infer"):
        print(f"{prefix:32} {quantiles(gather('worst', prefix)):30} {quantiles(gather('torch32', prefix))}")


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seeds", default="0-299", metavar="FIRST-LAST")
    options.add_argument("--program", required=True, metavar="FILE")
    options.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the files of mismatches here")
    options.add_argument("--gradients", action="store_true", help="compare the gradients of the first batch instead")
    options.add_argument("--flag", action="append", default=[],
                         help="a further flag of every run, such as --flag=--device=reference")
    a = options.parse_args()
    first, _, last = a.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    torch.set_num_threads(1)
    program, keep = str(Path(a.program).resolve()), a.keep or Path(tempfile.mkdtemp(prefix="random_flows-"))
    print(f"random flows: seeds {seeds[0]}-{seeds[-1]}, mismatches in {keep}", flush=True)
    verdicts: dict[int, Verdict] = {}
    began = time.monotonic()
    for seed in seeds:
        flow, folder = draw_flow(seed), keep / str(seed)
        engine = Engine(program, flow, folder, tuple(a.flag))
        shutil.rmtree(folder, ignore_errors=True)
        try:
            v = verdicts[seed] = check(flow, engine, a.gradients)
        except Exception:
            v = verdicts[seed] = Verdict()
            v.mismatches = [traceback.format_exc()]
        if v.mismatches:
            print(f"MISMATCH seed {seed} ({flow.kind})\n  " + "\n  ".join(v.mismatches) + f"\n{flow.text()}"
                  f"{engine.reproduction(a.gradients)}\n", flush=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    wrong = [s for s, v in verdicts.items() if v.mismatches]
    report(verdicts)
    print(f"{len(verdicts)} flows in {time.monotonic() - began:.0f} s: {len(wrong)} mismatches{': ' if wrong else ''}"
          f"{', '.join(map(str, wrong))}; {sum(v.chaotic for v in verdicts.values())} chaotic, "
          f"{sum(v.diverges for v in verdicts.values())} diverge in PyTorch as well")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
