"""Writes golden/rope_scaling: folders of Hugging Face with tiny random models whose rotary positions are scaled, and the
scores of transformers for them.

Needs torch, transformers, numpy, safetensors.

    python tests/parity/make_rope_scaling.py
"""
import json
import pathlib
import shutil

import torch
import transformers as t
from safetensors.torch import save_file

FOLDER = pathlib.Path(__file__).parent / "golden"
SIZES = dict(vocab_size=32, hidden_size=32, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4,
             attn_implementation="eager", pad_token_id=0, bos_token_id=1, eos_token_id=2, tie_word_embeddings=False)
SHARES = dict(num_key_value_heads=2, rms_norm_eps=1e-5)
LONG = dict(rope_type="longrope", rope_theta=10000.0, short_factor=[1.0, 1.1, 1.25], long_factor=[1.0, 2.5, 6.0],
            partial_rotary_factor=0.75, original_max_position_embeddings=16)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, beta_fast=8.0, beta_slow=1.0, partial_rotary_factor=0.75,
            original_max_position_embeddings=16)
DYNAMIC = dict(rope_type="dynamic", rope_theta=10000.0, factor=2.0)


def models():
    """Name, class, configuration, and the numbers of tokens."""
    phi = dict(**SIZES, **SHARES, max_position_embeddings=64, original_max_position_embeddings=16, sliding_window=None)
    yield "longrope", t.Phi3ForCausalLM, t.Phi3Config(**phi, rope_parameters=LONG), (12, 24)
    yield "yarn", t.PhiForCausalLM, t.PhiConfig(**SIZES, num_key_value_heads=4, max_position_embeddings=64,
                                                rope_parameters=YARN), (24,)
    yield "dynamic", t.LlamaForCausalLM, t.LlamaConfig(**SIZES, **SHARES, max_position_embeddings=16,
                                                       rope_parameters=DYNAMIC), (12, 24)


def main():
    shutil.rmtree(FOLDER / "rope_scaling", ignore_errors=True)
    results = {}
    for number, (name, kind, config, lengths) in enumerate(models()):
        model = kind(config).eval().float()
        generator = torch.Generator().manual_seed(90 + number)
        for tensor_name, tensor in model.named_parameters():
            gain = 1 if "norm" in tensor_name else 0
            tensor.data = torch.randn(tensor.shape, generator=generator) * (0.2 if gain else 0.3) + gain
        folder = FOLDER / "rope_scaling" / name
        model.save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        settings = json.loads((folder / "config.json").read_text())
        settings.pop("transformers_version", None)
        (folder / "config.json").write_text(json.dumps(settings, indent=1) + "\n")
        for length in lengths:
            tokens = torch.randint(3, 32, (1, length), generator=generator)
            with torch.no_grad():
                scores = model(tokens, use_cache=False).logits
            results[f"{name}/{length}/tokens"] = tokens.to(torch.int32).contiguous()
            results[f"{name}/{length}/scores"] = scores.contiguous()
    save_file(results, FOLDER / "rope_scaling.safetensors")


main()
