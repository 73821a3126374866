#!/usr/bin/env bash
# Compares language models with llama.cpp: llama.sh VENV [BUILD] [flags of llama.py]. VENV is a Python environment with
# llama-cpp-python, compiled natively; BUILD the build folder (default: build/ci).
set -euo pipefail
folder=$(cd "$(dirname "$0")" && pwd)
if [ $# -lt 1 ]; then
  echo "usage: llama.sh VENV [BUILD] [--shape S] [--type T] [--threads N] [--pairs N]" >&2
  exit 2
fi
venv=$1
build=build/ci
shift
if [ $# -gt 0 ] && [ "${1#--}" = "$1" ]; then
  build=$1
  shift
fi
exec "$venv/bin/python" "$folder/llama.py" "$build/bin/harmonics" "$build/bin/make_model" "$@"
