"""Compares the folders of golden/folders with transformers through the program: as they are, after one step of training,
exported again, exported to GGUF and back, and with a trained adapter that PEFT loads. transformers loads each without
a tensor too many or too few, and both give a text the same perplexity (an encoder: the same vector).

Needs torch, transformers, peft, tokenizers, numpy, and the program.

    python tests/parity/folders_beside_transformers.py build/ci/bin/harmonics [NAME ...]
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import peft
import tokenizers
import torch
import transformers

PROGRAM, WANTED = sys.argv[1], sys.argv[2:]
FOLDERS = pathlib.Path(__file__).parent / "golden" / "folders"
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJK"  # a vocabulary of 40
TEXT = "thecatsatonthematandthenagainthecatsat"
ENCODERS = {"bert", "nomic-bert"}
OTHERS = {"llama_four_bits"}  # bitsandbytes is not needed here
STEP = "model: {model}\ndatasets: {text}\nsequence_len: 16\nmicro_batch_size: 2\nmax_steps: 1\nlearning_rate: 1e-2\noutput_dir: {out}\n"
LORA = "lora: {r: 4, alpha: 8}\n"


def run(*arguments):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, arguments))}\n{done.stderr}")
    return done.stdout


def tokenizer():
    vocabulary = {token: i for i, token in enumerate(["<unk>", "<s>", "</s>", *LETTERS])}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>", byte_fallback=True))
    made.add_special_tokens(["<unk>", "<s>", "</s>"])
    return made


def ours(model, text, is_encoder, *more):
    if is_encoder:
        answer = json.loads(run("embed", model, TEXT, "--pooling", "mean", "--json", "--precision", "fp32"))
        return np.array(answer["embeddings"][0]["vector"])
    return json.loads(run("generate", model, "--perplexity", text, "--json", "--precision", "fp32", *more))["perplexity"]


def theirs(model, ids, is_encoder):
    kind = transformers.AutoModel if is_encoder else transformers.AutoModelForCausalLM
    settings = {} if is_encoder else {"attn_implementation": "eager"}
    made, info = kind.from_pretrained(model, dtype=torch.float32, output_loading_info=True, **settings)
    lacking = {key: [name for name in value if "pooler" not in name] for key, value in info.items()}
    assert not any(lacking.values()), (model, info)
    with torch.no_grad():
        if is_encoder:
            vector = made.eval()(ids).last_hidden_state[0].mean(0).numpy()
            return vector / np.linalg.norm(vector)
        return np.exp(made.eval()(ids, labels=ids).loss.item())


def compare(name, what, model, text, ids):
    own = ours(model, text, name in ENCODERS)
    other = theirs(model, ids, name in ENCODERS)
    difference = np.abs(own - other).max() / np.abs(other).max()
    print(f"{name:<18} {what:<16} {np.ravel(own)[0]:.6f} {np.ravel(other)[0]:.6f} {difference:.1e}", flush=True)
    assert difference < 1e-5, name
    return own


def compare_adapted(name, folder, config, text, ids):
    out = f"{folder}-adapted"
    config.write_text(STEP.format(model=folder, text=config.parent / "long.txt", out=out).replace("1e-2", "1e-1") + LORA)
    run("train", config, "--quiet")
    own = ours(folder, text, False, "--lora", f"{out}/adapter")
    base = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        other = np.exp(peft.PeftModel.from_pretrained(base, f"{out}/adapter").eval()(ids, labels=ids).loss.item())
    print(f"{name:<18} {'adapted':<16} {own:.6f} {other:.6f} {abs(own - other) / other:.1e}", flush=True)
    assert abs(own - other) < 1e-5 * other


def check(name, place):
    made, folder = tokenizer(), place / name
    text = place / "text.txt"
    text.write_text(TEXT)
    (place / "long.txt").write_text(TEXT * 8)
    shutil.copytree(FOLDERS / name, folder)
    made.save(str(folder / "tokenizer.json"))
    ids = torch.tensor([made.encode(TEXT).ids])
    before = compare(name, "as it is", folder, text, ids)
    run("export", folder, f"{place / name}-again/")
    assert np.allclose(before, compare(name, "exported", f"{folder}-again", text, ids), rtol=1e-6)
    try:
        run("export", folder, f"{folder}.gguf")
        run("export", f"{folder}.gguf", f"{folder}-back/", "--tokenizer", folder / "tokenizer.json")
    except RuntimeError as failure:
        print(name, "to GGUF:", failure)
    else:
        made.save(str(place / f"{name}-back" / "tokenizer.json"))
        assert np.allclose(before, compare(name, "through GGUF", f"{folder}-back", text, ids), rtol=1e-5)
    if name in ENCODERS:
        return
    config = place / "c.yaml"
    config.write_text(STEP.format(model=folder, text=place / "long.txt", out=place / f"{name}-out"))
    run("train", config, "--dry-run", "--quiet")
    run("train", config, "--quiet")
    after = compare(name, "trained", f"{folder}-out/model", text, ids)
    assert abs(after - before) > 1e-4 * before
    run("export", f"{folder}-out/model", f"{folder}-trained/")
    assert np.allclose(after, compare(name, "trained, exported", f"{folder}-trained", text, ids), rtol=1e-6)
    compare_adapted(name, folder, config, text, ids)


def main():
    failed = []
    for name in WANTED or sorted({path.parent.name for path in FOLDERS.glob("*/model.safetensors")} - OTHERS):
        with tempfile.TemporaryDirectory() as place:
            try:
                check(name, pathlib.Path(place))
            except Exception as failure:
                failed.append(name)
                print(name, "FAILED", type(failure).__name__, failure, flush=True)
    if failed:
        raise SystemExit(f"failed: {failed}")


main()
