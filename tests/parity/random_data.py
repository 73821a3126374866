"""Draws random data, writes them with NumPy and Python, and compares what the program reads with what Python reads, bit
for bit: arrays and pictures (random_arrays.py), tables, JSON lines, MessagePack and texts, from files, compressed files
and pipes that deliver random pieces; what consumers write; the order of shuffled samples; batches of a flow. Exits with
1 if one differs.

Expected values follow docs/streams.md. Needs NumPy and msgpack; zstandard is used if installed.

    python tests/parity/random_data.py build/release/bin/harmonics [--seeds 0-999] [--folder FOLDER] [--only KIND]
"""
import argparse
import collections
import json
import pathlib
import random
import shutil
import struct
import sys
import tempfile
import urllib.parse

import msgpack
import numpy as np

from random_arrays import (TYPES, Program, Wrong, check_array, check_array_pipe, check_folder, check_pictures,
                           compressed, pieces, same)

WORDS = ["a", "b c", "Zürich", "日本", "x,y", 'say "hi"', "two\nlines", "semi;colon", "tab\there", "bar|x",
         "0x10", "1_000", "O'Neil", "é", "e\u0301", "😀", "#5", "true", "none", "-", "+", ".", "e5", "1e", "--1",
         "a" * 300, " lead", "x\r\ny"]
MISSING = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "?"]
PLACE = ("line ", "column", "byte", "sample", "value ", "array ", "shape", "axis", "record", "dtype")


# Tables

def number_text(draw):
    """Returns a spelling of a number, and whether it is an integer."""
    kind = draw.randrange(12)
    if kind < 3:
        return str(draw.choice([0, 1, -1, 7, 255, draw.randint(-1000, 1000), draw.randint(-2**63, 2**63 - 1)])), True
    if kind == 3:
        return draw.choice(["+3", "-0", "007", "-007", "+0", "00", str(2**53 + 1), str(-2**63), str(2**63 - 1)]), True
    if kind == 4:
        return draw.choice([".5", "5.", "-.5", "+.5", "-0.0", "0.0", "1.", "00.50", "-5."]), False
    if kind == 5:
        return draw.choice(["1e5", "1E5", "1e+5", "1.e-3", ".1E2", "-2e-0", "+1e0", "1e-45", "1e-46", "3.4028235e38",
                            "1E-400", "-1e-400", "1e-320", "0e999", "0.0e-999", "7e-46"]), False
    if kind == 6:
        return f"{draw.random():.{draw.randint(0, 25)}f}" + draw.choice(["", "0" * 30]), None
    if kind == 7:
        return repr(draw.uniform(-1e9, 1e9)), False
    if kind == 8:
        return repr(float(np.frombuffer(draw.randbytes(4), "f4")[0])), False
    if kind == 9:
        return str(draw.getrandbits(draw.randint(64, 126))), False
    if kind == 10:  # near the middle of two numbers of f32
        bits = draw.getrandbits(23) | 0x3f800000
        a, b = np.frombuffer(struct.pack("<II", bits, bits + 1), "f4").astype("f8")
        return f"{(a + b) / 2:.25f}", False
    return "0." + "".join(draw.choice("0123456789") for _ in range(draw.randint(1, 40))), False


def finite_number(draw):
    while True:
        text, whole = number_text(draw)
        if whole is None:
            whole = text.lstrip("+-").isdigit()
        with np.errstate(all="ignore"):
            if np.isfinite(np.float32(float(text))):
                return text, whole


def quoted(draw, text, always):
    if always or any(c in text for c in ',;\t|"\r\n') or text != text.strip(" ") or draw.random() < 0.1:
        return '"' + text.replace('"', '""') + '"'
    pad = draw.choice(["", "", "", " ", "  "])
    return pad + text + draw.choice(["", pad])


def draw_table(draw):
    """Returns (columns of texts, kinds, names)."""
    rows = draw.choice([1, 2, 3, 10, 200])
    columns, kinds = [], []
    for _ in range(draw.choice([1, 2, 3, 5, 30])):
        kind = draw.choice(["real", "real", "whole", "small", "word"])
        if kind == "real":
            column = [finite_number(draw)[0] for _ in range(rows)]
        elif kind == "whole":
            column = [draw.choice([str(draw.randint(-2**63, 2**63 - 1)), str(draw.randint(0, 9)), "+7", "-3", "-0"])
                      for _ in range(rows)]
        elif kind == "small":
            column = [str(draw.randint(0, 200)) for _ in range(rows)]
        else:
            column = [draw.choice(WORDS) for _ in range(rows)]
        columns.append(column)
        kinds.append(kind)
    names = []
    for i in range(len(columns)):
        name = draw.choice(["x", "y", "größe", "a b", "q?", "p#1", "50%", "a=b", "a&b", "数", 'in "quotes"',
                            "l\nm", "-1", "a-b"]) + draw.choice(["", str(i)])
        names.append(name)
    return columns, kinds, names


def csv_text(draw, columns, names, header, delimiter):
    end = draw.choice(["\n", "\r\n", "\r"])
    quote = draw.random() < 0.15
    lines = [delimiter.join(quoted(draw, name, quote) for name in names)] if header else []
    lines += [delimiter.join(quoted(draw, cell, quote) for cell in row) for row in zip(*columns)]
    text = ""
    for i, line in enumerate(lines):
        text += line
        if i + 1 < len(lines):
            text += end * (draw.choice([2, 3]) if draw.random() < 0.03 else 1)
    text += draw.choice(["", end, end, end * 2])
    return draw.choice(["", "", "", "\ufeff"]) + draw.choice(["", "", "", end]) * (draw.random() < 0.2) + text, end


def as_f32(columns):
    with np.errstate(all="ignore"):
        return np.array([[np.float64(float(c)) for c in column] for column in columns]).T.astype("f4")


def whole(text):
    return is_number(text) and text.lstrip("+-").isdigit() and -2**63 <= int(text) < 2**63


def expected_column(column, options):
    """What one column alone is, as docs/streams.md describes."""
    words = [c for c in column if not is_number(c)]
    if options.get("as") == "number" or "dtype" in options:
        return as_f32([column])[:, 0].astype(np.dtype(TYPES[options.get("dtype", "f32")]))
    if words and len(words) < len(column) and options.get("as") != "class":
        return None
    if words or options.get("as") == "class" and not all(map(whole, column)):
        order = sorted(set(column), key=lambda w: w.encode())
        return np.array([order.index(c) for c in column], "i8")
    if all(map(whole, column)):
        return np.array([int(c) for c in column], "i8")
    return as_f32([column])[:, 0]


def is_number(text):
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text and text == text.strip()


def select(draw, columns, kinds, names, header):
    """Returns (fragment, indices of columns)."""
    numbers = [i for i, kind in enumerate(kinds) if kind != "word"]
    if all(kind != "word" for kind in kinds) and draw.random() < 0.3:
        return None, list(range(len(columns)))
    if len(numbers) < 1 or draw.random() < 0.3:
        chosen = [draw.randrange(len(columns))]
    else:
        chosen = [draw.choice(numbers) for _ in range(draw.randint(1, 5))]
    parts = []
    for i in list(chosen):
        plain = header and names.count(names[i]) == 1 and "," not in names[i]
        clear = not header or str(i) not in names
        parts.append(urllib.parse.quote(names[i]) if plain and (draw.random() < 0.7 or not clear) else str(i))
    if len(numbers) > 1 and not header and draw.random() < 0.3:
        a = draw.randrange(len(columns))
        b = a
        while b + 1 < len(columns) and kinds[b + 1] != "word" and kinds[a] != "word":
            b += 1
        if b > a:
            parts, chosen = [f"{a}-{b}"], list(range(a, b + 1))
    return ",".join(parts), chosen


def check_table(draw, program):
    columns, kinds, names = draw_table(draw)
    header = draw.random() < 0.6
    delimiter = draw.choice([",", ",", ";", "\t", "|"])
    text, end = csv_text(draw, columns, names, header, delimiter)
    words = [kind == "word" for kind in kinds]
    given = draw.random() < 0.5 or not header and any(words) or all(words)
    given = given or header and any(is_number(name) for name in names)
    options = {"header": str(header).lower()} if given else {}
    first = [*names] if header else [column[0] for column in columns]
    mixed = any(sum(c.count(d) for c in first) for d in ",;\t|") or len(columns) == 1
    if draw.random() < 0.5 or mixed:
        options["delimiter"] = "tab" if delimiter == "\t" else delimiter
    fragment, chosen = select(draw, columns, kinds, names, header)
    if len(chosen) == 1:
        if draw.random() < 0.3:
            options["as"] = "class" if kinds[chosen[0]] == "word" or draw.random() < 0.5 else "number"
        elif kinds[chosen[0]] == "small" and draw.random() < 0.5:
            options["dtype"] = draw.choice(["u8", "u16", "i16", "i32", "f32"])
        expected = expected_column(columns[chosen[0]], options)
    else:
        expected = as_f32([columns[i] for i in chosen])
        if all(kinds[i] == "small" for i in chosen) and draw.random() < 0.5:
            options["dtype"] = draw.choice(["u8", "u16", "i16", "i32", "f32"])
            expected = expected.astype(TYPES[options["dtype"]])
    data = text.encode()
    query = "&".join(f"{k}={urllib.parse.quote(v)}" for k, v in options.items())
    path = compressed(draw, program.folder / draw.choice(["x.csv", "x.tsv"]), data)
    address = path + (f"?{query}" if query else "") + (f"#{fragment}" if fragment is not None else "")
    found, err = program.values(address)
    if found is None and expected is not None:
        raise Wrong(f"{address}: {err}")
    if found is None:
        if not any(word in err for word in PLACE):
            raise Wrong(f"a message without a place: {err}")
        return
    if expected is None:
        raise Wrong(f"{address}: read although words are among numbers")
    same(found, expected, address)
    if end == "\r" or not header and "header" not in options:
        return
    # The same bytes through a pipe. Its types are those of a stream: given here.
    kind = {"f": "f32", "i": "i64"}[expected.dtype.kind] if expected.dtype.kind in "fi" else options["dtype"]
    kind = options.get("dtype", kind)
    live = {k: v for k, v in options.items() if k not in ("as", "dtype")} | {"format": "csv"}
    if kinds[chosen[0]] == "word" or options.get("as") == "class" or len(chosen) == 1 and expected.dtype == np.int64:
        words = sorted(set(columns[chosen[0]]), key=lambda w: w.encode())
        if expected.dtype == np.int64 and all(map(whole, columns[chosen[0]])):
            live["type"] = "i64:"
            if any(abs(int(c)) >= 2**53 for c in columns[chosen[0]]):
                return
        elif any("," in word for word in words):
            return
        else:
            live["symbols"] = ",".join(words)
    else:
        live["type"] = f"{kind}:{len(chosen)}" if len(chosen) > 1 else f"{kind}:"
    query = "&".join(f"{k}={urllib.parse.quote(v, safe=',:')}" for k, v in live.items())
    address = f"stdin:?{query}" + (f"#{fragment}" if fragment is not None else "")
    found, err = program.values(address, feed=pieces(draw, data))
    if found is None:
        raise Wrong(f"{address}: {err}")
    same(found, expected, address)


def check_missing(draw, program):
    """Missing cells read as a value, nan or the mean, in files and pipes."""
    width, rows = draw.randint(1, 4), draw.randint(2, 30)
    cells = [[draw.choice(MISSING) if draw.random() < 0.3 else repr(draw.uniform(-9, 9)) for _ in range(width)]
             for _ in range(rows)]
    cells[0] = [repr(draw.random()) for _ in range(width)]
    delimiter = draw.choice(",;\t")
    text = delimiter.join(f"c{i}" for i in range(width)) + "\n"
    for row in cells:
        line = delimiter.join(row)
        text += (line if line.strip(" ") else '""') + "\n"
    fill = draw.choice(["0", "-1.5", "nan", "mean"])
    values = np.array([[np.nan if c in MISSING else float(c) for c in row] for row in cells]).astype("f4")
    with np.errstate(all="ignore"):
        mean = np.nanmean(values.astype("f8"), axis=0).astype("f4")
    filled = np.where(np.isnan(values), mean if fill == "mean" else np.float32(float(fill)), values)
    expected = filled if width > 1 else filled[:, 0]
    (program.folder / "x.csv").write_text(text, newline="")
    d = "tab" if delimiter == "\t" else delimiter
    found, err = program.values(f"x.csv?missing={fill}&delimiter={d}&as=number")
    if found is None:
        raise Wrong(err)
    if fill == "mean" and found.shape == expected.shape and np.allclose(found, expected, rtol=1e-6, atol=0):
        return
    same(found, expected, "missing=" + fill)
    kind = f"f32:{width}" if width > 1 else "f32:"
    found, err = program.values(f"stdin:?format=csv&missing={fill}&delimiter={d}&type={kind}",
                                feed=pieces(draw, text.encode()))
    if found is None:
        raise Wrong("pipe: " + err)
    same(found, expected, "pipe, missing=" + fill)


# Objects: JSON lines and MessagePack

def draw_value(draw, kind, shape):
    """Returns nested lists of numbers."""
    if shape:
        return [draw_value(draw, kind, shape[1:]) for _ in range(shape[0])]
    if kind == "whole":
        return draw.choice([0, 1, -1, 127, 128, -128, 255, 256, 65535, 65536, -32768, -32769, 2**31, 2**32 - 1, 2**32,
                            -2**31 - 1, 2**53 - 1, 1 - 2**53, draw.randint(-9, 99)])
    if kind == "truth":
        return draw.random() < 0.5
    return draw.choice([0.5, -0.0, 1e-45, 1e-320, 5e-324, 3.4e38, 0.1, draw.uniform(-1, 1), draw.gauss(0, 1e6),
                        float(np.float32(draw.random()))])


def draw_objects(draw):
    fields = {}
    names = ["x", "y", "größe", "a b", "日", "e\"q", "p%", "back\\slash", "n/l"]
    for name in draw.sample(names, draw.randint(1, 4)):
        fields[name] = (draw.choice(["real", "real", "whole", "truth"]),
                        [draw.randint(1, 4) for _ in range(draw.choice([0, 0, 1, 1, 2, 3]))])
    samples = [{name: draw_value(draw, *how) for name, how in fields.items()}
               for _ in range(draw.choice([1, 2, 9, 60]))]
    if draw.random() < 0.3:
        for sample in samples:
            sample["deep"] = {"in": {"v": draw.uniform(-1, 1)}, "other": draw.choice([None, "w", [], {}])}
    if draw.random() < 0.3:
        for sample in samples[1:]:
            if draw.random() < 0.5:
                sample["unknown" + str(draw.randint(0, 9))] = draw.choice([None, "word", [1, "x"], {"a": 1}, [], 3])
    return fields, samples


def choose_fields(draw, fields, samples):
    names = draw.sample(list(fields), draw.randint(1, len(fields)))
    if "deep" in samples[0] and draw.random() < 0.5:
        names.insert(draw.randint(0, len(names)), "deep.in.v")
    with np.errstate(all="ignore"):
        rows = [[sample["deep"]["in"]["v"] if name == "deep.in.v" else sample[name] for name in names]
                for sample in samples]
        if len(names) > 1:
            flat = [np.concatenate([np.asarray(v, "f8").reshape(-1) for v in row]) for row in rows]
            expected = np.array(flat).astype("f4")
        else:
            expected = np.array([np.asarray(row[0], "f8") for row in rows]).astype("f4")
            if fields.get(names[0], ("", 0))[0] == "whole" and not fields[names[0]][1]:
                expected = np.array([row[0] for row in rows], "i8")
    return ",".join(urllib.parse.quote(name) for name in names), expected


def check_objects(draw, program):
    fields, samples = draw_objects(draw)
    fragment, expected = choose_fields(draw, fields, samples)
    shape = "x".join(map(str, expected.shape[1:]))
    kind = "i64" if expected.dtype == np.int64 else "f32"
    for sample in samples:
        items = list(sample.items())
        draw.shuffle(items)
        sample.clear()
        sample.update(items)
    if draw.random() < 0.5:
        single = len(samples[0]) == 1 and draw.random() < 0.5
        end = draw.choice(["\n", "\r\n", "\n\n", " \n"])
        text = draw.choice(["", "", "\ufeff"])
        for sample in samples:
            value = sample[next(iter(fields))] if single else sample
            text += json.dumps(value, ensure_ascii=draw.random() < 0.5, indent=None,
                               separators=draw.choice([None, (",", ":"), (" , ", " :\t")])) + end
        data = text[:-len(end)].encode() if draw.random() < 0.2 else text.encode()
        if single:
            expected = np.array([np.asarray(s[next(iter(fields))], "f8") for s in samples]).astype("f4")
            if fields[next(iter(fields))] == ("whole", []):
                expected = np.array([s[next(iter(fields))] for s in samples], "i8")
            kind, shape = "i64" if expected.dtype == np.int64 else "f32", "x".join(map(str, expected.shape[1:]))
        part = "" if single else f"#{fragment}"
        number = "as=number&" if kind == "f32" and expected.ndim == 1 else ""
        path = compressed(draw, program.folder / "x.jsonl", data)
        found, err = program.values(f"{path}?{number}format=jsonl{part}")
        if found is None:
            raise Wrong(err)
        same(found, expected, f"jsonl {part}")
        address = f"stdin:?format=jsonl&type={kind}:{shape}{part}"
    else:
        data, packer = b"", msgpack.Packer(use_single_float=draw.random() < 0.3)
        for sample in samples:
            sample = dict(sample)
            if draw.random() < 0.3:
                sample["zz"] = draw.choice([b"bin", msgpack.ExtType(5, b"abcd"), msgpack.ExtType(1, b"x" * 300),
                                            "s" * 70000, "s" * 40, "s" * 300, msgpack.Timestamp(1, 2), b"b" * 300,
                                            b"b" * 70000])
            data += wide_pack(draw, sample, packer)
        address = f"stdin:?format=msgpack&type={kind}:{shape}#{fragment}"
    found, err = program.values(address, feed=pieces(draw, data))
    if found is None:
        raise Wrong(f"{address}: {err}")
    same(found, expected, address)


def wide_pack(draw, value, packer):
    """Packs with heads that may be wider than needed, which every reader must accept."""
    if isinstance(value, dict):
        head = struct.pack(">BH", 0xde, len(value)) if draw.random() < 0.3 else \
            struct.pack(">BI", 0xdf, len(value)) if draw.random() < 0.3 else packer.pack_map_header(len(value))
        return head + b"".join(wide_pack(draw, k, packer) + wide_pack(draw, v, packer) for k, v in value.items())
    if isinstance(value, list):
        head = struct.pack(">BH", 0xdc, len(value)) if draw.random() < 0.3 else \
            struct.pack(">BI", 0xdd, len(value)) if draw.random() < 0.3 else packer.pack_array_header(len(value))
        return head + b"".join(wide_pack(draw, v, packer) for v in value)
    if isinstance(value, str) and draw.random() < 0.3:
        data = value.encode()
        return struct.pack(">BI", 0xdb, len(data)) + data
    if isinstance(value, int) and not isinstance(value, bool) and draw.random() < 0.3:
        return struct.pack(">Bq", 0xd3, value) if value < 0 or draw.random() < 0.5 else struct.pack(">BQ", 0xcf, value)
    return packer.pack(value)


# Texts

def check_text(draw, program):
    letters = draw.choice(["abc\n", "äöü xyz\r\n", "日本語\n", "😀e\u0301\t", "ab"])
    text = "".join(draw.choice(letters) for _ in range(draw.randint(20, 400)))
    window, shift = draw.randint(1, 8), draw.randint(1, 8)
    path = compressed(draw, program.folder / "x.txt", text.encode())
    found, err = program.values(f"{path}?window={window}&shift={shift}")
    symbols = sorted(set(text))
    indices = np.array([symbols.index(c) for c in text])
    starts = range(0, len(text) - window + 1, shift)
    expected = np.array([indices[s:s + window] for s in starts])
    if found is None:
        raise Wrong(err)
    same(found, expected.astype(found.dtype), f"text, window={window}, shift={shift}")


# The command

KINDS = {"array": check_array, "array_pipe": check_array_pipe, "folder": check_folder,
         "pictures": check_pictures, "table": check_table, "missing": check_missing,
         "objects": check_objects, "text": check_text}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("program")
    parser.add_argument("--seeds", default="0-199")
    parser.add_argument("--folder", type=pathlib.Path, help="keep the files of failures here")
    parser.add_argument("--only", choices=list(KINDS))
    asked = parser.parse_args()
    first, _, last = asked.seeds.partition("-")
    failed, agreed = [], collections.Counter()
    for seed in range(int(first), int(last or first) + 1):
        draw = random.Random(seed)
        kind = draw.choice(list(KINDS))
        if asked.only and kind != asked.only:
            kind = asked.only
        with tempfile.TemporaryDirectory() as folder:
            try:
                KINDS[kind](draw, Program(str(pathlib.Path(asked.program).resolve()), pathlib.Path(folder)))
                agreed[kind] += 1
            except Wrong as wrong:
                failed.append(seed)
                print(f"seed {seed} ({kind}): {wrong}", flush=True)
                if asked.folder:
                    shutil.copytree(folder, asked.folder / str(seed), dirs_exist_ok=True,
                                    ignore=shutil.ignore_patterns("socket"))
    print(f"{sum(agreed.values())} agree ({', '.join(f'{k} {n}' for k, n in sorted(agreed.items()))}), "
          f"{len(failed)} differ: {failed}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
