"""Loads an adapter that the program wrote into PEFT, and compares the scores of both for a tiny model of
make_architectures.py.

Needs what make_lora.py needs.

    harmonics infer golden/architectures/llama.gguf --lora ADAPTER --producer tokens=file:ids.npy \
        --consumer scores=file:scores.npy
    python tests/parity/beside_peft.py llama ADAPTER ids.npy scores.npy
"""
import sys

import make_lora
import numpy
import peft
import torch


def main():
    name, adapter, tokens, scores = sys.argv[1:]
    ids = torch.from_numpy(numpy.load(tokens).astype("int64"))
    plain = make_lora.base(name)
    with torch.no_grad():
        before = plain(ids).logits.numpy()
        after = peft.PeftModel.from_pretrained(plain, adapter).eval()(ids).logits.numpy()
    ours = numpy.load(scores).reshape(after.shape)
    print(f"largest difference {abs(after - ours).max():.2e}; the adapter changes scores by {abs(after - before).max():.2f}")


if __name__ == "__main__":
    main()
