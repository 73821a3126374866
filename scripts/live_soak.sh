#!/usr/bin/env bash
# Long live training, observed from outside: memory of learner and sender, file descriptors, throughput. By default,
# connections break every few seconds.
# live_soak.sh [--slow] [--minutes N] [--seed N] [--rate N] [--rows FILE] [--program FILE]
#   --slow     instead tests back-pressure: a learner more than a hundred times slower than its sender
#   --minutes  duration (default 60, with --slow 10)
#   --seed     of the breaks (default: from the clock); printed
#   --rate     samples per second, without --slow (default 2000)
#   --rows     file for the observations, one row every two seconds
#   --program  the harmonics of a build with tests (default: that of build/release, else build/ci)
set -euo pipefail
cd "$(dirname "$0")/.."
minutes='' seed=$(date +%s) program='' rate=2000 slow=no rows=''
while [ $# -gt 0 ]; do
  case "$1" in
    --minutes | --seed | --rate | --rows | --program)
      declare "${1#--}=${2:?$1 takes a value}"
      shift 2
      ;;
    --slow) slow=yes; shift ;;
    *) sed -n '4,10s/^# *//p' "$0" >&2; exit 2 ;;
  esac
done
for candidate in build/release/bin/harmonics build/ci/bin/harmonics; do
  if [ -z "$program" ] && [ -x "$candidate" ]; then program=$candidate; fi
done
minutes=${minutes:-$([ $slow = yes ] && echo 10 || echo 60)}
seconds=$((minutes * 60))
work=$(mktemp -d)
processes=()
finish() {
  for process in "${processes[@]}"; do
    kill -9 "$process" 2>/dev/null || true
    wait "$process" 2>/dev/null || true
  done
  if [ -n "$rows" ] && [ -s "$work/rows" ]; then cp "$work/rows" "$rows"; fi
  rm -rf "$work"
}
trap finish EXIT
fail() {
  echo "$1, seed $seed" >&2
  tail -n 5 "$work"/*.err >&2
  exit 1
}
resident() { awk '{ print $2 * 4 }' "/proc/$1/statm"; }  # KiB
descriptors() { find "/proc/$1/fd" -mindepth 1 2>/dev/null | wc -l; }
processor() { awk '{ print ($14 + $15) * 10 }' "/proc/$1/stat"; }  # milliseconds
# status KEY: a number of the run's status
status() {
  "$program" ctl "$work/control" status --json 2>/dev/null |
    grep -o "\"$1\":[0-9.eE+-]*" | head -n 1 | cut -d: -f2
}
await() {  # await WHAT SECONDS
  for _ in $(seq $(($2 * 20))); do
    if "$1"; then return; fi
    kill -0 "$learner" 2>/dev/null || fail "the learner has ended"
    sleep 0.05
  done
  fail "no $1 within $2 s"
}
slow() { local n; n=$(status step) && [ "${n:-0}" -ge $((quick + 3)) ]; }
learning() { local n; n=$(status step) && [ "${n:-0}" -gt 0 ]; }
# watch SECONDS: every two seconds a row: seconds, memory of learner and sender, the learner's descriptors, samples and
# processor time
watch() {
  local begin=$SECONDS
  while [ $((SECONDS - begin)) -lt "$1" ]; do
    echo "$((SECONDS - begin)) $(resident "$learner") $(resident "$sender") $(descriptors "$learner")" \
      "$(status samples) $(processor "$learner")"
    sleep 2
  done
}
digits() { echo "synth:digits?size=60000&seed=1${1:-}"; }

consume_slowly() {
  # At full speed both processes buffer more than later, and their allocators retain that memory. The first steps, a few
  # windows of samples, are therefore fast, and the measurement starts after them.
  local flow=$work/slow.hmx plugin fast begin quick=150
  plugin=$(dirname "$program")/../test_plugins/libslow_down.so
  # The layer is wide, so that 1 % of the learner's memory exceeds a frame of samples.
  sed "s/layer output/layer narrow {8}; layer output/
    s/hidden -> output/hidden -(slow_down(seconds=3, after=$quick))-> narrow -> output/
    s/hidden {128}/hidden {8000}/" samples/live_zmq/live.hmx >"$flow"
  # The sender's rate without back-pressure.
  "$program" receive "unix:$work/fast#label" --to "label=file:$work/labels.npy" 2>"$work/fast.err" &
  begin=${EPOCHREALTIME/[.,]/}
  "$program" send "unix:$work/fast" --from "image=$(digits)" --from "label=$(digits '#label')" --quiet
  fast=$((60000 * 1000000 / (${EPOCHREALTIME/[.,]/} - begin)))
  wait $!
  "$program" run "$flow" --plugin "$plugin" --producer "image=unix:$work/socket#image" \
    --producer "label=unix:$work/socket#label" --threads 1 --control "$work/control" --quiet \
    >"$work/learner.out" 2>"$work/learner.err" &
  learner=$!
  "$program" send "unix:$work/socket" --from "image=$(digits '&repeat=1000000')" \
    --from "label=$(digits '&repeat=1000000#label')" --quiet 2>"$work/sender.err" &
  sender=$!
  processes=("$learner" "$sender")
  await slow 150
  watch "$seconds" >"$work/rows"
  "$program" ctl "$work/control" status --json >"$work/status"
  for key in lost duplicates refused; do
    if grep -oq "\"$key\":[1-9]" "$work/status"; then fail "samples are $key: $(cat "$work/status")"; fi
  done
  grep -q '"back_pressure":1' "$work/status" || grep -q '"back_pressure":0\.9' "$work/status" ||
    fail "the sender is not held back: $(cat "$work/status")"
  awk -v fast="$fast" -v minutes="$minutes" '
    NR == 1 { least_l = most_l = $2; least_s = most_s = $3; s0 = $5; t0 = $1; f0 = f1 = $4 }
    { if ($2 < least_l) least_l = $2; if ($2 > most_l) most_l = $2
      if ($3 < least_s) least_s = $3; if ($3 > most_s) most_s = $3
      if ($4 < f0) f0 = $4; if ($4 > f1) f1 = $4; s1 = $5; t1 = $1 }
    END {
      rate = (s1 - s0) / (t1 - t0); learner = (most_l / least_l - 1) * 100; sender = (most_s / least_s - 1) * 100
      printf "slow consumer, %s min: %.0f samples a second where %.0f come (%.0f times too slow)\n",
             minutes, rate, fast, fast / rate
      printf "memory: learner %.1f MiB within %.2f %%, sender %.1f MiB within %.2f %%; ",
             most_l / 1024, learner, most_s / 1024, sender
      printf "descriptors %d to %d; nothing lost, refused or doubled\n", f0, f1
      exit !(fast / rate >= 100 && learner <= 1 && sender <= 1 && f0 == f1 && s1 > s0)
    }' "$work/rows" || fail "that is not what was promised"
}

soak() {
  local chaos port through repeats lost
  chaos=$(dirname "$program")/transport_chaos
  [ -x "$chaos" ] || fail "$chaos is not there: build the target transport_chaos"
  port=$((20000 + RANDOM % 12000))
  repeats=$((rate * seconds / 60000 + 2))  # more than needed: the learner must still be busy at the end
  "$program" run samples/live_zmq/live.hmx --producer "image=tcp:127.0.0.1:$port#image" \
    --producer "label=tcp:127.0.0.1:$port#label" --threads 1 --seed 11 \
    --checkpoint "$work/checkpoints" --every 10s --keep 2 --control "$work/control" \
    --save "$work/live.safetensors" --quiet >"$work/learner.out" 2>"$work/learner.err" &
  learner=$!
  "$chaos" proxy "$port" "$seed" "$seconds" cuts >"$work/proxy" &
  processes=("$learner" $!)
  for _ in $(seq 100); do [ -s "$work/proxy" ] && break; sleep 0.05; done
  through=$(head -n 1 "$work/proxy")
  "$program" send "tcp:127.0.0.1:$through?patience=60" --from "image=$(digits "&repeat=$repeats")" \
    --from "label=$(digits "&repeat=$repeats#label")" \
    --ack durable --producer-name camera --rate "$rate" --quiet 2>"$work/sender.err" &
  sender=$!
  processes+=("$sender")
  await learning 60
  watch "$seconds" >"$work/rows"
  lost=$(status lost) || fail "the learner does not answer any more"
  [ "$lost" = 0 ] || fail "$lost samples are lost"
  awk -v minutes="$minutes" '
    { t[NR] = $1; m[NR] = $2; s[NR] = $3; f[NR] = $4; n[NR] = $5; c[NR] = $6 }
    function slope(of,    i, k, x, y, xx, xy) {  # KiB an hour, by regression
      for (i = from; i <= NR; ++i) { ++k; x += t[i]; y += of[i]; xx += t[i] * t[i]; xy += t[i] * of[i] }
      return (k * xy - x * y) / (k * xx - x * x) * 3600
    }
    function mean(of, a, b) { return (of[b] - of[a]) / (t[b] - t[a]) }
    END {
      for (from = 1; from < NR && t[from] < t[NR] / 5; ++from);  # the first fifth warms up
      half = int((from + NR) / 2)
      # Connections open and close, so the most frequent number of descriptors in each half counts.
      for (i = from; i <= NR; ++i) {
        if (f[i] > most) most = f[i]
        if (i <= half) { if (++seen0[f[i]] > seen0[f0]) f0 = f[i] }
        else if (++seen1[f[i]] > seen1[f1]) f1 = f[i]
      }
      cost0 = (c[half] - c[from]) / (n[half] - n[from]) * 1000; cost1 = (c[NR] - c[half]) / (n[NR] - n[half]) * 1000
      printf "soak, %d min after %d s of warming up: %d samples\n", (t[NR] - t[from]) / 60, t[from], n[NR]
      printf "memory: learner %.1f MiB, %+.0f KiB an hour; sender %.1f MiB, %+.0f KiB an hour; ",
             m[NR] / 1024, slope(m), s[NR] / 1024, slope(s)
      printf "descriptors %d, then %d, %d at most\n", f0, f1, most
      first = mean(n, from, half); second = mean(n, half, NR)
      printf "throughput: %.0f samples a second in the first half, %.0f in the second (%+.2f %%); ",
             first, second, (second / first - 1) * 100
      printf "%.2f and %.2f ms of processor time for a thousand\n", cost0, cost1
      worst = slope(m) > slope(s) ? slope(m) : slope(s)
      # In less than half an hour, a single new page extrapolates to many an hour.
      exit !((worst < 1024 || worst * (t[NR] - t[from]) / 3600 < 512 && t[NR] < 1800) && f0 == f1)
    }' "$work/rows" || fail "that is not what was promised"
  for _ in $(seq 100); do [ "$(wc -l <"$work/proxy")" -gt 1 ] && break; sleep 0.1; done  # the proxy's final report
  echo "connections: $(tail -n +2 "$work/proxy"); samples twice: $(status duplicates), lost: $(status lost)"
}

echo "$([ $slow = yes ] && echo 'slow consumer' || echo soak): $minutes min, seed $seed"
if [ $slow = yes ]; then consume_slowly; else soak; fi
