#!/usr/bin/env python3
"""bundle.py PREFIX: makes an installed Harmonics run where only glibc and GCC's runtime are.

Copies the shared libraries that its programs need into PREFIX/lib/harmonics/shared, makes the programs look there
first, relative to themselves, and writes names and texts of the licenses to PREFIX/share/doc/harmonics/licenses.
Libraries and licenses are those of Debian's packages on this machine. libc6, libstdc++6 and libgcc-s1 stay the
system's: drivers that are opened later (OpenCL, CUDA) need the newest.
"""
import pathlib
import re
import shutil
import subprocess
import sys

SYSTEM = {"libc6", "libstdc++6", "libgcc-s1"}
# Source packages whose copyright file is not machine-readable.
NAMED = {"krb5": "MIT (Kerberos)", "gcc-12": "GPL-3+ with GCC Runtime Library Exception"}


def stop(text):
    sys.exit("bundle.py: " + text)


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def programs(prefix):
    """Every ELF file below the folder, in the order of names."""
    files = [f for f in sorted(prefix.rglob("*")) if f.is_file() and not f.is_symlink()]
    return [f for f in files if f.open("rb").read(4) == b"\x7fELF"]


def needed(program):
    """{name: path} of the libraries that the loader finds for it."""
    found = {}
    for line in output("env", "-u", "LD_LIBRARY_PATH", "ldd", str(program)).splitlines():
        name, arrow, path = line.strip().partition(" => ")
        if not arrow:
            continue
        if path.startswith("not found"):
            stop(f"{program} needs {name}, which is not installed")
        found[name] = pathlib.Path(path.rsplit(" (", 1)[0])
    return found


def package_of(path):
    real = path.resolve()
    for name in (path, real, f"/usr{path}", str(real).removeprefix("/usr")):  # /lib may be /usr/lib
        asked = subprocess.run(["dpkg-query", "-S", str(name)], capture_output=True, text=True)
        if asked.returncode == 0:
            return asked.stdout.split(":")[0]
    return stop(f"no Debian package has {path}: its license is not known")


def versions(files, prefix):
    """The symbol versions `prefix`_1.2.3 that the files ask for, as tuples of numbers."""
    found = set()
    for file in files:
        wanted = output("readelf", "--version-info", "--wide", str(file)).partition("Version needs section")[2]
        found |= {tuple(map(int, v.split("."))) for v in re.findall(rf"Name: {prefix}_([0-9.]+)", wanted)}
        if prefix == "GLIBC" and "Name: GLIBC_ABI_DT_RELR" in wanted:
            found.add((2, 36))
    return found


def floor(prefix):
    """The oldest glibc and libstdc++ that every program and library below the folder runs with: (2, 34), (3, 4, 30)."""
    files = programs(prefix)
    return max(versions(files, "GLIBC")), max(versions(files, "GLIBCXX"))


def license_names(source, text):
    if not text.startswith("Format"):
        if source not in NAMED:
            stop(f"the copyright file of {source} is prose: add the names of its licenses to NAMED")
        return NAMED[source]
    names = set()
    for stanza in re.split(r"\n\s*\n", text):
        fields = dict(re.findall(r"(?m)^([A-Za-z-]+):[ \t]*(.*)$", stanza))
        if "Files" in fields and not fields["Files"].startswith("debian/") and fields.get("License"):
            names.add(fields["License"].strip())
    if not names:
        stop(f"the copyright file of {source} names no license")
    return ", ".join(sorted(names))


def with_common_licenses(text):
    """The text, and after it what it refers to on Debian systems."""
    names = sorted({n.rstrip(".") for n in re.findall(r"/usr/share/common-licenses/([A-Za-z0-9.-]+)", text)})
    paths = {(pathlib.Path("/usr/share/common-licenses") / n).resolve(): n for n in names}
    for path in sorted(paths):
        text += f"\n\n== {paths[path]}\n\n" + path.read_text()
    return text


def write_licenses(prefix, files_of):
    documentation = prefix / "share/doc/harmonics"
    folder = documentation / "licenses"
    folder.mkdir(parents=True)
    own = output(str(prefix / "bin/harmonics"), "--version").split()[1]
    rows = [("harmonics", own, "harmonics", "Apache-2.0; harmonics.txt has those of what is compiled in",
             "bin/harmonics", "harmonics.txt")]
    shutil.copy(documentation / "copyright", folder / "harmonics.txt")
    for package, files in sorted(files_of.items()):
        version, source = output("dpkg-query", "-W", "-f=${Version}\t${source:Package}", package).split("\t")
        text = pathlib.Path(f"/usr/share/doc/{package}/copyright").read_text(errors="replace")
        whole, name = with_common_licenses(text), f"{source}.txt"
        if (folder / name).exists() and (folder / name).read_text() != whole:
            name = f"{package}.txt"
        (folder / name).write_text(whole)
        rows.append((package, version, source, license_names(source, text), " ".join(sorted(files)), name))
    head = "# package\tversion\tsource package (of Debian)\tlicenses\tfiles\ttext\n"
    (folder / "libraries.tsv").write_text(head + "".join("\t".join(row) + "\n" for row in rows))


def main(prefix):
    for tool in ("ldd", "readelf", "patchelf", "dpkg-query"):
        if not shutil.which(tool):
            stop(f"{tool} is needed (scripts/packages.sh package)")
    own, shared = programs(prefix), prefix / "lib/harmonics/shared"
    if prefix / "bin/harmonics" not in own:
        stop(f"there is no bin/harmonics in {prefix}")
    libraries, embedding = {}, set()
    for program in own:
        found = needed(program)
        if any(path.is_relative_to(prefix) for path in found.values()):
            embedding.add(program)  # the Python module, which needs libharmonics
        libraries.update(found)
    libraries = {n: p for n, p in libraries.items() if not p.is_relative_to(prefix)}
    files_of = {}
    shared.mkdir(parents=True)
    for name, path in sorted(libraries.items()):
        package = package_of(path)
        if package in SYSTEM:
            continue
        shutil.copyfile(path, shared / name)
        files_of.setdefault(package, []).append(f"lib/harmonics/shared/{name}")
    write_licenses(prefix, files_of)
    for program in own:
        up = "/".join([".."] * len(program.parent.relative_to(prefix).parts))
        path = f"$ORIGIN/{up}/lib/harmonics/shared" + (f":$ORIGIN/{up}/lib" if program in embedding else "")
        # RPATH, not RUNPATH: it also applies to the dependencies of bundled libraries.
        subprocess.run(["patchelf", "--force-rpath", "--set-rpath", path, str(program)], check=True)
    for program in own:
        for name, path in needed(program).items():
            if not path.resolve().is_relative_to(prefix) and package_of(path) not in SYSTEM:
                stop(f"{program} finds {name} outside of the bundle, at {path}")
    glibc, glibcxx = floor(prefix)
    count = sum(map(len, files_of.values()))
    print(f"bundled {count} libraries of {len(files_of)} packages for {len(own)} programs and plugins")
    print(f"runs with glibc {'.'.join(map(str, glibc))} and GLIBCXX_{'.'.join(map(str, glibcxx))} or later")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]).resolve())
