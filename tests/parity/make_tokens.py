#!/usr/bin/env python3
"""Writes golden/tokens.json: ids that the packages `tokenizers` and `sentencepiece` give for texts chosen to be hard.

    pip install tokenizers sentencepiece protobuf
    tests/parity/make_tokens.py DATA     # DATA: the folder with tiny-gpt2 and tokenizer/qwen2

The vocabularies of GPT-2 and Qwen2 are read from DATA and are not part of the output; that of sentencepiece is trained
here on made-up text and is, as are small vocabularies of the kinds Unigram and WordPiece.
"""
import io
import json
import pathlib
import random
import sys
import tempfile

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from hard_texts import texts
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
         r"|\s+(?!\S)|\s+")

# Replacements of a vocabulary: one character, several, an empty replacement, and a prefix of another one.
RULES = {"\ufb01": "fi", "\u00e9": "e\u0301", "A": "a", "AB": "x", "\u200b": "", "\u3000": " ", "\t": " ",
         "\U0001d49c": "A"}


def byte_pairs(folder, words):
    tokenizer = Tokenizer(models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
    tokenizer.pre_tokenizer = words
    return tokenizer


def sentence_pieces(model_type="bpe", size=420, rules="identity", **options):
    rng = random.Random(11)
    syllables = ["ka", "lo", "mi", "ten", "ra", "su", "é", "ня", "ли", "the", "ing", "er", "你", "好"]
    lines = [" ".join("".join(rng.choice(syllables) for _ in range(rng.randint(1, 4))) for _ in range(12))
             for _ in range(400)]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=size, model_type=model_type,
        character_coverage=1.0, minloglevel=2, **({"normalization_rule_name": rules} if rules else {}), **options)
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def described(pieces, digits):
    kinds = []
    for i in range(pieces.get_piece_size()):
        kinds.append(2 if pieces.is_unknown(i) else 3 if pieces.is_control(i) else 6 if pieces.is_byte(i) else 1)
    scores = [pieces.get_score(i) for i in range(len(kinds))]
    return {"pieces": [pieces.id_to_piece(i) for i in range(len(kinds))], "kinds": kinds,
            "scores": [round(score, digits) if digits else score for score in scores]}


def word_pieces(lowercase):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator([" ".join(text.split()) for text in texts(3000)],
                                  trainers.WordPieceTrainer(vocab_size=700, special_tokens=special,
                                                            show_progress=False))
    return tokenizer


def main():
    data = pathlib.Path(sys.argv[1])
    golden = {"texts": texts(int(sys.argv[2]) if len(sys.argv) > 2 else 400)}
    gpt2 = byte_pairs(data / "tiny-gpt2", pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True))
    qwen2 = byte_pairs(data / "tokenizer/qwen2",
                       pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN2), "isolated"),
                                                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]))
    whole = {"byte_fallback": True, "remove_extra_whitespaces": False}
    pieces, unigram = sentence_pieces(**whole), sentence_pieces("unigram", **whole)
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
        for code, parts in RULES.items():
            rules.write(" ".join(f"{ord(c):X}" for c in code) + "\t" + " ".join(f"{ord(c):X}" for c in parts) + "\n")
        rules.flush()
        small = sentence_pieces("unigram", 160, None, normalization_rule_tsv=rules.name)
    golden["gpt2"] = [gpt2.encode(text).ids for text in golden["texts"]]
    golden["qwen2"] = [qwen2.encode(text).ids for text in golden["texts"]]
    golden["sentencepiece"] = [pieces.encode(text) for text in golden["texts"]]
    golden["vocabulary"] = described(pieces, 4)
    golden["unigram"] = [unigram.encode(text) for text in golden["texts"]]
    golden["unigram_vocabulary"] = described(unigram, 0)
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(small.serialized_model_proto())
    golden["unigram_rules"] = [small.encode(text) for text in golden["texts"]]
    golden["unigram_rules_vocabulary"] = described(small, 0)
    golden["charsmap"] = list(proto.normalizer_spec.precompiled_charsmap)
    for name, lowercase in (("word_pieces", True), ("word_pieces_cased", False)):
        tokenizer = word_pieces(lowercase)
        vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
        golden[name] = [tokenizer.encode(text, add_special_tokens=False).ids for text in golden["texts"]]
        golden[name + "_vocabulary"] = [text for text, _ in vocabulary]
    out = sys.argv[3] if len(sys.argv) > 3 else pathlib.Path(__file__).parent / "golden/tokens.json"
    with open(out, "w", encoding="ascii") as file:
        json.dump(golden, file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
