#!/usr/bin/env python3
"""Draws random vocabularies of GGUF files and texts, and compares the ids and the decoded texts of `harmonics tokenize`
with those of llama.cpp. Prints each text that differs, the refusals of both programs, and the counts. Exits with 1 if
something differs. Run by hand.

    pip install numpy gguf tokenizers llama-cpp-python
    tests/parity/random_gguf_tokenizers.py build/release/bin/harmonics [--seeds 0-99] [--texts 30] [--kind bert]

Not compared, since llama.cpp differs from the tokenizers that the files are made of: characters beyond ASCII in
families whose expressions it approximates; in BERT, marks that take room, and characters of private use or without a
name; a Unigram of texts of spaces, or that removes spaces and adds none, or has tokens of the user beyond ASCII, whose
first bytes llama.cpp takes out of other characters; the texts of control, unused and byte tokens as parts of words.
"""
import argparse
import collections
import json
import random
import re
import subprocess
import sys
import tempfile
import unicodedata
from ctypes import c_char
from pathlib import Path

try:
    import gguf
    import llama_cpp
    from beside_llama_cpp import byte_tokens
    from random_gguf import in_process
    from random_tokenizers import WORDS, some_text
except ImportError as missing:
    sys.exit(f"random_gguf_tokenizers.py: {missing}; pip install numpy gguf tokenizers llama-cpp-python")

LIMIT_S = 30
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)
EXACT = ("gpt-2", "phi-2", "mpt", "olmo", "jais", "exaone4", "llama3", "llama-bpe", "dbrx", "smaug-bpe", "chatglm-bpe",
         "glm4", "glm5", "qwen2", "stablelm2", "deepseek-r1-qwen", "megrez", "kormo", "trillion", "a.x-4.0",
         "solar-open", "jina-v5-nano")
IN_ASCII = ("starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "falcon", "default", None,
            "deepseek-coder", "deepseek-llm", "deepseek-v3", "hunyuan-dense", "tekken", "gpt-4o", "llama4",
            "seed-coder", "minicpm5", "tiny_aya", "ufakzeka", "mellum2", "joyai-llm", "bloom",
            "poro-chat", "gpt3-finnish", "viking", "hunyuan", "grok-2", "minerva-7b")
ADDED = ["<|im_start|>", "<|im", "<|sep|>", "hello world", "foo", "foobar", "\n\n", "...", "<mask>", "    ", "ABC",
         "12", "你好", "x."]


def pieces_of(draw, texts, count, longest=6):
    """Returns parts of texts, at least all of some characters."""
    joined = "▁".join(texts)
    parts = set(draw.sample(sorted(set(joined)), len(set(joined)) * 3 // 4))
    while len(parts) < count and len(joined) > longest:
        at = draw.randrange(len(joined) - longest)
        parts.add(joined[at:at + draw.randint(1, longest)])
    return sorted(parts)


class Drawn:
    """A vocabulary: tokens with types and scores, and metadata."""

    def __init__(self, model):
        self.model, self.tokens, self.types, self.scores, self.merges = model, [], [], [], None
        self.values, self.family = {}, None

    def add(self, text, type=NORMAL, score=0.0):
        if text and text not in self.tokens:
            self.tokens.append(text)
            self.types.append(type)
            self.scores.append(score)

    def shuffle(self, draw, first):
        order = list(range(first, len(self.tokens)))
        draw.shuffle(order)
        order = list(range(first)) + order
        for name in ("tokens", "types", "scores"):
            setattr(self, name, [getattr(self, name)[i] for i in order])

    def write(self, path):
        w = gguf.GGUFWriter(path, "llama")
        for key, value in {"context_length": 64, "embedding_length": 8, "block_count": 1, "feed_forward_length": 8,
                           "attention.head_count": 1}.items():
            w.add_uint32(f"llama.{key}", value)
        w.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
        w.add_tokenizer_model(self.model)
        w.add_token_list(self.tokens)
        w.add_token_types(self.types)
        if self.scores is not None:
            w.add_token_scores(self.scores)
        if self.merges is not None:
            w.add_token_merges(self.merges)
        for key, value in self.values.items():
            (w.add_string if isinstance(value, str) else w.add_bool if isinstance(value, bool) else w.add_uint32)(
                "tokenizer.ggml." + key, value)
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()


def add_specials(draw, made, texts=ADDED):
    for text in draw.sample(texts, draw.randint(0, 5)):
        made.add(text, draw.choice([CONTROL, USER]) if text.startswith("<") else USER)
    for i in range(draw.randint(0, 3)):
        made.add(f"<unused\x7f{i}>", UNUSED)


def maybe_values(draw, made, values):
    for key, choices in values.items():
        if draw.random() < 0.5:
            made.values[key] = draw.choice(choices)


def sentence_pieces(draw, texts):
    made = Drawn("llama")
    made.add("<unk>", UNKNOWN), made.add("<s>", CONTROL), made.add("</s>", CONTROL)
    for byte in range(256):
        made.add(f"<0x{byte:02X}>", BYTE)
    add_specials(draw, made)
    for piece in pieces_of(draw, [t.replace(" ", "▁") for t in texts], draw.randint(50, 600)):
        made.add(piece, NORMAL, draw.choice([-1.0, -2.0, -float(draw.randint(0, 1000)), draw.uniform(-20, 0)]))
    made.shuffle(draw, 3)
    maybe_values(draw, made, {"bos_token_id": [1, 1, 2], "eos_token_id": [2], "unknown_token_id": [0],
                              "add_bos_token": [True, False], "add_eos_token": [True, False],
                              "add_space_prefix": [True, False], "remove_extra_whitespaces": [False]})
    return made


def byte_pairs(draw, texts):
    made = Drawn("gpt2")
    alphabet = byte_tokens()
    for token in alphabet:
        made.add(token)
    words = collections.Counter()
    for text in texts:
        for word in text.replace(" ", "\x00 ").split("\x00"):
            words[tuple(alphabet[b] for b in word.encode()[:40])] += 1
    made.merges = []
    for _ in range(draw.randint(1, 250)):
        pairs = collections.Counter()
        for word, count in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += count
        if not pairs:
            break
        left, right = draw.choice(pairs.most_common(8))[0]
        made.merges.append(f"{left} {right}")
        made.add(left + right)
        changed = collections.Counter()
        for word, count in words.items():
            parts, at = [], 0
            while at < len(word):
                joined = word[at:at + 2] == (left, right)
                parts.append(left + right if joined else word[at])
                at += 2 if joined else 1
            changed[tuple(parts)] += count
        words = changed
    if draw.random() < 0.3:  # merges out of order, and tokens without merges
        draw.shuffle(made.merges)
    if draw.random() < 0.3:
        for word in WORDS[:20]:
            made.add("".join(alphabet[b] for b in word.encode()))
    if draw.random() < 0.4:
        made.shuffle(draw, 0)
    eos = len(made.tokens)
    made.add("<|endoftext|>", CONTROL)
    add_specials(draw, made)
    made.scores = None
    made.family = draw.choice(EXACT if draw.random() < 0.6 else IN_ASCII)
    if made.family:
        made.values["pre"] = made.family
    made.values |= {"bos_token_id": eos, "eos_token_id": eos}
    maybe_values(draw, made, {"add_bos_token": [True, False], "add_eos_token": [True, False]})
    return made


def word_pieces(draw, texts):
    made = Drawn("bert")
    for text in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"):
        made.add(text, CONTROL)
    lower = [word for text in texts for word in text.lower().split()]
    for word in lower:
        if draw.random() < 0.5:
            made.add("▁" + word[:draw.randint(1, 12)])
    for piece in pieces_of(draw, lower, draw.randint(50, 400)):
        if "▁" not in piece:
            made.add(("▁" if draw.random() < 0.5 else "") + piece)
    made.shuffle(draw, 5)
    made.scores = None
    made.values = {"padding_token_id": 0, "unknown_token_id": 1, "cls_token_id": 2, "seperator_token_id": 3,
                   "mask_token_id": 4, "bos_token_id": 2}
    maybe_values(draw, made, {"normalizer.lowercase": [True, False], "normalizer.strip_accents": [True, False]})
    return made


def unigram(draw, texts):
    made = Drawn("t5")
    made.add("<pad>", CONTROL), made.add("</s>", CONTROL), made.add("<unk>", UNKNOWN)
    add_specials(draw, made, [text for text in ADDED if text.isascii()])
    for piece in pieces_of(draw, [t.replace(" ", "▁") for t in texts], draw.randint(50, 600)):
        made.add(piece, NORMAL, -draw.randint(8, 320) / 16)  # sums are exact in float
    made.shuffle(draw, 3)
    maybe_values(draw, made, {"eos_token_id": [1], "unknown_token_id": [2], "padding_token_id": [0],
                              "add_bos_token": [False], "add_eos_token": [True, False],
                              "add_space_prefix": [True, False], "remove_extra_whitespaces": [True, False]})
    if made.values.get("remove_extra_whitespaces"):
        made.values.pop("add_space_prefix", None)
    return made


KINDS = {"llama": sentence_pieces, "gpt2": byte_pairs, "bert": word_pieces, "t5": unigram}


def plain_enough(made, text, added):
    """Returns whether llama.cpp treats the text like the tokenizer that the file is made of."""
    if made.model == "gpt2" and made.family not in EXACT:
        return text.isascii() and not set(text) & set("\v\f\x1c\x1d\x1e\x1f\x00")
    if made.model == "bert":
        return not any(unicodedata.category(c) in ("Mc", "Me", "Cc", "Cf", "Co", "Cn") for c in text)
    if made.model == "t5" and not made.values.get("remove_extra_whitespaces"):
        text = re.sub("|".join(map(re.escape, sorted(added, key=len, reverse=True))), "\x01", text) if added else text
        if re.search("(^|\x01) +(\x01|$)", text):
            return False
    return "\x00" not in text and "<0x" not in text


def theirs(path, texts):
    """Returns (ids, bytes of each id) of each (text, special)."""
    model = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
    vocabulary = llama_cpp.llama_model_get_vocab(model._model.model)
    results = []
    for text, special in texts:
        ids = model.tokenize(text.encode(), add_bos=True, special=special)
        pieces = []
        for id in ids:
            room = (c_char * 256)()
            size = llama_cpp.llama_token_to_piece(vocabulary, id, room, 256, 0, True)
            pieces.append(room.raw[:max(size, 0)])
        results.append((ids, pieces))
    return results


def call(program, path, arguments, text=""):
    done = subprocess.run([program, "tokenize", path, "--json", *arguments], input=text.encode(), capture_output=True,
                          timeout=LIMIT_S)
    if done.returncode:
        return {"failure": done.stderr.decode(errors="replace").strip() or f"exit {done.returncode}"}
    return json.loads(done.stdout)


def written(made, ids, pieces):
    """Returns the text that the ids stand for, or None if it is not compared: control tokens have none."""
    kinds = [made.types[id] for id in ids]
    if made.model == "bert" or UNUSED in kinds:
        return None
    pieces = [b"" if kind == CONTROL else "\ufffd".encode() if kind == UNKNOWN else piece
              for kind, piece in zip(kinds, pieces)]
    try:
        return b"".join(pieces).decode()
    except UnicodeDecodeError:
        return None


def check(program, seed, kinds, count, folder):
    """Returns (what differs, the refusal, the peer's refusal, the number of texts that agree)."""
    draw = random.Random(seed)
    sample = [some_text(draw, longest=20).replace("\x00", "") for _ in range(12)] + WORDS
    made = KINDS[draw.choice(kinds)](draw, sample)
    path = folder / f"{seed}.gguf"
    made.write(path)
    added = [t for t, kind in zip(made.tokens, made.types) if kind in (CONTROL, USER)]
    texts = ["a", " a", "a ", "  ", " \n", "Hello  world"] + [some_text(draw, added) for _ in range(count)]
    if made.model == "gpt2" and made.family not in EXACT:
        texts += ["".join(c for c in text if c.isascii()) for text in texts]
    texts = [(text, draw.random() < 0.6) for text in texts if text and plain_enough(made, text, added)]
    rows = in_process(theirs, path, texts)
    mine = call(program, path, [], "a")
    place = f"seed {seed} {made.model} {made.family or ''} {made.values}"
    if "failure" in mine:
        return "", f"{made.model}: {mine['failure'].replace(str(path), 'FILE')}", "", 0
    if isinstance(rows, str):
        return "", "", f"{made.model} {made.family or ''}: {rows}", 0
    agreed = 0
    for (text, special), (ids, pieces) in zip(texts, rows):
        mine = call(program, path, ["--special"] if special else [], text)
        if mine.get("tokens") != ids:
            names = [made.tokens[i] for i in ids], [made.tokens[i] for i in mine.get("tokens", [])]
            what = f"{text!r} special {special}: {ids} wanted, not {mine.get('tokens', mine)}: {names}"
            return f"{place}: {what}", "", "", 0
        wanted = written(made, ids, pieces)
        if wanted is not None and ids:
            result = call(program, path, ["--decode", " ".join(map(str, ids))])
            found = result.get("text", f"{result}")
            if found != wanted and " " + found != wanted:  # llama.cpp keeps the space behind a first control token
                return f"{place}: text of {[made.tokens[i] for i in ids]}: {wanted!r} wanted, not {found!r}", "", "", 0
        agreed += 1
    return "", "", "", agreed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("harmonics")
    parser.add_argument("--seeds", default="0-99")
    parser.add_argument("--texts", type=int, default=30)
    parser.add_argument("--kind", action="append", choices=list(KINDS))
    parser.add_argument("--keep", type=Path, help="keep the files in this folder")
    a = parser.parse_args()
    first, _, last = a.seeds.partition("-")
    differ, agreed, refused = 0, 0, collections.Counter()
    with tempfile.TemporaryDirectory() as temporary:
        folder = a.keep or Path(temporary)
        folder.mkdir(exist_ok=True)
        for seed in range(int(first), int(last or first) + 1):
            wrong, refusal, peer, count = check(a.harmonics, seed, a.kind or list(KINDS), a.texts, folder)
            agreed += count
            if wrong:
                differ += 1
                print(wrong, flush=True)
            for text in (refusal and "refused: " + refusal, peer and "not read by llama.cpp: " + peer):
                if text:
                    refused[text] += 1
            if not a.keep:
                (folder / f"{seed}.gguf").unlink()
    for text, number in refused.most_common():
        print(f"{number:>4} x {text}")
    print(f"{agreed} texts agree, {differ} vocabularies differ")
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())
