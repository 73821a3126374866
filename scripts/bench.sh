#!/usr/bin/env bash
# Builds the benchmarks (preset ci) and runs them; with HARMONICS_PEER_PYTHON=python3-with-torch it alternates them with PyTorch
# (and ONNX Runtime, where that python3 has onnx and onnxruntime) and prints ratios.
# bench.sh [--kernels] [--only CASES] [--threads N] [--pairs N] [--seconds S] [--json FOLDER]
#   --kernels  single operations as well       --only     a pattern of workload cases, e.g. 'mlp_train/batch:1/'; nothing else runs
#   --threads  workloads on N threads only     --pairs    pairs of ours and theirs (default 9), of --seconds each (default 0.5)
#   --json     write what is printed as tables as rows as well
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
    *) sed -n '4,7s/^# *//p' "$0" >&2; exit 2 ;;
  esac
done
scripts/packages.sh test
cmake --preset ci >/dev/null
cmake --build --preset ci --target benches
bin=build/ci/bin
if [ -n "$json" ]; then mkdir -p "$json"; fi
rows() { if [ -n "$json" ]; then printf -- '--json\n%s\n' "$json/$1.json"; fi; }

echo "== $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) processors, load average $(cut -d' ' -f1 /proc/loadavg)"
if [ -z "$only" ]; then
  echo "== starting"
  mapfile -t extra < <(rows startup)
  python3 tests/bench/startup.py "$bin/harmonics" "${extra[@]}"
  benches=("$bin"/bench_*)
  if [ "$kernels" = yes ]; then benches+=("$bin"/kernel_*); fi
  for bench in "${benches[@]}"; do
    if [ "$(basename "$bench")" = bench_gpu ]; then continue; fi  # tests/bench/gpu/run.sh
    echo "== $(basename "$bench")"
    # Debian builds the library with assertions; that costs the loop around a step a few nanoseconds.
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
"$python" tests/bench/peers/compare.py "$bin" workloads "${peers[@]}" --pairs "$pairs" --seconds "$seconds" --only "$only" \
  ${threads:+--threads "$threads"} "${extra[@]}"
if [ -z "$only" ]; then
  echo "== memory"
  mapfile -t extra < <(rows memory)
  "$python" tests/bench/peers/memory.py "$bin" workloads "${extra[@]}"
fi
