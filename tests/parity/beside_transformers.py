"""Compares folders that the program writes with transformers: every built-in .ndsl model is exported with initial values
and two layers, loaded by transformers without a tensor too many or too few, and both give a text its perplexity.

Needs torch, transformers, numpy, and the program.

    python tests/parity/beside_transformers.py build/ci/bin/harmonics
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers

PROGRAM = sys.argv[1]
SIZES = dict(num_layers=2, hidden_size=32, num_query_heads=4, num_kv_heads=2, intermediate_size=48,
             max_position_embeddings=64, vocab_size=256)
EXPERTS = dict(num_experts=4, num_experts_per_tok=2)
OWN = {
    "Qwen3": dict(head_dim=8), "Gemma2": dict(head_dim=8), "Gemma3": dict(head_dim=8), "Mixtral": EXPERTS,
    "Qwen3MoE": dict(head_dim=8, moe_intermediate_size=24, **EXPERTS), "GPT2": dict(num_kv_heads=4),
    "GPT_NeoX": dict(num_kv_heads=4), "Phi": dict(num_kv_heads=4, partial_rotary_factor=0.5)
}
TEXT = "the cat sat on the mat and then again the cat sat"


def run(*arguments):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, arguments))}\n{done.stderr}")
    return done.stdout


def byte_tokenizer(folder):
    """A tokenizer of 256 bytes, as `train` writes it."""
    (folder / "text.txt").write_text(TEXT * 20)
    (folder / "c.yaml").write_text(
        "model_dsl: GPT2\nmodel_settings: {num_layers: 1, hidden_size: 8, num_query_heads: 1, vocab_size: 256, "
        f"max_position_embeddings: 16}}\ntokenizer: bytes\ndatasets: {folder / 'text.txt'}\nsequence_len: 16\n"
        f"max_steps: 1\noutput_dir: {folder / 'bytes'}\n")
    run("train", folder / "c.yaml", "--quiet")
    return folder / "bytes" / "tokenizer.json"


def perplexities(name, folder, tokenizer):
    settings = {**SIZES, **OWN.get(name, {})}
    to = folder / name
    flags = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    run("export", name, f"{to}/", "--tokenizer", tokenizer, *flags)
    model, info = transformers.AutoModelForCausalLM.from_pretrained(to, dtype=torch.float32, output_loading_info=True,
                                                                    attn_implementation="eager")
    assert not any(info.values()), (name, info)
    ids = torch.tensor([list(TEXT.encode())])
    with torch.no_grad():
        theirs = np.exp(model.eval()(ids, labels=ids).loss.item())
    (folder / "text.txt").write_text(TEXT)
    ours = json.loads(run("generate", to, "--perplexity", folder / "text.txt", "--json", "--precision", "fp32"))
    return ours["perplexity"], theirs


def main():
    listed = json.loads(run("list", "models", "--json"))
    # BERT, an encoder, has no scores.
    names = [row["name"] for row in listed["items"] if row["kind"] == "model" and row["name"] != "BERT"]
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        tokenizer = byte_tokenizer(folder)
        for name in names:
            ours, theirs = perplexities(name, folder, tokenizer)
            print(f"{name:<10} {ours:.5f} {theirs:.5f}")
            assert abs(ours - theirs) < 1e-5 * theirs, name


main()
