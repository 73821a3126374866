#!/usr/bin/env bash
# Reproduces the README's results on real data: medians of three seeds. Takes about an hour on two cores.
#   scripts/proof.sh DATA_FOLDER        (mnist/*.gz, text/tinyshakespeare.txt)
set -euo pipefail
cd "$(dirname "$0")/.."
data=${1:-../shared/data}
program=build/release/bin/harmonics
[ -x "$program" ] || program=build/ci/bin/harmonics
field() { sed -n '$p' | sed -E "s/.*\"$1\":([-0-9.E+]+).*/\1/"; }
median() { sort -g | sed -n 2p; }
mnist=(--producer "$data/mnist/train-images-idx3-ubyte.gz" --producer "$data/mnist/train-labels-idx1-ubyte.gz"
       --test "$data/mnist/t10k-images-idx3-ubyte.gz" --test "$data/mnist/t10k-labels-idx1-ubyte.gz")
for sample in mnist mnist_cnn; do
  for seed in 0 1 2; do
    accuracy=$("$program" run "samples/$sample.hmx" "${mnist[@]}" --seed "$seed" --quiet --json | field test_accuracy)
    echo "$sample seed $seed: $accuracy" >&2
    echo "$accuracy"
  done | median | sed "s/^/$sample, median test accuracy: /"
done
text="$data/text/tinyshakespeare.txt"
"$program" run samples/char_gpt.hmx --producer "file:$text?window=128&part=0-0.9" \
  --test "file:$text?window=128&shift=127&part=0.9-1" --save build/char_gpt.safetensors --json |
  field test_loss | sed 's/^/char_gpt, loss per character of the last tenth: /'
"$program" infer samples/char_gpt.hmx --weights build/char_gpt.safetensors --prompt 'ROMEO:' --generate 300
loss=$("$program" train samples/char_gpt/small.yaml --set "datasets=$text" --set output_dir=build/char_gpt_small \
         --json | sed -nE '$s/.*"validation":\{[^}]*"loss":([-0-9.E+]+).*/\1/p')
echo "char_gpt/small.yaml, validation loss: $loss"
awk -v loss="$loss" 'BEGIN { exit !(loss > 0 && loss <= 1.95) }' || { echo "it should be 1.95 or less" >&2; exit 1; }
