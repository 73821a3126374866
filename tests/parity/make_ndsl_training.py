"""Writes golden/ndsl_training.safetensors: for the tiny models in golden/ndsl, the gradients of one step and the losses
of ten steps of AdamW, by transformers and PyTorch.

Needs what make_ndsl.py needs.

    python tests/parity/make_ndsl_training.py
"""
import pathlib

import torch
import transformers
from safetensors.numpy import load_file, save_file

FOLDER = pathlib.Path(__file__).parent / "golden"
VOCABULARY, BATCH, TOKENS, STEPS = 32, 2, 9, 10
RATE, DECAY, IGNORED = 1e-2, 0.1, -100
RESULTS = {}


def numbers(seed, shape):  # excludes the padding token, whose embedding has no gradient in PyTorch
    return torch.randint(3, VOCABULARY, shape, generator=torch.Generator().manual_seed(seed))


def loss_of(model, tokens, targets):
    scores = model(tokens).logits
    return torch.nn.functional.cross_entropy(scores.reshape(-1, scores.shape[-1]), targets.reshape(-1),
                                             ignore_index=IGNORED)


def as_in_the_file(name, values):
    """Experts are stacked in memory, but separate in the file."""
    if ".experts." not in name:
        yield name, values
        return
    place, kind = name.rsplit(".experts.", 1)
    mixtral = "block_sparse_moe" in FILE_NAMES
    if mixtral:
        place = place.replace(".mlp", ".block_sparse_moe")
    for e, matrix in enumerate(values):
        if kind == "down_proj":
            yield f"{place}.experts.{e}.{'w2' if mixtral else 'down_proj'}.weight", matrix
        else:
            gate, up = matrix.chunk(2, 0)
            yield f"{place}.experts.{e}.{'w1' if mixtral else 'gate_proj'}.weight", gate
            yield f"{place}.experts.{e}.{'w3' if mixtral else 'up_proj'}.weight", up


def single(model, of):
    for name, parameter in model.named_parameters():
        for part, values in as_in_the_file(name, of(parameter)):
            if part == "lm_head.weight" and part not in FILE_NAMES:
                part = "embed_out.weight"  # of GPT-NeoX
            if "block_sparse_moe" in FILE_NAMES:
                part = part.replace(".mlp.gate.", ".block_sparse_moe.gate.")
            yield part, values.detach().numpy().copy()


def trained(name, seed):
    global FILE_NAMES
    model = transformers.AutoModelForCausalLM.from_pretrained(FOLDER / "ndsl" / name, dtype=torch.float32,
                                                              attn_implementation="eager")
    model.eval()  # no dropout
    stored = load_file(FOLDER / "ndsl" / name / "model.safetensors")
    FILE_NAMES = " ".join(stored)
    for part, values in single(model, lambda p: p):
        same = stored.get(part, stored.get(part.split(".", 1)[-1]))
        assert same is not None and (same == values).all(), (name, part)
    tokens, targets = numbers(seed, (BATCH, TOKENS)), numbers(seed + 1, (BATCH, TOKENS))
    targets[0, :3] = IGNORED
    targets[1, 6:] = IGNORED
    RESULTS[f"{name}/tokens"] = tokens.to(torch.int32).numpy()
    RESULTS[f"{name}/targets"] = targets.to(torch.int32).numpy()
    loss_of(model, tokens, targets).backward()
    for part, values in single(model, lambda p: p.grad):
        RESULTS[f"{name}/gradient/{part}"] = values
    matrices = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": DECAY}, {"params": others, "weight_decay": 0}],
                                  lr=RATE)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, tokens, targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    RESULTS[f"{name}/losses"] = torch.tensor(losses).numpy()


if __name__ == "__main__":
    torch.manual_seed(0)
    later = ("GLM4MoE", "Qwen2MoE")  # last, so that the seeds of the others do not change
    names = sorted((p.name for p in (FOLDER / "ndsl").iterdir() if p.name not in ("BERT", "GLM4MoE-groups")), key=lambda n: (n in later, n))
    for seed, folder in enumerate(names):
        trained(folder, 100 + 10 * seed)
    save_file(RESULTS, FOLDER / "ndsl_training.safetensors")
