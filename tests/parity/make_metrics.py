#!/usr/bin/env python3
"""Writes golden/metrics.json, which test_metrics.cpp compares with: make_metrics.py [FOLDER].

Values are scikit-learn's, perplexity PyTorch's. Cases of classes hold logits and labels, cases of numbers predictions and
targets; each has figures by name. Inputs are float32 numbers that their text gives back.
"""
import json
import sys
from pathlib import Path

import numpy as np
import torch
from sklearn import metrics as sk

rng = np.random.default_rng(7)


def written(a):
    return [round(float(v), 3) for v in np.ravel(a)]


def rounded(a):
    return np.round(np.asarray(a, dtype=np.float64), 3).astype(np.float32)


def averages(name, score, y, p):
    figures = {name: score(y, p, average="macro", zero_division=0), name + "_micro": score(y, p, average="micro", zero_division=0),
               name + "_weighted": score(y, p, average="weighted", zero_division=0)}
    for c, v in zip(sorted(set(y) | set(p)), score(y, p, average=None, zero_division=0)):
        figures[f"{name}.{c}"] = v
    return figures


def classes(name, n, c, labels=None, ties=False):
    logits = rounded(rng.normal(size=(n, c)))
    if ties:
        logits = np.round(logits * 2) / 2
    y = labels if labels is not None else rng.integers(0, c, size=n)
    logits[np.arange(n), y] += 0.8
    logits = rounded(logits)
    probabilities = torch.softmax(torch.tensor(logits, dtype=torch.float64), dim=1).numpy()
    p = logits.argmax(axis=1)
    figures = {"accuracy": sk.accuracy_score(y, p)}
    for metric, score in (("precision", sk.precision_score), ("recall", sk.recall_score), ("f1", sk.f1_score)):
        figures.update(averages(metric, score, y, p))
    if not ties and c > 3:
        for k in (2, 3):
            figures[f"top{k}"] = sk.top_k_accuracy_score(y, probabilities, k=k, labels=range(c))
    areas = [sk.roc_auc_score(y == i, probabilities[:, i]) for i in range(c) if 0 < (y == i).sum() < n]
    figures["auc"] = float(np.mean(areas))
    if set(y) == set(range(c)) and c > 2:
        assert abs(figures["auc"] - sk.roc_auc_score(y, probabilities, multi_class="ovr")) < 1e-12
    loss = torch.nn.functional.cross_entropy(torch.tensor(logits, dtype=torch.float64), torch.tensor(y))
    figures["perplexity"] = float(torch.exp(loss))
    return {"name": name, "outputs": c, "classes": c, "activation": "", "predictions": written(logits), "labels": [int(v) for v in y],
            "figures": figures, "table": sk.confusion_matrix(y, p, labels=range(c)).ravel().tolist()}


def one_output(name, n):
    p = rounded(rng.uniform(0.02, 0.98, size=n))
    y = (rng.uniform(size=n) < p).astype(int)
    said = (p > 0.5).astype(int)
    figures = {"accuracy": sk.accuracy_score(y, said), "auc": sk.roc_auc_score(y, p.astype(np.float64)),
               "perplexity": float(np.exp(sk.log_loss(y, p.astype(np.float64))))}
    for metric, score in (("precision", sk.precision_score), ("recall", sk.recall_score), ("f1", sk.f1_score)):
        figures.update(averages(metric, score, y, said))
    return {"name": name, "outputs": 1, "classes": 2, "activation": "harmonics.activations/sigmoid", "predictions": written(p), "labels": y.tolist(),
            "figures": figures, "table": sk.confusion_matrix(y, said).ravel().tolist()}


def numbers(name, n, columns, offset=0.0):
    y = rounded(rng.normal(size=(n, columns)) + offset)
    p = rounded(y + rng.normal(size=(n, columns)) * 0.3)
    a, b = y.astype(np.float64), p.astype(np.float64)
    figures = {"mae": sk.mean_absolute_error(a, b), "rmse": float(np.sqrt(sk.mean_squared_error(a, b))), "r2": sk.r2_score(a, b)}
    return {"name": name, "outputs": columns, "predictions": written(p), "targets": written(y), "figures": figures}


cases = [
    classes("ten classes", 200, 10),
    classes("two classes", 60, 2),
    classes("classes that never come", 40, 6, labels=rng.integers(0, 3, size=40)),
    classes("equal outputs", 90, 4, ties=True),
    one_output("one output", 80),
    numbers("one number", 50, 1),
    numbers("three numbers", 40, 3),
    numbers("far from zero", 64, 2, offset=1000.0),
]
folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "golden"
(folder / "metrics.json").write_text("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")
