"""Writes golden/four_bits.safetensors: blocks of 64 numbers in the 4-bit types of bitsandbytes, by its CPU path, and their
scales quantised once more.

Needs torch, bitsandbytes, numpy, safetensors.

    python tests/parity/make_four_bits.py
"""
import pathlib

import bitsandbytes.functional as bnb
import torch
from safetensors.numpy import save_file

FOLDER = pathlib.Path(__file__).parent / "golden"


def main():
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(24, 256, generator=generator) * torch.exp(torch.randn(24, 1, generator=generator) * 2)
    x[3, 64:128] = 0
    x[4, 7] = 1e-30
    x[5, :64] = torch.linspace(-1, 1, 64)
    results = {"x": x.numpy()}
    for kind in ("nf4", "fp4"):
        codes, state = bnb.quantize_4bit(x, blocksize=64, quant_type=kind)
        results[f"{kind}/codes"] = codes.reshape(24, 128).numpy()
        results[f"{kind}/scales"] = state.absmax.reshape(24, 4).numpy()
        results[f"{kind}/decoded"] = bnb.dequantize_4bit(codes, state).numpy()
    _, state = bnb.quantize_4bit(x, blocksize=64, quant_type="nf4", compress_statistics=True)
    results["twice/codes"] = state.absmax.numpy()
    results["twice/scales"] = state.state2.absmax.numpy()
    results["twice/table"] = state.state2.code.numpy()
    results["twice/offset"] = state.offset.reshape(1).numpy()
    results["twice/decoded"] = (bnb.dequantize_blockwise(state.absmax, state.state2) + state.offset).numpy()
    save_file({name: value.copy() for name, value in results.items()}, FOLDER / "four_bits.safetensors")


if __name__ == "__main__":
    main()
