#!/usr/bin/env bash
# Fuzzes every reader (preset fuzz: libFuzzer, the whole program with ASan and UBSan) and prints a row per target.
# campaign.sh --fuzz [--only NAMES] [--executions N] [--minutes N] [--jobs N] [--found FOLDER]
#   --only        comma-separated targets (default: all)
#   --executions  limit per target (default 100000000)
#   --minutes     limit per target (default 0: none)
#   --jobs        targets run in parallel (default: number of processors)
#   --found       folder for new corpora and crashing inputs (default build/fuzz/found)
set -euo pipefail
cd "$(dirname "$0")/.."
only='' executions=100000000 minutes=0 jobs=$(nproc) found=build/fuzz/found
while [ $# -gt 0 ]; do
  case "$1" in
    --only | --executions | --minutes | --jobs | --found)
      declare "${1#--}=${2:?$1 takes a value}"
      shift 2
      ;;
    *) sed -n '3,8s/^# *//p' "$0" >&2; exit 2 ;;
  esac
done
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz
found=$(mkdir -p "$found" && cd "$found" && pwd)
export found executions minutes
# fuzz NAME: fuzzes one target and prints its row; its log stays in the folder.
fuzz() {
  local name=$1 code=0 dictionary=() log="$found/$1.log"
  mkdir -p "$found/$name"
  if [ -f "tests/fuzz/$name.dict" ]; then dictionary=(-dict="tests/fuzz/$name.dict"); fi
  "build/fuzz/bin/fuzz_$name" "${dictionary[@]}" -runs="$executions" -max_total_time=$((minutes * 60)) \
    -rss_limit_mb=2048 -timeout=10 -print_final_stats=1 -artifact_prefix="$found/$name-" \
    "$found/$name" "tests/fuzz/corpus/$name" >"$log" 2>&1 || code=$?
  printf '%-12s %12s executions %8s a second, coverage %6s, peak %5s MiB, %s\n' "$name" \
    "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" \
    "$(sed -n 's/^stat::average_exec_per_sec: *//p' "$log")" \
    "$(grep -o 'cov: [0-9]*' "$log" | tail -n 1 | cut -d' ' -f2)" \
    "$(sed -n 's/^stat::peak_rss_mb: *//p' "$log")" \
    "$([ $code = 0 ] && echo 'nothing found' || echo "FAILED ($code), see $log")"
  return $code
}
export -f fuzz
if [ -n "$only" ]; then names=${only//,/ }; else names=$(basename -a build/fuzz/bin/fuzz_* | sed 's/^fuzz_//'); fi
# shellcheck disable=SC2086  # a list of names
printf '%s\n' $names | xargs -P "$jobs" -I NAME bash -c 'fuzz NAME'
