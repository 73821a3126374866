#!/usr/bin/env bash
# Benchmarks an accelerator against PyTorch: builds bench_gpu, alternates it with PyTorch, compares each figure with its
# goal, prints and stores the result. Exits 1 if a goal is missed.
# run.sh [--pairs N] [--seconds S] [--json FILE] [--build FOLDER]
# --build: a folder with a built bench_gpu
# HARMONICS_PEER_PYTHON: a python3 whose torch sees the device (default python3)
set -euo pipefail
cd "$(dirname "$0")/../../.."
pairs=3 seconds=1 json=build/gpu.json build=''
while [ $# -gt 0 ]; do
  case "$1" in
    --pairs | --seconds | --json | --build)
      declare "${1#--}=${2:?$1 takes a value}"
      shift 2
      ;;
    *) sed -n '2,6s/^# *//p' "$0" >&2; exit 2 ;;
  esac
done
python=${HARMONICS_PEER_PYTHON:-python3}
if ! "$python" -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
  echo "run.sh: $python has no torch that sees a CUDA device; name one that does in HARMONICS_PEER_PYTHON" >&2
  exit 1
fi
if [ -z "$build" ]; then
  build=build/ci
  cmake --preset ci -DHARMONICS_CUDA=ON >/dev/null
  cmake --build --preset ci --target bench_gpu
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$build"/bin/harmonics list devices
peer=$("$python" -c 'import torch; print(torch.__version__, torch.cuda.get_device_name())')
echo "PyTorch $peer, load average $(cut -d' ' -f1 /proc/loadavg)"
for ((i = 0; i < pairs; ++i)); do
  timeout 1800 "$build"/bin/bench_gpu --seconds "$seconds" >>"$folder/ours"
  timeout 1800 "$python" tests/bench/gpu/peer.py --seconds "$seconds" >>"$folder/theirs"
done
mkdir -p "$(dirname "$json")"
"$python" tests/bench/gpu/report.py "$folder/ours" "$folder/theirs" --json "$json"
