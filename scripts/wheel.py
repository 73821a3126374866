#!/usr/bin/env python3
"""wheel.py PREFIX FOLDER: a wheel of an installation that bundle.py has prepared. The same input gives the same bytes.

The program goes to the scripts of the environment, its plugins and data below the environment's prefix, where it finds
them as in any installation: no Python runs when it does. SOURCE_DATE_EPOCH is the time of every file.
"""
import base64
import hashlib
import os
import pathlib
import subprocess
import sys
import time
import zipfile

from bundle import floor

# The oldest glibc of systems with a libstdc++ that has these symbols, as in the manylinux profiles.
GLIBC_BESIDE = [((3, 4, 25), (2, 28)), ((3, 4, 29), (2, 34)), ((3, 4, 30), (2, 35))]


def platform(prefix):
    glibc, glibcxx = floor(prefix)
    for newest, beside in GLIBC_BESIDE:
        if glibcxx <= newest:
            glibc = max(glibc, beside)
            return f"manylinux_{glibc[0]}_{glibc[1]}_x86_64"
    return sys.exit(f"wheel.py: no glibc is known beside GLIBCXX_{'.'.join(map(str, glibcxx))}: add it to GLIBC_BESIDE")


def metadata(version):
    return f"""Metadata-Version: 2.1
Name: harmonics
Version: {version}
Summary: A streaming engine that trains, fine-tunes and serves neural models
License: Apache-2.0
Classifier: License :: OSI Approved :: Apache Software License
Classifier: Operating System :: POSIX :: Linux
Classifier: Topic :: Scientific/Engineering :: Artificial Intelligence
Description-Content-Type: text/markdown

# Harmonics

The command `harmonics`, a program in C++ with its plugins and the libraries it needs. `harmonics --help` begins,
`harmonics version` prints where the samples and the documentation are, `harmonics version --licenses` the licenses.
"""


def contents(prefix, name, version, tag):
    """(path in the wheel, bytes, executable), the files of dist-info last."""
    for file in sorted(prefix.rglob("*")):
        path = file.relative_to(prefix)
        if file.is_dir() or path.parts[0] == "include" or (path.parts[0] == "lib" and path.parts[1] != "harmonics"):
            continue
        if file.is_symlink():
            sys.exit(f"wheel.py: {file} is a link, and wheels have none")
        to = f"scripts/{path.name}" if path.parts[0] == "bin" else f"data/{path}"
        yield f"{name}.data/{to}", file.read_bytes(), path.parts[0] == "bin"
    info = f"Wheel-Version: 1.0\nGenerator: harmonics\nRoot-Is-Purelib: false\nTag: {tag}\n"
    for file, data in (("METADATA", metadata(version).encode()), ("WHEEL", info.encode()),
                       ("LICENSE", (prefix / "share/doc/harmonics/LICENSE").read_bytes())):
        yield f"{name}.dist-info/{file}", data, False


def main(prefix, folder):
    said = subprocess.run([prefix / "bin/harmonics", "--version"], check=True, capture_output=True, text=True).stdout
    version = said.split()[1]
    tag = f"py3-none-{platform(prefix)}"
    name = f"harmonics-{version}"
    day = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", 0)), 315532800))[:6]  # zip begins in 1980
    target = folder / f"{name}-{tag}.whl"
    record = ""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        def add(path, data, executable):
            entry = zipfile.ZipInfo(path, day)
            entry.create_system, entry.compress_type = 3, zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if executable else 0o100644) << 16
            wheel.writestr(entry, data)

        for path, data, executable in contents(prefix, name, version, tag):
            add(path, data, executable)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record += f"{path},sha256={digest},{len(data)}\n"
        add(f"{name}.dist-info/RECORD", (record + f"{name}.dist-info/RECORD,,\n").encode(), False)
    print(target)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]))
