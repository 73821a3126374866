#!/usr/bin/env python3
"""wheel.py PREFIX FOLDER: the wheels of an installation that bundle.py has prepared. The same input gives the same
bytes.

harmonics: the program goes to the scripts of the environment, its plugins and data below the environment's prefix,
where it finds them as in any installation: no Python runs when it does. It fits every version of Python.
harmonics_python: the Python module, if it was built, and the library. It fits one version of Python and requires the
wheel of the program, whose plugins and shared libraries it uses.
SOURCE_DATE_EPOCH is the time of every file.
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


def metadata(name, version, summary, requires, text):
    required = "".join(f"Requires-Dist: {one}\n" for one in requires)
    return f"""Metadata-Version: 2.1
Name: {name}
Version: {version}
Summary: {summary}
License: Apache-2.0
Classifier: License :: OSI Approved :: Apache Software License
Classifier: Operating System :: POSIX :: Linux
Classifier: Topic :: Scientific/Engineering :: Artificial Intelligence
{required}Description-Content-Type: text/markdown

{text}"""


PROGRAM = """# Harmonics

The command `harmonics`, a program in C++ with its plugins and the libraries it needs. `harmonics --help` begins,
`harmonics version` prints where the samples and the documentation are, `harmonics version --licenses` the licenses.
"""
MODULE = """# Harmonics for Python

The module `harmonics`: `import harmonics`. It calls the library of Harmonics; `docs/python.md` in the documentation of
the package `harmonics` explains it.
"""


def program_files(prefix):
    """(path below the wheel's data, bytes, executable)"""
    for file in sorted(prefix.rglob("*")):
        path = file.relative_to(prefix)
        if file.is_dir() or path.parts[0] == "include" or (path.parts[0] == "lib" and path.parts[1] != "harmonics"):
            continue
        if file.is_symlink():
            sys.exit(f"wheel.py: {file} is a link, and wheels have none")
        to = f"scripts/{path.name}" if path.parts[0] == "bin" else f"data/{path}"
        yield to, file.read_bytes(), path.parts[0] == "bin"


def module_of(prefix):
    """The file of the Python module, or None."""
    found = sorted(prefix.glob("lib/python3*/site-packages/harmonics.cpython-*.so"))
    return found[0] if found else None


def module_files(prefix, module):
    for file in (module, module.parent / "harmonics.pyi"):
        yield f"platlib/{file.name}", file.read_bytes(), False
    library = prefix / "lib/libharmonics.so.0"
    yield f"data/lib/{library.name}", library.resolve().read_bytes(), False


def info_files(prefix, tag, text):
    info = f"Wheel-Version: 1.0\nGenerator: harmonics\nRoot-Is-Purelib: false\nTag: {tag}\n"
    for file, data in (("METADATA", text.encode()), ("WHEEL", info.encode()),
                       ("LICENSE", (prefix / "share/doc/harmonics/LICENSE").read_bytes())):
        yield file, data, False


def write(prefix, folder, name, tag, files, text):
    """Writes one wheel; the files of dist-info are its last."""
    day = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", 0)), 315532800))[:6]  # zip begins in 1980
    target = folder / f"{name}-{tag}.whl"
    record = ""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        def add(path, data, executable):
            entry = zipfile.ZipInfo(path, day)
            entry.create_system, entry.compress_type = 3, zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if executable else 0o100644) << 16
            wheel.writestr(entry, data)

        every = [(f"{name}.data/{path}", data, executable) for path, data, executable in files]
        every += [(f"{name}.dist-info/{path}", *rest) for path, *rest in info_files(prefix, tag, text)]
        for path, data, executable in every:
            add(path, data, executable)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record += f"{path},sha256={digest},{len(data)}\n"
        add(f"{name}.dist-info/RECORD", (record + f"{name}.dist-info/RECORD,,\n").encode(), False)
    print(target)


def main(prefix, folder):
    said = subprocess.run([prefix / "bin/harmonics", "--version"], check=True, capture_output=True, text=True).stdout
    version = said.split()[1]
    system = platform(prefix)
    write(prefix, folder, f"harmonics-{version}", f"py3-none-{system}", program_files(prefix),
          metadata("harmonics", version, "A streaming engine that trains, fine-tunes and serves neural models", [],
                   PROGRAM))
    module = module_of(prefix)
    if module:
        python = "cp" + module.name.split("-")[1]  # harmonics.cpython-311-x86_64-linux-gnu.so
        write(prefix, folder, f"harmonics_python-{version}", f"{python}-{python}-{system}",
              module_files(prefix, module),
              metadata("harmonics-python", version, "The Python module of Harmonics", [f"harmonics (=={version})"],
                       MODULE))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]))
