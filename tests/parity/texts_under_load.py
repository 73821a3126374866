#!/usr/bin/env python3
"""Compares texts of a loaded language-model server with those of an idle one: texts_under_load.py HARMONICS MODEL
[--tokenizer FILE] [--seed N] [--clients N] [--requests N] [-- FLAGS OF SERVE]. HARMONICS is the program. Run by hand.

An idle server answers random prompts, one at a time. Then many clients ask a server with the given flags, for instance
`--sequences 8 --cache-memory 760K` or `--lookup 6`, for the same texts; every fourth request is a stream whose client
disconnects at a random place. Texts, log-probabilities and reasons of their ends must be equal. At its end the server
must have as many descriptors as at its beginning, and it must stop at once.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import threading
import time
from http.client import HTTPConnection

WORDS = ("the a cat dog Lily big red ball sun said ran to and he she it was happy park tree one day time upon Once "
         "little girl boy mom").split()
WAIT = 100  # seconds


class Server:
    def __init__(self, arguments, flags):
        model = [arguments.model] + (["--tokenizer", arguments.tokenizer] if arguments.tokenizer else [])
        self.process = subprocess.Popen([arguments.harmonics, "serve", *model, "--listen", "127.0.0.1:0", *flags],
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for line in self.process.stdout:
            if "http://127.0.0.1:" in line:
                self.port = int(line.split("http://127.0.0.1:")[1].split()[0])
                break
        else:
            sys.exit("the server did not start")
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def post(self, body):
        connection = HTTPConnection("127.0.0.1", self.port, timeout=WAIT)
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        return connection

    def choice(self, body):
        connection = self.post(body)
        reply = json.loads(connection.getresponse().read())
        connection.close()
        if "choices" not in reply:
            raise RuntimeError(str(reply)[:200])
        return reply["choices"][0]

    def leave(self, body, rng):
        connection = self.post(body | {"stream": True})
        if rng.random() < 0.7:
            connection.getresponse().read(rng.randrange(1, 600))
        connection.close()

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def stop(self):
        begin = time.monotonic()
        self.process.terminate()
        self.process.wait(WAIT)
        return time.monotonic() - begin


def random_request(rng, beginnings):
    beginning = rng.choice(beginnings)
    prompt = beginning[:rng.randrange(len(beginning))] + " " + " ".join(rng.choices(WORDS, k=rng.randrange(1, 12)))
    return {"prompt": prompt, "max_tokens": rng.randrange(5, 120), "temperature": rng.choice([0, 0, 0.8]),
            "seed": rng.randrange(1000), "logprobs": 1}


def difference(found, expected):
    for field in ("text", "finish_reason", "logprobs"):
        if found[field] != expected[field]:
            return f"{field}: {found[field]!r} instead of {expected[field]!r}"
    return None


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("harmonics")
    parser.add_argument("model")
    parser.add_argument("--tokenizer")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--requests", type=int, default=1000)
    own = sys.argv[1:]
    flags = own[own.index("--") + 1:] if "--" in own else []
    arguments = parser.parse_args(own[:len(own) - len(flags) - 1] if "--" in own else own)

    rng = random.Random(arguments.seed)
    beginnings = [" ".join(rng.choices(WORDS, k=rng.randrange(20, 120))) for _ in range(6)]
    requests = [random_request(rng, beginnings) for _ in range(150)]
    idle = Server(arguments, ["--sequences", "1"])
    expected = [idle.choice(request) for request in requests]
    idle.stop()

    loaded = Server(arguments, flags)
    before = loaded.descriptors()
    wrong, equal, left = [], [0] * arguments.clients, [0] * arguments.clients

    def ask(client):
        rng = random.Random(arguments.seed * 1000 + client + 1)
        for _ in range(arguments.requests // arguments.clients):
            i = rng.randrange(len(requests))
            try:
                if rng.random() < 0.25:
                    loaded.leave(requests[i], rng)
                    left[client] += 1
                    continue
                found = difference(loaded.choice(requests[i]), expected[i])
            except (OSError, RuntimeError, ValueError) as error:
                found = repr(error)
            if found:
                wrong.append(f"request {i}: {found}")
            else:
                equal[client] += 1

    clients = [threading.Thread(target=ask, args=(client,)) for client in range(arguments.clients)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    deadline = time.monotonic() + 10
    while loaded.descriptors() > before and time.monotonic() < deadline:
        time.sleep(0.1)
    after = loaded.descriptors()
    seconds = loaded.stop()
    print(f"{sum(equal)} equal, {len(wrong)} different, {sum(left)} left; {before} descriptors before, {after} after; "
          f"stopped in {seconds:.1f} s")
    for line in wrong[:10]:
        print(line)
    if wrong or after > before or seconds > 5:
        sys.exit(1)


if __name__ == "__main__":
    main()
