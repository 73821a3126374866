#!/usr/bin/env python3
"""Writes golden/preferences.safetensors: losses of preferences and distillation, and their gradients, by PyTorch.

    tests/parity/make_preferences.py

The formulas are those of TRL's DPOTrainer (sigmoid, hinge, ipo) and GKDTrainer (generalized Jensen-Shannon divergence),
computed in float64 from inputs that float32 holds exactly. For each case C (metadata C: the arguments of the loss):
C/scores, C/other, C/target, C/documents (dpo), C/loss (the mean that a step learns), C/gradient (of the scores),
C/rewards (dpo: the means that DPOTrainer logs as rewards/chosen, rejected, accuracies and margins).
"""
import json
from pathlib import Path

import torch
import torch.nn.functional as F

from make_golden import write_safetensors

IGNORED = -100


def drawn(seed, *shape):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(shape, generator=generator) * 2).float().double()


def targets(seed, batch, tokens, classes):
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randint(0, classes, (batch, tokens), generator=generator).to(torch.int32)
    hidden = torch.rand((batch, tokens), generator=generator) < 0.3
    numbers[hidden] = IGNORED
    numbers[:, 1] = 1  # both answers have a token that counts
    numbers[:, -2] = 2
    return numbers


def sums(scores, labels, mask):
    each = torch.gather(F.log_softmax(scores, -1), 2, labels.clamp(min=0).long()[..., None])[..., 0]
    return (each * mask).sum(1), mask.sum(1)


def dpo(scores, reference, target, documents, beta, loss, label_smoothing):
    logps = {}
    for name, which in (("chosen", 0), ("rejected", 1)):
        mask = ((target != IGNORED) & (documents == which)).double()
        own, count = sums(scores, target, mask)
        other = sums(reference, target, mask)[0] if reference is not None else torch.zeros_like(own)
        logps[name] = (own / count, other / count) if loss == "ipo" else (own, other)
    margin = (logps["chosen"][0] - logps["rejected"][0]) - (logps["chosen"][1] - logps["rejected"][1])
    if loss == "sigmoid":
        each = -F.logsigmoid(beta * margin) * (1 - label_smoothing) - F.logsigmoid(-beta * margin) * label_smoothing
    elif loss == "hinge":
        each = torch.relu(1 - beta * margin)
    else:
        each = (margin - 1 / (2 * beta)) ** 2
    chosen, rejected = (beta * (own - other).detach() for own, other in (logps["chosen"], logps["rejected"]))
    rewards = torch.stack([chosen.mean(), rejected.mean(), (chosen > rejected).double().mean(),
                           (chosen - rejected).mean()])
    return each.mean(), rewards


def distillation(scores, teacher, target, beta, temperature):
    own, other = F.log_softmax(scores / temperature, -1), F.log_softmax(teacher / temperature, -1)
    if beta == 0:
        each = F.kl_div(own, other, reduction="none", log_target=True)
    elif beta == 1:
        each = F.kl_div(other, own, reduction="none", log_target=True)
    else:
        beta = torch.tensor(beta, dtype=own.dtype)
        mixed = torch.logsumexp(torch.stack([own + torch.log(1 - beta), other + torch.log(beta)]), dim=0)
        each = beta * F.kl_div(mixed, other, reduction="none", log_target=True) + (1 - beta) * F.kl_div(
            mixed, own, reduction="none", log_target=True)
    mask = target != IGNORED
    return each[mask].sum() / mask.sum()


def main():
    tensors, metadata = {}, {}

    def add(case, arguments, scores, other, target, documents, compute):
        leaf = scores.clone().requires_grad_(True)
        value, rewards = compute(leaf)
        value.backward()
        metadata[case] = json.dumps(arguments)
        tensors[f"{case}/scores"] = scores
        tensors[f"{case}/target"] = target
        if other is not None:
            tensors[f"{case}/other"] = other
        if documents is not None:
            tensors[f"{case}/documents"] = documents
        tensors[f"{case}/loss"] = value.detach()
        tensors[f"{case}/gradient"] = leaf.grad
        if rewards is not None:
            tensors[f"{case}/rewards"] = rewards

    batch, tokens, classes = 3, 7, 5
    documents = torch.tensor([[0, 0, 0, 1, 1, 1, 2], [0, 0, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 1, 2]], dtype=torch.int32)
    for number, (loss, beta, smoothing, has_reference) in enumerate(
            [("sigmoid", 0.1, 0, True), ("sigmoid", 0.7, 0.2, True), ("hinge", 0.5, 0, True), ("ipo", 0.3, 0, True),
             ("sigmoid", 0.4, 0, False)]):
        scores, reference = drawn(2 * number, batch, tokens, classes), drawn(2 * number + 1, batch, tokens, classes)
        target = targets(number, batch, tokens, classes)
        reference = reference if has_reference else None
        add(f"dpo/{number}", {"loss": loss, "beta": str(beta), "label_smoothing": str(smoothing)}, scores, reference,
            target, documents, lambda x: dpo(x, reference, target, documents, beta, loss, smoothing))
    for number, (beta, temperature) in enumerate([(0, 1), (1, 1), (0.5, 1), (0.3, 2.5), (0, 3)]):
        scores, teacher = drawn(20 + 2 * number, batch, tokens, classes), drawn(21 + 2 * number, batch, tokens, classes)
        target = targets(10 + number, batch, tokens, classes)
        arguments = {"beta": str(beta), "temperature": str(temperature), "ignore_index": "-100"}
        add(f"distillation/{number}", arguments, scores, teacher, target, None,
            lambda x: (distillation(x, teacher, target, beta, temperature), None))
    write_safetensors(Path(__file__).parent / "golden" / "preferences.safetensors", tensors, metadata)


if __name__ == "__main__":
    main()
