#!/usr/bin/env bash
# training.sh BIN PYTHON [--pairs N] [further flags of compare.py]
# Compares default training with PyTorch: one table of alternating pairs, 1 and 2 threads, SGD and AdamW, sparse and
# dense data, moments in f32, bf16 and 8 bits (PyTorch's in f32).
#   BIN     folder of the benchmarks, e.g. build/ci/bin
#   PYTHON  an interpreter with PyTorch
#   --pairs number of measurements (default 9)
# PyTorch runs eagerly; with --ways '' it also compiles, which is slow.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,8s/^# //p' "$0" >&2; exit 2; }
root=$(cd "$(dirname "$0")/../../.." && pwd)
bin=$1 python=$2
shift 2
exec "$python" "$root/tests/bench/peers/compare.py" "$bin" "$root/workloads" --peer torch --python "$python" \
  --seconds 0.1 \
  --ways 'eager, fused optimizer;eager, foreach optimizer' \
  --only '^(mlp_train|((mlp|wide_(relu|gelu))_(sgd|adamw)|(large|wide_relu)_adamw(_bf16|_q8)?)_(sparse|dense))/' "$@"
