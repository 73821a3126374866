#!/usr/bin/env python3
"""Learning live beside learning from memory: live_training.py HARMONICS [--pairs N] [--epochs N] [--batch N] [--json FILE].

The MLP 784-392-196-10, plain SGD, one thread, MNIST's training set in the order of its files: from mapped IDX files, and from a sender of the
same files over ZeroMQ (DEALER and ROUTER with credit, checksums and acknowledgements) whose processor is the other one. In turns; the rate is
that of the steps after the first eighth, by the run's own log. Prints each pair, the medians, and processor seconds of both ends for a million
samples. HARMONICS_TEST_DATA names the folder above mnist/; without it random files of the same size and shape.
"""
import argparse
import csv
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from startup import NAMES, prepare

SECONDS = 300  # the longest a run may take
FLOW = """harmonic live_mlp {
  producer image {784}; producer label {10} 1/1 image;
  layer a {392}; layer b {196}; layer output;
  cycle { image -(relu)-> a -(relu)-> b -> output; output <-(cross_entropy)- label; }
}
"""


def processors():
    """Returns one processor for the learner and the others for the sender."""
    mine = sorted(os.sched_getaffinity(0))
    return {mine[0]}, set(mine[1:]) or {mine[0]}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def begin(command, on, errors):
    return subprocess.Popen([str(c) for c in command], stdout=subprocess.DEVNULL, stderr=errors, preexec_fn=lambda: os.sched_setaffinity(0, on))


def end(process, errors):
    """Returns the CPU seconds of a process that has ended."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(process.args)}\nended with {process.returncode}: {Path(errors.name).read_text()}")
    return usage.ru_utime + usage.ru_stime


def rate(log):
    rows = [(int(r["samples"]), float(r["seconds"])) for r in csv.DictReader(open(log)) if r["kind"] == "step"]
    rows = rows[len(rows) // 8:]
    return (rows[-1][0] - rows[0][0]) / (rows[-1][1] - rows[0][1])


def learn(a, folder, live):
    """Samples a second, processor seconds of the learner and of the sender for a million samples, and the weights."""
    learner_on, sender_on = processors()
    log, weights = folder / "steps.csv", folder / "weights.safetensors"
    whole = 60000 // a.batch * a.batch  # no short batch ends a pass: both learn the same samples
    steps = whole // a.batch * a.epochs
    files = [f"file:{folder / name}?take={whole}" for name in NAMES]
    streams = [f"{f}&shuffle=0" for f in files]
    if live:
        address = f"//127.0.0.1:{free_port()}"
        streams = [f"zmq+router:{address}#image", f"zmq+router:{address}#label"]
    command = ["timeout", SECONDS, a.harmonics, "run", folder / "flow.hmx", "--producer", f"image={streams[0]}", "--producer", f"label={streams[1]}",
               "--threads", 1, "--batch", a.batch, "--steps", steps, "--epochs", a.epochs + 1, "--optimizer", "sgd", "--lr", 0.1, "--log", log, "--log-every", 100, "--save", weights, "-q"]
    sender = None
    with open(folder / "learner.err", "w") as errors, open(folder / "sender.err", "w") as sent:
        learner = begin(command, learner_on, errors)
        if live:
            repeated = [f"{f}&repeat={a.epochs}" for f in files]
            sender = begin(["timeout", SECONDS, a.harmonics, "send", f"zmq+dealer:{address}", "--from", f"image={repeated[0]}", "--from", f"label={repeated[1]}", "-q"], sender_on, sent)
        learned = end(learner, errors)
        if sender:
            os.kill(sender.pid, signal.SIGTERM)  # it may have exited without being waited for
            _, _, usage = os.wait4(sender.pid, 0)
            sender.returncode = 0
    scale = 1e6 / (steps * a.batch)
    return rate(log), learned * scale, (usage.ru_utime + usage.ru_stime) * scale if sender else 0, weights.read_bytes()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("harmonics")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--json", help="write the pairs here as well")
    a = parser.parse_args()
    pairs = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        (folder / "flow.hmx").write_text(FLOW)
        print(f"{'from memory':>12} {'live':>12} {'ratio':>7}   processor seconds for a million samples")
        for _ in range(a.pairs):
            memory, live = learn(a, folder, False), learn(a, folder, True)
            pairs.append({"memory": memory[0], "live": live[0], "ratio": live[0] / memory[0], "memory_cpu": memory[1], "live_cpu": live[1], "sender_cpu": live[2]})
            print(f"{memory[0]:>10,.0f}/s {live[0]:>10,.0f}/s {live[0] / memory[0]:>7.3f}   {memory[1]:.2f} from memory, {live[1]:.2f} live and {live[2]:.2f} of the sender"
                  f"{'' if memory[3] == live[3] else '; the weights differ'}", flush=True)
    print(f"median ratio {statistics.median(p['ratio'] for p in pairs):.3f} (wanted 0.9), batch {a.batch}")
    if a.json:
        Path(a.json).write_text(json.dumps(pairs, indent=1))


if __name__ == "__main__":
    main()
