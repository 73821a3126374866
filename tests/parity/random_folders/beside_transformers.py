"""Compares random small models with transformers through the program: the perplexity of a text, the log probabilities
of every token at each place of a sampled text (through the cache, longer than the windows), and one step of training.

The configurations follow from the seed. `config.json` lacks settings with the default value half of the time, and has
the layout of transformers 4 half of the time; transformers reads the same file. Settings that the program refuses
are counted by the message. Exits with 1 if a value differs, or if the program ends in another way.

Needs torch, transformers, tokenizers, numpy, and the program.

    python tests/parity/random_folders/beside_transformers.py build/ci/bin/harmonics [--count 20] [--seed 0] [NAME ...]
"""
import argparse
import collections
import json
import math
import pathlib
import random
import re
import subprocess
import tempfile
import zlib

import numpy as np
import tokenizers
import torch
import transformers

from configurations import CONTEXT, MODELS, VOCABULARY, Draw

torch.set_num_threads(1)
transformers.logging.set_verbosity(transformers.logging.CRITICAL)
transformers.utils.logging.disable_progress_bar()
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJK"
SPECIAL = ["<unk>", "<s>", "</s>"]
ALLOWED = 2e-4  # of log probabilities, of the logarithm of the perplexity; of training, relative to the largest change
ROW, BATCH, RATE = 16, 2, 0.1
TRAINING = {"sequence_len": ROW, "micro_batch_size": BATCH, "max_steps": 1, "learning_rate": RATE, "optimizer": "sgd",
            "lr_scheduler": "constant", "max_grad_norm": 0, "weight_decay": 0, "shuffle": False, "logging_steps": 1}
EAGER = {"attn_implementation": "eager", "experts_implementation": "eager"}
KEPT = {"architectures", "model_type", "vocab_size", "dtype", "attn_pdrop", "resid_pdrop", "embd_pdrop"}
REQUIRED = re.compile("heads|layers|hidden_size|intermediate_size|n_embd|n_head|n_layer|positions|experts")


class Refused(Exception):
    pass


class Different(Exception):
    pass


def run(program, *arguments):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=60)
    if done.returncode == 0:
        return done.stdout
    message = done.stderr
    if not message.strip():
        message = json.loads(done.stdout)["error"]["message"] if done.stdout.startswith("{") else "no message"
    if done.returncode < 0 or done.returncode in (70, 134, 139):
        raise Different(f"ended with {done.returncode}: {message[-400:]}")
    raise Refused(message.strip().splitlines()[0])


def write_tokenizer(path):
    vocabulary = {token: i for i, token in enumerate([*SPECIAL, *LETTERS])}
    model = tokenizers.models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>", byte_fallback=True)
    made = tokenizers.Tokenizer(model)
    made.add_special_tokens(SPECIAL)
    made.save(str(path))


def randomised(model, seed):
    """Every weight has an effect: gains and biases are not ones and zeros."""
    generator = torch.Generator().manual_seed(seed)
    drawn = {}  # tied weights once
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        learned = isinstance(tensor, torch.nn.Parameter) or name.endswith("e_score_correction_bias")
        if not learned or id(tensor) in drawn:
            continue
        drawn[id(tensor)] = name
        noise = torch.randn(tensor.shape, generator=generator)
        if tensor.dim() == 1:
            gain = re.search(r"(norm|ln_\w+)[\w.]*\.weight$", name, re.I) is not None
            offset = gain and model.config.model_type.split("_")[0] not in ("gemma", "gemma2", "gemma3", "nemotron")
            tensor.data = 0.3 * noise + (1 if offset else 0)
        elif re.search("embed|wte|wpe", name):
            tensor.data = 0.7 * noise
        else:
            module = type(model.get_submodule(name.rsplit(".", 1)[0])).__name__
            transposed = "Conv1D" in module or name.endswith("_proj")
            tensor.data = 1.3 * noise / math.sqrt(tensor.shape[-2 if transposed else -1])
    return model.eval()


def older_layout(config, draw):
    """The settings of rotary positions where transformers 4 has them."""
    rope = config.pop("rope_parameters", None)
    if rope is None:
        return
    full = rope.get("full_attention", rope)
    unusual = full["rope_type"] == "default" if config["model_type"] == "gpt_oss" else config["model_type"] == "olmo3"
    if unusual:  # transformers takes what the file lacks from its defaults, with which no file was written
        config["rope_parameters"] = rope
        return
    if "full_attention" in rope:
        config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = full
    is_neox = config["model_type"] == "gpt_neox"
    config["rotary_emb_base" if is_neox else "rope_theta"] = rope.pop("rope_theta")
    if "partial_rotary_factor" in rope:
        config["rotary_pct" if is_neox else "partial_rotary_factor"] = rope.pop("partial_rotary_factor")
    if config.get("original_max_position_embeddings"):
        rope.pop("original_max_position_embeddings", None)
    if rope["rope_type"] != "default":
        older = draw.flag() and config["model_type"] != "gemma3_text"  # is newer than the name
        config["rope_scaling"] = {("type" if older and key == "rope_type" else key): value
                                  for key, value in rope.items()}


def rewrite(folder, defaults, draw):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    if draw.flag():
        for key in list(config):
            if key not in KEPT and not REQUIRED.search(key) and config[key] == defaults.get(key) and draw.flag():
                del config[key]
    if draw.flag():
        older_layout(config, draw)
    path.write_text(json.dumps(config, indent=1) + "\n")
    (folder / "generation_config.json").unlink(missing_ok=True)
    return config


def make(name, seed, folder):
    """Writes the folder of a model; returns its settings as drawn."""
    draw = Draw(f"{name} {seed}")
    settings = MODELS[name](draw)
    kind = getattr(transformers, f"{name}Config")
    config = kind(**{"bos_token_id": None, "eos_token_id": None, "pad_token_id": None, **settings})
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32, **EAGER)
    randomised(model, zlib.crc32(f"{name} {seed}".encode()))
    model.to(draw.rarely(torch.float32, torch.bfloat16, torch.float16)).save_pretrained(folder)
    write_tokenizer(folder / "tokenizer.json")
    return rewrite(folder, kind().to_dict(), draw), draw


def load(folder):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                                    output_loading_info=True, **EAGER)
    assert not any(info.values()), info
    return model.eval()


def log_probabilities(model, ids, context):
    """Of all tokens after each of `ids`. The text fills the context, on which scaled positions depend."""
    padded = torch.tensor([ids + [3] * (context - len(ids))])
    with torch.no_grad():
        return torch.log_softmax(model(padded).logits[0].double(), -1)[:len(ids)].numpy()


def ids_of(text):
    return [3 + LETTERS.index(letter) for letter in text]


def compare(what, own, other):
    difference = np.abs(np.asarray(own) - np.asarray(other)).max()
    if not difference <= ALLOWED:
        raise Different(f"{what}: {difference:.1e}")
    return difference


def compare_texts(program, folder, model, draw, context):
    letters = random.Random(draw.random.random())
    prompt = "".join(letters.choices(LETTERS, k=letters.randint(3, 24)))
    text = "".join(letters.choices(LETTERS, k=CONTEXT // 2))
    (folder / "text.txt").write_text(text)
    common = ["--precision", "fp32", "--json", "--context", context]
    answer = json.loads(run(program, "generate", folder, "--perplexity", folder / "text.txt", *common))
    ids = ids_of(text)
    their = log_probabilities(model, ids, context)[range(len(ids) - 1), ids[1:]].mean()
    worst = compare("perplexity", -math.log(answer["perplexity"]), their)
    sampling = ["--max-tokens", 24, "--temperature", 1, "--top-k", 0, "--top-p", 1, "--min-p", 0, "--seed", 1]
    answer = json.loads(run(program, "generate", folder, prompt, *sampling, "--log-probabilities", VOCABULARY, *common))
    chosen = [one["id"] for one in answer["chosen"]]
    their = log_probabilities(model, ids_of(prompt) + chosen, context)[len(prompt) - 1:-1]
    own = np.full(their.shape, np.nan)
    for i, one in enumerate(answer["chosen"]):
        for each in one["best"]:
            own[i, each["id"]] = each["log_probability"]
    return max(worst, compare("log probabilities", own, their))


def state_of(folder):
    return {name: value.double().numpy() for name, value in load(folder).state_dict().items()}


def compare_training(program, folder, draw):
    letters = random.Random(draw.random.random())
    text = "".join(letters.choices(LETTERS, k=ROW * BATCH + 1))
    (folder / "long.txt").write_text(text)
    out = folder / "trained"
    settings = {"model": str(folder), "datasets": str(folder / "long.txt"), "output_dir": str(out), **TRAINING}
    (folder / "train.yaml").write_text(json.dumps(settings))
    run(program, "train", folder / "train.yaml", "--quiet")
    model, ids = load(folder), ids_of(text)
    before = {name: value.double().clone().numpy() for name, value in model.state_dict().items()}
    rows = [ids[row * ROW:row * ROW + ROW + 1] for row in range(BATCH)]
    batch = torch.tensor(rows)
    loss = torch.nn.functional.cross_entropy(model(batch[:, :-1]).logits.flatten(0, 1), batch[:, 1:].flatten())
    loss.backward()
    torch.optim.SGD(model.parameters(), lr=RATE).step()
    logged = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    own = next(row["metrics"]["loss"] for row in logged if row["kind"] == "step")
    worst = compare("loss of training", own, loss.item())
    after, other = state_of(out / "model"), model.state_dict()
    largest = max(np.abs(other[name].double().numpy() - value).max() for name, value in before.items())
    for name, value in other.items():
        change = (np.asarray(after[name]) - value.double().numpy()) / largest
        worst = max(worst, compare(f"change of {name}", change, 0))
    return worst


def check(program, name, seed, place, trains):
    """Returns what happened, and the difference or a message."""
    folder = place / f"{name}-{seed}"
    try:
        settings, draw = make(name, seed, folder)
        model = load(folder)
    except Exception as failure:
        return "invalid", f"{type(failure).__name__}: {str(failure).strip().splitlines()[0][:150]}", {}
    rope = json.dumps(settings.get("rope_parameters", settings.get("rope_scaling")) or {})
    scaled = re.search("dynamic|longrope", rope) and "alpha" not in rope
    context = draw(50, 64, CONTEXT, CONTEXT + 32) if scaled else CONTEXT
    try:
        worst = compare_texts(program, folder, model, draw, context)
        if trains and not scaled:
            worst = max(worst, compare_training(program, folder, draw))
    except Refused as refusal:
        return "refused", str(refusal), settings
    except Different as difference:
        return "different", str(difference), settings
    return "agreed", worst, settings


def shortened(message):
    message = re.sub(r"\S*/(\w+-\d+)/?", "", message)
    return re.sub(r"\d+", "N", message)[:230]


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("program")
    arguments.add_argument("names", nargs="*")
    arguments.add_argument("--count", type=int, default=20)
    arguments.add_argument("--seed", type=int, default=0, help="of the first configuration")
    arguments.add_argument("--train-every", type=int, default=3)
    arguments.add_argument("--keep", help="a folder for the models")
    given = arguments.parse_intermixed_args()
    failed = False
    with tempfile.TemporaryDirectory() as scratch:
        place = pathlib.Path(given.keep or scratch)
        for name in given.names or MODELS:
            counts, messages, worst = collections.Counter(), collections.Counter(), 0
            for seed in range(given.seed, given.seed + given.count):
                what, found, settings = check(given.program, name, seed, place, seed % given.train_every == 0)
                counts[what] += 1
                if what == "agreed":
                    worst = max(worst, found)
                elif what == "different":
                    failed = True
                    print(f"{name} {seed}: {found}\n    {json.dumps(settings)}", flush=True)
                else:
                    messages[f"{what}: {shortened(found)}"] += 1
            print(f"{name:<15} {dict(counts)}, largest difference {worst:.1e}", flush=True)
            for message, times in messages.most_common():
                print(f"    {times} {message}", flush=True)
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
