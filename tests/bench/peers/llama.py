#!/usr/bin/env python3
"""Alternates harmonics and llama.cpp on the same files: llama.py HARMONICS MAKE_MODEL [--shape S] [--type T] [--threads N] [--pairs N]
[--prefill N] [--decode N] [--texts N] [--repeat N] [--precision P] [--vocabulary N] [--layers N] [--folder DIR] [--json FILE].

HARMONICS is the program, MAKE_MODEL the benchmark of that name, which writes the models. Runs in an environment with
llama-cpp-python, compiled natively (CMAKE_ARGS=-DGGML_NATIVE=ON pip install --no-binary llama-cpp-python llama-cpp-python).

Each pair measures ours, then theirs; a ratio is the median over the pairs. "of bw" is the fraction of the read bandwidth, measured by
our program in the same run, at which our weights pass; theirs is ours divided by the ratio.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import llama_cpp

TYPES = ("f16", "q8_0", "q4_0", "q4_k_m", "q6_k")
SHAPES = ("qwen3-0.6b", "llama-3.2-1b")


def ours(a, path, threads):
    out = subprocess.run([a.harmonics, "bench", path, "--threads", str(threads), "--prefill", str(a.prefill), "--decode", str(a.decode),
                          "--texts", str(a.texts), "--repeat", str(a.repeat), "--cache-type", "f16", "--precision", a.precision, "--json"],
                         check=True, stdout=subprocess.PIPE).stdout
    rows = {"many" if row["texts"] > 1 else row["test"][:2]: row for row in json.loads(out)["rows"]}
    return {**{key: row["best_tokens_per_second"] for key, row in rows.items()}, "of_bandwidth": rows["tg"].get("of_bandwidth", 0)}


class Peer:
    def __init__(self, path, threads, most):
        self.model = llama_cpp.Llama(path, n_ctx=most, n_threads=threads, n_threads_batch=threads, n_batch=512, n_ubatch=512, verbose=False)

    def many(self, texts, count, repeat):
        """Returns tokens per second with this number of concurrent sequences."""
        c = llama_cpp
        p = c.llama_context_default_params()
        p.n_ctx, p.n_batch, p.n_ubatch, p.n_seq_max = (count + 8) * texts, 512, 512, texts
        p.n_threads = p.n_threads_batch = self.model.n_threads
        context = c.llama_init_from_model(self.model.model, p)
        batch = c.llama_batch_init(texts, 0, 1)
        best = float("inf")
        for _ in range(repeat + 1):
            c.llama_memory_clear(c.llama_get_memory(context), True)
            begin = time.perf_counter()
            for at in range(count):
                batch.n_tokens = texts
                for i in range(texts):
                    batch.token[i] = ((at * texts + i) * 7919 + 13) % self.model.n_vocab()
                    batch.pos[i], batch.n_seq_id[i], batch.logits[i] = at, 1, True
                    batch.seq_id[i][0] = i
                if c.llama_decode(context, batch):
                    raise SystemExit("llama_decode failed")
                c.llama_synchronize(context)
            best = min(best, time.perf_counter() - begin)
        c.llama_batch_free(batch)
        c.llama_free(context)
        return texts * count / best

    def run(self, tokens, single):
        self.model.reset()
        begin = time.perf_counter()
        if single:
            for token in tokens:
                self.model.eval([token])
        else:
            self.model.eval(tokens)
        return time.perf_counter() - begin

    def best(self, count, repeat, single):
        tokens = [(i * 7919 + 13) % self.model.n_vocab() for i in range(count)]
        self.run(tokens[:8], single)
        return count / min(self.run(tokens, single) for _ in range(repeat))


def compare(a, path, threads):
    peer = Peer(str(path), threads, max(a.prefill, a.decode) + 8)
    mine, theirs = [], []
    for _ in range(a.pairs):
        mine.append(ours(a, path, threads))
        theirs.append({"pp": peer.best(a.prefill, a.repeat, False), "tg": peer.best(a.decode, a.repeat, True)})
        if a.texts > 1:
            theirs[-1]["many"] = peer.many(a.texts, a.decode, a.repeat)
    peer.model.close()
    median = lambda rows, key: statistics.median(row[key] for row in rows)
    ratio = {key: statistics.median(m[key] / t[key] for m, t in zip(mine, theirs)) for key in theirs[0]}
    return {"prefill": median(mine, "pp"), "their_prefill": median(theirs, "pp"), "prefill_ratio": ratio["pp"],
            "decode": median(mine, "tg"), "their_decode": median(theirs, "tg"), "decode_ratio": ratio["tg"],
            "of_bandwidth": median(mine, "of_bandwidth"), "their_of_bandwidth": median(mine, "of_bandwidth") / ratio["tg"],
            **({"at_once": median(mine, "many"), "their_at_once": median(theirs, "many"), "at_once_ratio": ratio["many"]} if a.texts > 1 else {})}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("harmonics")
    parser.add_argument("make_model")
    parser.add_argument("--shape", action="append", help=f"default: {', '.join(SHAPES)}")
    parser.add_argument("--type", action="append", help=f"default: {', '.join(TYPES)}")
    parser.add_argument("--threads", type=int, action="append", help="default: 1 and 2")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--prefill", type=int, default=512)
    parser.add_argument("--decode", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--texts", type=int, default=8, help="texts at once; 1: only one (default 8)")
    parser.add_argument("--precision", default="int8", help="ours; int8 rounds activations, as llama.cpp does (default), fp32 does not")
    parser.add_argument("--vocabulary", type=int, help="default: that of the shape")
    parser.add_argument("--layers", type=int, help="default: that of the shape")
    parser.add_argument("--folder", type=Path, help="keep the models here (default: a temporary folder)")
    parser.add_argument("--json", help="write the rows here as well")
    a = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f}, median of {a.pairs} pairs; llama-cpp-python {llama_cpp.__version__}: "
          f"{llama_cpp.llama_print_system_info().decode().strip()}")
    print(f"{'model':<14} {'type':<8} {'thr':>3} | {'pp ours':>9} {'theirs':>9} {'ratio':>6} | {'tg ours':>8} {'theirs':>8} {'ratio':>6} "
          f"{'of bw':>6} {'theirs':>6} | {f'x{a.texts} ours':>8} {'theirs':>8} {'ratio':>6}")
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = a.folder or Path(temporary)
        for shape in a.shape or SHAPES:
            for kind in a.type or TYPES:
                path = folder / f"{shape}-{kind}-{a.vocabulary or 'all'}-{a.layers or 'all'}.gguf"
                if not path.exists():
                    sizes = [str(a.vocabulary)] * (a.vocabulary is not None) + [str(a.layers)] * (a.layers is not None)
                    subprocess.run([a.make_model, shape, kind, path, *sizes], check=True)
                for threads in a.threads or (1, 2):
                    r = {"model": shape, "type": kind, "threads": threads, **compare(a, path, threads)}
                    rows.append(r)
                    print(f"{shape:<14} {kind:<8} {threads:>3} | {r['prefill']:>9.1f} {r['their_prefill']:>9.1f} {r['prefill_ratio']:>6.2f} | "
                          f"{r['decode']:>8.1f} {r['their_decode']:>8.1f} {r['decode_ratio']:>6.2f} {r['of_bandwidth']:>6.2f} "
                          f"{r['their_of_bandwidth']:>6.2f} | {r.get('at_once', 0):>8.1f} {r.get('their_at_once', 0):>8.1f} "
                          f"{r.get('at_once_ratio', 0):>6.2f}", flush=True)
                if not a.folder:
                    path.unlink()
    if a.json:
        Path(a.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    sys.exit(main())
