#!/usr/bin/env python3
"""Tests report.py with invented figures: it reports reached goals and missing figures."""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import report  # noqa: E402


def lines(factor, without=()):
    rows = [{"id": "copy", "seconds": 0.001, "work": 4e9}]
    rows += [{"id": name, "seconds": 0.001 * factor, "work": 1e12} for name in report.GEMM]
    rows += [{"id": name, "seconds": 0.001 * factor, "work": 3.9e9} for name in report.COPY]
    rows += [{"id": f"{name}/batch:64", "seconds": 15e-6 * factor, "work": 0} for name in ("step/mlp_train", *report.STEPS)]
    return "".join(json.dumps(r) + "\n" for r in rows if r["id"] not in without)


def run(ours, theirs):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("ours", ours), ("theirs", theirs)):
            (Path(folder) / name).write_text(text)
        out = Path(folder) / "rows.json"
        done = subprocess.run([sys.executable, HERE / "report.py", Path(folder) / "ours", Path(folder) / "theirs", "--json", out], capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout, json.loads(out.read_text())


code, text, rows = run(lines(1), lines(1.3))
assert code == 0 and all(r["reached"] for r in rows) and f"{len(rows)} of {len(rows)} goals reached" in text, text
code, text, rows = run(lines(1.25), lines(1.3))
assert code == 1 and "MISS step/cnn_train" in text and "MISS rms_norm " in text and "ok   gemm_f32/64x784x392" in text, text
code, text, rows = run(lines(1, without=("adamw",)), lines(1.3))
assert code == 1 and [r["id"] for r in rows if not r["reached"]] == ["adamw"] and "missing" in text, text
print("report.py: ok")
