#!/usr/bin/env python3
"""Draws small transformers in YAML, texts and configurations of `harmonics train`, and checks relations between runs,
as flow_runs.py does for flows: resuming, threads, recomputation, accumulation, adapters merged into their model, every
written form of a trained model, the same flow by `run`, the same rows through a pipe. Needs NumPy.

    python tests/parity/random_runs/training_runs.py build/release/bin/harmonics [--seeds 0-99] [--folder FOLDER]
        [--only RELATION]
"""

from __future__ import annotations

import json
import random
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
    metadata,
    need,
    read_tensors,
    same_tensors,
    same_values,
)

WORDS = ["alpha", "beta", "gamma ", "delta", "e", "zeta", "Ä", "日", "one two", "\n", "x=1;"]


def text_of(value) -> str:
    return json.dumps(value, ensure_ascii=False)


class Training(Case):
    """A model, its data and a configuration."""

    def __init__(self, program: str, seed: int, folder: Path, plain: bool = False):
        self.program, self.seed, self.folder = program, seed, folder
        self.draw = random.Random(f"training {seed}")
        self.plain, self.commands, self.runs = plain, [], 0
        self.model = self.draw_model()
        self.random = "dropout" in self.model["config"] or "capacity_factor" in self.model["config"]
        self.config = self.draw_config()
        self.text = text_of(self.model) + "\n" + text_of(self.config) + "\n"

    def draw_model(self) -> dict:
        draw = self.draw
        heads = draw.choice([2, 4])
        config = {
            "vocab_size": 258,
            "hidden_size": heads * draw.choice([8, 16]),
            "num_layers": draw.randint(1, 2),
            "num_query_heads": heads,
            "num_kv_heads": draw.choice([1, heads]),
            "intermediate_size": draw.choice([32, 48]),
            "max_position_embeddings": 96,
            "tie_word_embeddings": draw.random() < 0.5,
        }
        norm = draw.choice(["RMSNorm", "LayerNorm"])
        network = draw.choice(["SwiGLU_FFN", "GEGLU_FFN", "GELU_FFN", "ReLU_FFN", "MoE_FFN"])
        if draw.random() < 0.3:
            config["use_qk_norm"] = True
        if draw.random() < 0.3:
            config["use_qkv_bias"] = True
        if draw.random() < 0.3:
            config["sliding_window"] = draw.randint(3, 20)
        if draw.random() < 0.35 and not self.plain:
            config["dropout"] = 0.1
        variant = "dense"
        if network == "MoE_FFN":
            variant = "moe"
            config |= {"num_experts": 4, "num_experts_per_tok": draw.randint(1, 2), "moe_intermediate_size": 24}
            if draw.random() < 0.5:
                config["router_aux_loss_coef"] = 0.02
            if draw.random() < 0.3 and not self.plain:
                config["capacity_factor"] = 1.25
        return {
            "name": "Small",
            "type": "model",
            "config": config,
            "architecture": {"variant": variant, "block": [norm, "CausalSelfAttention", network]},
        }

    def draw_config(self) -> dict:
        draw = self.draw
        config = {
            "model_dsl": "small.ndsl",
            "tokenizer": "bytes",
            "datasets": "d." + draw.choice(["txt", "jsonl", "chat.jsonl"]),
            "sequence_len": draw.choice([16, 32, 48]),
            "micro_batch_size": draw.randint(1, 5),
            "gradient_accumulation_steps": draw.choice([1, 1, 2, 3]),
            "num_epochs": draw.choice([1, 2, 1.5]),
            "learning_rate": draw.choice([1e-3, 5e-3]),
            "optimizer": draw.choice(
                ["adamw", "adamw_8bit", "adam", "sgd", "rmsprop", "lamb", "lion", "lion_8bit", "normuon"]
            ),
            "lr_scheduler": draw.choice(["constant", "linear", "cosine", "wsd"]),
            "seed": draw.randint(0, 99),
            "save_steps": draw.choice([1, 2, 3]),
            "save_total_limit": 1000,
            "logging_steps": 1,
            "output_dir": "out",
        }
        if not config["datasets"].endswith("txt") and draw.random() < 0.4:
            config["sample_packing"] = True
        if config["datasets"] != "d.txt":
            config["too_long"] = draw.choice(["skip", "truncate", "split"])
        if draw.random() < 0.5:
            config["validation"] = 0.2
            config["eval_steps"] = draw.randint(1, 4)
            if draw.random() < 0.3:
                config["early_stopping_patience"] = draw.randint(1, 3)
            if draw.random() < 0.3:
                config["save_best_limit"] = 2
        if draw.random() < 0.4:
            config["warmup_steps"] = draw.randint(1, 4)
        if draw.random() < 0.3:
            config["max_grad_norm"] = draw.choice([0, 0.3])
        if draw.random() < 0.3:
            config["weight_decay"] = 0.1
        if draw.random() < 0.2:
            config["train_on_inputs"] = True
            config["datasets"] = [{"path": config["datasets"], "train_on_inputs": config.pop("train_on_inputs")}]
        if draw.random() < 0.2:
            config["loss_guard"] = {"deviations": 6}
        if draw.random() < 0.2:
            config["recompute"] = draw.choice(["block", "attention", "ffn", "rmsnorm", "swiglu"])
        if draw.random() < 0.3 and not self.plain:
            config["shuffle"] = False
        config["max_steps"] = draw.randint(3, 12)
        return config

    def write(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        draw = random.Random(self.seed)
        (self.folder / "small.ndsl").write_text(text_of(self.model))

        def words(n: int) -> str:
            return " ".join(draw.choice(WORDS) for _ in range(draw.randint(1, n)))

        (self.folder / "d.txt").write_text(" ".join(words(40) for _ in range(30)))
        pairs = [(words(3), words(5)) for _ in range(40)]
        (self.folder / "d.jsonl").write_text("".join(text_of({"prompt": p, "completion": a}) + "\n" for p, a in pairs))
        (self.folder / "d.chat.jsonl").write_text(
            "".join(
                text_of({"messages": [{"role": "user", "content": p}, {"role": "assistant", "content": a}]}) + "\n"
                for p, a in pairs
            )
        )
        np.savetxt(self.folder / "rows.csv", np.random.default_rng(self.seed).integers(0, 256, (3, 11)), "%d", ",")

    def train(
        self, out: str, *flags: str, config: dict | None = None, codes: tuple[int, ...] = (0,), **changes
    ) -> tuple[dict, str]:
        values = {**(config or self.config), **changes, "output_dir": out}
        name = f"c{self.runs}.yaml"
        (self.folder / name).write_text(text_of({k: v for k, v in values.items() if v is not None}))
        return self.call([self.program, "train", name, "--json", "--quiet", *flags], codes=codes)

    def scores(self, model: str, *flags: str) -> np.ndarray:
        self.call(
            [self.program, "infer", model, "--producer", "tokens=rows.csv", "--consumer", "s.npy", "--quiet", *flags]
        )
        return np.load(self.folder / "s.npy").astype("f8")

    def weights(self, out: str) -> Path:
        return self.folder / out / "weights.safetensors"


def check_resume(c: Training) -> None:
    out, _ = c.train("out", "--threads", "1")
    kept = sorted(checkpoints(c.folder / "out" / "checkpoints").items())
    need(bool(kept), "no checkpoint")
    for i, (_, path) in enumerate(c.draw.sample(kept, min(4, len(kept)))):
        got, _ = c.train(
            f"r{i}",
            "--threads",
            str(c.draw.choice([1, 2])),
            "--resume",
            str(path),
            **({"recompute": c.draw.choice(["block", "ffn"])} if c.draw.random() < 0.3 else {}),
        )
        what = f"resumed from {path.name}"
        same_tensors(c.weights("out"), c.weights(f"r{i}"), what)
        same_values(out, got, what, RESULTS)
        same_values(out["metrics"], got["metrics"], what, set(out["metrics"]))
        before, rows = c.log("out/log.jsonl"), c.log(f"r{i}/log.jsonl")
        for step, row in rows.items():
            same_values(before[step], row, f"{what}, step {step} of the log", set(row))
        last = checkpoints(c.folder / f"r{i}" / "checkpoints")
        if last:
            same_tensors(kept[-1][1], max(last.items())[1], f"{what}, last checkpoint", ("run/curve",))


def check_conditions(c: Training) -> None:
    out, _ = c.train("out", "--threads", "1")
    samples = {"prompts": ["a", "be"], "every": 2, "tokens": 5}
    changes = [
        {"samples": samples},
        {"logging_steps": 0},
        {"save_steps": None},
        {"recompute": "block"},
        {"recompute": "attention,ffn"},
        {"recompute": None},
        {"recompute": "auto=1M"},
    ]
    for i in range(3):
        more = {k: v for x in c.draw.sample(changes, 2) for k, v in x.items()}
        flags = ["--serve", "127.0.0.1:0"] if c.draw.random() < 0.3 else []
        got, _ = c.train(f"o{i}", "--threads", str(c.draw.choice([1, 2, 3])), *flags, **more)
        same_tensors(c.weights("out"), c.weights(f"o{i}"), f"with {more}")
        same_values(out, got, f"with {more}", RESULTS)
        same_values(out["metrics"], got["metrics"], f"with {more}")


def check_parts(c: Training) -> None:
    """Signals, requests and larger limits."""
    c.config |= {
        "lr_scheduler": "constant",
        "early_stopping_patience": None,
        "validation": None,
        "eval_steps": None,
        "max_steps": c.draw.randint(5, 60),
    }
    if c.config.get("num_epochs"):
        c.config["num_epochs"] = 40
    out, _ = c.train("out")
    total = out["steps"]
    for _ in range(3):
        how = c.draw.choice(["steps", "stop", 9, 15])
        if how == "steps":
            c.train("p", "--resume", max_steps=max(1, c.draw.randint(1, total)), codes=(0, 2, 78))
        else:
            (c.folder / "p.yaml").write_text(
                text_of({k: v for k, v in {**c.config, "output_dir": "p"}.items() if v is not None})
            )
            process = c.start([c.program, "train", "p.yaml", "--quiet", "--resume", "--control", "p.sock"])
            if how == "stop":
                control(
                    c.folder / "p.sock",
                    process,
                    {"do": "pause"},
                    {"do": "step", "count": 1},
                    {"do": "checkpoint"},
                    {"do": "stop"},
                )
            else:
                time.sleep(c.draw.uniform(0.05, 0.5))
                process.send_signal(how)
            finished(c, process, (0, -9, -15, 143))
        c.commands.append(f"# {how}")
    c.train("p", "--resume")
    same_tensors(c.weights("out"), c.weights("p"), "in parts")


def check_accumulation(c: Training) -> None:
    """Groups of batches are one large batch."""
    c.model["config"].pop("router_aux_loss_coef", None)  # its mean is over a batch
    c.write()
    compare_accumulated(c, 1e-3)


def compare_accumulated(c: Training, bound: float) -> None:
    """Compares the change of the weights in one step of SGD."""
    parts, size = c.draw.randint(2, 3), c.draw.randint(1, 3)
    c.config |= {
        "optimizer": "sgd",
        "lr_scheduler": "constant",
        "warmup_steps": 0,
        "max_steps": 1,
        "weight_decay": 0,
        "learning_rate": 1.0,
        "num_epochs": 4,
        "recompute": None,
        "loss_guard": None,
    }
    c.train("one", micro_batch_size=size * parts, gradient_accumulation_steps=1)
    c.train("some", micro_batch_size=size, gradient_accumulation_steps=parts)
    c.train("zero", micro_batch_size=size * parts, gradient_accumulation_steps=1, learning_rate=1e-30)
    a, b, z = (read_tensors(c.weights(x)) for x in ("one", "some", "zero"))
    whole = max(np.abs(floats(a[k]) - floats(z[k])).max() for k in a)
    for k in a:
        error = np.abs(floats(a[k]) - floats(b[k])).max()
        need(error <= bound * whole + 1e-6, f"{parts} batches of {size}: {k} differs by {error:.2e} of {whole:.2e}")


def check_forms(c: Training) -> None:
    """The written model is the trained one, in every form; run trains the same flow to the same weights."""
    out, _ = c.train("out")
    first = c.scores("out/model/", "--threads", "1")
    trained = read_tensors(c.weights("out"))
    c.call([c.program, "export", "out/model/", "m.gguf", "--quiet"])
    c.call(
        [
            c.program,
            "export",
            "small.ndsl",
            "e/",
            "--weights",
            "out/weights.safetensors",
            "--tokenizer",
            "out/tokenizer.json",
            "--quiet",
        ]
    )
    newest = str(max(checkpoints(c.folder / "out" / "checkpoints").items())[1])
    c.call(
        [c.program, "export", "small.ndsl", "k/", "--weights", newest, "--tokenizer", "out/tokenizer.json", "--quiet"]
    )
    c.call([c.program, "export", "m.gguf", "n.safetensors", "--quiet"])
    c.call([c.program, "quantize", "out/model/", "q.gguf", "--type", "f32", "--quiet"])
    for model in ("m.gguf", "e/", "k/", "q.gguf"):
        got = c.scores(model, "--threads", "2")
        need(np.array_equal(first, got), f"scores of {model} differ by {np.abs(first - got).max():.2e}")
    rows = json.loads(metadata(Path(newest))["harmonics.run"])["streams"]["tokens"]
    order = f"&order-seed={c.config['seed']}" if c.config.get("shuffle", True) else ""
    packed = "documents=documents" in metadata(Path(newest))["harmonics.graph"]
    streams = ("tokens", "next", "documents")[: 3 if packed else 2]
    keep = [
        w
        for i, n in enumerate(streams)
        for w in ("--producer", f"{n}=corpus:out/data.corpus.json?pass={rows}{order}{'' if i else '&shuffle=0'}#{n}")
    ]
    flow = """harmonic train {
  producer tokens; producer next;DECLARED layer scores;
  cycle { tokens -(model("small.ndsl"DOCUMENTS, name="model"))-> scores;
          scores <-(cross_entropy(ignore_index=-100))- next; } }
"""
    flow = flow.replace("DECLARED", " producer documents;" * packed).replace(
        "DOCUMENTS", ", documents=documents" * packed
    )
    (c.folder / "train.hmx").write_text(flow)
    optimizer, _, schedule = out["training"].partition(", schedule ")
    optimizer = optimizer.partition("), ")[0].removesuffix(")") + ")"
    schedule = schedule.partition(")")[0] + ")" if schedule else "constant"
    stop = out["steps"]
    if not c.config.get("early_stopping_patience"):
        got, _ = c.call(
            [
                c.program,
                "run",
                "train.hmx",
                *keep,
                "--optimizer",
                optimizer,
                "--schedule",
                schedule,
                "--clip",
                str(c.config.get("max_grad_norm", 1)),
                "--accumulate",
                str(c.config["gradient_accumulation_steps"]),
                "--batch",
                str(c.config["micro_batch_size"]),
                "--seed",
                str(c.config["seed"]),
                "--steps",
                str(stop),
                "--epochs",
                "1000",
                "--save",
                "run.safetensors",
                "--json",
                "--quiet",
            ]
        )
        again = read_tensors(c.folder / "run.safetensors")
        need(trained == again, f"run and train differ in {[k for k in trained if trained[k] != again.get(k)][:3]}")


def check_adapters(c: Training) -> None:
    c.train("base", max_steps=2)
    before = read_tensors(c.folder / "base/model/model.safetensors")
    targets = c.draw.choice(
        [None, ["q_proj", "v_proj"], ["o_proj"], ["k_proj"], ["lm_head"], ["embed_tokens", "q_proj"]]
    )
    if "MoE_FFN" in c.text and c.draw.random() < 0.5:
        targets = c.draw.choice([["experts"], ["router", "q_proj"]])
    tied = c.model["config"]["tie_word_embeddings"]
    if targets == ["lm_head"] and tied:
        targets = None
    lora = {
        "r": c.draw.randint(1, 6),
        "alpha": 8,
        "dropout": c.draw.choice([0, 0.1]),
        "use_rslora": c.draw.random() < 0.3,
        "use_dora": c.draw.random() < 0.3 and targets not in (["experts"], ["embed_tokens", "q_proj"]),
    }
    if targets:
        lora["target_modules"] = targets
    if c.draw.random() < 0.25 and not lora["use_dora"]:
        lora["base"] = c.draw.choice(["bf16", "q8_0", "nf4_64"])
    c.config |= {"lora": lora, "model": "base/model/", "model_dsl": None, "tokenizer": None, "learning_rate": 0.01}
    c.text += text_of(lora) + "\n"
    if c.config["optimizer"] == "lion_8bit":
        c.config["optimizer"] = "lion"
    out, _ = c.train("lo", "--threads", "1")
    again, _ = c.train("l2", "--threads", "2", recompute=c.draw.choice(["lora", "block", None]))
    same_tensors(c.weights("lo"), c.weights("l2"), "adapter with another number of threads")
    kept = sorted(checkpoints(c.folder / "lo" / "checkpoints").items())
    path = c.draw.choice(kept)[1]
    c.train("l3", "--resume", str(path))
    same_tensors(c.weights("lo"), c.weights("l3"), f"adapter resumed from {path.name}")
    same_tensors(
        c.folder / "lo/adapter/adapter_model.safetensors", c.folder / "l3/adapter/adapter_model.safetensors", "adapters"
    )
    need(read_tensors(c.folder / "base/model/model.safetensors") == before, "the base model changes")
    apart = c.scores("base/model/", "--lora", "lo/adapter")
    if targets and "embed_tokens" in targets and tied:  # the head shares the weight, so it cannot be merged
        return c.call([c.program, "export", "base/model/", "merged/", "--lora", "lo/adapter"], codes=(65,)) and None
    c.call([c.program, "export", "base/model/", "merged/", "--lora", "lo/adapter", "--quiet"])
    merged = c.scores("merged/")
    scale = np.abs(apart).max()
    need(
        np.abs(apart - merged).max() <= 2e-4 * max(1, scale),
        f"merged: scores differ by {np.abs(apart - merged).max():.2e} of {scale:.2e}",
    )
    plain = c.scores("base/model/")
    need(np.abs(apart - plain).max() > 0, "the adapter has no effect")
    if "base" not in lora:
        c.train(
            "from",
            config={**c.config, "lora": {"from": "lo/adapter"}},
            learning_rate=1e-30,
            max_steps=1,
            weight_decay=0,
        )
        same = c.scores("base/model/", "--lora", "from/adapter")
        need(np.allclose(same, apart, atol=1e-5 * max(1, scale)), "an adapter that is continued at a rate of 0 differs")


def check_teachers(c: Training) -> None:
    """Preferences and distillation: resuming, threads, recomputation, accumulated batches."""
    c.model["config"].pop("router_aux_loss_coef", None)
    c.write()
    c.train("base", max_steps=2)
    plain = {"model": "base/model/", "model_dsl": None, "tokenizer": None, "sample_packing": None, "loss_guard": None}
    if c.draw.random() < 0.5:
        rows = [
            {"prompt": "a b", "chosen": c.draw.choice(WORDS) + "x", "rejected": c.draw.choice(WORDS)} for _ in range(20)
        ]
        (c.folder / "pairs.jsonl").write_text("".join(text_of(r) + "\n" for r in rows))
        c.config |= {
            "datasets": [{"path": "pairs.jsonl", "type": "preference"}],
            "sequence_len": 48,
            "too_long": "skip",
            "dpo": {"beta": 0.5, "loss": c.draw.choice(["sigmoid", "hinge", "ipo"])},
        }
    else:
        c.config |= {
            "datasets": "d.jsonl",
            "too_long": "truncate",
            "distillation": {
                "teacher": "base/model/",
                "temperature": c.draw.choice([1, 2]),
                "share": c.draw.choice([0.5, 1]),
                "beta": c.draw.choice([0, 0.3, 1]),
            },
        }
        if c.draw.random() < 0.5:
            plain = {"loss_guard": None, "sample_packing": None}
    if plain.get("model") and c.draw.random() < 0.4:
        plain["lora"] = {"r": 2, "alpha": 8}
    c.config |= plain
    c.text += text_of(c.config) + "\n"
    out, _ = c.train("out", "--threads", "1")
    got, _ = c.train("o1", "--threads", "2", recompute=c.draw.choice(["block", None]))
    same_tensors(c.weights("out"), c.weights("o1"), "another number of threads")
    same_values(out["metrics"], got["metrics"], "another number of threads")
    path = c.draw.choice(sorted(checkpoints(c.folder / "out" / "checkpoints").items()))[1]
    got, _ = c.train("r", "--resume", str(path))
    same_tensors(c.weights("out"), c.weights("r"), f"resumed from {path.name}")
    same_values(out["metrics"], got["metrics"], f"resumed from {path.name}")
    if not c.random:
        compare_accumulated(c, 1e-3)


def check_pipe(c: Training) -> None:
    """The same lines from a file and from a pipe."""
    data = "d.jsonl" if c.draw.random() < 0.5 else "d.chat.jsonl"
    c.config |= {
        "datasets": data,
        "shuffle": False,
        "lr_scheduler": "constant",
        "num_epochs": 1,
        "max_steps": None,
        "validation": None,
        "eval_steps": None,
        "early_stopping_patience": None,
        "save_best_limit": None,
        "sample_packing": None,
        "too_long": c.draw.choice(["skip", "truncate"]),
        "gradient_accumulation_steps": c.draw.choice([1, 2]),
    }
    out, _ = c.train("out")
    (c.folder / "pipe.yaml").write_text(
        text_of(
            {
                k: v
                for k, v in {
                    **c.config,
                    "datasets": "stdin:",
                    "shuffle": None,
                    "num_epochs": None,
                    "output_dir": "pipe",
                }.items()
                if v is not None
            }
        )
    )
    with open(c.folder / data, "rb") as f:
        got, _ = c.call([c.program, "train", "pipe.yaml", "--json", "--quiet"], stdin=f)
    file, pipe = c.log("out/log.jsonl"), c.log("pipe/log.jsonl")
    for step in sorted(file)[:-1]:  # a pass over files begins again to fill its last batch
        need(step in pipe, f"no step {step} from a pipe")
        a, b = file[step]["metrics"], pipe[step]["metrics"]
        same_values(a, b, f"step {step} of the log, from a pipe", set(a))


RELATIONS = {
    "resume": check_resume,
    "conditions": check_conditions,
    "parts": check_parts,
    "accumulation": check_accumulation,
    "forms": check_forms,
    "adapters": check_adapters,
    "pipe": check_pipe,
    "teachers": check_teachers,
}
TURNS = ["resume", "conditions", "parts", "accumulation", "forms", "adapters", "pipe", "adapters", "resume", "teachers"]

if __name__ == "__main__":
    sys.exit(main(__doc__, Training, RELATIONS, TURNS, {"accumulation"}))
