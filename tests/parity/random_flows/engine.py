"""Runs the program: stream files, command lines, outputs."""
from __future__ import annotations

import json
import shlex
import struct
import subprocess
from pathlib import Path

import numpy as np

from flow import Flow, Stream
from training import Outcome

DTYPES = {"F32": np.float32, "F64": np.float64, "I64": np.int64, "I32": np.int32, "U8": np.uint8}
ENDINGS = {"text": "txt", "tokens": "bin", "npy": "npy"}
MOMENT = "moment/optimizer.momentum."
SECONDS = 120


def number(value: float | None) -> float:
    return float("nan") if value is None else value


class EngineFailed(Exception):
    pass


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    data = path.read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    tensors = {}
    for name, row in json.loads(data[8 : 8 + size]).items():
        if name != "__metadata__":
            first, last = row["data_offsets"]
            content = data[8 + size + first : 8 + size + last]
            tensors[name] = np.frombuffer(content, DTYPES[row["dtype"]]).reshape(row["shape"])
    return tensors


class Engine:
    def __init__(self, program: str, flow: Flow, folder: Path, flags: tuple[str, ...] = ()):
        self.program, self.flow, self.folder, self.flags = program, flow, folder, flags

    def write_files(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "flow.hmx").write_text(self.flow.text())
        for s in self.flow.streams.values():
            for part, data in s.data.items():
                path = self.folder / self._file(s, part)
                path.write_bytes(s.raw[part]) if s.raw else np.save(path, data)

    @staticmethod
    def _file(s: Stream, part: str) -> str:
        return f"{s.name}.{part}.{ENDINGS[s.file]}"

    def _streams(self, flag: str, part: str, taps: bool = True) -> list[str]:
        words, joint = [], []
        if part == "train" and self.flow.training.shuffle is not None:
            joint = [f"shuffle={self.flow.training.shuffle}"]
        for name in self.flow.inputs(taps):
            s = self.flow.streams[name]
            options = "&".join(filter(None, [s.options, *joint]))
            words += [flag, f"{name}=file:{self._file(s, part)}" + (f"?{options}" if options else "")]
            joint = []
        return words

    def _consumers(self, part: str) -> list[str]:
        names = self.flow.consumers
        layers = names if part == "train" else self.flow.ends()
        addresses = [(f"{names[x]}=" if x in names else "") + f"file:{x}.{part}.npy" for x in layers]
        return [w for address in addresses for w in ("--consumer", address)]

    def _settings(self, without: tuple[str, ...] = ()) -> list[str]:
        settings, flags = self.flow.settings(), self.flow.training.flags - set(without)
        return [w for k in sorted(flags) if k in settings for w in (f"--{k.replace('_', '-')}", settings[k])]

    def run_command(self) -> list[str]:
        return [self.program, "run", "flow.hmx", *self._streams("--producer", "train"),
                *self._streams("--test", "test"), *self._consumers("train"), "--save", "weights.safetensors", "--log",
                "log.jsonl", "--log-every", "1", "--json", "--quiet", "--threads", "1", *self._settings(), *self.flags]

    def gradient_command(self) -> list[str]:
        """A step of one batch; its gradients are stored in the checkpoint as the momentum of SGD."""
        return [self.program, "run", "flow.hmx", *self._streams("--producer", "train"), *self._consumers("train"),
                "--quiet", "--threads", "1", "--optimizer", "sgd(lr=1e-30, momentum=0.5)", "--schedule", "constant",
                "--clip", "0", "--clip-value", "0", "--accumulate", "1", "--steps", "1", "--checkpoint", "checkpoints",
                *self._settings(("optimizer", "schedule", "clip", "clip_value", "accumulate", "steps")), *self.flags]

    def infer_command(self) -> list[str]:
        return [self.program, "infer", "flow.hmx", "--weights", "weights.safetensors",
                *self._streams("--producer", "infer", False), *self._consumers("out"), "--quiet", "--threads", "1",
                "--batch", str(1 + self.flow.seed % 5)]

    def reproduction(self, gradients: bool) -> str:
        commands = [self.gradient_command()] if gradients else [self.run_command(), self.infer_command()]
        return "\n".join([f"cd {self.folder}", *map(shlex.join, commands)])

    def call(self, command: list[str]) -> str:
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=SECONDS)
        if done.returncode != 0:
            raise EngineFailed(f"{command[1]} exits with {done.returncode}: {done.stderr.strip()[:600]}")
        return done.stdout

    def train(self, out: Outcome) -> None:
        summary = json.loads(self.call(self.run_command()).strip().splitlines()[-1])
        out.test_loss = number(summary["test_loss"])
        out.test_accuracy = number(summary["test_accuracy"])
        out.weights = read_safetensors(self.folder / "weights.safetensors")
        rows = [json.loads(line) for line in (self.folder / "log.jsonl").read_text().splitlines()]
        out.losses = [number(r["metrics"].get("loss")) for r in rows if r["kind"] == "step"]

    def infer(self, out: Outcome) -> None:
        self.call(self.infer_command())
        out.results = {name: np.load(self.folder / f"{name}.out.npy") for name in self.flow.ends()}

    def gradients(self) -> dict[str, np.ndarray]:
        self.call(self.gradient_command())
        tensors = read_safetensors(next((self.folder / "checkpoints").glob("*.safetensors")))
        return {name[len(MOMENT):]: x for name, x in tensors.items() if name.startswith(MOMENT)}

    def run(self) -> Outcome:
        out = Outcome()
        self.train(out)
        self.infer(out)
        return out
