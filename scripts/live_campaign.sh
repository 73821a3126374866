#!/usr/bin/env bash
# Kills who learns from a live stream, and who sends, with SIGKILL at random instants, starts them again, and compares the final weights:
# with one sender, and with one for pictures and another for labels, byte for byte with an undisturbed run, with several with the replay of the spool.
# Nothing may be lost or learned twice. In one life of three it waits for the first step and measures how long that took: more than a second behind the
# reading of the checkpoint is too long.
# live_campaign.sh [--kills N] [--seed N] [--program FILE] [--size N] [--rate N] [--restart-limit MILLISECONDS]
#   --kills    how often in each of five parts (default 200)     --seed    of the instants (default: of the clock); it is printed
#   --size     samples (default 800 a kill, at least 8000)       --rate    samples a second (default 1500)
#   --restart-limit   for machines that do other things too (default 1000)
set -euo pipefail
cd "$(dirname "$0")/.."
kills=200 seed=$(date +%s) program='' size='' rate=1500 restart_limit=1000
while [ $# -gt 0 ]; do
  case "$1" in
    --kills | --seed | --program | --size | --rate | --restart-limit)
      name=${1#--}
      declare "${name//-/_}=${2:?$1 takes a value}"
      shift 2
      ;;
    *) sed -n '6,9s/^# *//p' "$0" >&2; exit 2 ;;
  esac
done
for candidate in build/release/bin/harmonics build/ci/bin/harmonics; do
  if [ -z "$program" ] && [ -x "$candidate" ]; then program=$candidate; fi
done
# A life lasts about as long as 600 of them at that rate, where nothing else keeps the processors busy.
size=${size:-$((kills * 800 > 8000 ? kills * 800 : 8000))}
work=$(mktemp -d)
RANDOM=$((seed % 32768))
learner='' senders=()
finish() {
  for process in $learner "${senders[@]}"; do kill -9 "$process" 2>/dev/null || true; done
  rm -rf "$work"
}
trap finish EXIT
deadline=$(($(date +%s) + 240 + kills * 6))
within_time() { [ "$(date +%s)" -lt "$deadline" ] || { echo "no end within its time: seed $seed" >&2; exit 1; }; }
pause() { sleep "$(printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)))"; }

apart=''  # "by number", "in order": pictures and labels come from two addresses, and how they are joined

# learn FOLDER [further flags...]: from $work/FOLDER/socket, or .../image and .../label
learn() {
  local folder=$work/$1 image=unix:$work/$1/socket#image label=unix:$work/$1/socket#label
  shift
  case "$apart" in
    'by number') image=unix:$folder/image label=unix:$folder/label ;;
    'in order') image=unix:$folder/image?join=order label=unix:$folder/label ;;
  esac
  exec "$program" run samples/live_zmq/live.hmx --producer "image=$image" --producer "label=$label" --seed 11 \
    --checkpoint "$folder/checkpoints" --every 10steps --keep 2 --resume --save "$folder/weights.safetensors" --log "$folder/steps.csv" --log-every 1 \
    --json "$@" >>"$folder/out" 2>"$folder/life"
}
# send FOLDER NAME SEED RATE
send() {
  local image="synth:digits?size=$size&seed=$3" label="synth:digits?size=$size&seed=$3#label" address=socket from
  from=(--from "image=$image" --from "label=$label")
  if [ -n "$apart" ]; then
    if [ "$2" = sender-0 ]; then address=image from=(--from "$image"); else address=label from=(--from "$label"); fi
  fi
  exec "$program" send "unix:$work/$1/$address?patience=60" "${from[@]}" --producer-name "$2" --ack durable --rate "$4" --quiet >>"$work/$1/$2.out" 2>&1
}
# The numbers alone, without the header.
numbers_of() {
  local header
  header=$(od -An -t u8 -N 8 "$1" | tr -d ' ')
  tail -c +$((8 + header + 1)) "$1"
}

restarts=() loads=()
exec {nap}<> <(:)  # for sleeping without a process
# measure_restart FOLDER BEGAN: waits for the first step of the learner that began then (microseconds), and notes when it came if it went on from a checkpoint
measure_restart() {
  local folder=$work/$1 lines rows loaded=0 time
  while kill -0 "$learner" 2>/dev/null; do
    time=$(((${EPOCHREALTIME/[.,]/} - $2) / 1000))
    mapfile lines <"$folder/life"
    if [ $loaded = 0 ] && [[ "${lines[*]}" = *'resuming from'* ]]; then loaded=$time; fi
    rows=()
    if [ -e "$folder/steps.csv" ]; then mapfile -n 2 rows <"$folder/steps.csv"; fi
    if [ ${#rows[@]} = 2 ]; then
      if [ "$loaded" != 0 ]; then restarts+=("$time") loads+=("$loaded"); fi
      return
    fi
    [ "$time" -lt 30000 ] || { echo "no step within 30 s of a restart, seed $seed" >&2; exit 1; }
    read -rt 0.005 -u "$nap" || true
  done
}
# of NUMBERS...: median and largest
of() { printf '%s\n' "$@" | sort -n | awk '{ a[NR] = $1 } END { printf "median %d ms, worst %d ms", a[int((NR + 1) / 2)], a[NR] }'; }
tell_restarts() {
  local i
  [ ${#restarts[@]} -gt 0 ] || { echo "no restart was measured" >&2; exit 1; }
  echo "from a restart to its first step, ${#restarts[@]} times: $(of "${restarts[@]}"); of that until the checkpoint was read: $(of "${loads[@]}")"
  for i in "${!restarts[@]}"; do
    [ $((restarts[i] - loads[i])) -le "$restart_limit" ] || { echo "a restart took ${restarts[i]} ms, ${loads[i]} ms of them until the checkpoint was read: too long, seed $seed" >&2; exit 1; }
  done
}

# sender FOLDER NUMBER OF: in the background; with pictures and labels apart both give the same samples
sender() {
  if [ -n "$apart" ]; then send "$1" "sender-$2" 1 "$rate" & else send "$1" "sender-$2" $(($2 + 1)) $((rate / $3)) & fi
  senders[$2]=$!
}
# part NAME SENDERS KILLS_SENDERS [flags of the learner...]
part() {
  local folder=$1 count=$2 both=$3 killed=0 killed_senders=0 resumed=0 code i began
  shift 3
  mkdir -p "$work/$folder"
  senders=()
  for ((i = 0; i < count; i++)); do sender "$folder" "$i" "$count"; done
  while true; do
    within_time
    rm -f "$work/$folder/steps.csv"
    : >"$work/$folder/life"
    began=${EPOCHREALTIME/[.,]/}
    learn "$folder" --threads $((RANDOM % 2 + 1)) "$@" &
    learner=$!
    if [ "$killed" -ge "$kills" ]; then
      wait "$learner" || { cat "$work/$folder/life" >&2; exit 1; }
      cat "$work/$folder/life" >>"$work/$folder/err"
      break
    fi
    # A sender with a rate that is started again passes over what its receiver has at that rate, and who reads another address beside it waits so long.
    if [ $((RANDOM % 3)) = 0 ] && ! { [ "$both" = yes ] && [ -n "$apart" ]; }; then
      measure_restart "$folder" "$began"
    else
      pause 50
    fi
    pause $((RANDOM % 350))
    if [ "$both" = yes ] && [ $((RANDOM % 2)) = 0 ]; then
      i=$((RANDOM % count))
      kill -9 "${senders[i]}" 2>/dev/null && killed_senders=$((killed_senders + 1))
      wait "${senders[i]}" 2>/dev/null || true
      sender "$folder" "$i" "$count"
      pause $((RANDOM % 100))
    fi
    kill -9 "$learner" 2>/dev/null || true
    code=0
    wait "$learner" 2>/dev/null || code=$?
    cat "$work/$folder/life" >>"$work/$folder/err"
    if [ "$code" = 0 ]; then break; fi
    [ "$code" = 137 ] || { cat "$work/$folder/life" >&2; exit 1; }
    killed=$((killed + 1))
  done
  learner=''
  for i in "${senders[@]}"; do kill -9 "$i" 2>/dev/null || true; wait "$i" 2>/dev/null || true; done
  senders=()
  resumed=$(grep -c '^resuming from' "$work/$folder/err" || true)
  echo "$folder: learner killed $killed times, senders $killed_senders times; $resumed runs went on from a checkpoint"
  [ "$killed" -ge $((kills / 2)) ] || { echo "only $killed of $kills kills fell into the run: allow more --size" >&2; exit 1; }
}
# same A B WHAT
same() {
  cmp -s <(numbers_of "$1") <(numbers_of "$2") || { echo "$3: the weights differ, seed $seed" >&2; exit 1; }
  echo "$3: the weights are the same to the bit"
}

echo "live campaign: $kills kills in each part, $size samples at $rate a second, seed $seed"
mkdir "$work/whole"
send whole sender-0 1 1000000 &
senders=($!)
(learn whole) || { cat "$work/whole/life" >&2; exit 1; }
wait "${senders[0]}"
part checkpoints 1 no
same "$work/whole/weights.safetensors" "$work/checkpoints/weights.safetensors" "one sender"
part spool 1 yes --spool "$work/spool/spool"
same "$work/whole/weights.safetensors" "$work/spool/weights.safetensors" "one sender by way of the spool, killed too"
for apart in 'by number' 'in order'; do
  both=no
  if [ "$apart" = 'by number' ]; then both=yes; fi
  part "two-addresses-${apart// /-}" 2 $both
  same "$work/whole/weights.safetensors" "$work/two-addresses-${apart// /-}/weights.safetensors" "pictures and labels from two addresses, joined $apart"
done
apart=''
mkdir "$work/replay"
part several 3 yes --spool "$work/several/spool" --spool-keep
kept=$work/several/spool
"$program" run samples/live_zmq/live.hmx --producer "$kept/image?shuffle=0" --producer "$kept/label" --epochs 1 --seed 11 \
  --save "$work/replay/weights.safetensors" --quiet
same "$work/replay/weights.safetensors" "$work/several/weights.safetensors" "three senders and the replay of the spool"
tell_restarts
