"""A flow, its files and its settings, drawn from a seed; running the program on it; comparing what it writes."""

from __future__ import annotations

import argparse
import collections
import copy
import json
import os
import random
import shlex
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "random_flows"))
from flow import Arrow, Call, Flow, Layer, Ref, Stream, Tap, Training  # noqa: E402
from kinds import draw_flow  # noqa: E402

SECONDS = 120
ENDINGS = {"text": "txt", "tokens": "bin", "npy": "npy"}
ACTS_IN_TRAINING = {"dropout", "noise"}
TIMES = {
    "seconds",
    "samples_per_second",
    "resident_bytes",
    "tokens_per_second",
    "peak_share",
    "wall",
    "text",
    "version",
}


class Wrong(Exception):
    pass


class Refused(Exception):
    """The program refuses the drawn settings; the reasons are counted."""


def need(condition: bool, text: str) -> None:
    if not condition:
        raise Wrong(text)


def metadata(path: Path) -> dict[str, str]:
    data = path.read_bytes()
    return json.loads(data[8 : 8 + struct.unpack_from("<Q", data)[0]])["__metadata__"]


def read_tensors(path: Path) -> dict[str, tuple]:
    data = path.read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    return {
        name: (
            row["dtype"],
            tuple(row["shape"]),
            data[8 + size + row["data_offsets"][0] : 8 + size + row["data_offsets"][1]],
        )
        for name, row in header.items()
    }


def floats(tensor: tuple) -> np.ndarray:
    kind = {"F32": "<f4", "F64": "<f8", "I64": "<i8", "U8": "u1"}[tensor[0]]
    return np.frombuffer(tensor[2], kind).reshape(tensor[1]).astype("f8")


def same_tensors(a: Path, b: Path, what: str, skip: tuple[str, ...] = ()) -> None:
    x, y = ({k: v for k, v in read_tensors(p).items() if not k.startswith(skip or ("\0",))} for p in (a, b))
    need(x.keys() == y.keys(), f"{what}: tensors {sorted(x.keys() ^ y.keys())} are in one file only")
    bad = [k for k in x if x[k] != y[k]]
    need(not bad, f"{what}: {len(bad)} of {len(x)} tensors differ: {bad[:4]}")


def same_values(a: dict, b: dict, what: str, keys: set[str] | None = None) -> None:
    for k in sorted(keys if keys is not None else a.keys() & b.keys()):
        need(a.get(k) == b.get(k), f"{what}: {k} is {a.get(k)} and {b.get(k)}")


def checkpoints(folder: Path) -> dict[int, Path]:
    return {int(p.stem.split("-")[1]): p for p in folder.glob("checkpoint-*.safetensors")}


RESULTS = {
    "epochs",
    "steps",
    "samples",
    "loss",
    "accuracy",
    "stopped_by",
    "training",
    "learning_rate",
    "left_over",
    "validation",
    "validation_step",
    "weights",
}


class Case:
    """A flow with its files, and its settings; everything that determines the results."""

    def __init__(self, program: str, seed: int, folder: Path, plain: bool = False):
        self.program, self.seed, self.folder = program, seed, folder
        self.draw = random.Random(f"runs {seed}")
        self.flow = (
            wide_flow(self.draw, seed)
            if self.draw.random() < 0.2
            else draw_flow(seed + (100000 if self.draw.random() < 0.25 else 0))
        )
        self.commands: list[str] = []
        self.runs = 0
        self.options: dict[str, list[str]] = {}
        self.flags: list[str] = []
        self.validates = False
        self.text = self.flow.text()
        self.settle(plain)

    # What is drawn beyond the flow.
    def settle(self, plain: bool) -> None:
        draw, t = self.draw, self.flow.training
        self.names = self.flow.inputs(True)
        calls = [c for a in self.flow.arrows for c in a.calls]
        self.norms = any(c.name == "norm" and c.args.get("kind") == "batch" for c in calls)
        self.random = any(c.name in ACTS_IN_TRAINING or "dropout" in c.args for c in calls)
        if t.optimizer.name in ("adam", "adamw", "lion") or t.optimizer.args.get("momentum"):
            if t.optimizer.name in ("adam", "adamw", "lion", "sgd") and draw.random() < 0.4:
                t.optimizer.args["moments"] = Ref(draw.choice(["bf16", "q8", "q8"]))
        count = len(next(iter(self.flow.streams.values())).data["train"])
        self.uneven = 0 if plain or draw.random() < 0.8 else draw.randint(1, 3)  # samples that one stream lacks
        joint = []
        if t.shuffle is not None:
            joint.append(f"shuffle={t.shuffle}")
        if not plain:
            if draw.random() < 0.25 or self.norms:
                joint.append("rest=drop")
            if draw.random() < 0.15 and count > 12:
                joint.append(f"skip={draw.randint(1, 3)}")
            if draw.random() < 0.15 and count > 12:
                joint.append(f"take={count - draw.randint(1, 6)}")
            if draw.random() < 0.1 and count > 16:
                joint.append(f"shard={draw.randint(0, 1)}/2")
            if draw.random() < 0.12:
                joint.append(f"repeat={draw.randint(2, 3)}")
            if draw.random() < 0.15:
                joint.append(f"seed={draw.randint(0, 99)}")
            for name in self.names:
                s = self.flow.streams[name]
                if len(s.sample) == 3 and draw.random() < 0.6:
                    steps = [
                        "shift(1)",
                        "rotate(20)",
                        "scale(0.2)",
                        "flip",
                        "flip(vertical)",
                        "cutout(2)",
                        "noise(0.05)",
                    ]
                    self.options[name] = ["augment=" + ",".join(draw.sample(steps, draw.randint(1, 3)))]
            self.flags += self.draw_flags(t)
        self.joint = joint
        self.text = self.shape_text(plain)

    def draw_flags(self, t: Training) -> list[str]:
        draw, flags = self.draw, []
        if draw.random() < 0.5:
            self.validates = True
            if draw.random() < 0.3:
                flags += ["--patience", str(draw.randint(1, 3))]
            if draw.random() < 0.15:
                flags += ["--until", f"val.loss<{draw.uniform(0.2, 2):.3f}"]
        if draw.random() < 0.1:
            flags += ["--until", f"loss<{draw.uniform(0.2, 2):.3f}"]
        if draw.random() < 0.1:
            flags += ["--window", str(draw.randint(1, 60)), "--until", f"window.loss<{draw.uniform(0.2, 2):.3f}"]
        if draw.random() < 0.15:
            flags += ["--loss-guard", f"deviations={draw.choice([1, 2, 6])}"]
        if draw.random() < 0.12:
            flags += ["--precision", draw.choice(["bf16", "auto"])]
        targets = [self.flow.streams[x.target] for x in self.flow.taps]
        if targets[0].classes and draw.random() < 0.5:
            flags += [
                "--metric",
                draw.choice(["f1", "precision", "recall(average=none)", "topk(2)", "f1(average=weighted)"]),
            ]
        elif not targets[0].classes and draw.random() < 0.3:
            flags += ["--metric", draw.choice(["r2", "mae", "rmse"])]
        return flags

    def shape_text(self, plain: bool) -> str:
        """The flow, sometimes with a second cycle or a condition."""
        text = self.flow.text()
        self.cycles = 1
        if plain or self.flow.training.flags:
            return text
        head, _, rest = text.partition("  cycle (")
        settings, _, body = rest.partition(") {\n")
        body = body.rpartition("  }\n}\n")[0]
        if self.draw.random() < 0.15:
            self.cycles = 2
            other = copy.copy(self.flow.training)
            other.optimizer = Call(self.draw.choice(["sgd", "adamw", "lion", "normuon"]), {"lr": 0.003})
            other.schedule = Call("constant")
            other.steps, other.epochs = self.draw.randint(2, 9), 0
            flow = copy.copy(self.flow)
            flow.training = other
            more = flow.text().partition("  cycle (")[2].partition(") {\n")[0]
            return f"{head}  cycle ({settings}) {{\n{body}  }}\n  cycle ({more}) {{\n{body}  }}\n}}\n"
        if self.draw.random() < 0.1:
            taps = "".join(f"      {x.text()}\n" for x in self.flow.taps)
            halves = "".join(
                f"      {Tap(x.layer, x.target, [Call(c.name, {**c.args, 'weight': 0.5}) for c in x.losses]).text()}\n"
                for x in self.flow.taps
            )
            body = "".join(f"    {x.text()}\n" for x in self.flow.arrows)
            body += "".join(f"    {Arrow(layer, name, []).text()}\n" for layer, name in self.flow.consumers.items())
            limit = f"{self.draw.uniform(0.5, 2.5):.2f}"
            metric = self.draw.choice(["loss", "val.loss" if self.validates else "loss"])
            branches = f"    if {metric} < {limit} {{\n{halves}    }} else {{\n{taps}    }}\n"
            return f"{head}  cycle ({settings}) {{\n{body}{branches}  }}\n}}\n"
        return text

    # Files and addresses.
    def write(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "flow.hmx").write_text(self.text)
        for s in self.flow.streams.values():
            for part, data in s.data.items():
                path = self.folder / f"{s.name}.{part}.{ENDINGS[s.file]}"
                less = self.uneven if s.name == self.names[-1] and len(data) > 6 else 0
                path.write_bytes(s.raw[part]) if s.raw else np.save(path, data[: len(data) - less])

    def streams(
        self,
        flag: str,
        part: str,
        extra: dict[str, list[str]] | None = None,
        joint: list[str] | None = None,
        source: dict[str, str] | None = None,
        own: bool = True,
    ) -> list[str]:
        words = []
        joint = list(joint or [])
        for name in self.names:
            s = self.flow.streams[name]
            file = (source or {}).get(name, f"file:{name}.{part}.{ENDINGS[s.file]}")
            options = ([s.options] if s.options and not source else []) + (self.options.get(name, []) if own else [])
            options += (extra or {}).get(name, []) + joint
            joint = []
            file, mark, field = file.partition("#")
            join = "&" if "?" in file else "?"
            words += [flag, f"{name}={file}" + (join + "&".join(options) if options else "") + mark + field]
        return words

    def settings(self, without: set[str] = frozenset()) -> list[str]:
        settings = self.flow.settings()
        return [
            w
            for k in sorted(self.flow.training.flags - without)
            if k in settings
            for w in (f"--{k.replace('_', '-')}", settings[k])
        ]

    def command(self, *flags: str, extra: dict | None = None, own: bool = True) -> list[str]:
        given = {f for f in flags if f.startswith("--")}
        mine = self.settings({f[2:].replace("-", "_") for f in given})
        words = [
            self.program,
            "run",
            "flow.hmx",
            *self.streams("--producer", "train", extra, self.joint),
            "--json",
            "--quiet",
            "--no-keep",
            "--deterministic",
        ]
        if own:
            words += self.flags
            if self.validates:
                words += self.streams("--validate", "test", own=False)
        return words + mine + list(flags)

    # Running.
    def environment(self, env: dict[str, str] | None = None) -> dict[str, str]:
        home = str(self.folder.parent / "home")
        return {
            **os.environ,
            "HOME": home,
            "XDG_CACHE_HOME": home,
            "XDG_STATE_HOME": home,
            "XDG_CONFIG_HOME": home,
            **(env or {}),
        }

    def start(
        self, command: list[str], env: dict[str, str] | None = None, stdout=subprocess.PIPE, **more
    ) -> subprocess.Popen:
        self.commands.append(" ".join([f"{k}={v}" for k, v in (env or {}).items()] + [shlex.join(map(str, command))]))
        self.runs += 1
        return subprocess.Popen(
            command, cwd=self.folder, env=self.environment(env), stdout=stdout, stderr=subprocess.PIPE, **more
        )

    def call(
        self, command: list[str], env: dict[str, str] | None = None, codes: tuple[int, ...] = (0,), **more
    ) -> tuple[dict, str]:
        process = self.start(command, env, **more)
        try:
            out, err = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise Wrong(f"no end within {SECONDS} s: {shlex.join(command)}") from None
        self.code = process.returncode
        message = err.decode(errors="replace").strip()
        if process.returncode not in codes:
            kind = Refused if self.runs == 1 and process.returncode in (1, 2, 65, 78) else Wrong
            raise kind(f"exits with {process.returncode}: {message[:700]}")
        lines = out.decode().strip().splitlines()
        return (json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}), message

    def run(self, *flags: str, **more) -> tuple[dict, str]:
        own = more.pop("own", True)
        return self.call(self.command(*flags, extra=more.pop("extra", None), own=own), **more)

    def log(self, name: str, kind: str = "step") -> dict[int, dict]:
        rows = [json.loads(line) for line in (self.folder / name).read_text().splitlines()]
        return {r["step"]: {k: v for k, v in r.items() if k not in TIMES} for r in rows if r["kind"] == kind}

    # Settings that may not change results.
    def otherwise(self) -> dict:
        draw = self.draw
        extra = {
            name: [
                o
                for o in ([f"async={draw.choice([1, 2, 7, 100])}"] if draw.random() < 0.4 else [])
                + (["cache=64M"] if draw.random() < 0.3 else [])
            ]
            for name in self.names
        }
        env = {}
        if draw.random() < 0.3:
            env["HARMONICS_FETCH"] = draw.choice(["program", "processor"])
        if draw.random() < 0.2 and not any(x in self.text + str(self.flow.settings()) for x in ("adam", "normuon")):
            env["HARMONICS_UPDATES"] = draw.choice(["between", "after"])
        return {"extra": extra, "env": env}

    def watching(self, tag: str) -> list[str]:
        draw, flags = self.draw, []
        for p, words in (
            (0.4, ["--log", f"{tag}.w.csv", "--log-every", str(draw.randint(1, 5))]),
            (0.2, ["--tensorboard", f"{tag}.tb"]),
            (0.2, ["--report", f"{tag}.html"]),
            (0.2, ["--plot", f"{tag}.svg"]),
            (0.2 * ("--window" not in self.flags), ["--window", str(draw.randint(1, 60))]),
            (0.2, ["--serve", "127.0.0.1:0"]),
            (0.2, ["--control", f"{tag}.sock"]),
            (0.2, self.streams("--test", "test", own=False)),
        ):
            if draw.random() < p:
                flags += words
        return flags


def wide_flow(draw: random.Random, seed: int) -> Flow:
    """A flow whose matrices are large enough for moments in fewer bits and rounded products."""
    rng = np.random.default_rng(seed)
    width, count, k = draw.choice([32, 64, 100]), draw.randint(100, 260), draw.randint(2, 12)
    data = {p: rng.normal(size=(n, width)).astype("f4") for p, n in (("train", count), ("test", 70), ("infer", 5))}
    flow = Flow(
        "wide",
        seed,
        {"x": Stream("x", "{%d}" % width, data, (width,))},
        {},
        [],
        [],
        Training(Call("adamw"), Call("constant"), 64),
    )
    before = "x"
    for i in range(draw.randint(1, 3)):
        out = draw.choice([64, 96, 128, 200, 256])
        act = Call(draw.choice(["relu", "tanh", "gelu", "silu"]))
        calls = draw.choice(
            [
                [act],
                [act, Call("dropout", {"rate": 0.2})],
                [Call("norm"), Call("affine"), act],
                [Call("affine", {"freeze": True}), act],
            ]
        )
        flow.layers[f"l{i}"] = Layer(f"l{i}", "{%d}" % out, out)
        flow.arrows.append(Arrow(before, f"l{i}", calls))
        before = f"l{i}"
    flow.layers["out"] = Layer("out", "{%d}" % k, k)
    flow.arrows.append(Arrow(before, "out", []))
    y = {p: rng.integers(0, k, len(x)) for p, x in data.items()}
    flow.streams["y"] = Stream("y", "{%d}" % k, y, (), classes=k)
    flow.taps.append(Tap("out", "y", [Call("cross_entropy")]))
    name = draw.choice(["sgd", "adam", "adamw", "adamw", "lion", "lamb", "normuon", "rmsprop"])
    args = {"lr": draw.choice([1e-3, 3e-3, 1e-2])}
    if name == "sgd":
        args["momentum"] = 0.9
    t = Training(
        Call(name, args),
        Call(draw.choice(["constant", "cosine", "wsd"]), {"warmup": draw.randint(0, 6)}),
        draw.choice([16, 32, 64, 100]),
        draw.randint(0, 999),
        draw.choice([1, 1, 2, 3]),
        steps=draw.randint(4, 14),
    )
    t.clip = draw.choice([0, 0, 1.0])
    flow.training = t
    return flow


def control(path: Path, process: subprocess.Popen, *requests: dict) -> list[dict]:
    """Sends requests to the control socket; stops if the run ends."""
    replies: list[dict] = []
    until = time.monotonic() + 20
    while time.monotonic() < until:
        if process.poll() is not None:
            return replies
        try:
            with socket.socket(socket.AF_UNIX) as s:
                s.settimeout(20)
                s.connect(os.path.relpath(path))
                f = s.makefile("rw")
                for r in requests:
                    f.write(json.dumps(r) + "\n")
                    f.flush()
                    line = f.readline()
                    if not line:
                        return replies
                    replies.append(json.loads(line))
                return replies
        except (FileNotFoundError, ConnectionRefusedError, ConnectionResetError, BrokenPipeError):
            time.sleep(0.002)
    return replies


def finished(c: Case, process: subprocess.Popen, codes: tuple[int, ...]) -> str:
    out, err = process.communicate(timeout=SECONDS)
    message = err.decode(errors="replace")
    need(process.returncode in codes, f"exits with {process.returncode}: {message[:600]}")
    return message


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main(what: str, kind: type, relations: dict, turns: list[str], plain: set[str]) -> int:
    options = argparse.ArgumentParser(description=what, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("program")
    options.add_argument("--seeds", default="0-299", metavar="FIRST-LAST")
    options.add_argument("--folder", type=Path, help="keep the files of violations here")
    options.add_argument("--only", choices=relations)
    a = options.parse_args()
    first, _, last = a.seeds.partition("-")
    program, folder = (
        str(Path(a.program).resolve()),
        (a.folder or Path(tempfile.mkdtemp(prefix="random_runs-"))).resolve(),
    )
    wrong, refused, counts, runs = [], collections.Counter(), collections.Counter(), 0
    for seed in range(int(first), int(last or first) + 1):
        name = a.only or turns[(seed // len(turns) + seed) % len(turns)]
        place = folder / str(seed)
        shutil.rmtree(place, ignore_errors=True)
        case = kind(program, seed, place, name in plain)
        try:
            case.write()
            relations[name](case)
            counts[name] += 1
        except Refused as e:
            lines = str(e).splitlines()
            refused[next((x for x in lines if "error:" in x), lines[0])[:150]] += 1
        except Exception as e:  # whatever fails is shown with its case
            wrong.append(seed)
            text = str(e) if isinstance(e, Wrong) else repr(e)
            print(
                f"WRONG seed {seed} {name} : {text}\n{case.text}cd {place}\n" + "\n".join(case.commands) + "\n",
                flush=True,
            )
        runs += case.runs
        if seed not in wrong:
            shutil.rmtree(place, ignore_errors=True)
    print(f"{runs} runs, violations: {wrong or 'none'}; " + ", ".join(f"{k} {v}" for k, v in sorted(counts.items())))
    for text, count in refused.most_common(12):
        print(f"refused {count}: {text}")
    return 1 if wrong else 0
