#!/usr/bin/env python3
"""Draws flows and how they are trained, and checks relations between runs: interrupted and resumed runs, other numbers
of threads, prefetch, caches, observation, other transports of the same samples, accumulated batches, evaluation of
what was written. Exact relations compare weights, moments, metrics and logs bit for bit. Exits with 1 on a violation.

What must hold is in docs/checkpoints.md, docs/numerics.md, docs/hmx.md, docs/streams.md and docs/live.md. The flows are
those of ../random_flows, with further settings. Needs NumPy.

    python tests/parity/random_runs/flow_runs.py build/release/bin/harmonics [--seeds 0-299] [--folder FOLDER]
        [--only RELATION]
"""

from __future__ import annotations

import copy
import json
import signal
import sys
import time
from pathlib import Path

import numpy as np

from case import (
    RESULTS,
    Case,
    checkpoints,
    control,
    finished,
    floats,
    main,
    need,
    read_tensors,
    same_tensors,
    same_values,
)
from flow import Call
from transports import check_transports


def baseline(c: Case, *flags: str, every: int = 1) -> dict:
    out, _ = c.run("--save", "a.safetensors", "--threads", "1", "--log", "a.jsonl", "--log-every", str(every), *flags)
    return out


def check_conditions(c: Case) -> None:
    """Threads, prefetch, caches and observation do not matter."""
    out = baseline(c)
    for i in range(3):
        more = c.otherwise()
        watch = c.watching(f"o{i}")
        if i == 2:
            watch += ["--checkpoint", "ock", "--every", f"{c.draw.randint(1, 4)}steps"]
            if c.validates:
                watch += ["--keep-best", "2"]
        got, _ = c.run("--save", f"o{i}.safetensors", "--threads", str(c.draw.choice([1, 2, 3])), *watch, **more)
        same_tensors(c.folder / "a.safetensors", c.folder / f"o{i}.safetensors", f"variant {i}")
        same_values(out, got, f"variant {i}", RESULTS - {"left_over"})
        same_values(out["metrics"], got["metrics"], f"variant {i}")


def to_files(c: Case, tag: str) -> list[str]:
    return [w for x in c.flow.consumers.values() for w in ("--consumer", f"{x}=file:{x}.{tag}.npy")]


def check_resume(c: Case) -> None:
    """Each checkpoint continues to the same end."""
    every = c.draw.choice([1, 1, 2, 3])
    out = baseline(c)
    whole, _ = c.run(
        "--save",
        "w.safetensors",
        "--threads",
        "2",
        "--checkpoint",
        "ck",
        "--every",
        f"{every}steps",
        "--keep",
        "1000",
        "--log",
        "w.jsonl",
        "--log-every",
        "3",
        *to_files(c, "w"),
    )
    same_tensors(c.folder / "a.safetensors", c.folder / "w.safetensors", "with checkpoints")
    same_values(out, whole, "with checkpoints", RESULTS)
    kept = sorted((c.folder / "ck").glob("checkpoint-*.safetensors"))
    results = {x: np.load(c.folder / f"{x}.w.npy") for x in c.flow.consumers.values()}
    need(bool(kept), "no checkpoint")
    for i, path in enumerate(c.draw.sample(kept, min(4, len(kept)))):
        more = c.otherwise()
        got, err = c.run(
            "--save",
            f"r{i}.safetensors",
            "--threads",
            str(c.draw.choice([1, 2])),
            "--checkpoint",
            f"r{i}",
            "--every",
            "2steps",
            "--resume",
            str(path),
            "--log",
            f"r{i}.jsonl",
            "--log-every",
            "1",
            *to_files(c, f"r{i}"),
            **more,
        )
        what = f"resumed from {path.name}"
        same_tensors(c.folder / "a.safetensors", c.folder / f"r{i}.safetensors", what)
        over = got["resumed_at"] == out["steps"]  # reads no pass that could leave samples over
        same_values(out, got, what, RESULTS - {"left_over"} if over else RESULTS)
        same_values(out["metrics"], got["metrics"], what, set(out["metrics"]))
        for x, all_rows in results.items():
            file = c.folder / f"{x}.r{i}.npy"
            rest = np.load(file) if file.exists() else all_rows[:0]
            need(len(rest) == 0 or rest.tobytes() == all_rows[-len(rest) :].tobytes(), f"{what}: results of {x} differ")
        rows, before = c.log(f"r{i}.jsonl"), c.log("a.jsonl")
        if c.cycles == 1:
            for step, row in rows.items():
                need(step in before, f"{what}: step {step} is not in the first log")
                same_values(before[step], row, f"{what}, step {step} of the log", set(row) - {"resumed"})
            need(set(rows) == {s for s in before if s > got["resumed_at"]}, f"{what}: steps of the log {sorted(rows)}")
        last = [checkpoints(c.folder / f) for f in ("ck", f"r{i}")]
        if last[1] and c.cycles == 1:  # later cycles also keep the moments of earlier ones
            same_tensors(*[max(x.items())[1] for x in last], f"{what}, last checkpoint", ("run/curve",))


def check_parts(c: Case) -> None:
    """k steps and then the rest are all steps."""
    t = c.flow.training
    if t.schedule.name != "constant" or 0 < t.schedule.args.get("warmup", 0) < 1 or c.cycles > 1:
        t.schedule = Call("constant", {"warmup": c.draw.randint(0, 5)})
        c.text = c.flow.text()
        c.cycles = 1
        c.write()
    out = baseline(c)
    total, done, n = out["steps"], 0, 0
    if total < 2 or t.epochs and not t.steps:
        total = max(total, 2)
    while done < total:
        done = min(total, done + c.draw.randint(1, max(1, total // 2)))
        flags = ["--steps", str(done)] if done < total else []
        got, err = c.run(
            "--save",
            "p.safetensors",
            "--checkpoint",
            "ck",
            "--every",
            "1000steps",
            "--threads",
            str(c.draw.choice([1, 2])),
            "--resume",
            *flags,
            **c.otherwise(),
        )
        n += 1
        if got["steps"] < done or n > 30:
            break
    same_tensors(c.folder / "a.safetensors", c.folder / "p.safetensors", f"in {n} parts")
    keys = RESULTS if not c.validates else RESULTS - {"validation_step"}
    if not c.validates:  # a run validates at its end, too
        same_values(out, got, f"in {n} parts", keys)


def lengthen(c: Case) -> int:
    """Makes the run take about half a second."""
    out = baseline(c)
    rate = out["steps"] / max(out["seconds"], 1e-3)
    steps = int(min(4000, max(30, 0.5 * rate)))
    c.flow.training.steps, c.flow.training.epochs = steps, 0
    c.flow.training.flags -= {"steps", "epochs"}
    c.flags = [
        f for i, f in enumerate(c.flags) if not {"--patience", "--until", "--loss-guard"} & {f, c.flags[max(0, i - 1)]}
    ]
    c.text = c.flow.text()
    c.cycles = 1
    c.write()
    return steps


def check_kills(c: Case) -> None:
    """Killed and stopped runs resume to the same end."""
    steps = lengthen(c)
    best = ["--keep-best", "2"] if c.validates else []
    out = baseline(c, "--checkpoint", "whole", *best, every=7)
    every = max(1, steps // c.draw.randint(5, 60))
    for _ in range(c.draw.randint(1, 4)):
        how = c.draw.choice([signal.SIGTERM, signal.SIGINT, signal.SIGKILL, signal.SIGKILL, signal.SIGHUP, "ctl"])
        flags = [
            "--checkpoint",
            "ck",
            "--every",
            f"{every}steps",
            "--resume",
            "--threads",
            str(c.draw.choice([1, 2])),
            "--save",
            "k.safetensors",
            "--control",
            "k.sock",
            *best,
        ]
        more = c.otherwise()
        process = c.start(c.command(*flags, extra=more["extra"]), more["env"])
        if how == "ctl":
            control(c.folder / "k.sock", process, {"do": "stop"})
            finished(c, process, (0,))
        else:
            time.sleep(c.draw.uniform(0.02, 0.4))
            process.send_signal(how)
            finished(c, process, (0, -1, -2, -9, -15, 129, 130, 143))
        c.commands.append(f"# {how} to the last one")
    got, err = c.run(
        "--checkpoint",
        "ck",
        "--every",
        f"{every}steps",
        "--resume",
        "--save",
        "k.safetensors",
        "--log",
        "k.jsonl",
        "--log-every",
        "7",
        *best,
    )
    need(
        [(b["step"], b["loss"]) for b in out["best"]] == [(b["step"], b["loss"]) for b in got["best"]],
        f"after signals: the best checkpoints are {out['best']} and {got['best']}",
    )
    same_tensors(c.folder / "a.safetensors", c.folder / "k.safetensors", "after signals")
    same_values(out, got, "after signals", RESULTS - {"resumed_at"})
    before, after = c.log("a.jsonl"), c.log("k.jsonl")
    for step, row in after.items():
        if step in before and step % 7 == 0:
            same_values(before[step], row, f"after signals, step {step} of the log", set(row))


def changes(c: Case) -> list[dict]:
    """Requests that change layers."""
    names = {
        "dropout": "rate",
        "noise": "deviation",
        "leaky_relu": "slope",
        "elu": "alpha",
        "celu": "alpha",
        "norm": "epsilon",
    }
    found = []
    for a in c.flow.arrows:
        for x in a.calls:
            if (
                x.name in names
                and sum(y.name == x.name for b in c.flow.arrows if b.target == a.target for y in b.calls) == 1
            ):
                found.append(
                    {
                        "do": "layer",
                        "layer": a.target,
                        "arguments": {f"{x.name}.{names[x.name]}": round(c.draw.uniform(0.01, 0.6), 3)},
                    }
                )
    return found


def check_control(c: Case) -> None:
    """A run changed by requests continues from its checkpoints with the changes."""
    lengthen(c)
    flags = [
        "--checkpoint",
        "ck",
        "--every",
        "100000steps",
        "--keep",
        "100",
        "--save",
        "a.safetensors",
        "--control",
        "c.sock",
    ]
    process = c.start(c.command(*flags))
    requests: list[dict] = [{"do": "pause"}]
    for _ in range(c.draw.randint(1, 3)):
        some = [
            {"do": "learning_rate", "value": c.draw.choice([0, 1e-4, 1e-3, 0.01])},
            {"do": "undo"},
            {"do": "learning_rate", "value": None},
            *changes(c) * 3,
        ]
        requests += [c.draw.choice(some) for _ in range(c.draw.randint(1, 3))]
        requests += [{"do": "step", "count": c.draw.randint(1, 5)}] * c.draw.randint(0, 1) + [{"do": "checkpoint"}]
    requests += [{"do": "resume"}]
    replies = control(c.folder / "c.sock", process, *requests)
    c.commands.append("# requests " + json.dumps(requests))
    c.commands.append("# replies " + json.dumps([{k: v for k, v in r.items() if k != "status"} for r in replies]))
    finished(c, process, (0,))
    kept = sorted(checkpoints(c.folder / "ck").items())
    whole = c.folder / "a.safetensors"
    for i, (step, path) in enumerate(kept[:-1]):
        got, _ = c.run(
            "--resume",
            str(path),
            "--checkpoint",
            f"c{i}",
            "--save",
            f"c{i}.safetensors",
            "--threads",
            "2",
            **c.otherwise(),
        )
        if i == len(kept) - 2:
            same_tensors(whole, c.folder / f"c{i}.safetensors", f"resumed from step {step} after requests")
            last = max(checkpoints(c.folder / f"c{i}").items())[1]
            same_tensors(kept[-1][1], last, f"resumed from step {step} after requests, last checkpoint", ("run/curve",))


def gradient(
    c: Case, tag: str, *flags: str, joint: list[str], env: dict | None = None, names: dict | None = None
) -> dict:
    """The gradient of one step, which a checkpoint keeps as the momentum of SGD."""
    words = [
        c.program,
        "run",
        "flow.hmx",
        *c.streams("--producer", "train", names, joint, own=False),
        "--quiet",
        "--no-keep",
        "--optimizer",
        "sgd(lr=1e-30, momentum=0.5)",
        "--schedule",
        "constant",
        "--clip",
        "0",
        "--clip-value",
        "0",
        "--steps",
        "1",
        "--checkpoint",
        f"g.{tag}",
        "--seed",
        str(c.flow.training.seed),
        *flags,
    ]
    c.call(words, env)
    tensors = read_tensors(max(checkpoints(c.folder / f"g.{tag}").items())[1])
    return {k: v for k, v in tensors.items() if k.startswith("moment/optimizer.momentum.")}


def near(a: dict, b: dict, what: str, bound: float = 2e-4) -> None:
    need(a.keys() == b.keys(), f"{what}: {sorted(a.keys() ^ b.keys())}")
    whole = max([np.abs(floats(v)).max(initial=0) for v in a.values()] or [0])
    for k in a:
        x, y = floats(a[k]), floats(b[k])
        if x.size:
            need(
                np.abs(x - y).max() <= bound * whole + 1e-12,
                f"{what}: {k} differs by {np.abs(x - y).max():.2e} of {whole:.2e}",
            )


def check_gradients(c: Case) -> None:
    """Accumulated batches, another order, recomputed results, the reference device."""
    count = len(next(iter(c.flow.streams.values())).data["train"])
    parts = c.draw.randint(2, 4)
    size = max(2, count // parts)
    joint = ["shuffle=0", f"take={min(count, size * parts)}"]
    whole = gradient(c, "whole", "--batch", str(size * parts), "--accumulate", "1", joint=joint)
    again = gradient(c, "again", "--batch", str(size * parts), "--accumulate", "1", "--threads", "3", joint=joint)
    need(whole == again, "gradients differ between numbers of threads")
    again = gradient(
        c,
        "recomputed",
        "--batch",
        str(size * parts),
        "--accumulate",
        "1",
        "--recompute",
        c.draw.choice(["*", "l*", "block", "rmsnorm"]),
        joint=joint,
    )
    need(whole == again, "gradients differ with recomputed results")
    again = gradient(
        c, "reference", "--batch", str(size * parts), "--accumulate", "1", "--device", "reference", joint=joint
    )
    near(whole, again, "reference device")
    if not c.norms and not c.random:
        some = gradient(c, "some", "--batch", str(size), "--accumulate", str(parts), joint=joint)
        near(whole, some, f"{parts} batches of {size}")
        if all(not s.raw for s in c.flow.streams.values()):
            order = np.random.default_rng(c.seed).permutation(min(count, size * parts))
            for s in c.flow.streams.values():
                np.save(c.folder / f"{s.name}.train.npy", s.data["train"][order])
            near(
                whole,
                gradient(c, "order", "--batch", str(size * parts), "--accumulate", "1", joint=joint),
                "another order",
            )
            c.write()


def check_evaluation(c: Case) -> None:
    """What a run writes is evaluated as the run did it; infer gives the same from all files."""
    if not c.validates:
        c.validates = True
    c.flags = [f for i, f in enumerate(c.flags) if not {"--precision"} & {f, c.flags[max(0, i - 1)]}]
    if "if val." in c.text:  # needs validation data in the runs that only evaluate
        return
    out = baseline(c, "--checkpoint", "ck")
    batch = str(c.flow.training.batch)
    test = [w for w in c.streams("--test", "test", own=False)]
    metric = [f for i, f in enumerate(c.flags) if "--metric" in (f, c.flags[max(0, i - 1)])]
    newest = str(max(checkpoints(c.folder / "ck").items())[1])
    for weights in ("a.safetensors", newest):
        got, _ = c.run("--weights", weights, "--epochs", "0", "--schedule", "constant", *test, *metric, own=False)
        if c.cycles == 1 and " if " not in c.text:
            need(out["validation"] == got["test"], f"evaluated {weights}: {out['validation']} and {got['test']}")
    other, _ = c.run(
        "--weights",
        "a.safetensors",
        "--epochs",
        "0",
        "--schedule",
        "constant",
        "--batch",
        str(c.draw.randint(2, 40)),
        *test,
        *metric,
        own=False,
    )
    for k, v in got["test"].items():
        w = other["test"][k]
        need(v is None and w is None or abs(v - w) <= 1e-4 * max(1, abs(v)), f"another batch size: {k} is {v} and {w}")
    c.call([c.program, "export", "a.safetensors", "a.gguf"])
    c.call([c.program, "export", newest, "b.safetensors"])
    ends = c.flow.ends()
    results = {}
    for weights in ("a.safetensors", newest, "b.safetensors", "a.gguf"):
        tag = Path(weights).name
        names = c.flow.consumers
        to = [w for x in ends for w in ("--consumer", (f"{names[x]}=" if x in names else "") + f"file:{x}.{tag}.npy")]
        keep, c.names = c.names, c.flow.inputs(False)
        c.call(
            [
                c.program,
                "infer",
                "flow.hmx",
                "--weights",
                weights,
                *c.streams("--producer", "infer", own=False),
                *to,
                "--quiet",
                "--threads",
                str(c.draw.choice([1, 2])),
                "--batch",
                batch,
            ]
        )
        c.names = keep
        results[weights] = [(c.folder / f"{x}.{tag}.npy").read_bytes() for x in ends]
        need(results[weights] == results["a.safetensors"], f"infer with {weights} differs")


def check_fixed(c: Case) -> None:
    """Seeds, frozen weights, a rate of 0, a loss of weight 0."""
    baseline(c)
    c.run("--save", "z.safetensors", "--epochs", "0", own=False)
    c.run("--save", "again.safetensors", "--threads", "2")
    same_tensors(c.folder / "a.safetensors", c.folder / "again.safetensors", "the same seed")
    first, last = read_tensors(c.folder / "z.safetensors"), read_tensors(c.folder / "a.safetensors")
    frozen = [f"{a.source}.{a.target}.affine." for a in c.flow.arrows for x in a.calls if x.args.get("freeze")]
    for k in last:
        if any(k.startswith(f) for f in frozen):
            need(first[k] == last[k], f"the frozen {k} changes")
    c.run("--save", "seed.safetensors", "--epochs", "0", "--seed", str(c.flow.training.seed + 1), own=False)
    other = read_tensors(c.folder / "seed.safetensors")
    drawn = [k for k in first if k.endswith("weight") and len(np.unique(floats(first[k]))) > 1]
    need(
        all(first[k] != other[k] for k in drawn),
        f"another seed gives some of the same weights: {[k for k in drawn if first[k] == other[k]]}",
    )
    name = c.flow.training.optimizer.name
    still = f"{name}(lr=0)"
    c.flow.training.flags -= {"lr"}
    c.run("--save", "still.safetensors", "--optimizer", still, "--steps", "3", own=False)
    now = read_tensors(c.folder / "still.safetensors")
    learned = [k for k in first if not any(x in k for x in ("running", "mean", "variance", "count"))]
    need(all(first[k] == now[k] for k in learned), f"a rate of 0 changes {[k for k in learned if first[k] != now[k]]}")
    flow = copy.deepcopy(c.flow)
    for x in flow.taps:
        for l in x.losses:
            l.args["weight"] = 0
    (c.folder / "flow.hmx").write_text(flow.text())
    rate, decay = c.draw.choice([(0.01, 0.1), (0.1, 0.3)])
    for name in ("adamw", "lion", "sgd"):
        c.run(
            "--save",
            "decay.safetensors",
            "--optimizer",
            f"{name}(lr={rate}, weight_decay={decay})",
            "--schedule",
            "constant",
            "--steps",
            "1",
            "--clip",
            "0",
            "--accumulate",
            "1",
            "--epochs",
            "1",
            own=False,
        )
        now = read_tensors(c.folder / "decay.safetensors")
        for k in learned:
            x, y = floats(first[k]), floats(now[k])
            if any(k.startswith(f) for f in frozen):
                continue
            scale = 1 - rate * decay if x.ndim >= 2 else 1
            need(
                np.allclose(y, x * scale, rtol=3e-6, atol=1e-30),
                f"decay by {name}: {k} {x.ravel()[:3]} {y.ravel()[:3]}",
            )


RELATIONS = {
    "conditions": check_conditions,
    "resume": check_resume,
    "parts": check_parts,
    "kills": check_kills,
    "control": check_control,
    "gradients": check_gradients,
    "evaluation": check_evaluation,
    "fixed": check_fixed,
    "transports": check_transports,
}
PLAIN = {"gradients", "fixed", "transports"}
TURNS = [
    "conditions",
    "resume",
    "parts",
    "kills",
    "resume",
    "control",
    "gradients",
    "evaluation",
    "fixed",
    "transports",
]


if __name__ == "__main__":
    sys.exit(main(__doc__, Case, RELATIONS, TURNS, PLAIN))
