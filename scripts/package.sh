#!/usr/bin/env bash
# package.sh deb|tar|wheel|all [--build DIR] [--out DIR]: packages of a build on Debian 12 (docs/install.md). Without
# --build it builds the preset "release" first; packages go to dist/.
set -euo pipefail
cd "$(dirname "$0")/.."
usage() { echo "usage: scripts/package.sh deb|tar|wheel|all [--build DIR] [--out DIR]" >&2; exit 2; }
what=${1:-}
build= out=dist
shift || usage
while [ $# -gt 0 ]; do
  case "$1" in
    --build) build=${2:?--build DIR}; shift 2 ;;
    --out) out=${2:?--out DIR}; shift 2 ;;
    *) usage ;;
  esac
done
case "$what" in deb|tar|wheel|all) ;; *) usage ;; esac
scripts/packages.sh package
if [ -z "$build" ]; then
  scripts/packages.sh build
  build=build/release
  cmake --preset release -DHARMONICS_TESTS=OFF >/dev/null
  cmake --build --preset release
fi
umask 022
mkdir -p "$out"
out=$(realpath "$out")
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 315532800)}

if [ "$what" = deb ] || [ "$what" = all ]; then
  (cd "$build" && cpack -G DEB -B "$stage/cpack" &>"$stage/log") || { cat "$stage/log" >&2; exit 1; }
  cp "$stage"/cpack/*.deb "$out/"
  ls "$stage"/cpack/*.deb | sed "s|.*/|$out/|"
fi
if [ "$what" = deb ]; then exit 0; fi

# Relocatable, including the libraries of other packages.
version=$("$build/bin/harmonics" --version | cut -d' ' -f2)
name=harmonics-$version-linux-$(uname -m)
cmake --install "$build" --prefix "$stage/$name" --strip >"$stage/log"
python3 scripts/bundle.py "$stage/$name"
if [ "$what" = tar ] || [ "$what" = all ]; then
  # Owned by root: when root unpacks it, plugins of another owner would be refused.
  tar -C "$stage" --sort=name --owner=root:0 --group=root:0 --mtime="@$SOURCE_DATE_EPOCH" --format=gnu -cf - "$name" |
    gzip -9n >"$out/$name.tar.gz"
  echo "$out/$name.tar.gz"
fi
if [ "$what" = wheel ] || [ "$what" = all ]; then
  PYTHONDONTWRITEBYTECODE=1 python3 scripts/wheel.py "$stage/$name" "$out"
fi
