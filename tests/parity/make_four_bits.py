"""Writes golden/four_bits.safetensors: blocks of 64 numbers in the 4-bit types of bitsandbytes, by its CPU path; and
golden/folders/llama_four_bits, a model of Hugging Face with such weights, with its scores.

Needs torch, transformers, bitsandbytes, gguf, numpy, safetensors.

    python tests/parity/make_four_bits.py
"""
import pathlib

import bitsandbytes.functional as bnb
import torch
import transformers
from make_architectures import randomised
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_tensors

FOLDER = pathlib.Path(__file__).parent / "golden"


def folder(results):
    """Saves a tiny Llama with 4-bit weights by transformers, with a different kind of scales in each layer."""
    config = transformers.LlamaConfig(vocab_size=40, hidden_size=64, intermediate_size=64, num_hidden_layers=2,
                                      num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32,
                                      tie_word_embeddings=True, attn_implementation="eager",
                                      architectures=["LlamaForCausalLM"])
    model = randomised(transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32), 31)
    tensors = {}
    for name, tensor in model.named_parameters():
        if "proj" not in name:
            tensors[name] = tensor.data.clone()
            continue
        first = ".layers.0." in name
        codes, state = bnb.quantize_4bit(tensor.data, blocksize=64, quant_type="nf4" if first else "fp4",
                                         compress_statistics=first)
        tensors[name] = codes
        for key, value in state.as_dict(packed=True).items():
            tensors[f"{name}.{key}"] = value
        tensor.data = bnb.dequantize_4bit(codes, state)
    out = FOLDER / "folders" / "llama_four_bits"
    config.save_pretrained(out)
    save_tensors(tensors, out / "model.safetensors", metadata={"format": "pt"})
    ids = torch.randint(3, 40, (1, 12), generator=torch.Generator().manual_seed(8))
    with torch.no_grad():
        results["folder/scores"] = model(ids).logits.numpy()
    results["folder/tokens"] = ids.to(torch.int32).numpy()


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
    folder(results)
    save_file({name: value.copy() for name, value in results.items()}, FOLDER / "four_bits.safetensors")


if __name__ == "__main__":
    main()
