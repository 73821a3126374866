#!/usr/bin/env bash
# Installs packages, checks the formatting, builds and runs all tests. --full adds clang-tidy, sanitizer builds, a fresh
# clone and a short round of fuzzing.
set -euo pipefail
cd "$(dirname "$0")/.."
full=no
for argument in "$@"; do
  case "$argument" in
    --full) full=yes ;;
    *) echo "usage: scripts/test.sh [--full]" >&2; exit 2 ;;
  esac
done
scripts/packages.sh test
echo "== format"
scripts/format.sh --check
# run PRESET TARGET [ctest option...]
run() {
  echo "== $1"
  cmake --preset "$1" >/dev/null
  cmake --build --preset "$1" --target "$2"
  ctest --preset "$1" -j2 --timeout 1200 "${@:3}"
}
run ci all
if [ "$full" = yes ]; then
  scripts/packages.sh full
  echo "== clang-tidy"
  scripts/tidy.sh
  # The leak sanitizer guesses the thread-local storage of dlopened libraries, and may read out of bounds there:
  # intercept_tls_get_addr=0 disables that.
  ASAN_OPTIONS=detect_leaks=1:intercept_tls_get_addr=0:allocator_may_return_null=1 \
    UBSAN_OPTIONS="halt_on_error=1 print_stacktrace=1 suppressions=$PWD/tests/ubsan.supp" \
    run dev all -LE slow
  tsan_options="halt_on_error=1 allocator_may_return_null=1 ignore_noninstrumented_modules=1"
  TSAN_OPTIONS="$tsan_options suppressions=$PWD/tests/tsan.supp" run tsan thread_tests -L threads
  echo "== a fresh clone in an empty home"
  fresh=$(mktemp -d)
  trap 'rm -rf "$fresh"' EXIT
  git clone -q . "$fresh/clone"
  HOME="$fresh" "$fresh/clone/scripts/quickstart.sh"
  test -s "$fresh/clone/build/digits.html"
  echo "== fuzz"
  cmake --preset fuzz >/dev/null
  cmake --build --preset fuzz
  for target in build/fuzz/bin/fuzz_*; do
    name=$(basename "$target")
    mkdir -p "build/fuzz/found/$name"
    dictionary=()
    if [ -f "tests/fuzz/${name#fuzz_}.dict" ]; then dictionary=(-dict="tests/fuzz/${name#fuzz_}.dict"); fi
    "$target" "${dictionary[@]}" -max_total_time=30 -rss_limit_mb=2048 -timeout=10 \
      "build/fuzz/found/$name" "tests/fuzz/corpus/${name#fuzz_}"
  done
fi
