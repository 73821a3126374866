"""Writes golden/ndsl_layers.safetensors: the results that layers, and some of their operations, of the tiny models in
golden/ndsl have by transformers, with the names that `infer --trace` gives.

Needs torch, transformers, safetensors.

    python tests/parity/make_layer_values.py
"""
import json
import pathlib

import torch
import transformers
from safetensors.torch import load_file, save_file

FOLDER = pathlib.Path(__file__).parent / "golden"
# The last parts of module names, and the operations with the same results.
OPERATIONS = {"self_attn.q_proj": "QKV.q", "self_attn.k_proj": "QKV.k", "self_attn.v_proj": "QKV.v",
              "self_attn.o_proj": "AttnOut", "mlp.gate_proj": "MLPUp.gate", "mlp.up_proj": "MLPUp.up",
              "mlp.down_proj": "MLPDown", "input_layernorm": "LN1", "post_attention_layernorm": "ResidualLN2",
              "mlp.act_fn": None}
# Their modules have other names, or compute heads separately: only layer results are stored.
ONLY_LAYERS = {"BERT", "GPT2", "GPT_NeoX", "Gemma2", "Gemma3", "Phi", "Phi3", "Qwen3MoE", "Mixtral"}


def main():
    expected = {}
    tokens = load_file(FOLDER / "ndsl.safetensors")
    for folder in sorted((FOLDER / "ndsl").iterdir()):
        name = folder.name
        config = json.loads((folder / "config.json").read_text())
        model = getattr(transformers, config["architectures"][0]).from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager").eval()
        values = {}

        def keep(as_name):
            def hook(module, inputs, output):
                values[as_name] = (output[0] if isinstance(output, tuple) else output).detach().clone()
            return hook

        for path, module in model.named_modules():
            parts = path.split(".")
            for kind in ("layers", "layer", "h"):
                if kind in parts and parts.index(kind) + 1 < len(parts):
                    at = parts.index(kind) + 1
                    layer, rest = parts[at], ".".join(parts[at + 1:])
                    if rest == "":
                        module.register_forward_hook(keep(f"blk.{layer}"))
                    elif name not in ONLY_LAYERS and OPERATIONS.get(rest):
                        module.register_forward_hook(keep(f"blk.{layer}.{OPERATIONS[rest]}"))
        with torch.no_grad():
            model(tokens[f"{name}/tokens"].long())
        for value, tensor in values.items():
            expected[f"{name}/{value}"] = tensor.contiguous()
    save_file(expected, FOLDER / "ndsl_layers.safetensors")


if __name__ == "__main__":
    main()
