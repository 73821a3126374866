#!/usr/bin/env bash
# Fault injection for live streams: kills the learner and its senders at system calls on their sockets and on the files
# of checkpoints, spools and logs, with a call half done or not begun, and restarts them. Compares the final weights,
# byte for byte: with one sender, or one of images and one of labels, against an undisturbed run; with several senders
# against the replay of the spool. No sample may be lost or learned twice. Kills are injected (tests/faults/layer), so
# the machine's speed does not matter.
# live_campaign.sh [--kills N] [--seed N] [--program FILE] [--size N]
#   --kills    kills in each of five parts (default 200)
#   --seed     of the choice of calls (default: from the clock); printed
#   --program  the harmonics to test (default: that of build/release, else build/ci)
#   --size     number of samples (default 1500)
set -euo pipefail
cd "$(dirname "$0")/.."
kills=200 seed=$(date +%s) program='' size=1500
while [ $# -gt 0 ]; do
  case "$1" in
    --kills | --seed | --program | --size)
      declare "${1#--}=${2:?$1 takes a value}"
      shift 2
      ;;
    *) sed -n '7,11s/^# *//p' "$0" >&2; exit 2 ;;
  esac
done
for candidate in build/release/bin/harmonics build/ci/bin/harmonics; do
  if [ -z "$program" ] && [ -x "$candidate" ]; then program=$candidate; fi
done
layer=$(dirname "$program")/../lib/libfault_layer.so
if [ ! -f "$layer" ]; then layer=build/ci/lib/libfault_layer.so; fi
[ -f "$layer" ] || { echo "$layer is not there: build the target fault_layer" >&2; exit 1; }
work=$(mktemp -d)
RANDOM=$((seed % 32768))
senders=()
set -m  # each sender is a process group, which is killed as a whole
end_senders() {
  for process in "${senders[@]}"; do kill -9 -- "-$process" 2>/dev/null || true; done
  for process in "${senders[@]}"; do wait "$process" 2>/dev/null || true; done
  senders=()
}
finish() {
  end_senders
  rm -rf "$work"
}
trap finish EXIT

apart=''  # "by number" or "in order": joins images and labels from two addresses like this

# learn FOLDER [further flags...]: from FOLDER/socket, or .../image and .../label
learn() {
  local folder=$1 image=unix:$1/socket#image label=unix:$1/socket#label
  shift
  case "$apart" in
    'by number') image=unix:$folder/image label=unix:$folder/label ;;
    'in order') image=unix:$folder/image?join=order label=unix:$folder/label ;;
  esac
  timeout -k 5 120 "$program" run samples/live_zmq/live.hmx --producer "image=$image" --producer "label=$label" \
    --seed 11 --batch 16 --checkpoint "$folder/checkpoints" --every 10steps --keep 2 --resume \
    --save "$folder/weights.safetensors" --log "$folder/steps.csv" --log-every 1 \
    --json "$@" >"$folder/out" 2>"$folder/err"
}
# send FOLDER NAME SEED
send() {
  local image="synth:digits?size=$size&seed=$3" label="synth:digits?size=$size&seed=$3#label" address=socket from
  from=(--from "image=$image" --from "label=$label")
  if [ -n "$apart" ]; then
    if [ "$2" = sender-0 ]; then address=image from=(--from "$image"); else address=label from=(--from "$label"); fi
  fi
  timeout --foreground -k 5 120 "$program" send "unix:$1/$address?patience=60" "${from[@]}" \
    --producer-name "$2" --ack durable --quiet >>"$1/$2.out" 2>&1
}
# killed FOLDER NAME AT COMMAND...: runs the command, kills it at call number AT; returns its exit code
killed() {
  local folder=$1 how=kill
  if [ $((RANDOM % 3)) = 0 ]; then how=tear; fi
  rm -f "$folder/$2.struck"
  local paths="$folder/checkpoints*:$folder/spool*:$folder/.harmonics*:$folder/*.csv:$folder/*.safetensors"
  FAULTS_PATHS="$paths:unix@$folder/*" \
    FAULTS_CALLS=open,write,sync,rename,truncate,remove,mkdir,send,receive FAULTS_AT=$3 FAULTS_DO=$how \
    FAULTS_STRUCK="$folder/$2.struck" LD_PRELOAD="$layer" "${@:4}"
}
# numbers_of FILE: the weights without the header
numbers_of() {
  local header
  header=$(od -An -t u8 -N 8 "$1" | tr -d ' ')
  tail -c +$((8 + header + 1)) "$1"
}
# sender FOLDER NUMBER KILLS SEED: restarts a sender after each kill until everything is sent; a learner that restarts
# after that needs no sender
sender() {
  local folder=$1 name=sender-$2 left=$3 data=$(($2 + 1)) code at
  if [ -n "$apart" ]; then data=1; fi  # both send the same samples
  RANDOM=$(($4 % 32768))
  while true; do
    at=''
    if [ "$left" -gt 0 ]; then at=$((1 + RANDOM % 30)); fi
    code=0
    (killed "$folder" "$name" "$at" send "$folder" "$name" $data) 2>/dev/null || code=$?
    if [ $code = 0 ]; then return; fi
    if [ $code != 137 ]; then
      echo "$name ended with $code" >>"$folder/wrong"
      return
    fi
    left=$((left - 1))
    echo killed >>"$folder/senders"
  done
}
wrong() {
  echo "$1, seed $seed" >&2
  cat "$2"/err "$2"/*.out "$2"/wrong >&2 2>/dev/null || true
  exit 1
}
# part NAME SENDERS KILLS_SENDERS [flags of the learner, {} for its folder...]: repeats runs, each in a new folder,
# until the learner has been killed often enough
part() {
  local name=$1 count=$2 both=$3 done_kills=0 done_senders=0 resumed=0 network=0 disk=0 worlds=0 i code at call folder
  shift 3
  while [ $done_kills -lt "$kills" ]; do
    worlds=$((worlds + 1))
    folder=$work/$worlds
    mkdir -p "$folder"
    senders=()
    for ((i = 0; i < count; i++)); do
      sender "$folder" "$i" $([ "$both" = yes ] && echo 8 || echo 0) "$RANDOM" &
      senders+=($!)
    done
    while true; do
      at='' code=0
      if [ $done_kills -lt "$kills" ]; then at=$((1 + RANDOM % 120)); fi
      (killed "$folder" learner "$at" learn "$folder" --threads $((RANDOM % 2 + 1)) "${@//\{\}/$folder}") \
        2>/dev/null || code=$?
      RANDOM=$(((RANDOM + done_kills) % 32768))
      if grep -q '^resuming from' "$folder/err"; then resumed=$((resumed + 1)); fi
      if [ ! -f "$folder/learner.struck" ]; then break; fi
      [ $code = 137 ] || wrong "$name: the learner was to be killed, and ended with $code" "$folder"
      done_kills=$((done_kills + 1))
      read -r _ call _ <"$folder/learner.struck"
      case $call in send | receive) network=$((network + 1)) ;; *) disk=$((disk + 1)) ;; esac
    done
    [ $code = 0 ] || wrong "$name: the learner ended with $code" "$folder"
    end_senders  # a sender killed after its last sample arrived finds no receiver
    [ ! -e "$folder/wrong" ] || wrong "$name: a sender ended otherwise than by being killed" "$folder"
    if [ -e "$folder/senders" ]; then done_senders=$((done_senders + $(wc -l <"$folder/senders"))); fi
    check "$folder"
    rm -rf "$folder"
  done
  echo "$name: learner killed $done_kills times ($network at its sockets, $disk at its disk)," \
    "senders $done_senders times; $resumed runs went on from a checkpoint;" \
    "in all $worlds worlds the weights are the same to the bit"
}
# check FOLDER: compares its weights with those of the undisturbed run
check() {
  cmp -s <(numbers_of "$work/whole/weights.safetensors") <(numbers_of "$1/weights.safetensors") ||
    wrong "the weights differ" "$1"
}

echo "live campaign: $kills kills in each part, $size samples, seed $seed"
mkdir "$work/whole"
(send "$work/whole" sender-0 1) &
senders=($!)
(learn "$work/whole") || wrong "the undisturbed run failed" "$work/whole"
wait "${senders[0]}"
part 'one sender' 1 no
part 'one sender by way of the spool, killed too' 1 yes --spool '{}/spool'
apart='by number'
part 'pictures and labels from two addresses, joined by number' 2 yes
apart='in order'
part 'pictures and labels from two addresses, joined in order' 2 no
apart=''
# The order of several senders is not deterministic, so the replay of the spool is the reference.
check() {
  "$program" run samples/live_zmq/live.hmx --producer "$1/spool/image?shuffle=0" --producer "$1/spool/label" \
    --epochs 1 --seed 11 --batch 16 --save "$1/replay.safetensors" --quiet
  cmp -s <(numbers_of "$1/replay.safetensors") <(numbers_of "$1/weights.safetensors") ||
    wrong "the weights of the replay differ" "$1"
}
part 'three senders and the replay of the spool' 3 yes --spool '{}/spool' --spool-keep
