#!/usr/bin/env bash
# Tests the CUDA device on this machine's GPU: its kernels against the reference, whole programs and training runs
# against the CPU, and its kernels under compute-sanitizer. Prints a line for each part, exits 1 if one fails.
# gpu_check.sh [--build FOLDER] [--log FOLDER] [--jobs N] [--sanitize TOOL,...] [--seconds S]
# --build    the build to test (default build/ci, whose tests must be built)
# --log      where each part's output is written (default FOLDER/gpu)
# --sanitize tools of compute-sanitizer (default memcheck,racecheck,synccheck; none: '')
# --seconds  limit of a part (default 600)
set -uo pipefail
cd "$(dirname "$0")/.."
build=build/ci log='' jobs=$(nproc) tools=memcheck,racecheck,synccheck seconds=600
while [ $# -gt 0 ]; do
  case "$1" in
    --build) build=${2:?--build takes a folder} ;;
    --log) log=${2:?--log takes a folder} ;;
    --jobs) jobs=${2:?--jobs takes a number} ;;
    --sanitize) tools=${2?--sanitize takes names} ;;
    --seconds) seconds=${2:?--seconds takes a number} ;;
    *) sed -n '2,8s/^# *//p' "$0" >&2; exit 2 ;;
  esac
  shift 2
done
log=${log:-$build/gpu}
program=$build/bin/harmonics plugin=$build/lib/harmonics/plugins/libharmonics_cuda.so
mkdir -p "$log"
rm -f "$log"/*.log "$log"/*.code
"$program" list devices | tee "$log/devices.log"
if ! "$program" list devices | grep -A1 '^  cuda ' | grep -vq 'not available'; then exit 1; fi

# One line per part: its name, a tab, its command.
{
  printf 'check\t%s plugin check --calls 2000 %s\n' "$program" "$plugin"
  for tool in ${tools//,/ }; do
    sanitize="compute-sanitizer --tool $tool --target-processes all --error-exitcode 9"
    printf '%s\t%s %s plugin check --calls 1000 %s\n' "$tool" "$sanitize" "$program" "$plugin"
    printf '%s_steps\tHARMONICS_TEST_DEVICE=cuda %s %s %s\n' "$tool" "$sanitize" "$build/bin/test_accelerator" \
      '"*training step*","*sorts*","*lengths*","*caches*"'
  done
  "$build/bin/test_accelerator" --list-test-names-only | grep -v '^ *$' | while IFS= read -r name; do
    file=$(tr -c 'a-z0-9\n' _ <<<"${name#accelerator: }" | cut -c 1-40)
    printf '%s\tHARMONICS_TEST_DEVICE=cuda %s "%s"\n' "$file" "$build/bin/test_accelerator" "${name//,/\\\\,}"
  done
} >"$log/parts"
export log seconds
run_part() {
  local name=${1%%$'\t'*} command=${1#*$'\t'} start=$SECONDS
  timeout "$seconds" bash -c "$command" >"$log/$name.log" 2>&1
  local code=$?
  echo "$code" >"$log/$name.code"
  printf '%-6s %4d s  %s\n' "$([ $code -eq 0 ] && echo ok || echo "rc $code")" $((SECONDS - start)) "$name"
}
export -f run_part
tr '\n' '\0' <"$log/parts" | xargs -0 -P "$jobs" -I{} bash -c 'run_part "$1"' _ {}
failed=$(grep -Lx 0 "$log"/*.code | wc -l)
echo "$(wc -l <"$log/parts") parts, $failed failed; logs in $log"
[ "$failed" -eq 0 ]
