#!/usr/bin/env bash
# Fault injection for training: kills a run at the system calls that write its checkpoints, with a write half done or
# not begun, resumes it with other numbers of threads and prefetched samples, and compares its final weights with an
# undisturbed run, byte for byte. Kills are injected (tests/faults/layer), so the machine's speed does not matter.
# campaign.sh [--kills N] [--seed N] [--data FOLDER] [--program FILE] [--epochs N] [--size N]
#   --kills    number of kills (default 50)
#   --seed     of the choice of calls (default: from the clock); printed
#   --data     a folder with mnist/ (default: synthetic digits)
#   --program  the harmonics to test (default: that of build/release, else build/ci)
#   --epochs   epochs of a run (default 2 with MNIST, else 8)
#   --size     number of synthetic digits (default 600)
# Other campaigns, each with its own flags:
#   --power        every state that a power cut can leave of checkpoints, weights, spools, dead letters and caches
#   --parity       random flows against PyTorch (parity_campaign.sh)
#   --fuzz         every reader (fuzz_campaign.sh)
#   --mutants [N]  valid files of every format, randomly mutated
#   --lying        files with false lengths, and the cost of refusing them
#   --live         killed learners and senders of live streams (live_campaign.sh)
#   --chaos        live streams under network faults (live_chaos.sh)
#   --soak         hours of live training (live_soak.sh)
#   --slow         a learner slower than its sender (live_soak.sh)
set -euo pipefail
cd "$(dirname "$0")/.."
built() { ls build/release/bin/harmonics build/ci/bin/harmonics 2>/dev/null | head -n 1; }
case "${1:-}" in
  --live) exec scripts/live_campaign.sh "${@:2}" ;;
  --chaos) exec scripts/live_chaos.sh "${@:2}" ;;
  --soak) exec scripts/live_soak.sh "${@:2}" ;;
  --slow) exec scripts/live_soak.sh --slow "${@:2}" ;;
  --power)
    binaries=build/ci/bin
    if [ ! -x $binaries/test_faults ]; then
      echo "$binaries/test_faults is not there: build the target test_faults" >&2
      exit 1
    fi
    HARMONICS_EVERY_STATE=1 exec $binaries/test_faults 'power cuts*,dead letters: whatever*' --durations yes ;;
  --mutants) exec tests/hostile/mutants.py --program "$(built)" --mutants "${2:-20000}" ;;
  --lying) exec tests/hostile/mutants.py --program "$(built)" --lying ;;
  --fuzz) exec scripts/fuzz_campaign.sh "${@:2}" ;;
  --parity) exec scripts/parity_campaign.sh "${@:2}" ;;  # random flows against PyTorch
esac
kills=50 seed=$(date +%s) data='' program='' epochs='' size=600
while [ $# -gt 0 ]; do
  case "$1" in
    --kills | --seed | --data | --program | --epochs | --size)
      declare "${1#--}=${2:?$1 takes a value}"
      shift 2
      ;;
    *) sed -n '5,21s/^# *//p' "$0" >&2; exit 2 ;;
  esac
done
for candidate in build/release/bin/harmonics build/ci/bin/harmonics; do
  if [ -z "$program" ] && [ -x "$candidate" ]; then program=$candidate; fi
done
layer=$(dirname "$program")/../lib/libfault_layer.so
if [ ! -f "$layer" ]; then layer=build/ci/lib/libfault_layer.so; fi
[ -f "$layer" ] || { echo "$layer is not there: build the target fault_layer" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
RANDOM=$((seed % 32768))
images="$data/mnist/train-images-idx3-ubyte.gz" labels="$data/mnist/train-labels-idx1-ubyte.gz"
if [ -n "$data" ] && [ -f "$images" ]; then
  what=MNIST epochs=${epochs:-2} batch=64
else
  what="$size drawn digits" epochs=${epochs:-8} batch=16
  images="synth:digits?size=$size&seed=1" labels="synth:digits?size=$size&seed=1#label"
fi
echo "campaign: $kills kills of $epochs epochs of $what, seed $seed"

# with_async ADDRESS N: the address with prefetch of N samples
with_async() {
  local fragment='' address=$1
  case "$address" in *'#'*) fragment="#${address#*#}" address=${address%%#*} ;; esac
  case "$address" in *\?*) echo "$address&async=$2$fragment" ;; *) echo "$address?async=$2$fragment" ;; esac
}
# train THREADS PREFETCHED [further flags...]
train() {
  local threads=$1 ahead=$2
  shift 2
  "$program" run samples/mnist.hmx --producer "$(with_async "$images" "$ahead")" \
    --producer "$(with_async "$labels" "$ahead")" --epochs "$epochs" --batch "$batch" --seed 11 \
    --schedule 'cosine(warmup=20)' --threads "$threads" --json "$@"
}
train 2 64 --save "$work/whole.safetensors" >/dev/null 2>&1

done_kills=0 after=0 resumed=0 mid_epoch=0 writing=0 torn=0 finished=0 folder=0
# Counts whether the last run resumed, and whether it did so in the middle of an epoch.
look() {
  local line
  line=$(grep -m1 'resuming from' "$work/err" || true)
  if [ -n "$line" ]; then
    resumed=$((resumed + 1))
    case "$line" in *', sample 0') ;; *) mid_epoch=$((mid_epoch + 1)) ;; esac
  fi
}
wrong() {
  echo "$1 after $done_kills kills, seed $seed" >&2
  cat "$work/err" >&2
  exit 1
}
while :; do
  at='' how=kill
  if [ "$done_kills" -lt "$kills" ]; then at=$((1 + RANDOM % 90)); fi  # a checkpoint takes about 25 calls
  if [ $((RANDOM % 3)) = 0 ]; then how=tear; fi
  rm -f "$work/struck"
  code=0
  (FAULTS_PATHS="$work/$folder*" FAULTS_AT=$at FAULTS_DO=$how FAULTS_STRUCK="$work/struck" LD_PRELOAD="$layer" \
    train $((1 + RANDOM % 2)) $((1 + RANDOM % 300)) --checkpoint "$work/$folder" \
    --every "$((3 + RANDOM % 20))steps" --keep 3 --resume \
    --save "$work/resumed.safetensors") >"$work/out" 2>"$work/err" || code=$?
  look
  if [ -f "$work/struck" ]; then
    [ "$code" = 137 ] || wrong "it was to be killed, and ended with $code"
    done_kills=$((done_kills + 1))
    read -r _ call _ <"$work/struck"
    if compgen -G "$work/$folder/checkpoint-*" >/dev/null; then after=$((after + 1)); fi
    if compgen -G "$work/$folder/.harmonics-*.tmp" >/dev/null; then writing=$((writing + 1)); fi
    if [ $how = tear ] && [ "$call" = write ]; then torn=$((torn + 1)); fi
    rm -f "$work/resumed.safetensors"
    continue
  fi
  [ "$code" = 0 ] || wrong "it ended with $code"
  finished=$((finished + 1))
  cmp -s "$work/whole.safetensors" "$work/resumed.safetensors" || wrong "the weights differ"
  rm -rf "$work/resumed.safetensors" "${work:?}/$folder"
  folder=$((folder + 1))
  if [ "$done_kills" -ge "$kills" ]; then break; fi
done
echo "kills: $done_kills; after the first checkpoint: $after; while one was written: $writing, within a write: $torn;" \
  "runs that went on from one (resumed_at > 0): $resumed, mid-epoch: $mid_epoch"
echo "runs to the end: $finished, each with the weights of the undisturbed run, to the bit"
