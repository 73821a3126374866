#!/usr/bin/env python3
"""Writes golden/families.json: the words into which the package `tokenizers` divides hard texts, by the pre-tokenizers
of published models. Words are numbers of characters.

    pip install tokenizers
    tests/parity/make_families.py
"""
import json
import pathlib

from hard_texts import WORDS, texts
from tokenizers import Regex
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence, Split

CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
REST_OF_PATHS = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
# Cased letters, as DeepSeek LLM lists them.
CASED = ("A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"
         "\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f"
         "\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
         "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d"
         "\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4"
         "\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
         "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d"
         "\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a"
         "\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2"
         "\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943")


def split(*patterns):
    return [Split(Regex(pattern), "isolated") for pattern in patterns]


def gpt2():
    return ByteLevel(add_prefix_space=False, use_regex=True)


WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
TEXT_OF_BLOOM = " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"
CHINESE = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
FAMILIES = {
    "gpt-2": [gpt2()],
    "llama-bpe": split(CONTRACTION + "|" + WORD + r"|\p{N}{1,3}" + REST),
    "qwen2": split(CONTRACTION + "|" + WORD + r"|\p{N}" + REST),
    "starcoder": [Digits(individual_digits=True), gpt2()],
    "deepseek-llm": split(r"[\r\n]", rf"\s?[{CASED}]+", "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
                          r"\s+$", CHINESE) + [Digits(individual_digits=True)],
    "deepseek-coder": split(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CHINESE) + [Digits(individual_digits=True)],
    "deepseek-v3": split(r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
                         r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
                         r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""),
    "tekken": split(rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*|\p{{N}}"
                    + REST_OF_PATHS),
    "gpt-4o": split(rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTION}?"
                    rf"|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTION}?|\p{{N}}{{1,3}}" + REST_OF_PATHS),
    "seed-coder": split(CONTRACTION + "|" + WORD + r"|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"),
    "bloom": split(TEXT_OF_BLOOM),
    "viking": split(TEXT_OF_BLOOM) + [Digits(individual_digits=True)],
}


def main():
    golden = {"texts": texts(160) + ["".join(WORDS), "camelCase HTTPServer's XMLs a/b//\n/c", "x=12345;y='It''LL'\r\n",
                                     "ab\U0001d400\U0001d41a \u10d0\u10b0 \u0294x\u02b0y \u01c5z"]}
    for name, steps in FAMILIES.items():
        division = Sequence(steps)
        golden[name] = []
        for text in golden["texts"]:
            ends = [0] + [end for _, (_, end) in division.pre_tokenize_str(text)]
            assert ends[-1] == len(text), (name, text)
            golden[name].append([b - a for a, b in zip(ends, ends[1:])])
    with open(pathlib.Path(__file__).parent / "golden/families.json", "w", encoding="ascii") as file:
        json.dump(golden, file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
