#!/usr/bin/env bash
# Network fault injection for live streams: a proxy between senders and receivers cuts, resets, stalls, half-opens,
# delays, reorders, corrupts and throttles connections, one fault or two at a time, chosen by a seed. Each sample must
# arrive once, in order and undamaged, soon after each fault and in bounded memory; then a run that learns through the
# proxy must end with the weights of an undisturbed run.
# live_chaos.sh [--worlds N] [--seconds N] [--seed N] [--program FILE]
#   --worlds   fault scenarios for each transport (default 40)
#   --seconds  of faults in each run (default 60; 0: no runs)
#   --seed     of the faults (default: from the clock); printed
#   --program  the harmonics of a build with tests (default: that of build/release, else build/ci)
set -euo pipefail
cd "$(dirname "$0")/.."
worlds=40 seconds=60 seed=$(date +%s) program=''
while [ $# -gt 0 ]; do
  case "$1" in
    --worlds | --seconds | --seed | --program)
      declare "${1#--}=${2:?$1 takes a value}"
      shift 2
      ;;
    *) sed -n '6,10s/^# *//p' "$0" >&2; exit 2 ;;
  esac
done
for candidate in build/release/bin/harmonics build/ci/bin/harmonics; do
  if [ -z "$program" ] && [ -x "$candidate" ]; then program=$candidate; fi
done
chaos=$(dirname "$program")/transport_chaos
[ -x "$chaos" ] || { echo "$chaos is not there: build the target transport_chaos" >&2; exit 1; }
work=$(mktemp -d)
processes=()
finish() {
  for process in "${processes[@]}"; do
    kill -9 "$process" 2>/dev/null || true
    wait "$process" 2>/dev/null || true
  done
  rm -rf "$work"
}
trap finish EXIT
kinds=(tcp)
if [[ "$("$program" list producers)" = *zmq+router* ]]; then kinds+=(zmq+router); fi
# numbers_of FILE: the weights without the header
numbers_of() {
  local header
  header=$(od -An -t u8 -N 8 "$1" | tr -d ' ')
  tail -c +$((8 + header + 1)) "$1"
}
# first_line FILE PROCESS: waits for the first line that the process writes
first_line() {
  for _ in $(seq 1000); do
    if [ -s "$1" ]; then head -n 1 "$1"; return; fi
    kill -0 "$2" 2>/dev/null || break
    sleep 0.02
  done
  return 1
}
# free_port: an unused port
free_port() {
  local port
  for _ in $(seq 100); do
    port=$((20000 + RANDOM % 12000))
    if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then echo $port; return; fi
  done
}

echo "chaos: $worlds worlds and a run of $seconds s over each of ${kinds[*]}, seed $seed"
for kind in "${kinds[@]}"; do
  if [ "$worlds" -gt 0 ]; then timeout $((60 + worlds * 20)) "$chaos" worlds "$kind" "$worlds" "$seed"; fi
done
[ "$seconds" -gt 0 ] || exit 0

size=$((seconds * 900)) rate=700
digits() { echo "synth:digits?size=$size&seed=1${1:-}"; }
"$program" run samples/live_zmq/live.hmx --producer "image=$(digits '&shuffle=0')" \
  --producer "label=$(digits '#label')" --epochs 1 --seed 11 --save "$work/whole.safetensors" --quiet
for kind in "${kinds[@]}"; do
  port=$(free_port) sends=$kind framing=()
  if [ "$kind" = zmq+router ]; then sends=zmq+dealer framing=(zmtp); fi
  timeout $((seconds * 3 + 120)) "$program" run samples/live_zmq/live.hmx \
    --producer "image=$kind:127.0.0.1:$port#image" --producer "label=$kind:127.0.0.1:$port#label" \
    --seed 11 --save "$work/$kind.safetensors" --json >"$work/out" 2>"$work/err" &
  learner=$!
  "$chaos" proxy "$port" "$seed" "$seconds" "${framing[@]}" >"$work/$kind.proxy" &
  processes=("$learner" $!)
  through=$(first_line "$work/$kind.proxy" $!)
  timeout $((seconds * 3 + 120)) "$program" send "$sends:127.0.0.1:$through?patience=60" \
    --from "image=$(digits)" --from "label=$(digits '#label')" --rate $rate --quiet &
  processes+=($!)
  wait $! || { echo "$kind: the sender has failed, seed $seed; the learner said:" >&2; cat "$work/err" >&2; exit 1; }
  wait "$learner" || { cat "$work/err" >&2; exit 1; }
  kill "${processes[1]}"
  if ! cmp -s <(numbers_of "$work/whole.safetensors") <(numbers_of "$work/$kind.safetensors"); then
    echo "$kind: the weights differ, seed $seed" >&2
    exit 1
  fi
  echo "$kind: $size samples through $(tail -n 1 "$work/$kind.proxy"): the weights are the same to the bit"
done
