#!/bin/sh
# python_snippet.sh HARMONICS SOURCE FOLDER PORT: runs the Python sender of docs/sending.md. Exits 77 if a
# dependency is missing.
set -eu
harmonics=$1 source=$2 folder=$3 port=$4
python=${HARMONICS_PYTHON:-python3}
command -v protoc >/dev/null && "$python" -c 'import zmq, google.protobuf' 2>/dev/null || exit 77
"$harmonics" list producers | grep -q 'zmq+router' || exit 77
mkdir -p "$folder"
protoc --python_out="$folder" -I "$source/wire" "$source/wire/hxs.proto"
sed -n '/^```python$/,/^```$/p' "$source/docs/sending.md" | grep -v '^```' > "$folder/sender.py"
for _ in 1 2; do
  timeout 60 "$harmonics" receive "zmq+router://127.0.0.1:$port#image,label" --quiet > "$folder/got" &
  receiver=$!
  timeout 60 "$python" "$folder/sender.py" "tcp://127.0.0.1:$port"
  wait "$receiver"
  [ "$(wc -l < "$folder/got")" = 1000 ]
  [ "$(sed -n 1000p "$folder/got")" = '{"image":[[0, 1, 2], [3, 4, 5]],"label":999}' ]
done
