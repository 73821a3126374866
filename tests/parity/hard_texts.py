"""Texts that are hard to divide into words and tokens."""
import random

ALPHABETS = [
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789", " ", " \t\n\r\v\f", "'sStTrReEvVmMlLdD",
    "!\"#$%&()*+,-./:;<=>?@[\\]^_`{|}~", "\u00a0\u2003\u3000\u2028\u0085\u200b\ufeff", "éàüßñçøÅĿŀſ", "абвгдЖЩЪыэюя",
    "αβγδΩς", "你好世界漢字かなカナ한국어", "שלום مرحبا", "\u0301\u0308\u20dd\u0e31\u0e34กขค", "٠١٢३४५Ⅷ½²①", "🙂👩‍👩‍👧🏽🇩🇪✅",
    "\x01\x02\x1f\x7f", "ﬁﬂǅʰ", "𝒜𝓑𐐀𠀀",
]
WORDS = ["Hello", "world", "I'll", "they'RE", "don't", "  ", "\n\n", " \n", "\t\t", "3.14159", "1,000,000", "foo_bar",
         "https://x.org/?q=a%20b", "C++", "naïve", "<|endoftext|>", "<s>", "...", "——", " the", " of"]


def texts(count):
    rng = random.Random(7)
    made = ["", " ", "  ", "\n", "a", " a", "a ", "Hello world", "<unk>"]
    while len(made) < count:
        parts = []
        for _ in range(rng.randint(1, 9)):
            if rng.random() < 0.35:
                parts.append(rng.choice(WORDS))
            else:
                alphabet = rng.choice(ALPHABETS)
                parts.append("".join(rng.choice(alphabet) for _ in range(rng.randint(1, 5))))
        made.append("".join(parts))
    return made
