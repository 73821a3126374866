#!/usr/bin/env python3
"""Loads a server of language models with streaming clients: time to first token and gaps between tokens.

    tests/bench/streaming_clients.py --clients 50 --tokens 64 -- harmonics serve MODEL.gguf --sequences 50
    tests/bench/streaming_clients.py --clients 50 --tokens 64 -- python -m llama_cpp.server --model MODEL.gguf

Starts the command with --listen or --host and --port added, waits until it answers, and sends every client's request at
once: the first round meets a cold server, later ones a warm one. A gap is the time between two pieces of text of one
client, and is shown over the median of that client's gaps; with --most N the script fails if a warm server's is larger.
With --cores, server and clients run on these processors. --beside COMMAND loads that server in turn with the first.
"""
import argparse
import asyncio
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def request_text(path, body):
    text = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n"
    return (head + "Connection: close\r\n\r\n").encode() + text


async def one_client(port, number, options, results):
    prompt = (f"Client number {number} asks for a long text about the sea. " * 10)[: options.prompt]
    body = {"prompt": prompt, "max_tokens": options.tokens, "temperature": 0, "stream": True,
            "logit_bias": {str(t): -100 for t in options.without}}
    begin = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request_text("/v1/completions", body))
    times, failed = [], ""
    while line := await reader.readline():
        if line.startswith(b"HTTP/1.1") and b" 200 " not in line:
            failed = line.decode().strip()
        if line.startswith(b"data:") and b"[DONE]" not in line:
            piece = json.loads(line[5:])
            if piece.get("choices") and piece["choices"][0].get("text"):
                times.append(time.perf_counter())
    writer.close()
    if failed or not times:
        results.append({"failed": failed or "no text"})
        return
    gaps = [later - earlier for earlier, later in zip(times, times[1:])]
    results.append({"first": times[0] - begin, "gaps": gaps, "end": times[-1] - begin})


async def one_round(port, options):
    results = []
    await asyncio.gather(*(one_client(port, i, options, results) for i in range(options.clients)))
    return results


def quantile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def report(name, results):
    good = [r for r in results if "failed" not in r]
    bad = [r["failed"] for r in results if "failed" in r]
    if not good:
        print(f"{name}: all failed: {bad[0]}")
        return float("inf")
    first = [r["first"] for r in good]
    gaps = [gap for r in good for gap in r["gaps"]]
    # A client's gap relative to that client's median.
    worst = max((max(r["gaps"]) / quantile(r["gaps"], 0.5) for r in good if r["gaps"]), default=0)
    seconds = max(r["end"] for r in good)
    pieces = len(gaps) + len(good)
    print(f"{name}: first token median {quantile(first, 0.5) * 1e3:.0f} ms, p99 {quantile(first, 0.99) * 1e3:.0f} ms; "
          f"gap median {quantile(gaps, 0.5) * 1e3:.1f} ms, p99 {quantile(gaps, 0.99) * 1e3:.1f} ms, "
          f"largest {max(gaps) * 1e3:.1f} ms = {max(gaps) / quantile(gaps, 0.5):.1f} medians "
          f"({worst:.1f} of one client's); {pieces / seconds:.0f} pieces/s; {len(bad)} failed")
    if os.environ.get("STREAMING_CLIENTS_TRACE"):
        for r in good:
            print([round(gap * 1e3) for gap in r["gaps"]])
    return worst


def wait_for(port, server):
    for _ in range(600):
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return
        except OSError:
            if server.poll() is not None:
                raise SystemExit("the server has ended")
            time.sleep(0.1)
    raise SystemExit("the server does not answer")


def load(command, options, prefix=""):
    """Runs rounds against a separate server. Returns the largest gap of the warm rounds, in medians."""
    command, port, worst = list(command), free_port(), 0
    if "llama_cpp.server" in command:
        command += ["--host", "127.0.0.1", "--port", str(port)]
    else:
        command += ["--listen", f"127.0.0.1:{port}", "--queue", str(options.clients)]
    server_cores = options.cores.partition("/")[0]
    if server_cores:
        command = ["taskset", "-c", server_cores] + command
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(port, server)
        for number in range(options.rounds):
            name = prefix + ("cold" if number == 0 else f"warm {number}")
            gap = report(name, asyncio.run(one_round(port, options)))
            worst = max(worst, gap if number else 0)
    finally:
        server.send_signal(signal.SIGINT)
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--prompt", type=int, default=120, help="characters")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--without", type=int, nargs="*", default=[256, 257], help="tokens that no text has: its ends")
    parser.add_argument("--starts", type=int, default=1, help="how often the server is started")
    parser.add_argument("--most", type=float, default=0, help="largest gap of a client of a warm server, in medians")
    parser.add_argument("--beside", default="", help="the command of another server, in one argument")
    parser.add_argument("--cores", default="", help="SERVER/CLIENTS, such as 1/0 or 0,1/0")
    parser.add_argument("server", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    command = [part for part in options.server if part != "--"]
    client_cores = options.cores.partition("/")[2]
    if client_cores:
        os.sched_setaffinity(0, {int(core) for core in client_cores.split(",")})
    worst = 0
    for _ in range(options.starts):
        worst = max(worst, load(command, options))
        if options.beside:
            load(shlex.split(options.beside), options, "beside: ")
    if options.most and worst > options.most:
        raise SystemExit(f"a client waited {worst:.1f} times its median gap; at most {options.most:g} is allowed")


if __name__ == "__main__":
    sys.exit(main())
