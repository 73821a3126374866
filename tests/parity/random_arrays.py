"""Draws random arrays for random_data.py, which runs the program on them: NPY, NPZ, IDX, raw numbers and
safetensors, from files, pipes and sockets, with options of streams, through consumers and a flow.
"""
import collections
import gzip
import io
import json
import math
import struct
import subprocess
import threading
import urllib.parse
import zipfile
import zlib

import msgpack
import numpy as np

try:
    import zstandard
except ImportError:
    zstandard = None

DEADLINE = 60  # seconds of one command
TYPES = {"bool": "b1", "u8": "u1", "i8": "i1", "u16": "u2", "i16": "i2", "u32": "u4", "i32": "i4", "u64": "u8",
         "i64": "i8", "f16": "f2", "f32": "f4", "f64": "f8"}


class Wrong(Exception):
    pass


class Program:
    def __init__(self, binary, folder):
        self.binary, self.folder = binary, folder

    def run(self, *words, given=None, feed=None):
        """Runs a command; `feed` writes to its standard input in pieces."""
        process = subprocess.Popen([self.binary, *words], cwd=self.folder, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE,
                                   stdin=subprocess.PIPE if feed or given is not None else subprocess.DEVNULL)
        writer = threading.Thread(target=feed, args=(process.stdin,), daemon=True) if feed else None
        if writer:
            process.stdin = None  # communicate() leaves it to the thread
            writer.start()
        try:
            out, err = process.communicate(given, timeout=DEADLINE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise Wrong(f"hangs: {' '.join(words)}") from None
        finally:
            if writer:
                writer.join(DEADLINE)
        err = err.decode("utf-8", "replace")
        if process.returncode < 0 or process.returncode not in (0, 2, 64, 65, 66, 69, 73, 74):
            raise Wrong(f"exits with {process.returncode}: {' '.join(words)}\n{err}")
        return process.returncode, out, err

    def values(self, address, ending="npy", verb="send", **more):
        """Reads all samples of an address and returns (array or text, error)."""
        out = self.folder / f"out.{ending}"
        out.unlink(missing_ok=True)
        words = ["send", f"file:out.{ending}", "--from", f"x={address}", "-q"]
        if verb == "receive":
            words = ["receive", address, "--to", f"x=file:out.{ending}", "-q"]
        code, _, err = self.run(*words, **more)
        if code:
            return None, err
        if not out.exists():
            return None, "no samples: " + err
        return (np.load(out) if ending == "npy" else out.read_bytes()), err


def same(found, expected, what):
    expected = np.asarray(expected)
    expected = expected.astype(expected.dtype.newbyteorder("="))
    if found.dtype != expected.dtype or found.shape != expected.shape:
        raise Wrong(f"{what}: found {found.dtype}{found.shape}, expected {expected.dtype}{expected.shape}")
    a, b = np.ascontiguousarray(found), np.ascontiguousarray(expected)
    if a.tobytes() == b.tobytes():
        return
    a, b = a.reshape(-1), b.reshape(-1)
    width = a.dtype.itemsize
    bad = np.flatnonzero((a.view(np.uint8).reshape(-1, width) != b.view(np.uint8).reshape(-1, width)).any(1))
    raise Wrong(f"{what}: {len(bad)} of {len(a)} differ, at {bad[0]}: found {a[bad[0]]!r}, expected {b[bad[0]]!r}")


def pieces(draw, data):
    """Returns a feed that writes the bytes in random pieces."""
    most = draw.choice([1, 3, 17, 200, 5000, 100000]) if len(data) < 3000 else draw.choice([200, 5000, 100000])
    cuts = [0]
    while cuts[-1] < len(data):
        cuts.append(min(len(data), cuts[-1] + draw.randint(1, most)))

    def feed(pipe):
        try:
            for a, b in zip(cuts, cuts[1:]):
                pipe.write(data[a:b])
                pipe.flush()
            pipe.close()
        except (BrokenPipeError, ValueError):
            pass
    return feed


def compressed(draw, path, data):
    """Writes the bytes, perhaps compressed in several members, and returns the name."""
    kind = draw.choice(["", "", "", ".gz", ".zst" if zstandard else ".gz"])
    cuts = sorted(draw.randint(0, len(data)) for _ in range(draw.randint(0, 3)))
    parts = [data[a:b] for a, b in zip([0] + cuts, cuts + [len(data)])]
    if kind == ".gz":
        data = b"".join(gzip.compress(part, draw.choice([1, 9])) for part in parts)
    if kind == ".zst":
        data = b"".join(zstandard.ZstdCompressor(write_content_size=draw.random() < 0.5).compress(p) for p in parts)
    path = path.with_name(path.name + kind)
    path.write_bytes(data)
    return path.name


# Arrays

def draw_array(draw, name, shape):
    dtype, n = np.dtype(TYPES[name]), math.prod(shape)
    bits = np.frombuffer(draw.randbytes(n * dtype.itemsize), dtype="u1")
    if name == "bool":
        return (bits % 2).astype(bool).reshape(shape)
    array = bits.view(dtype).copy()
    if dtype.kind == "f":
        tiny = np.finfo(dtype).smallest_subnormal
        special = [0.0, -0.0, np.inf, -np.inf, np.nan, tiny, -tiny, np.finfo(dtype).max, np.finfo(dtype).tiny, 1.0, 0.1]
    else:
        special = [np.iinfo(dtype).min, np.iinfo(dtype).max, 0, 1]
    for _ in range(draw.randint(0, n)):
        array[draw.randrange(n)] = draw.choice(special)
    return array.reshape(shape)


def array_file(draw, folder):
    """Returns (address, array) of a random file of an array."""
    kind = draw.choice(["npy", "npy", "npz", "npz", "idx", "raw", "safetensors"])
    axes = draw.choice([0, 1, 1, 2, 3, 5])
    shape = [draw.randint(1, 40)] + [draw.randint(1, 5) for _ in range(axes)]
    name = draw.choice(list(TYPES))
    if kind == "idx":
        name = draw.choice(["u8", "i8", "i16", "i32", "f32", "f64"])
    array = draw_array(draw, name, shape)
    if kind in ("npy", "npz") and draw.random() < 0.4:
        array = array.astype(array.dtype.newbyteorder(">"))
    if kind in ("npy", "npz") and draw.random() < 0.4:
        array = np.asfortranarray(array)
    if kind == "npy":
        text = io.BytesIO()
        np.lib.format.write_array(text, array, version=draw.choice([None, (1, 0), (2, 0), (3, 0)]))
        return compressed(draw, folder / "x.npy", text.getvalue()), array
    if kind == "npz":
        others = {key: draw_array(draw, draw.choice(list(TYPES)), [draw.randint(1, 4)]) for key in ("a", "b.c", "é")}
        chosen = draw.choice(["x", "images", "arr_0", "x y", "p%q"])
        members = list({**others, chosen: array}.items())
        draw.shuffle(members)
        if draw.random() < 0.3:
            with zipfile.ZipFile(folder / "x.npz", "w", draw.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as out:
                for key, value in members:
                    text = io.BytesIO()
                    np.save(text, value)
                    out.writestr(key + ".npy", text.getvalue())
        else:
            (np.savez if draw.random() < 0.5 else np.savez_compressed)(folder / "x.npz", **dict(members))
        return "x.npz#" + urllib.parse.quote(chosen), array
    if kind == "idx":
        codes = {"u8": 8, "i8": 9, "i16": 11, "i32": 12, "f32": 13, "f64": 14}
        data = struct.pack(f">BBBB{len(shape)}I", 0, 0, codes[name], len(shape), *shape)
        return compressed(draw, folder / "x.idx", data + array.astype(array.dtype.newbyteorder(">")).tobytes()), array
    if kind == "raw":
        skip = draw.choice([0, 0, 3, 16])
        path = compressed(draw, folder / "x.raw", draw.randbytes(skip) + array.tobytes())
        inner = f"&shape={'x'.join(map(str, shape[1:]))}" if len(shape) > 1 else ""
        return f"{path}?dtype={name}&offset={skip}{inner}", array
    names = {"bool": "BOOL", **{k: k.upper() for k in TYPES if k != "bool"}}
    before = draw.randbytes(draw.choice([0, 8, 24]))
    n = len(before)
    head = {"w": {"dtype": names[name], "shape": shape, "data_offsets": [n, n + array.nbytes]}}
    if n:
        head["v"] = {"dtype": "U8", "shape": [n], "data_offsets": [0, n]}
    head = json.dumps(head)
    head += " " * (-len(head) % 8)
    data = struct.pack("<Q", len(head)) + head.encode() + before + array.tobytes()
    return compressed(draw, folder / "x.safetensors", data) + "#w", array


def check_written(draw, program, address, array):
    """Compares what the consumers of lines write."""
    dtype = array.dtype.newbyteorder("=")
    rows = np.ascontiguousarray(array).astype(dtype).reshape(len(array), -1)
    kind = draw.choice(["csv", "txt", "jsonl"])
    text, err = program.values(address, kind)
    if text is None:
        raise Wrong(f"{kind}: {err}")
    lines = text.decode().split("\n")
    if lines.pop() != "" or len(lines) != len(array):
        raise Wrong(f"{kind}: {len(lines)} lines for {len(array)} samples")
    found = []
    for line in lines:
        if kind == "jsonl":
            cells = np.asarray(json.loads(line), dtype=object)
            if list(cells.shape) != list(array.shape[1:]):
                raise Wrong(f"jsonl: shape {cells.shape}, expected {array.shape[1:]}")
            cells = cells.reshape(-1)
        else:
            cells = line.split("," if kind == "csv" else " ")
        found.append(cells)
    for row, cells in zip(rows, found):
        if len(row) != len(cells):
            raise Wrong(f"{kind}: a row has {len(cells)} cells, expected {len(row)}")
        for value, cell in zip(row, cells):
            if dtype == bool:
                good = cell in (bool(value), str(int(value)))
            elif dtype.kind in "iu":
                good = str(cell) == str(int(value))
            elif kind == "jsonl" and not np.isfinite(value):
                good = cell is None
            elif np.isnan(value):
                good = cell == "nan"
            else:
                good = dtype.type(float(cell)).tobytes() == value.tobytes()
            if not good:
                raise Wrong(f"{kind}: found {cell!r}, expected {value!r}")


def check_order(draw, program, address, array):
    """Compares skipped, taken, repeated, sharded and shuffled samples with NumPy's."""
    n, options, expected = len(array), [], np.arange(len(array))
    if draw.random() < 0.3:
        skip = draw.randint(0, n - 1)
        options, expected = options + [f"skip={skip}"], expected[skip:]
    if draw.random() < 0.3:
        take = draw.randint(1, n)
        options, expected = options + [f"take={take}"], expected[:take]
    if draw.random() < 0.3:
        of = draw.randint(1, max(1, min(4, len(expected))))
        i = draw.randrange(of)
        options, expected = options + [f"shard={i}/{of}"], expected[i::of]
    again = draw.choice([1, 1, 2, 3])
    if again > 1:
        options.append(f"repeat={again}")
    block = draw.choice([0, 1, 2, 7, 1000])
    if draw.random() < 0.7:
        options += [f"shuffle={block}", f"seed={draw.randrange(100)}"]
    else:
        block = 0
    if draw.random() < 0.3:
        options.append(f"async={draw.randint(1, 9)}")
    if draw.random() < 0.3:
        options.append("cache=16M")
    found, err = program.values(with_option(address, "&".join(options)) if options else address)
    if found is None:
        raise Wrong(f"{options}: {err}")
    expected = np.tile(expected, again)
    values = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("="))
    if block == 0:
        return same(found, values[expected], f"order of {options}")
    count = collections.Counter(row.tobytes() for row in found)
    if count != collections.Counter(values[i].tobytes() for i in expected):
        raise Wrong(f"{options}: the samples are not those of the file")


def with_option(address, option):
    path, hash, fragment = address.partition("#")
    return path + ("&" if "?" in path else "?") + option + hash + fragment


def check_parts(draw, program, address, array):
    """Two parts of a file are all samples, each once; a condition keeps the samples that fulfil it."""
    values = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("="))
    cut, found = draw.choice([0.1, 0.25, 0.3333, 0.5, 0.9, round(draw.random() * 0.98 + 0.01, 3)]), []
    for part in (f"0-{cut}", f"{cut}-1"):
        samples, err = program.values(with_option(address, f"part={part}"))
        if samples is None and "no samples" not in err and "empty" not in err:
            raise Wrong(f"part={part}: {err}")
        found += [] if samples is None else [samples]
    same(np.concatenate(found) if len(found) > 1 else found[0], values, f"parts at {cut}")
    if values.dtype == np.float16:
        return  # where= has no comparison of 16-bit floats
    with np.errstate(all="ignore"):
        rows = values.reshape(len(values), -1).astype("f8")
    sign, limit = draw.choice(["<", ">=", "!=", "finite"]), draw.choice([0, 1, 5, 100])
    with np.errstate(all="ignore"):
        mask = {"<": rows < limit, ">=": rows >= limit, "!=": rows != limit, "finite": np.isfinite(rows)}[sign].all(1)
    where = "finite" if sign == "finite" else f"value{sign}{limit}"
    samples, err = program.values(with_option(address, f"where={where}"))
    if samples is None:
        if mask.any():
            raise Wrong(f"where={where}: {err}")
    elif not np.isnan(rows).any() or sign != "!=":
        same(samples, values[mask], f"where={where}")


def check_folder(draw, program):
    """Several files are one stream, in order of their names."""
    (program.folder / "in").mkdir()
    name, inner = draw.choice(list(TYPES)), [draw.randint(1, 4) for _ in range(draw.randint(0, 2))]
    arrays = {}
    for file in draw.sample(["b", "a", "10", "9", "Z", "é", "a b", "_"], draw.randint(1, 5)):
        arrays[file] = draw_array(draw, name, [draw.randint(1, 9), *inner])
        np.save(program.folder / "in" / (file + ".npy"), arrays[file])
    expected = np.concatenate([arrays[file] for file in sorted(arrays, key=lambda n: (n + ".npy").encode())])
    address = draw.choice(["in/", "in/*.npy"])
    found, err = program.values(address)
    if found is None:
        raise Wrong(err)
    same(found, expected, address)
    check_order(draw, program, address, expected)


def check_flow(draw, program, address, array):
    """An identity flow in batches of every size gives the samples as f32."""
    (program.folder / "id.hmx").write_text("harmonic id { producer x; consumer out; cycle { x -(identity)-> out; } }\n")
    n = len(array)
    batch = draw.choice([1, 2, 3, 7, n, max(1, n - 1), n + 1, 64])
    out = program.folder / "flow.npy"
    out.unlink(missing_ok=True)
    where = with_option(address, f"batch={batch}")
    code, _, err = program.run("infer", "id.hmx", "--producer", f"x={where}", "--consumer", "out=file:flow.npy", "-q")
    if code:
        raise Wrong(f"flow: {err}")
    values = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("="))
    with np.errstate(all="ignore"):
        expected = values.astype("f4")
        if array.dtype.kind == "u" and array.dtype.itemsize == 1:
            expected = values.astype("f4") * np.float32(1 / 255)
    expected = np.where(np.isnan(expected), np.float32(np.nan), expected)
    found = np.load(out)
    found = np.where(np.isnan(found), np.float32(np.nan), found) if found.dtype == np.float32 else found
    same(found.reshape(expected.shape) if found.size == expected.size else found, expected, f"flow, batch={batch}")


def check_live(draw, program, address, array):
    """The samples arrive unchanged through a socket or a pipe of frames."""
    if draw.random() < 0.5:
        code, frames, err = program.run("send", "stdout:?format=hxs", "--from", f"x={address}", "-q")
        if code:
            raise Wrong(f"send: {err}")
        found, err = program.values("stdin:?format=hxs#x", feed=pieces(draw, frames))
    else:
        place, sent = str(program.folder / "socket"), []

        def send():
            try:
                sent.append(program.run("send", f"unix:{place}", "--from", f"x={address}", "-q"))
            except Wrong as wrong:
                sent.append((1, b"", str(wrong)))
        sender = threading.Thread(target=send)
        sender.start()
        found, err = program.values(f"unix:{place}?wait=20#x", verb="receive")
        sender.join(DEADLINE)
        if not sent or sent[0][0]:
            raise Wrong(f"send: {sent}")
    if found is None:
        raise Wrong(f"live: {err}")
    same(found, array, "live")


def check_description(program, address, array):
    """`inspect` gives the type, the shape, the count and the number of classes."""
    code, out, err = program.run("inspect", address, "--json")
    if code:
        raise Wrong(f"inspect: {err}")
    told = json.loads(out.decode().splitlines()[-1])
    name = next(k for k, v in TYPES.items() if np.dtype(v) == array.dtype.newbyteorder("="))
    scalars = array.ndim == 1 and array.dtype.kind in "iu"
    classes = int(array.max()) + 1 if scalars and array.min() >= 0 and int(array.max()) < 2**63 - 1 else 0
    expected = (name, list(array.shape[1:]), len(array), classes)
    found = (told["dtype"], told["sample"], told["size"], told["classes"])
    if found != expected:
        raise Wrong(f"inspect: found {found}, expected {expected}")


def check_array(draw, program):
    address, array = array_file(draw, program.folder)
    check_description(program, address, array)
    found, err = program.values(address)
    if found is None:
        raise Wrong(err)
    same(found, array, address)
    check_written(draw, program, address, array)
    check_order(draw, program, address, array)
    check_parts(draw, program, address, array)
    if draw.random() < 0.5:
        check_live(draw, program, address, array)
    if array.dtype not in (np.dtype("f8"), np.dtype(">f8")) and array.dtype.kind in "fu" and array.dtype.itemsize < 8:
        if array.dtype.kind == "f" or array.dtype.itemsize == 1:
            check_flow(draw, program, address, array)


# Pictures

def png(draw, pixels, bits):
    """Encodes pixels [height, width, channels] of this many bits, each line with a random filter."""
    height, width, channels = pixels.shape
    if bits == 16:
        lines = pixels.astype(">u2").reshape(height, -1).view("u1")
    else:
        one = np.unpackbits(pixels.astype("u1").reshape(height, -1, 1), axis=2)[:, :, 8 - bits:]
        lines = np.packbits(one.reshape(height, -1), axis=1)
    step, data, above = max(1, channels * bits // 8), b"", [0] * lines.shape[1]
    for line in lines.tolist():
        kind, out = draw.randrange(5), []
        for i, value in enumerate(line):
            a, b, c = line[i - step] if i >= step else 0, above[i], above[i - step] if i >= step else 0
            p = a + b - c
            paeth = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
            out.append((value - [0, a, b, (a + b) // 2, paeth][kind]) & 255)
        data, above = data + bytes([kind]) + bytes(out), line

    def chunk(name, content):
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
    head = struct.pack(">IIBBBBB", width, height, bits, 0 if channels == 1 else 2, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(data, draw.choice([0, 1, 9])))
            + chunk(b"IEND", b""))


def check_pictures(draw, program):
    """PNG files of classes, with the classes as labels."""
    channels, height, width = draw.choice([1, 3]), draw.randint(1, 9), draw.randint(1, 20)
    expected, labels = [], []
    classes = sorted(draw.sample(["cat", "dog", "Ä", "a b", "10", "9"], draw.randint(1, 4)), key=lambda n: n.encode())
    for label, name in enumerate(classes):
        (program.folder / "in" / name).mkdir(parents=True)
        for i in range(draw.randint(1, 4)):
            bits = draw.choice([1, 2, 4, 8] if channels == 1 else [8])
            values = [draw.randrange(1 << bits) for _ in range(height * width * channels)]
            pixels = np.array(values).reshape(height, width, channels)
            (program.folder / "in" / name / f"{i}.png").write_bytes(png(draw, pixels, bits))
            scaled = (pixels * (255 // ((1 << bits) - 1))).astype("u1")
            expected.append(scaled[:, :, 0] if channels == 1 else scaled.transpose(2, 0, 1))
            labels.append(label)
    for address, values in (("in/", np.array(expected)), ("in/#label", np.array(labels, "i8"))):
        found, err = program.values(address)
        if found is None:
            raise Wrong(err)
        same(found, values, address)
        check_order(draw, program, address, values)


# Arrays in pipes

def check_array_pipe(draw, program):
    name = draw.choice(list(TYPES))
    array = draw_array(draw, name, [draw.randint(1, 30)] + [draw.randint(1, 4) for _ in range(draw.randint(0, 3))])
    kind = draw.choice(["npy", "msgpack", "raw"])
    if kind == "msgpack":  # as msgpack-numpy writes arrays, or bytes
        plain = name == "u8" and array.ndim == 2 and draw.random() < 0.5
        key = draw.choice([str, str.encode])
        address, data = "stdin:?format=msgpack#v", b"".join(msgpack.packb({"i": 1, "v": part.tobytes() if plain else {
            key("nd"): True, key("type"): part.dtype.str, key("kind"): b"", key("shape"): list(part.shape),
            key("data"): part.tobytes()}}) for part in array)
    elif kind == "npy":
        rows, text = draw.random() < 0.5, io.BytesIO()
        for part in [array] if rows and draw.random() < 0.5 else np.array_split(array, len(array)):
            np.save(text, part if rows else np.array(part[0], order="C"))
        address, data = f"stdin:?format=npy&rows={str(rows).lower()}", text.getvalue()
        if not rows and draw.random() < 0.5:
            address = "stdin:"
    else:
        shape = "x".join(map(str, array.shape[1:]))
        address, data = f"stdin:?format=raw&type={name}:{shape}", array.tobytes()
    found, err = program.values(address, feed=pieces(draw, data))
    if found is None:
        raise Wrong(f"{address}: {err}")
    same(found, array, address)
