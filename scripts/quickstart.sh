#!/usr/bin/env bash
# From a fresh Debian 12 to a trained flow: installs packages, builds, trains on synthetic digits.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/packages.sh build
cmake --preset release -DHARMONICS_TESTS=OFF >/dev/null
cmake --build --preset release
echo
build/release/bin/harmonics run samples/mnist.hmx \
  --producer 'mnist_training_data=synth:digits?size=30000&seed=1' \
  --producer 'mnist_label_data=synth:digits?size=30000&seed=1#label' \
  --test 'mnist_training_data=synth:digits?size=5000&seed=2' \
  --test 'mnist_label_data=synth:digits?size=5000&seed=2#label' \
  --save build/digits.safetensors --report build/digits.html
echo
echo "Open build/digits.html to see the digits, what the flow says of them, and how it learned."
