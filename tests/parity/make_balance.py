#!/usr/bin/env python3
"""Writes golden/balance.json: the losses of ten steps of AdamW of the tiny mixtures of experts in golden/ndsl, with the
auxiliary loss of their routers, by transformers and PyTorch.

Needs what make_ndsl.py needs.

    python tests/parity/make_balance.py
"""
import json
import pathlib

import torch
import transformers
from safetensors.numpy import load_file

FOLDER = pathlib.Path(__file__).parent / "golden"
COEFFICIENT, STEPS, RATE, DECAY, IGNORED = 0.3, 10, 1e-2, 0.1, -100


def losses_of(name):
    given = load_file(FOLDER / "ndsl_training.safetensors")
    tokens = torch.from_numpy(given[f"{name}/tokens"]).long()
    targets = torch.from_numpy(given[f"{name}/targets"]).long()
    model = transformers.AutoModelForCausalLM.from_pretrained(FOLDER / "ndsl" / name, dtype=torch.float32,
                                                              attn_implementation="eager")
    model.eval()  # no dropout
    groups = [{"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": DECAY},
              {"params": [p for p in model.parameters() if p.ndim <= 1], "weight_decay": 0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE)
    losses, parts = [], []
    for _ in range(STEPS):
        optimizer.zero_grad()
        out = model(tokens, output_router_logits=True)
        entropy = torch.nn.functional.cross_entropy(out.logits.reshape(-1, out.logits.shape[-1]), targets.reshape(-1),
                                                    ignore_index=IGNORED)
        loss = entropy + COEFFICIENT * out.aux_loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        parts.append(out.aux_loss.item())
    print(name, losses, parts)
    return losses


def main():
    rows = {"coefficient": COEFFICIENT, "losses": {name: losses_of(name) for name in ("Mixtral", "Qwen3MoE")}}
    (FOLDER / "balance.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
