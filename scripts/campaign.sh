#!/usr/bin/env bash
# Kills a training run at random instants, resumes it each time on other threads and reading ahead otherwise, and compares its final
# weights, byte for byte, with those of a run that nobody disturbed.
# campaign.sh [--kills N] [--seed N] [--data FOLDER] [--program FILE] [--epochs N] [--size N]
#   --kills    how often (default 50)                       --seed    of the instants (default: of the clock); it is printed
#   --data     with mnist/ in it (default ../shared/data);  without it digits are drawn: --size of them (default 6000)
# Campaigns of live streams instead: --live (kills, live_campaign.sh), --chaos (bad weather, live_chaos.sh), --soak and --slow (hours of it, live_soak.sh)
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1:-}" in
  --live) exec scripts/live_campaign.sh "${@:2}" ;;
  --chaos) exec scripts/live_chaos.sh "${@:2}" ;;
  --soak) exec scripts/live_soak.sh "${@:2}" ;;
  --slow) exec scripts/live_soak.sh --slow "${@:2}" ;;
esac
kills=50 seed=$(date +%s) data=../shared/data program='' epochs='' size=6000
while [ $# -gt 0 ]; do
  case "$1" in
    --kills | --seed | --data | --program | --epochs | --size)
      declare "${1#--}=${2:?$1 takes a value}"
      shift 2
      ;;
    *) sed -n '4,7s/^# *//p' "$0" >&2; exit 2 ;;
  esac
done
for candidate in build/release/bin/harmonics build/ci/bin/harmonics; do
  if [ -z "$program" ] && [ -x "$candidate" ]; then program=$candidate; fi
done
work=$(mktemp -d)
running=''
trap '[ -z "$running" ] || kill -9 "$running" 2>/dev/null || true; rm -rf "$work"' EXIT
RANDOM=$((seed % 32768))
images="$data/mnist/train-images-idx3-ubyte.gz" labels="$data/mnist/train-labels-idx1-ubyte.gz"
if [ -f "$images" ]; then
  what=MNIST epochs=${epochs:-12}
else
  what="$size drawn digits" epochs=${epochs:-20} images="synth:digits?size=$size&seed=1" labels="synth:digits?size=$size&seed=1#label"
fi
echo "campaign: $kills kills of $epochs epochs of $what, seed $seed"

# with_async ADDRESS N: reading N samples ahead
with_async() {
  local fragment='' address=$1
  case "$address" in *'#'*) fragment="#${address#*#}" address=${address%%#*} ;; esac
  case "$address" in *\?*) echo "$address&async=$2$fragment" ;; *) echo "$address?async=$2$fragment" ;; esac
}
# train THREADS AHEAD [further flags...]
train() {
  local threads=$1 ahead=$2
  shift 2
  exec "$program" run samples/mnist.hmx --producer "$(with_async "$images" "$ahead")" --producer "$(with_async "$labels" "$ahead")" \
    --epochs "$epochs" --seed 11 --schedule 'cosine(warmup=20)' --threads "$threads" --json "$@"
}
now() { date +%s%N; }

began=$(now)
(train 2 64 --steps 1) >/dev/null 2>&1
startup=$((($(now) - began) / 1000000))
began=$(now)
(train 2 64 --save "$work/whole.safetensors") >/dev/null 2>&1
whole=$((($(now) - began) / 1000000))
echo "undisturbed: $whole ms, of which $startup ms until the first step"
stride=$(((whole - startup) * 3 / 2 / kills + 1))

done_kills=0 after=0 resumed=0 mid_epoch=0 writing=0 finished=0 folder=0
# pause MILLISECONDS
pause() { sleep "$(printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)))"; }
# One instant in eight lies anywhere since the program began, the others after it has opened its streams.
wait_for_instant() {
  local random=$((RANDOM * 32768 + RANDOM))
  if [ $((random % 8)) = 0 ]; then
    pause $((random % (startup + 1)))
    return
  fi
  for _ in $(seq 600); do
    if grep -qs 'are scaled to' "$work/err" || ! kill -0 "$running" 2>/dev/null; then break; fi
    sleep 0.02
  done
  pause $((random % (startup + stride)))
}
# Was the run that just began resumed, and where?
look() {
  local line
  line=$(grep -m1 'resuming from' "$work/err" || true)
  if [ -n "$line" ]; then
    resumed=$((resumed + 1))
    case "$line" in *', sample 0') ;; *) mid_epoch=$((mid_epoch + 1)) ;; esac
  fi
}
compare() {
  finished=$((finished + 1))
  if ! cmp -s "$work/whole.safetensors" "$work/resumed.safetensors"; then
    echo "the weights differ after $done_kills kills, seed $seed" >&2
    exit 1
  fi
  rm "$work/resumed.safetensors"
  folder=$((folder + 1))
}
while :; do
  : >"$work/err"
  (train $((1 + RANDOM % 2)) $((1 + RANDOM % 300)) --checkpoint "$work/$folder" --every "$((3 + RANDOM % 20))steps" --keep 3 --resume \
    --save "$work/resumed.safetensors") >"$work/out" 2>"$work/err" &
  running=$!
  if [ "$done_kills" -lt "$kills" ]; then
    wait_for_instant
    if kill -9 "$running" 2>/dev/null; then
      wait "$running" 2>/dev/null || true
      if [ ! -f "$work/resumed.safetensors" ]; then
        done_kills=$((done_kills + 1))
        look
        if compgen -G "$work/$folder/checkpoint-*" >/dev/null; then after=$((after + 1)); fi
        if compgen -G "$work/$folder/.harmonics-*.tmp" >/dev/null; then writing=$((writing + 1)); fi
        continue
      fi
    fi
  fi
  if ! wait "$running" && [ ! -f "$work/resumed.safetensors" ]; then
    cat "$work/err" >&2
    exit 1
  fi
  look
  running=''
  compare
  if [ "$done_kills" -ge "$kills" ]; then break; fi
done
echo "kills: $done_kills; after the first checkpoint: $after; while one was written: $writing; runs that went on from one (resumed_at > 0): $resumed, mid-epoch: $mid_epoch"
echo "runs to the end: $finished, each with the weights of the undisturbed run, to the bit"
if [ "$after" -lt $((kills * 4 / 5)) ] || [ "$mid_epoch" -le $((kills / 2)) ] || { [ "$kills" -ge 50 ] && [ "$writing" = 0 ]; }; then
  echo "too few of the kills came after a checkpoint, or while one was written, to mean much; run longer: --epochs" >&2
  exit 1
fi
