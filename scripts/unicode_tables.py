#!/usr/bin/env python3
"""Writes tokens/unicode_forms.cpp and tokens/unicode_kinds.cpp: what the normalization of texts needs to know of
characters, from `unicodedata`.

    scripts/unicode_tables.py
"""
import pathlib
import sys
import unicodedata

CODES = [c for c in range(sys.maxunicode + 1) if not 0xD800 <= c <= 0xDFFF]
# Alphabetic symbols, and joiners.
ALPHABETIC = [range(0x200C, 0x200E), range(0x24B6, 0x24EA), range(0x1F130, 0x1F14A), range(0x1F150, 0x1F16A),
              range(0x1F170, 0x1F18A)]
HANGUL = range(0xAC00, 0xAC00 + 11172)


def runs(mapping):
    """Records "CODE=A,B" in hexadecimal; "CODE+N=A": N more codes, each the one after, as are their values."""
    records = []
    codes = sorted(mapping)
    at = 0
    while at < len(codes):
        first, value, more = codes[at], mapping[codes[at]], 0
        while len(value) == 1 and mapping.get(first + more + 1) == [value[0] + more + 1]:
            more += 1
        records.append(f"{first:X}" + (f"+{more:X}" if more else "") + "=" + ",".join(f"{v:X}" for v in value))
        at += more + 1
    return records


def ranges(codes):
    """Records "FIRST+N"."""
    records = []
    for code in codes:
        if records and code == records[-1][1] + 1:
            records[-1][1] = code
        else:
            records.append([code, code])
    return [f"{a:X}" + (f"+{b - a:X}" if b > a else "") for a, b in records]


def normal(form, code):
    return [ord(c) for c in unicodedata.normalize(form, chr(code))]


def excluded(canonical):
    """Those that decompose to several characters, which do not compose to them again."""
    return ranges(c for c in sorted(canonical) if len(canonical[c]) > 1 and normal("NFC", c) != [c])


def classes():
    found = {}
    for code in CODES:
        if unicodedata.combining(chr(code)):
            found.setdefault(unicodedata.combining(chr(code)), []).append(code)
    return [record + f"={number:X}" for number, codes in sorted(found.items()) for record in ranges(codes)]


def write(name, tables):
    out = [f"// Written by scripts/unicode_tables.py from Unicode {unicodedata.unidata_version}.",
           '#include "tokens/unicode.hpp"', "", "// clang-format off", "namespace harmonics::tokens::unicode {", ""]
    for table, records in tables.items():
        out.append(f"const char* const {table} =")
        line = ""
        for record in records:
            if len(line) + len(record) > 112:
                out.append(f'    "{line}"')
                line = ""
            line += record + " "
        out += [f'    "{line}";', ""]
    out += ["}  // namespace harmonics::tokens::unicode", ""]
    path = pathlib.Path(__file__).parent.parent / f"tokens/{name}.cpp"
    path.write_text("\n".join(out), encoding="ascii")


def main():
    canonical = {c: normal("NFD", c) for c in CODES if c not in HANGUL and normal("NFD", c) != [c]}
    compatible = {c: normal("NFKD", c) for c in CODES if c not in HANGUL and normal("NFKD", c) != normal("NFD", c)}
    lower = {c: [ord(x) for x in chr(c).lower()] for c in CODES if chr(c).lower() != chr(c)}
    category = unicodedata.category
    write("unicode_forms", {"kCanonical": runs(canonical), "kCompatible": runs(compatible)})
    write("unicode_kinds", {
        "kExcluded": excluded(canonical), "kClasses": classes(), "kLower": runs(lower),
        "kMarks": ranges(c for c in CODES if category(chr(c)) == "Mn"),
        "kOtherMarks": ranges(c for c in CODES if category(chr(c)) in ("Mc", "Me")),
        "kPunctuation": ranges(c for c in CODES if category(chr(c))[0] == "P"),
        "kOther": ranges(c for c in CODES if category(chr(c)) in ("Cc", "Cf", "Co")),
        "kNumbers": ranges(c for c in CODES if category(chr(c))[0] == "N"),
        "kWord": ranges(c for c in CODES if category(chr(c))[0] in "LM" or category(chr(c)) in ("Nd", "Nl", "Pc") or
                        any(c in row for row in ALPHABETIC)),
    })


if __name__ == "__main__":
    main()
