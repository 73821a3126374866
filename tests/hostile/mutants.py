#!/usr/bin/env python3
"""Changes valid files of every format at random and gives them to the program: mutants.py --program FILE [--mutants N] [--seed N].

Each mutant is read, or refused with an exit code that docs/cli.md documents for data. A signal, code 70, more than 10 seconds
or more memory than --most-memory is a failure: its file is kept and printed with the command. Needs no packages.

--lying instead: every length at the head of a file lies, one after the other, in files of up to 1 MB. What is refused may cost
at most 10 ms and 64 MiB more than reading the valid file: the processor time of the whole process, its memory at most.
"""
from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import random
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ALLOWED = {0, 1, 2, 65, 66, 73, 75, 78}  # done, failed, wrong use, bad data, no input, cannot write, resumable, invalid flow
SECONDS = 10
HUGE = [0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 40, (1 << 63) - 1, (1 << 64) - 1]
NUMBERS = [b"0", b"-1", b"65536", b"2147483647", b"4294967296", b"9223372036854775807", b"18446744073709551616", b"1e400", b"NaN"]


def idx(rows: int = 20) -> bytes:
    return bytes([0, 0, 8, 3]) + struct.pack(">3I", rows, 4, 4) + bytes(i % 251 for i in range(rows * 16))


def npy(dtype: str = "<f4", rows: int = 12, width: int = 3) -> bytes:
    size = int(dtype[2:])
    head = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': ({rows}, {width}), }}".encode()
    head += b" " * (63 - (10 + len(head)) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + bytes(i % 63 for i in range(rows * width * size))


def png(side: int = 6) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\x00" + bytes((x * 40 + y) % 256 for x in range(side)) for y in range(side))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">2I5B", side, side, 8, 0, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def safetensors() -> bytes:
    head = json.dumps({"a": {"dtype": "F32", "shape": [4, 3], "data_offsets": [0, 48]},
                       "b": {"dtype": "I64", "shape": [2], "data_offsets": [48, 64]}}).encode()
    return struct.pack("<Q", len(head)) + head + bytes(64)


def npz() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("x.npy", npy())
        z.writestr("y.npy", npy("<i8", 12, 1))
    return out.getvalue()


FLOW = b"""harmonic m {
  producer x {3};
  producer y {1};
  layer h {8};
  layer o {1};
  cycle (epochs 1, batch=4, lr=1e-3) { x -(relu, dropout(0.1))-> h; h -(affine)-> o; o <-(mse(weight=0.5))- y; if loss < 0.1 { h -> o; } }
}
"""
TOML = b"""seed = 7
[run]
epochs = 2
optimizer = "adam"
producer = ["x=a.csv", "y=b.csv"]
[infer]
batch = 4
"""


class Format:
    def __init__(self, name: str, seed: bytes, commands: list[str], text: bool = False):
        self.name, self.seed, self.commands, self.text = name, seed, commands, text


def formats(program: str, folder: Path) -> list[Format]:
    rows = "".join(f"{i},{i * 0.5},{'ab'[i % 2]}\n" for i in range(20)).encode()
    numbers = "".join(f"{i},{i * 0.5}\n" for i in range(20)).encode()
    lines = "".join(json.dumps({"x": [i, 2, 3], "y": i % 3}) + "\n" for i in range(20)).encode()
    look = ["inspect {}"]
    (folder / "flow.hmx").write_bytes(FLOW)
    (folder / "x.csv").write_bytes(b"".join(b"%d,%d,%d\n" % (i, i * 2 % 7, i % 5) for i in range(16)))
    (folder / "y.csv").write_bytes(b"".join(b"%d\n" % (i % 3) for i in range(16)))
    data = f"--producer x={folder}/x.csv --producer y={folder}/y.csv"
    run = f"{program} run {folder}/flow.hmx {data} --quiet"
    subprocess.run(f"{run} --save {folder}/w.safetensors --checkpoint {folder}/kept --every 2steps && "
                   f"{program} send 'stdout:?format=hxs' --quiet --from x={folder}/x.csv >{folder}/s.hxs", shell=True, check=True)
    saved = (folder / "w.safetensors").read_bytes()
    kept = max((folder / "kept").glob("*.safetensors")).read_bytes()
    frames = (folder / "s.hxs").read_bytes()
    infer = f"infer {folder}/flow.hmx --producer x={folder}/x.csv --weights {{}} --quiet"
    return [
        Format("idx", idx(), look), Format("idx.gz", gzip.compress(idx()), look),
        Format("csv", b"a,b,c\n" + rows, ["inspect {}#a,b", "inspect {}#c"], True), Format("tsv", numbers.replace(b",", b"\t"), look, True),
        Format("jsonl", lines, look, True), Format("npy", npy(), look), Format("npz", npz(), ["inspect {}#x", "inspect {}#y"]), Format("png", png(), look),
        Format("safetensors", safetensors(), look), Format("txt", b"some words of text\nand more\n" * 8, look, True),
        Format("txt.gz", gzip.compress(b"words " * 99), look), Format("hxs", frames, look),
        Format("hmx", FLOW, ["validate {}", "explain {}", f"run {{}} {data} --quiet --epochs 1"], True),
        Format("toml", TOML, [f"validate {folder}/flow.hmx --config {{}}"], True),
        Format("safetensors", saved, [infer, "inspect {}"]),
        Format("safetensors", kept, ["ckpt show {}", infer, "ckpt verify {}"]),
    ]


def mutate(seed: bytes, text: bool, draw: random.Random) -> bytes:
    b = bytearray(seed)
    for _ in range(draw.choice([1, 1, 1, 2, 3, 8])):
        at = draw.randrange(len(b) + 1)
        kind = draw.randrange(9)
        if kind == 0 and b:
            b[at % len(b)] ^= 1 << draw.randrange(8)
        elif kind == 1:
            width = draw.choice("BHIQ")
            size = struct.calcsize(width)
            value = draw.choice(HUGE) & ((1 << 8 * size) - 1)
            b[at : at + size] = struct.pack(draw.choice("<>") + width, value)
        elif kind == 2:
            del b[at:]
        elif kind == 3:
            b += bytes(draw.randrange(256) for _ in range(draw.randrange(1, 64)))
        elif kind == 4:
            end = min(len(b), at + draw.randrange(1, 64))
            b[at:at] = bytes(b[at:end]) * draw.choice([1, 2, 100])
        elif kind == 5:
            del b[at : at + draw.randrange(1, 32)]
        elif kind == 6:  # a number, in texts and in the headers of binary formats
            digits = [i for i in range(len(b)) if 48 <= b[i] <= 57]
            if digits:
                i = draw.choice(digits)
                end = i
                while end < len(b) and 48 <= b[end] <= 57:
                    end += 1
                b[i:end] = draw.choice(NUMBERS)
        elif kind == 7 and text:
            b[at:at] = draw.choice([b"[", b"{", b"(", b'"', b"\\", b",", b"\r", b"\0", b"\xff", b"\x1b]0;x\x07", b"//", b"#"]) * draw.choice([1, 2, 500])
        elif kind == 8:
            other = draw.randrange(len(b) + 1)
            lo, hi = sorted((at, other))
            b[lo:hi] = bytes(reversed(b[lo:hi])) if hi - lo < 64 else b[lo:hi][: (hi - lo) // 2]
    return bytes(b[: 1 << 20])


def lying(kind: Format, places: int) -> list[tuple[int, int, bytes]]:
    """Replaces each number near the start of the file by impossible lengths. Yields begin, end and the bytes."""
    changes = []
    if kind.text:
        at = 0
        while at < len(kind.seed) and len(changes) < places * 4:
            end = at
            while end < len(kind.seed) and 48 <= kind.seed[end] <= 57:
                end += 1
            if end > at:
                changes += [(at, end, n) for n in NUMBERS]
            at = end + 1
    else:
        for at in range(min(len(kind.seed), places)):
            for form in ("<H", "<I", ">I", "<Q", ">Q"):
                size = struct.calcsize(form)
                most = (1 << 8 * size) - 1
                changes += [(at, at + size, struct.pack(form, v)) for v in (most, most >> 1, (most >> 4) + 1)]
    return changes


def attempt(words: list[str], memory: int, environment: dict[str, str]) -> tuple[int, float, float, bytes, float]:
    """Returns exit code (-N: signal N; 124: too slow), seconds, MiB, output and CPU seconds."""
    began = time.monotonic()
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said, env=environment,
                                 preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (memory, memory)))
        while True:
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() - began > SECONDS:
                child.kill()
                os.wait4(child.pid, 0)
                child.returncode = 124
                return 124, SECONDS, 0, b"", SECONDS
            time.sleep(0.002)
        child.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        return child.returncode, time.monotonic() - began, usage.ru_maxrss / 1024, said.read(400), usage.ru_utime + usage.ru_stime


def tell_lies(kinds: list[Format], program: str, folder: Path, keep: Path, environment: dict[str, str], a) -> int:
    failures = total = 0
    print(f"{'format':12} {'files':>8} {'refused':>8} {'time':>10} {'memory':>10}   (most of what was refused, over the valid file)", flush=True)
    for n, kind in enumerate(kinds):
        command = kind.commands[0]

        def one(job: tuple[int, tuple[int, int, bytes]]):
            number, (begin, end, instead) = job
            path = folder / f"{n}-{number}.{kind.name}"
            with path.open("wb") as file:
                file.write(kind.seed[:begin] + instead + kind.seed[end:])
                if number % 3 == 2 and not kind.text:
                    file.truncate(1_000_000)
            words = [program, *command.format(path).split()]
            result = attempt(words, 6 << 30, environment)
            return path, words, result

        valid = [one((-3 - 3 * i, (0, 0, b"")))[2] for i in range(5)]
        time_of_valid, memory_of_valid = min(v[4] for v in valid), max(v[2] for v in valid)
        refused, slowest, largest = 0, 0.0, 0.0
        files = lying(kind, a.places)
        with ThreadPoolExecutor(a.jobs) as pool:
            for path, words, result in pool.map(one, enumerate(files)):
                code, bad = result[0], result[0] not in ALLOWED
                if code != 0 and not bad:
                    refused += 1
                    seconds = result[4] - time_of_valid
                    if seconds >= 0.01:  # the fastest of five, to exclude other load on the machine
                        seconds = min(attempt(words, 6 << 30, environment)[4] for _ in range(5)) - time_of_valid
                    memory = result[2] - memory_of_valid
                    slowest, largest = max(slowest, seconds), max(largest, memory)
                    bad = seconds >= 0.01 or memory >= 64
                if bad:
                    failures += 1
                    shutil.copy(path, keep)
                    if failures <= 20:
                        print(f"FAILURE: {' '.join(words)}: code {code}, {result[4] * 1e3:.0f} ms, {result[2]:.0f} MiB\n  {result[3].decode(errors='replace')}", flush=True)
                path.unlink()
        total += len(files)
        print(f"{kind.name:12} {len(files):8} {refused:8} {slowest * 1e3:7.1f} ms {largest:6.1f} MiB", flush=True)
    print(f"{total} files whose lengths lie, {failures} failures" + (f", their files in {keep}" if failures else ""))
    if not failures:
        shutil.rmtree(folder)
    return 1 if failures else 0


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--program", required=True)
    options.add_argument("--mutants", type=int, default=20000)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--jobs", type=int, default=os.cpu_count())
    options.add_argument("--lying", action="store_true")
    options.add_argument("--places", type=int, default=128, help="with --lying: how many bytes of a file's head")
    options.add_argument("--most-memory", type=float, default=512, metavar="MIB", help="of a process that reads a mutant")
    options.add_argument("--keep", type=Path, default=None, help="where the files of failures are kept")
    a = options.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="mutants-"))
    keep = a.keep or folder / "failures"
    keep.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "HOME": str(folder)}
    program = str(Path(a.program).resolve())
    kinds = formats(program, folder)
    counts: dict[str, list[float]] = {}
    failures = 0

    def one(n: int):
        draw = random.Random(a.seed << 32 | n)
        kind = kinds[n % len(kinds)]
        path = folder / f"{n}.{kind.name}"
        path.write_bytes(mutate(kind.seed, kind.text, draw))
        command = draw.choice(kind.commands).format(path)
        result = attempt([program, *command.split()], 6 << 30, environment)
        bad = result[0] not in ALLOWED or result[2] > a.most_memory
        if bad:
            shutil.copy(path, keep)
        path.unlink()
        return kind.name, command, bad, result

    for n, kind in enumerate(kinds):
        path = folder / f"seed{n}.{kind.name}"
        path.write_bytes(kind.seed)
        for command in kind.commands:
            code, _, _, said, _ = attempt([program, *command.format(path).split()], 6 << 30, environment)
            if code != 0:
                sys.exit(f"an unchanged file is refused: {command.format(path)}: code {code}\n{said.decode(errors='replace')}")
    if a.lying:
        return tell_lies(kinds, program, folder, keep, environment, a)
    print(f"mutants: {a.mutants} of {len(kinds)} files, seed {a.seed}", flush=True)
    with ThreadPoolExecutor(a.jobs) as pool:
        for name, command, bad, (code, seconds, memory, said, _) in pool.map(one, range(a.mutants)):
            row = counts.setdefault(name, [0, 0, 0, 0])
            row[0] += 1
            row[1] += code == 0
            row[2], row[3] = max(row[2], seconds), max(row[3], memory)
            if bad:
                failures += 1
                print(f"FAILURE: {command}: code {code}, {seconds:.2f} s, {memory:.0f} MiB\n  {said.decode(errors='replace')}", flush=True)
    print(f"{'format':12} {'mutants':>8} {'read':>8} {'slowest':>9} {'largest':>9}")
    for name, (n, fine, seconds, memory) in sorted(counts.items()):
        print(f"{name:12} {n:8.0f} {fine:8.0f} {seconds:7.2f} s {memory:5.0f} MiB")
    print(f"{sum(int(r[0]) for r in counts.values())} mutants, {failures} failures" + (f", their files in {keep}" if failures else ""))
    if not failures:
        shutil.rmtree(folder)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
