#!/usr/bin/env bash
# Builds the benchmarks (preset ci) and runs them. If HARMONICS_PEER_PYTHON names a python3 with torch, alternates them
# with PyTorch (and ONNX Runtime, if it has onnx and onnxruntime) and prints ratios.
# bench.sh [--kernels] [--only CASES] [--threads N] [--pairs N] [--seconds S] [--json FOLDER]
#   --kernels  also benchmark single operations
#   --only     run only workload cases that match a pattern, e.g. 'mlp_train/batch:1/'
#   --threads  run workloads on N threads only
#   --pairs    pairs of measurements, ours and the peer's (default 9)
#   --seconds  length of each measurement (default 0.5)
#   --json     folder for the printed tables as JSON rows
set -euo pipefail
cd "$(dirname "$0")/.."
kernels=no only='' threads='' pairs=9 seconds=0.5 json=''
while [ $# -gt 0 ]; do
  case "$1" in
    --kernels) kernels=yes; shift ;;
    --only | --threads | --pairs | --seconds | --json)
      declare "${1#--}=${2:?$1 takes a value}"
      shift 2
      ;;
    *) sed -n '4,10s/^# *//p' "$0" >&2; exit 2 ;;
  esac
done
scripts/packages.sh test
cmake --preset ci >/dev/null
cmake --build --preset ci --target benches
bin=build/ci/bin
if [ -n "$json" ]; then mkdir -p "$json"; fi
rows() { if [ -n "$json" ]; then printf -- '--json\n%s\n' "$json/$1.json"; fi; }

model=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)
echo "== $model, $(nproc) processors, load average $(cut -d' ' -f1 /proc/loadavg)"
if [ -z "$only" ]; then
  echo "== starting"
  mapfile -t extra < <(rows startup)
  python3 tests/bench/startup.py "$bin/harmonics" "${extra[@]}"
  benches=("$bin"/bench_*)
  if [ "$kernels" = yes ]; then benches+=("$bin"/kernel_*); fi
  for bench in "${benches[@]}"; do
    if [ "$(basename "$bench")" = bench_gpu ]; then continue; fi  # tests/bench/gpu/run.sh
    echo "== $(basename "$bench")"
    # Debian builds the benchmark library with assertions, which cost a few nanoseconds per iteration.
    "$bench" --benchmark_min_time="$seconds" --benchmark_counters_tabular=true 2>&1 | grep -v 'WARNING.*DEBUG'
  done
  if [ -x "$bin/live_throughput" ]; then
    echo "== samples between processes, and learning from them"
    "$bin/live_throughput"
    mapfile -t extra < <(rows live)
    python3 tests/bench/live_training.py "$bin/harmonics" "${extra[@]}"
  fi
fi

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
mapfile -t extra < <(rows ratios)
"$python" tests/bench/peers/compare.py "$bin" workloads "${peers[@]}" --pairs "$pairs" --seconds "$seconds" \
  --only "$only" ${threads:+--threads "$threads"} "${extra[@]}"
if [ -z "$only" ]; then
  echo "== memory"
  mapfile -t extra < <(rows memory)
  "$python" tests/bench/peers/memory.py "$bin" workloads "${extra[@]}"
fi
