#!/usr/bin/env bash
# format.sh [--check]: formats all C++ and CUDA sources by .clang-format. --check changes nothing: it prints the files
# that differ and fails if there are any.
set -euo pipefail
cd "$(dirname "$0")/.."
check=no
case "$*" in
  '') ;;
  --check) check=yes ;;
  *) echo "usage: scripts/format.sh [--check]" >&2; exit 2 ;;
esac
formatter=$(command -v clang-format-14 || command -v clang-format || true)
version=$([ -z "$formatter" ] || "$formatter" --version)
case "$version" in
  *'version 14.'*) ;;
  *)
    echo "format.sh: needs clang-format 14, as other versions format differently; found: ${version:-none}" >&2
    echo "help: on Debian 12, scripts/packages.sh test installs it" >&2
    exit 1
    ;;
esac
all_files() {
  if git ls-files --error-unmatch scripts/format.sh >/dev/null 2>&1; then
    git ls-files --cached --others --exclude-standard
  else
    find . -type f -not -path './build/*' | sed 's|^\./||'
  fi
}
# Excludes inputs of tests, and a listing that must equal the design document's.
sources() {
  all_files | grep -E '\.(hpp|cpp|h|c|inc|def|cu|cuh)$' |
    grep -vE '/bad/|^tests/fuzz/corpus/|^tests/plugins/out_of_tree/design_listing\.inc$' |
    while read -r file; do if [ -f "$file" ]; then echo "$file"; fi; done
}
# each COMMAND: a bash command for batches of sources, with the formatter as $0 and the files as arguments
each() { sources | xargs -r -d '\n' -P "$(nproc)" -n 16 bash -c "$1" "$formatter"; }
if [ $check = no ]; then
  each '"$0" -i "$@" && "$0" -i "$@"'  # a few sources are stable only after the second pass
  exit 0
fi
differ=$(each 'for file; do "$0" "$file" | cmp -s - "$file" || echo "$file"; done' | sort)
if [ -n "$differ" ]; then
  echo "$differ"
  echo "format.sh: these files differ from .clang-format; scripts/format.sh formats them" >&2
  exit 1
fi
