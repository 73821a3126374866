"""The samples of a case as files of other formats, through pipes, sockets and ZeroMQ."""

from __future__ import annotations

import gzip
import json

import numpy as np

from case import Case, finished, free_port, same_tensors, same_values


def plain_rows(c: Case) -> list[dict]:
    n = len(c.flow.streams[c.names[0]].data["train"])
    return [{name: c.flow.streams[name].data["train"][i].tolist() for name in c.names} for i in range(n)]


def check_transports(c: Case) -> None:
    """The same samples as other files, through pipes and sockets."""
    if any(s.raw or s.positions for s in c.flow.streams.values()):
        return
    if c.flow.training.batch > len(plain_rows(c)):  # a stream of unknown length keeps the larger batch: other last bits
        return
    c.joint, c.options, c.flags, c.validates = [], {}, [], False
    base = [
        c.program,
        "run",
        "flow.hmx",
        "--json",
        "--quiet",
        "--no-keep",
        "--epochs",
        "1",
        "--schedule",
        "constant",
        *c.settings({"epochs", "schedule"}),
    ]
    out, _ = c.call([*base, *c.streams("--producer", "train", joint=["shuffle=0"]), "--save", "a.safetensors"])
    rows = plain_rows(c)
    types = {name: str(c.flow.streams[name].data["train"].dtype) for name in c.names}
    (c.folder / "d.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    with gzip.open(c.folder / "d.jsonl.gz", "wt") as f:
        f.write((c.folder / "d.jsonl").read_text())
    np.savez(c.folder / "d.npz", **{name: c.flow.streams[name].data["train"] for name in c.names})

    def compare(what: str, words: list[str], **more) -> None:
        process = more.pop("feeder", None)
        got, err = c.call([*base, *words, "--save", "t.safetensors"], **more)
        if process:
            finished(c, process, (0,))
        same_tensors(c.folder / "a.safetensors", c.folder / "t.safetensors", what)
        same_values(out, got, what, {"steps", "samples", "loss", "accuracy"})

    u8 = {name: ["dtype=u8"] if types[name] == "uint8" and not c.flow.streams[name].classes else [] for name in c.names}
    numbers = {
        name: ["as=number"] if types[name] == "int32" and not c.flow.streams[name].classes else [] for name in c.names
    }
    which = c.draw.sample(["npz", "jsonl", "jsonl.gz", "unix", "tcp", "zmq", "hxs", "pipe"], 4)
    for kind in which:
        if kind == "npz":
            compare(
                kind,
                c.streams("--producer", "train", source={n: f"file:d.npz#{n}" for n in c.names}, joint=["shuffle=0"]),
            )
        elif kind.startswith("jsonl"):
            compare(
                kind,
                c.streams(
                    "--producer",
                    "train",
                    {n: u8[n] + numbers[n] for n in c.names},
                    ["shuffle=0"],
                    {n: f"file:d.{kind}#{n}" for n in c.names},
                ),
            )
        elif kind == "pipe":
            if any(u8.values()):
                continue
            first = c.names[0]
            words = [
                w for n in c.names for w in ("--producer", f"{n}=stdin:#{n}" if n == first else f"{n}={first}#{n}")
            ]
            compare(kind, words, stdin=open(c.folder / "d.jsonl", "rb"))
        elif kind == "hxs":
            with open(c.folder / "d.hxs", "wb") as f:
                finished(
                    c, c.start([c.program, "send", "stdout:?format=hxs", "--quiet", *from_files(c)], stdout=f), (0,)
                )
            compare(
                kind,
                c.streams("--producer", "train", source={n: f"file:d.hxs#{n}" for n in c.names}, joint=["shuffle=0"]),
            )
        else:
            port = free_port()
            here = {"unix": "unix:s.sock", "tcp": f"tcp:127.0.0.1:{port}", "zmq": f"zmq+router://127.0.0.1:{port}"}[
                kind
            ]
            there = here.replace("router", "dealer")
            feeder = c.start([c.program, "send", there, "--quiet", *from_files(c)])
            spool = ["--spool", f"spool.{kind}"] if c.draw.random() < 0.4 else []
            compare(
                f"{kind} {spool}",
                [w for n in c.names for w in ("--producer", f"{n}={here}#{n}")] + spool,
                feeder=feeder,
            )


def from_files(c: Case) -> list[str]:
    return [w for n in c.names for w in ("--from", f"{n}=file:{n}.train.npy")]
