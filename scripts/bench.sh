#!/usr/bin/env bash
# Builds the benchmarks (preset ci) and runs them. HARMONICS_PEER_PYTHON=python3-with-torch compares with PyTorch as well.
# bench.sh [--kernels] [--pairs N] [--seconds S]
set -euo pipefail
cd "$(dirname "$0")/.."
kernels=no pairs=9 seconds=0.5
while [ $# -gt 0 ]; do
  case "$1" in
    --kernels) kernels=yes; shift ;;
    --pairs) pairs=${2:?--pairs takes a number}; shift 2 ;;
    --seconds) seconds=${2:?--seconds takes a number}; shift 2 ;;
    *) echo "usage: scripts/bench.sh [--kernels] [--pairs N] [--seconds S]" >&2; exit 2 ;;
  esac
done
scripts/packages.sh test
cmake --preset ci >/dev/null
cmake --build --preset ci --target benches
bin=build/ci/bin
benches=("$bin"/bench_*)
if [ "$kernels" = yes ]; then benches+=("$bin"/kernel_*); fi
for bench in "${benches[@]}"; do
  echo "== $(basename "$bench")"
  # Debian builds the library with assertions; that costs the loop around a step a few nanoseconds.
  "$bench" --benchmark_min_time="$seconds" --benchmark_counters_tabular=true 2>&1 | grep -v 'WARNING.*DEBUG'
done
python=${HARMONICS_PEER_PYTHON:-}
if [ -z "$python" ]; then exit 0; fi
if ! "$python" -c 'import torch' 2>/dev/null; then
  echo "HARMONICS_PEER_PYTHON=$python cannot import torch" >&2
  exit 1
fi
echo "== with PyTorch $("$python" -c 'import torch; print(torch.__version__)')"
peers=(--peer torch)
if "$python" -c 'import onnx, onnxruntime' 2>/dev/null; then
  echo "== and ONNX Runtime $("$python" -c 'import onnxruntime; print(onnxruntime.__version__)') for inference"
  peers+=(--peer onnx)
fi
"$python" tests/bench/peers/compare.py "$bin" workloads "${peers[@]}" --pairs "$pairs" --seconds "$seconds"
