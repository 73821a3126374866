#!/usr/bin/env bash
# tidy.sh [BUILD [PATTERN]]: checks the program's sources by .clang-tidy, as BUILD (build/ci) compiles them; PATTERN
# selects sources by path. Prints each finding once and fails if there is any.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/ci} pattern=${2:-.}
tidy=$(command -v clang-tidy-14 || command -v clang-tidy || true)
if [ -z "$tidy" ]; then
  echo "tidy.sh: needs clang-tidy; on Debian 12, scripts/packages.sh full installs it" >&2
  exit 1
fi
if [ ! -f "$build/compile_commands.json" ]; then
  echo "tidy.sh: no $build/compile_commands.json; configure first: cmake --preset ci" >&2
  exit 1
fi
report=$(mktemp)
trap 'rm -f "$report"' EXIT
# Checks sources in their compiled groups, which parses headers once. Skips tests, device code, generated sources, and a
# file that queries CPU features by names that clang 14 does not know.
status=0
grep -oP '"file": "\K[^"]+' "$build/compile_commands.json" | sort -u |
  grep -E '\.(cpp|cxx)$' | grep -vE '/tests/|/cmake/empty\.cpp$|rounding\.cpp$|_files\.cpp$' | grep -E "$pattern" |
  xargs -r -d '\n' -P "$(nproc)" -n 1 "$tidy" -p "$build" --quiet --extra-arg=-Wno-unknown-warning-option \
    --extra-arg=-Wno-everything >"$report" 2>/dev/null || status=$?
grep -E ': (error|warning): ' "$report" | sed "s|^$PWD/||" | sort -u || true
exit "$status"
