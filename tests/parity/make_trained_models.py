"""Writes golden/trained_models.safetensors: for tiny models in golden/folders, the gradients of one step and the losses
of ten steps of AdamW, by transformers and PyTorch.

Needs what make_folders.py needs.

    python tests/parity/make_trained_models.py
"""
import torch
import transformers
from make_architectures import FOLDER, VOCABULARY
from safetensors.numpy import save_file

BATCH, TOKENS, STEPS = 3, 12, 10
RATE, DECAY = 1e-2, 0.1
IGNORED = -100
RESULTS = {}


def numbers(seed, shape):  # excludes the padding token, whose embedding has no gradient in PyTorch
    return torch.randint(3, VOCABULARY, shape, generator=torch.Generator().manual_seed(seed))


def loss_of(model, tokens, targets):
    scores = model(tokens).logits
    return torch.nn.functional.cross_entropy(scores.reshape(-1, scores.shape[-1]), targets.reshape(-1),
                                             ignore_index=IGNORED)


def trained(name, seed):
    model = transformers.AutoModelForCausalLM.from_pretrained(FOLDER / "folders" / name, dtype=torch.float32,
                                                              attn_implementation="eager")
    tokens, targets = numbers(seed, (BATCH, TOKENS)), numbers(seed + 1, (BATCH, TOKENS))
    targets[0, :5] = IGNORED
    targets[2, 7:] = IGNORED
    RESULTS[f"{name}/tokens"] = tokens.to(torch.int32).numpy()
    RESULTS[f"{name}/targets"] = targets.to(torch.int32).numpy()
    loss_of(model, tokens, targets).backward()
    for parameter, value in model.named_parameters():
        if ".experts." not in parameter:  # stacked in memory, but separate in the file
            RESULTS[f"{name}/gradient/{parameter}"] = value.grad.numpy().copy()
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
    for seed, folder in enumerate(["llama3", "qwen2", "gemma3", "qwen3moe"]):
        trained(folder, 10 * seed)
    save_file(RESULTS, FOLDER / "trained_models.safetensors")
