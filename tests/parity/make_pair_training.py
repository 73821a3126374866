#!/usr/bin/env python3
"""Writes golden/pair_training.json: the merges that the library `tokenizers` trains on a text.

    pip install tokenizers
    tests/parity/make_pair_training.py
"""
import json
import pathlib

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

LINES = [
    "The cat sat on the mat, and the rat sat on the cat's hat.\n",
    "Äpfel und Birnen: 12 Äpfel, 1234 Birnen -- aaaa aaaaaa!\n",
    "  Two spaces, a tab\tand the end of the line; they're there.\n",
] * 3


def main():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=340,
        min_frequency=2,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(LINES, trainer)
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    merges = [m.split(" ") if isinstance(m, str) else m for m in merges]
    out = pathlib.Path(__file__).parent / "golden" / "pair_training.json"
    out.write_text(json.dumps({"lines": LINES, "size": 340, "merges": merges}, indent=1, ensure_ascii=True) + "\n")


if __name__ == "__main__":
    main()
