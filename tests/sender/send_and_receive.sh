#!/bin/sh
# send_and_receive.sh HARMONICS SENDER FOLDER PORT: receives everything that the out-of-tree sender sends.
set -eu
harmonics=$1 sender=$2 folder=$3
mkdir -p "$folder"
for address in "unix:$folder/socket" "tcp:127.0.0.1:${4}"; do
  timeout 60 "$harmonics" receive "$address#pair,sum" --quiet > "$folder/got" &
  receiver=$!
  [ "$(timeout 60 "$sender" "$address" 1000)" = 1000 ]
  wait "$receiver"
  [ "$(wc -l < "$folder/got")" = 1000 ]
  [ "$(sed -n 8p "$folder/got")" = '{"pair":[7, 0.5],"sum":7.5}' ]
done
if timeout 60 "$sender" tcp:192.0.2.1:5555 1 2> "$folder/error"; then exit 1; fi
grep -q '^14 tcp:192.0.2.1:5555 is not local' "$folder/error"
