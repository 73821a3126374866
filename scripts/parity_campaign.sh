#!/usr/bin/env bash
# Compares random flows with PyTorch; tests/parity/random_flows/README.md has the details.
# campaign.sh --parity [--seeds FIRST-LAST] [--python FILE] [--program FILE] [--keep FOLDER] [--gradients]
#   --seeds      which flows (default 0-299)
#   --python     a python3 with numpy and torch (default $HARMONICS_PYTHON, else python3)
#   --program    the harmonics to test (default: that of build/release, else build/ci)
#   --keep       the folder for files of mismatches
#   --gradients  compare the gradients of the first batch instead of whole runs
set -euo pipefail
cd "$(dirname "$0")/.."
seeds=0-299 python=${HARMONICS_PYTHON:-python3} program='' rest=()
while [ $# -gt 0 ]; do
  case "$1" in
    --seeds | --python | --program)
      declare "${1#--}=${2:?$1 takes a value}"
      shift 2
      ;;
    --keep)
      rest+=("$1" "${2:?$1 takes a value}")
      shift 2
      ;;
    --gradients)
      rest+=("$1")
      shift
      ;;
    *) sed -n '3,8s/^# *//p' "$0" >&2; exit 2 ;;
  esac
done
for candidate in build/release/bin/harmonics build/ci/bin/harmonics; do
  if [ -z "$program" ] && [ -x "$candidate" ]; then program=$candidate; fi
done
if [ -z "$program" ]; then
  echo "harmonics is not built; build it, or name it: --program FILE" >&2
  exit 2
fi
if ! "$python" -c 'import numpy, torch' 2>/dev/null; then
  echo "$python has no numpy and torch; name one that has: --python FILE, or HARMONICS_PYTHON" >&2
  exit 2
fi
export PYTHONDONTWRITEBYTECODE=1
exec "$python" tests/parity/random_flows/run.py --program "$program" --seeds "$seeds" "${rest[@]}"
