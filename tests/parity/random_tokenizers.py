#!/usr/bin/env python3
"""Draws random tokenizers and texts, and compares the ids and the decoded texts of `harmonics tokenize` with those of
the library `tokenizers`; also the merges of `tokenize --train`. Prints each shortest text that differs, the refusals of
the program by reason, and the counts. Exits with 1 if something differs.

    pip install tokenizers
    tests/parity/random_tokenizers.py build/release/bin/harmonics [--seeds 0-99] [--texts 30] [--keep FOLDER]

Not compared: tokens of single bytes without a whole character, of which the library's decoder of byte tokens makes a
U+FFFD each and the program one for all; added tokens in Latin-1 letters, which the library's byte-level decoder takes
for bytes; plain text of special tokens that the model has too, which the program never encodes as them.
"""
import argparse
import collections
import concurrent.futures
import json
import pathlib
import random
import subprocess
import sys
import tempfile

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

LIMIT_S = 30
ALPHABETS = [
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcde", "0123456789", "'sStTrReEvVmMlLdD", " ", "  \t\n",
    "!\"#$%&()*+,-./:;<=>?@[\\]^_`{|}~'", "\r\n\t\v\f ", "\u00a0\u2003\u3000\u2028\u2029\u0085\u1680\u202f\u205f\u180e",
    "\u200b\u200c\u200d\u200e\ufeff\u00ad\u2060", "éàüßñçøÅĿŀſİıǅŉΐﬀẞǰ", "абвгдЖЩЪыэюяЁё", "αβγδΩςΣΆΐ", "你好世界漢字龍鿿㐀",
    "かなカナｶﾞﾊﾟ々ー", "한국어각힣", "\u1100\u1161\u11a8\u1112\u1175\u11c2\ua960\ud7b0", "שלום\u05b0\u05c1",
    "مرحبا\u064e\u0651\u0640",
    "हिन्दी\u093c\u094d", "กขคี่้ำ", "\u0301\u0308\u20dd\u0327\u0323\u0345\u1dc0\u0f71\u0f72", "٠١٢३४५Ⅷ½²①𝟘",
    "🙂👩🏽🇩🇪✅❤\ufe0f",
    "\x00\x01\x02\x1f\x7f\x80\x9f", "ﬁﬂǅʰ…™㍿ﷺ", "𝒜𝓑𐐀𠀀𝕬\U000e0041\U0010ffff\ue000\u0378",
    "\u0915\u0958\ufb1d\u2126\u212b\u0340\u0344\uf900\U0002f800",
    "—–―“”‘’«»、。！？，：", "$+<=>^`|~€£¥§©®°±×÷", "_\u203f\uff3f", "\ufffd\ufffe\u2581\u0120",
]
WORDS = ["Hello", "world", "I'll", "they'RE", "don't", "n't", " do not", "'s", " 've", "  ", "\n\n", " \n", "\t\t",
         "\r\n", "3.14159",
         "1,000,000", "foo_bar", "https://x.org/?q=a%20b", "C++", "naïve", "...", "——", " the", " of", "The",
         "for (int i = 0;",
         "    return x;\n", "👩‍👩‍👧", "e\u0301", "A\u030a", "\u1100\u1161\u11a8", "İstanbul", "ΟΔΟΣ", "straße", "   x",
         "##ab", "▁", "▁a", "</w>",
         "<0x0A>", "[UNK]", " .", " ?", "12345678901234567890", "don’t", "x'S", "a'ſ", "'Ll"]
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
GPT4 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+")
GPT4_POSSESSIVE = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]"
                   r"|\s+(?!\S)|\s+")
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = GPT4.replace(r"\p{N}{1,3}", r"\p{N}")
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CLIP = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
LLAMA4_DIGITS = r"\d{1,3}(?=(?:\d{3})*\b)"
EXPRESSIONS = [GPT2, GPT4, GPT4_POSSESSIVE, GPT4O, QWEN2, DEEPSEEK, CLIP, BLOOM, LLAMA4_DIGITS, r"\p{N}{1,3}", r"\p{N}",
               r"[0-9][0-9][0-9]",
               r"[一-龥぀-ゟ゠-ヿ]+", r"\s+", r"\w+|[^\w\s]+", r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[^\S\r\n]+", r"\b",
               r"x*", r"(?=\d)",
               r"\d+", r"[[:punct:]]", r"[\p{P}\p{S}]", r"\p{Han}+", r"\p{Lu}", r"[\p{L}&&[^\p{Han}]]+", r"[ab[0-9]]",
               r"^\s", r"\s$", r"."]
BEHAVIOURS = ["isolated", "removed", "merged_with_previous", "merged_with_next", "contiguous"]
ADDED = ["<s>", "</s>", "<|im_start|>", "<|im", "<|im_start", "hello world", " x ", "你好", "好世", "ＡＢ", "foo", "foobar",
         "ob", "obar", "\n\n",
         "\t", "...", "👩‍👩", "ABC", "a\u0301", "<mask>", "ﬁ", "the", "The", "th", "  ", "    ", "İx", "한", "x.", ".x",
         "1", "12", "_", "▁y", "é",
         "Straße", "<|Ü|>"]


# Texts

def some_text(draw, added=(), longest=9):
    parts = []
    for _ in range(draw.randint(1, longest)):
        kind = draw.random()
        if added and kind < 0.3:
            token = draw.choice(added)
            token = draw.choice([token, token, token, token.lower(), token.upper(), token[:-1], token + token])
            before, after = ["", "", " ", "  ", "\n", "a", "\u00a0"], ["", "", " ", " \n", "b", "é"]
            parts.append(draw.choice(before) + token + draw.choice(after))
        elif kind < 0.55:
            parts.append(draw.choice(WORDS))
        else:
            alphabet = draw.choice(ALPHABETS)
            parts.append("".join(draw.choice(alphabet) for _ in range(draw.randint(1, 6))))
            if draw.random() < 0.1:
                parts.append(draw.choice([" ", "\n", "a", "1", "é"]) * draw.randint(7, 40))
    return "".join(parts)


def texts_of(draw, count, added):
    fixed = ["", " ", "   ", "\n", "a", " a", "a ", "Hello world", "\u3000",
             draw.choice(["a", " ", "ab ", "\u0301", "7"]) * 3000]
    return fixed + [some_text(draw, added) for _ in range(max(count - len(fixed), 0))]


# Tokenizers

def normalizer_of(draw):
    kinds = {
        "NFC": normalizers.NFC, "NFD": normalizers.NFD, "NFKC": normalizers.NFKC, "NFKD": normalizers.NFKD,
        "Lowercase": normalizers.Lowercase, "StripAccents": normalizers.StripAccents, "Nmt": normalizers.Nmt,
        "Strip": lambda: normalizers.Strip(draw.random() < 0.5, draw.random() < 0.5),
        "Prepend": lambda: normalizers.Prepend(draw.choice(["▁", " ", "x"])),
        "Replace": lambda: normalizers.Replace(*draw.choice([
            (" ", "▁"), ("``", '"'), ("a", ""), ("ab", "ba"), (Regex(" {2,}"), " "), (Regex(r"\s+"), " "),
            (Regex(r"[0-9]"), "#"),
            (Regex(r"(?<!\n)^"), "▁"), (Regex("^(?!$)"), "▁"), (Regex("[\u200b-\u200f]"), ""), (Regex(r"\p{M}"), ""),
            (Regex(r"^\s+|\s+$"), ""), (Regex("(a)(b)"), "$1"), (Regex(r"\n"), "\n "), (Regex("x*"), "-")])),
        "Bert": lambda: normalizers.BertNormalizer(draw.random() < 0.7, draw.random() < 0.7,
                                                   draw.choice([None, True, False]), draw.random() < 0.6),
    }
    names = [draw.choice(list(kinds)) for _ in range(draw.choice([0, 0, 1, 1, 2, 3]))]
    names = [name for name in names if name != "Nmt" or draw.random() < 0.1]
    made = [kinds[name]() for name in names]
    return None if not made else made[0] if len(made) == 1 and draw.random() < 0.7 else normalizers.Sequence(made)


def splits_of(draw):
    def split():
        pattern = Regex(draw.choice(EXPRESSIONS)) if draw.random() < 0.9 else draw.choice([" ", "a", "--", "▁"])
        return pre_tokenizers.Split(pattern, draw.choice(BEHAVIOURS if draw.random() < 0.4 else ["isolated"]),
                                    draw.random() < 0.15)
    kinds = [
        split, split, split, pre_tokenizers.Whitespace, pre_tokenizers.WhitespaceSplit, pre_tokenizers.BertPreTokenizer,
        lambda: pre_tokenizers.Punctuation(draw.choice(BEHAVIOURS)), lambda: pre_tokenizers.Digits(draw.random() < 0.5),
        lambda: pre_tokenizers.CharDelimiterSplit(draw.choice("|_ ")),
        lambda: pre_tokenizers.FixedLength(draw.randint(1, 9)),
    ]
    if draw.random() < 0.02:
        return [pre_tokenizers.UnicodeScripts()]
    return [draw.choice(kinds)() for _ in range(draw.choice([0, 1, 1, 1, 2, 3]))]


def joined(draw, steps, sequence):
    return None if not steps else steps[0] if len(steps) == 1 and draw.random() < 0.8 else sequence(steps)


def metaspace_of(draw):
    return {"replacement": "▁", "prepend_scheme": draw.choice(["always", "first", "never"])}


def byte_level(draw, made, corpus):
    steps = splits_of(draw)
    steps.append(pre_tokenizers.ByteLevel(draw.random() < 0.3, use_regex=not steps or draw.random() < 0.4))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer_of(draw), joined(draw, steps, pre_tokenizers.Sequence)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=draw.randint(300, 900), show_progress=False,
                                                              initial_alphabet=alphabet))
    tokenizer.decoder = decoders.ByteLevel()
    made["ignore_merges"] = draw.random() < 0.3
    return tokenizer


def llama(draw, made, corpus):  # SentencePiece's pairs as the library has them
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=draw.random() < 0.8))
    if draw.random() < 0.5:
        steps = [normalizers.Prepend("▁")] * (draw.random() < 0.7) + [normalizers.Replace(" ", "▁")]
        tokenizer.normalizer = normalizers.Sequence(steps)
        front = draw.random() < 0.8
        tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
                                              + [decoders.Strip(" ", 1, 0)] * front)
    else:
        options = metaspace_of(draw)
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(split=draw.random() < 0.5, **options)
        tokenizer.decoder = decoders.Sequence([decoders.Metaspace(**options),
                                               decoders.ByteFallback()]) if draw.random() < 0.3 else \
            decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
                              + ([decoders.Strip(" ", 1, 0)] if options["prepend_scheme"] != "never" else []))
    bytes_ = [f"<0x{i:02X}>" for i in range(256)]
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=draw.randint(500, 900), show_progress=False, limit_alphabet=draw.randint(40, 200),
        max_token_length=draw.choice([None, 8]),
        special_tokens=["<unk>"] + bytes_))
    made["bytes"] = True
    made["keep_added"] = ["<unk>"]
    return tokenizer


def unigram(draw, made, corpus):
    tokenizer = Tokenizer(models.Unigram())
    options = metaspace_of(draw)
    steps = [pre_tokenizers.WhitespaceSplit()] * (draw.random() < 0.3)
    steps += [pre_tokenizers.Metaspace(split=draw.random() < 0.8, **options)]
    steps += [pre_tokenizers.Digits(True)] * (draw.random() < 0.2)
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer_of(draw), joined(draw, steps, pre_tokenizers.Sequence)
    tokenizer.train_from_iterator(corpus, trainers.UnigramTrainer(vocab_size=draw.randint(120, 500),
                                                                  show_progress=False, unk_token="<unk>",
                                                                  special_tokens=["<unk>"]))
    tokenizer.decoder = decoders.Metaspace(**options)
    made["round"] = draw.choice([None, None, 0, 1])
    made["keep_added"] = ["<unk>"]
    if draw.random() < 0.3:
        made["unigram_bytes"] = True
        tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(**options)])
    return tokenizer


def word_pieces(draw, made, corpus):
    prefix = draw.choice(["##", "##", "##", "@@", ""])
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", continuing_subword_prefix=prefix,
                                           max_input_chars_per_word=draw.choice([100, 100, 7])))
    tokenizer.normalizer = normalizers.BertNormalizer(True, True, draw.choice([None, True, False]),
                                                      draw.random() < 0.5) \
        if draw.random() < 0.6 else normalizer_of(draw)
    steps = [pre_tokenizers.BertPreTokenizer()] if draw.random() < 0.6 else splits_of(draw)
    if steps:
        tokenizer.pre_tokenizer = joined(draw, steps, pre_tokenizers.Sequence)
    tokenizer.train_from_iterator(corpus, trainers.WordPieceTrainer(
        vocab_size=draw.randint(200, 700), special_tokens=["[PAD]", "[UNK]"], show_progress=False,
        continuing_subword_prefix=prefix or "##"))
    tokenizer.decoder = decoders.WordPiece(prefix or "##", draw.random() < 0.7)
    made["keep_added"] = ["[UNK]", "[PAD]"]
    return tokenizer


def clip(draw, made, corpus):  # pairs with a suffix at ends of words
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>", fuse_unk=draw.random() < 0.3))
    tokenizer.normalizer = normalizer_of(draw)
    options = {"vocab_size": 500, "show_progress": False, "special_tokens": ["<unk>"], "end_of_word_suffix": "</w>"}
    if draw.random() < 0.5:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(CLIP), "removed", True),
                                                           pre_tokenizers.ByteLevel(False)])
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(initial_alphabet=alphabet, **options))
        made["undecoded"] = True  # the library's decoder leaves the suffix to transformers
    else:
        tokenizer.pre_tokenizer = draw.choice([pre_tokenizers.BertPreTokenizer, pre_tokenizers.Whitespace])()
        tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(limit_alphabet=100, **options))
        tokenizer.decoder = decoders.BPEDecoder("</w>")
    made["keep_added"] = ["<unk>"]
    return tokenizer


def plain_pairs(draw, made, corpus):  # pairs of characters
    options = {"continuing_subword_prefix": "##"} if draw.random() < 0.05 else {}
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=draw.random() < 0.5, **options))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer_of(draw), joined(
        draw, splits_of(draw), pre_tokenizers.Sequence)
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=draw.randint(150, 500), show_progress=False, limit_alphabet=draw.randint(30, 120),
        special_tokens=["<unk>"]))
    decoder = draw.choice([decoders.Fuse, lambda: decoders.Replace("▁", " "), lambda: None])()
    if decoder:
        tokenizer.decoder = decoder
    made["keep_added"] = ["<unk>"]
    made["undecoded"] = tokenizer.decoder is None
    return tokenizer


def word_level(draw, made, corpus):
    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(corpus, trainers.WordLevelTrainer(vocab_size=200, special_tokens=["[UNK]"],
                                                                    show_progress=False))
    return tokenizer


def processor_of(draw, tokenizer):
    special = [(token.content, i) for i, token in tokenizer.get_added_tokens_decoder().items() if token.special]
    kind = draw.choice([None, None, "TemplateProcessing", "TemplateProcessing", "BertProcessing", "RobertaProcessing",
                        "ByteLevel", "Sequence"])
    level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": draw.random() < 0.5, "use_regex": True}
    if kind is None or (kind != "ByteLevel" and not special):
        return None
    if kind == "ByteLevel":
        return level
    (first, first_id), (last, last_id) = draw.choice(special), draw.choice(special)
    if kind in ("BertProcessing", "RobertaProcessing"):
        made = {"type": kind, "sep": [last, last_id], "cls": [first, first_id]}
        return made | ({"trim_offsets": True,
                        "add_prefix_space": draw.random() < 0.5} if kind == "RobertaProcessing" else {})
    text = {"Sequence": {"id": "A", "type_id": 0}}
    front, back = [{"SpecialToken": {"id": name, "type_id": 0}} for name in (first, last)]
    single = [front] * draw.choice([0, 1, 1, 1]) + [text] + [back] * draw.choice([0, 0, 1])
    template = {"type": "TemplateProcessing", "single": single,
                "pair": single + [{"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {name: {"id": name, "ids": [i], "tokens": [name]} for name,
                                   i in ((first, first_id), (last, last_id))}}
    return template if kind == "TemplateProcessing" else {"type": "Sequence", "processors": [level, template]}


# Draws a definition; returns its JSON and the texts of its added tokens.
def drawn(draw):
    made = {}
    corpus = [some_text(draw, longest=25).replace("<0x0A>", "") for _ in range(draw.choice([40, 150]))]
    build = draw.choices([byte_level, llama, unigram, word_pieces, clip, plain_pairs, word_level],
                         [8, 4, 4, 4, 2, 2, 0.1])[0]
    tokenizer = build(draw, made, corpus)
    names = draw.sample(ADDED, draw.choice([0, 2, 4, 8]))
    if build in (byte_level, clip):
        names = [name for name in names if not any("\x80" <= c < "\u0144" for c in name)]
    flag = lambda chance: draw.random() < chance
    for name in made.get("keep_added", []) + names:
        token = AddedToken(name, single_word=flag(0.25), lstrip=flag(0.3), rstrip=flag(0.3), normalized=flag(0.4),
                           special=flag(0.5))
        if token.normalized and tokenizer.normalizer and tokenizer.normalizer.normalize_str(name) != name:
            keeps = bool(tokenizer.normalizer.normalize_str(name)) and not token.special
            token = AddedToken(name, single_word=token.single_word, rstrip=token.rstrip, normalized=keeps,
                               special=token.special)
            made["undecoded"] = made.get("undecoded") or keeps  # the library decodes it to its normal form
        if tokenizer.token_to_id(name) is not None:
            token = AddedToken(name, single_word=token.single_word, lstrip=token.lstrip, normalized=False,
                               special=False)
        if name in made.get("keep_added", []):
            token = AddedToken(name, special=True, normalized=False)
        (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])
    root = json.loads(tokenizer.to_str())
    model = root["model"]
    if made.get("bytes"):  # the trainer makes them special
        root["added_tokens"] = [token for token in root["added_tokens"] if not token["content"].startswith("<0x")]
    if "ignore_merges" in made:
        model["ignore_merges"] = made["ignore_merges"]
    if made.get("round") is not None:
        model["vocab"] = [[text, round(score, made["round"])] for text, score in model["vocab"]]
    if made.get("unigram_bytes"):
        before = len(model["vocab"])
        model["vocab"][before:before] = [[f"<0x{i:02X}>", 0.0] for i in range(256)]
        for token in root["added_tokens"]:
            token["id"] += 256 if token["id"] >= before else 0
        model["byte_fallback"] = True
    spaced = any(" " in part for pair in model.get("merges", []) for part in pair)
    if model.get("merges") and draw.random() < 0.4 and not spaced:
        model["merges"] = [" ".join(pair) for pair in model["merges"]]
    tokenizer = Tokenizer.from_str(json.dumps(root))
    root["post_processor"] = processor_of(draw, tokenizer)
    return root, [token["content"] for token in root["added_tokens"]], build.__name__, made


# Comparison

class Program:
    def __init__(self, path, file):
        self.path, self.file = path, file

    def call(self, arguments, text=""):
        data = text if isinstance(text, bytes) else text.encode()
        try:
            done = subprocess.run([self.path, "tokenize", self.file, "--json", *arguments], input=data,
                                  capture_output=True, timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            return {"failure": "hang"}
        if done.returncode:
            return {"failure": done.stderr.decode(errors="replace").strip() or f"exit {done.returncode}",
                    "code": done.returncode}
        return json.loads(done.stdout)

    def ids(self, text, special):
        return self.call(["--special"] if special else [], text)

    def text(self, ids):
        return self.call(["--decode", " ".join(map(str, ids))]).get("text")


def normal(tokenizer, text):
    return tokenizer.normalizer.normalize_str(text) if tokenizer.normalizer else text


# Returns what differs for a text: "" if nothing.
def difference(program, tokenizer, text, special, decodes):
    changed = normal(tokenizer, text)
    if any(name in changed and (not special or name == "<0x" or changed.count(name) != text.count(name))
           for name in program.hidden):
        return ""  # the library's model makes a special token of its plain text
    if program.first and not changed.startswith(text[:1]):
        return ""  # the library's Metaspace marks the first word only if the normalizer leaves its first character
    tokenizer.encode_special_tokens = not special
    wanted = tokenizer.encode(text).ids
    result = program.ids(text, special)
    if result.get("tokens") != wanted:
        return f"ids{'' if special else ' of plain text'}: {wanted} wanted, not {result.get('tokens', result)}"
    if decodes and wanted:
        expected, found = tokenizer.decode(wanted), program.text(wanted)
        if expected != found:
            return f"text of {wanted}: {expected!r} wanted, not {found!r}"
    return ""


def shortest(program, tokenizer, text, special, decodes):
    size = max(len(text) // 2, 1)
    tries = 0
    while size and tries < 300:
        at = 0
        while at < len(text) and tries < 300:
            shorter = text[:at] + text[at + size:]
            tries += 1
            if difference(program, tokenizer, shorter, special, decodes):
                text = shorter
            else:
                at += size
        size //= 2
    return text


def described(root):
    parts = {key: root[key] for key in ("normalizer", "pre_tokenizer", "post_processor", "decoder") if root[key]}
    parts["model"] = {key: value for key, value in root["model"].items() if key not in ("vocab", "merges") and value}
    parts["added_tokens"] = [{key: value for key, value in token.items() if value} for token in root["added_tokens"]]
    return json.dumps(parts, ensure_ascii=False)


def check_one(options, folder, seed):
    draw = random.Random(seed)
    try:
        root, added, kind, made = drawn(draw)
        tokenizer = Tokenizer.from_str(json.dumps(root))
    except BaseException as error:  # the library panics for some definitions
        return {"undrawn": f"{type(error).__name__}: {error}"}
    file = folder / f"{seed}" / "tokenizer.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(root))
    program = Program(options.harmonics, str(file))
    program.hidden = made.get("keep_added", []) + ["<0x"] * bool(made.get("unigram_bytes"))
    program.first = '"first"' in json.dumps(root["pre_tokenizer"])
    opened = program.ids("a", True)
    if "failure" in opened:
        return {"refusal" if opened.get("code") in range(1, 100) else "bad": f"seed {seed}: " + opened["failure"]}
    decodes = not made.get("undecoded")
    agreed = 0
    for text in texts_of(draw, options.texts, added):
        special = draw.random() < 0.75
        try:
            what = difference(program, tokenizer, text, special, decodes)
            if what:
                text = shortest(program, tokenizer, text, special, decodes)
                what = difference(program, tokenizer, text, special, decodes)
                return {"bad": f"seed {seed} ({kind}): {text!r}: {what}\n    {described(root)}"}
        except BaseException as error:
            return {"undrawn": f"{type(error).__name__}: {error}"}
        agreed += 1
    broken = program.call([], draw.choice([b"a\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"a\xf5b"]))
    if "UTF-8" not in broken.get("failure", ""):
        return {"bad": f"seed {seed}: invalid UTF-8 gives {broken}"}
    ids = [draw.randrange(tokenizer.get_vocab_size()) for _ in range(draw.randint(1, 12))]
    if decodes and not made.get("bytes") and not made.get("unigram_bytes"):
        wanted, found = tokenizer.decode(ids), program.text(ids)
        if wanted != found:
            pieces = [tokenizer.id_to_token(i) for i in ids]
            what = f"text of {pieces}: {wanted!r} wanted, not {found!r}"
            return {"bad": f"seed {seed} ({kind}): {what}\n    {described(root)}"}
    if not options.keep:
        file.unlink()
    return {"agreed": agreed}


def check_training(options, folder, seed):
    draw = random.Random(seed)
    count = draw.choice([3, 40, 200])
    lines = [some_text(draw, longest=20).replace("\x00", "") + "\n" for _ in range(count)] * draw.choice([1, 2])
    size = draw.randint(257, 700)
    place = folder / f"trained{seed}"
    place.mkdir(exist_ok=True)
    (place / "text.txt").write_text("".join(lines), newline="")
    done = subprocess.run([options.harmonics, "tokenize", place / "tokenizer.json", "--train", str(size), "--file",
                           place / "text.txt"],
                          capture_output=True, timeout=LIMIT_S)
    if done.returncode:
        return {"bad": f"seed {seed}: training: " + done.stderr.decode()}
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(split_lines("".join(lines)), trainers.BpeTrainer(
        vocab_size=size, min_frequency=2, special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    wanted, found = json.loads(tokenizer.to_str())["model"], json.loads((place / "tokenizer.json").read_text())["model"]
    if wanted["merges"] != found["merges"] or wanted["vocab"] != found["vocab"]:
        pairs = enumerate(zip(wanted["merges"], found["merges"]))
        place = next((i for i, (a, b) in pairs if a != b), None)
        return {"bad": f"seed {seed}: training to {size} differs from merge {place}"}
    return {"trained": 1}


def split_lines(text):
    return [line + "\n" for line in text.split("\n")[:-1]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("harmonics")
    parser.add_argument("--seeds", default="0-99")
    parser.add_argument("--texts", type=int, default=30)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep", type=pathlib.Path, help="keep the definitions in this folder")
    options = parser.parse_args()
    first, _, last = options.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    counts, refusals, failures = collections.Counter(), collections.Counter(), []
    with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ProcessPoolExecutor(options.jobs) as pool:
        folder = options.keep or pathlib.Path(scratch)
        folder.mkdir(exist_ok=True)
        waiting = [pool.submit(check, options, folder, seed) for seed in seeds for check in (check_one, check_training)]
        for done in concurrent.futures.as_completed(waiting):
            result = done.result()
            counts["tokenizers"] += "agreed" in result
            counts["texts"] += result.get("agreed", 0)
            counts["trainings"] += result.get("trained", 0)
            counts["not drawn"] += "undrawn" in result
            if "undrawn" in result:
                refusals["library: " + result["undrawn"][:100]] += 1
            if "refusal" in result:
                refusals[result["refusal"].split("tokenizer.json'")[-1][:200]] += 1
            if "bad" in result:
                failures.append(result["bad"])
                print("DIFFERS", result["bad"], flush=True)
    for reason, count in refusals.most_common():
        print(f"refused {count}: {reason}")
    print(", ".join(f"{count} {name}" for name, count in counts.items()), "agree;", len(failures), "differ")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
