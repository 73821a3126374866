#!/usr/bin/env bash
# package_test.sh [DIR]: tests the packages of DIR (default dist/) on clean systems. Each is installed in a separate
# empty Debian 12 (debootstrap, minbase): the .deb by apt, which installs its dependencies; the tar without any
# further package, and also in a Debian 13; the wheels in empty virtual environments. On each, an ordinary user
# trains the installed sample, infers with the weights, opens every plugin and reads the licenses. Needs root, the
# Debian mirror of this machine's apt, and 2 GB below TMPDIR; takes some minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "$(id -u)" -ne 0 ]; then
  echo "package_test.sh: needs root: it makes systems with debootstrap and mounts their /proc; try 'sudo $0'" >&2
  exit 77
fi
# The program ends by SIGPIPE if a reader leaves early, so grep reads all of its output.
packages=$(realpath "${1:-dist}")
one() {  # the only file of this pattern
  local files=("$packages"/$1)
  if [ ${#files[@]} -ne 1 ] || [ ! -f "${files[0]}" ]; then
    echo "package_test.sh: $packages has not exactly one $1; scripts/package.sh all makes the packages" >&2
    exit 66
  fi
  echo "${files[0]}"
}
deb=$(one 'harmonics_*.deb')
tar=$(one 'harmonics-*.tar.gz')
wheel=$(one 'harmonics-*.whl')
scripts/packages.sh package_test
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' 2>/dev/null |
  head -n 1)
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
step() { echo; echo "== $*"; }

# inside ROOT SECONDS command...: runs it in the system at ROOT, with its own /proc and process numbers; leaves
# nothing mounted or running.
inside() {
  local root=$1 seconds=$2
  shift 2
  timeout -k 10 "$seconds" unshare --mount --pid --fork --kill-child bash -c 'root=$1; shift
    mount -t proc proc "$root/proc"
    exec chroot "$root" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
      DEBIAN_FRONTEND=noninteractive "$@"' inside "$root" "$@" </dev/null
}
as_user() {  # ROOT SECONDS 'shell command', as a user that owns only its home and creates group-writable files
  inside "$1" "$2" su - tester -s /bin/bash -c "umask 002; $3"
}
install_in() {  # ROOT package...
  local root=$1
  shift
  inside "$root" 600 sh -c 'apt-get update -qq || exit 1
    apt-get install -y -qq -o Dpkg::Use-Pty=0 --no-install-recommends "$@" >/tmp/log 2>&1 && exit 0
    cat /tmp/log; exit 1' sh "$@"
}
copy_of_base() { cp -a "$work/base" "$work/$1"; }

# A user's first steps. PROGRAM [FOLDER OF BUNDLED LIBRARIES]
cat >"$work/job.sh" <<'JOB'
set -euo pipefail
program=$1 bundled=${2:-}
"$program" version
samples=$("$program" version | sed -n 's/^samples in //p')
documentation=$("$program" version | sed -n 's/^documentation in //p')
test -s "$documentation/README.md"
"$program" --help | grep >/dev/null "$samples/mnist.hmx" || "$program" --help | grep >/dev/null "'$samples/mnist.hmx'"
digits() {
  local from="synth:digits?size=$2&seed=$3"
  echo "--$1 mnist_training_data=$from --$1 mnist_label_data=$from#label"
}
"$program" run "$samples/mnist.hmx" $(digits producer 30000 1) $(digits test 5000 2) --epochs 3 \
  --save digits.safetensors --report digits.html 2>&1 | tee log
accuracy=$(sed -n 's/^test on .*accuracy \([0-9.]*\) %.*/\1/p' log)
awk -v a="$accuracy" 'BEGIN { exit !(a > 90) }' || { echo "the accuracy is $accuracy %"; exit 1; }
test -s digits.html
"$program" infer "$samples/mnist.hmx" --weights digits.safetensors --producer 'synth:digits?size=4&seed=3' \
  --consumer 'stdout:?format=argmax' --quiet >classes
test "$(wc -l <classes)" -eq 4
"$program" plugin doctor
"$program" plugin doctor | grep >/dev/null ', 0 with problems'
for format in llama2c gguf; do  # of plugins
  "$program" list importers | grep >/dev/null "^  $format "
  "$program" list tokenizers | grep >/dev/null "^  $format "
done
for shell in bash zsh fish; do "$program" completion "$shell" | grep >/dev/null quantize; done
for schema in status generate http/prediction; do test -s "$(dirname "$samples")/schema/$schema.json"; done
"$program" keys pair.key >/dev/null  # uses ZeroMQ's own functions
"$program" version --licenses >licenses
sed -n 1,4p licenses | cut -c 1-160
if [ -n "$bundled" ]; then
  grep -q '^libzmq5 .*: LGPL-3' licenses
  plugins=$(dirname "$program")/../lib/harmonics/plugins
  found=$(for f in "$program" "$plugins"/*.so; do ldd "$f"; done | awk '$2 == "=>" { print $3 }' | sort -u)
  outside=$(for library in $found; do realpath -s "$library"; done | grep -v "^$bundled/" | sort -u)
  echo "of the system: "$outside
  for library in $outside; do
    case "$(basename "$library")" in
      libc.so.6|libm.so.6|libpthread.so.0|libresolv.so.2|libdl.so.2|librt.so.1) ;;
      libstdc++.so.6|libgcc_s.so.1) ;;
      *) echo "$library is neither bundled nor glibc's or GCC's"; exit 1 ;;
    esac
  done
fi
rm -f digits.safetensors digits.html pair.key pair.key.pub log licenses classes
JOB

empty_system() {  # SUITE ROOT
  timeout -k 10 900 debootstrap --variant=minbase "$1" "$2" ${mirror:+"$mirror"} >"$work/log" 2>&1 || {
    tail -n 20 "$work/log"
    exit 1
  }
  inside "$2" 30 useradd --create-home tester
  cp "$work/job.sh" "$2/home/tester/job.sh"
  echo "$(inside "$2" 30 dpkg-query -W | wc -l) packages"
}
step "an empty Debian 12 (minbase)"
empty_system bookworm "$work/base"

step "the Debian package: $(basename "$deb")"
copy_of_base deb
cp "$deb" "$work/deb/tmp/"
install_in "$work/deb" "/tmp/$(basename "$deb")"
inside "$work/deb" 30 dpkg-query -W -f '${Package} ${Version} ${Status}\nDepends: ${Depends}\n' harmonics
as_user "$work/deb" 300 'bash job.sh /usr/bin/harmonics'
inside "$work/deb" 60 bash -euo pipefail -c '
  for verb in $(harmonics man --list); do zcat "/usr/share/man/man1/harmonics-$verb.1.gz" | grep >/dev/null "^.TH"; done
  for file in doc/harmonics/copyright harmonics/wire/hxs.proto harmonics/schema/http/model.json; do
    test -s "/usr/share/$file"
  done
  for file in bash-completion/completions/harmonics zsh/vendor-completions/_harmonics \
    fish/vendor_completions.d/harmonics.fish; do
    grep -q quantize "/usr/share/$file"
  done
  apt-get purge -y -qq -o Dpkg::Use-Pty=0 harmonics >/dev/null
  left=$(find /usr /etc /var/cache -name "*harmonics*")
  if [ -n "$left" ]; then echo "left behind: $left"; exit 1; fi'
echo "purged, nothing is left"
rm -rf --one-file-system "$work/deb"

step "the tar: $(basename "$tar")"
copy_of_base tar
tar -xzf "$tar" -C "$work/tar/opt"
folder=$(ls "$work/tar/opt")
as_user "$work/tar" 300 "bash job.sh /opt/$folder/bin/harmonics /opt/$folder/lib/harmonics/shared"
echo "-- moved to a folder with a blank in its name"
inside "$work/tar" 30 sh -c 'mkdir "/srv/other place" && mv /opt/harmonics-* "/srv/other place/h"'
as_user "$work/tar" 300 'bash job.sh "/srv/other place/h/bin/harmonics"'
rm -rf --one-file-system "$work/tar"

step "the tar in an empty Debian 13"
empty_system trixie "$work/later"
tar -xzf "$tar" -C "$work/later/opt"
as_user "$work/later" 300 "bash job.sh /opt/$folder/bin/harmonics /opt/$folder/lib/harmonics/shared"
rm -rf --one-file-system "$work/later"

step "the wheel: $(basename "$wheel")"
copy_of_base wheel
cp "$wheel" "$work/wheel/home/tester/"
cat >"$work/wheel/home/tester/record.py" <<'RECORD'
import base64, csv, hashlib, sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
names = wheel.namelist()
record = next(n for n in names if n.endswith(".dist-info/RECORD"))
rows = {r[0]: r[1] for r in csv.reader(wheel.read(record).decode().splitlines())}
assert set(rows) == set(names) and len(names) == len(set(names)), set(rows) ^ set(names)
for name, digest in rows.items():
    if name != record:
        sha256 = base64.urlsafe_b64encode(hashlib.sha256(wheel.read(name)).digest()).rstrip(b"=").decode()
        assert digest == "sha256=" + sha256, name
print(f"{len(names)} files, as RECORD says")
RECORD
install_in "$work/wheel" python3 python3-venv
as_user "$work/wheel" 60 'python3 record.py harmonics-*.whl'
as_user "$work/wheel" 300 'python3 -m venv env && env/bin/pip install --quiet --no-index ./harmonics-*.whl &&
  env/bin/pip show harmonics | sed -n 1,3p'
as_user "$work/wheel" 300 'bash job.sh env/bin/harmonics /home/tester/env/lib/harmonics/shared'
as_user "$work/wheel" 120 'env/bin/pip uninstall --quiet --yes harmonics
  left=$(find env -name "*harmonics*" -type f)
  if [ -n "$left" ]; then echo "left behind: $left"; exit 1; fi'
echo "uninstalled, nothing is left"

module=("$packages"/harmonics_python-*.whl)
if [ -f "${module[0]}" ]; then
  step "the wheel of the Python module: $(basename "${module[0]}")"
  cp "${module[0]}" "$work/wheel/home/tester/"
  install_in "$work/wheel" python3-numpy
  as_user "$work/wheel" 60 'python3 record.py harmonics_python-*.whl'
  as_user "$work/wheel" 300 'python3 -m venv --system-site-packages both &&
    both/bin/pip install --quiet --no-index ./harmonics-*.whl ./harmonics_python-*.whl'
  cat >"$work/wheel/home/tester/try.py" <<'TRY'
import harmonics, numpy
flow = "harmonic line { producer x; producer y; layer o {1}; cycle { x -(relu)-> o; o <-(mse)- y; } }"
g = harmonics.parse_hmx_text(flow)
x = numpy.linspace(0, 1, 60, dtype="float32").reshape(30, 2)
g.bind_producer("x", x)
g.bind_producer("y", x[:, :1])
print(harmonics.__version__, g.fit(epochs=3, batch=10), numpy.asarray(g.infer(x)).shape)
TRY
  as_user "$work/wheel" 120 'both/bin/python try.py'
fi

step "all packages work"
