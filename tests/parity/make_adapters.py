"""Writes golden/adapters: LoRA adapters of PEFT with random matrices for the tiny model architectures/llama.gguf, as a
folder of PEFT and as GGUF, and the scores of the adapted model.

Needs torch, transformers, peft, gguf, numpy, safetensors. The base model is that of make_architectures.py.

    python tests/parity/make_adapters.py
"""
import json
import shutil

import gguf
import numpy
import peft
import torch
import transformers
from make_architectures import FOLDER, HEADS, PARTS, SHARED, SIZES, interleaved, randomised, tokens_of
from safetensors.numpy import load_file, save_file

RESULTS = {}


def base():
    theta = {"rope_type": "default", "rope_theta": 10000.0}
    config = transformers.LlamaConfig(**SIZES, rope_parameters=theta, tie_word_embeddings=False)
    return randomised(transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32), 1)


def write_gguf(name, folder):
    """Writes the format of llama.cpp's converter, which supports one alpha, and no rank-stabilized scaling."""
    config = json.loads((folder / "adapter_config.json").read_text())
    writer = gguf.GGUFWriter(FOLDER / "adapters" / f"{name}.gguf", "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", float(config["lora_alpha"]))
    for key, value in sorted(load_file(folder / "adapter_model.safetensors").items()):
        if key.endswith(".base_layer.weight"):  # PEFT adds the unchanged head
            continue
        module, part = key.removeprefix("base_model.model.").removesuffix(".weight").rsplit(".lora_", 1)
        if module == "lm_head":
            target = "output.weight"
        else:
            _, _, layer, rest = module.split(".", 3)
            target = f"blk.{layer}.{PARTS[rest + '.weight']}"
            if part == "B" and rest == "self_attn.q_proj":
                value = interleaved(value, HEADS)
            if part == "B" and rest == "self_attn.k_proj":
                value = interleaved(value, SHARED)
        writer.add_tensor(f"{target}.lora_{part.lower()}", numpy.ascontiguousarray(value, dtype=numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def adapter(name, seed, to_gguf, **settings):
    model = peft.get_peft_model(base(), peft.LoraConfig(task_type="CAUSAL_LM", **settings))
    generator = torch.Generator().manual_seed(seed)
    for key, tensor in model.named_parameters():
        if "lora_" in key:
            tensor.data = torch.randn(tensor.shape, generator=generator) * 0.3
    model.eval()
    folder = FOLDER / "adapters" / name
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    if to_gguf:
        write_gguf(name, folder)
    ids = tokens_of(0)
    with torch.no_grad():
        RESULTS[f"{name}/scores"] = model(ids).logits[0].numpy()
    RESULTS[f"{name}/tokens"] = ids[0].to(torch.int32).numpy()
    return folder


def main():
    shutil.rmtree(FOLDER / "adapters", ignore_errors=True)
    (FOLDER / "adapters").mkdir()
    every = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"]
    adapter("every", 5, True, r=4, lora_alpha=6, target_modules=every)
    adapter("attention", 6, True, r=3, lora_alpha=3, target_modules=["q_proj", "v_proj"])
    adapter("patterns", 7, False, r=2, lora_alpha=5, use_rslora=True, target_modules=["k_proj", "up_proj", "o_proj"],
            rank_pattern={"up_proj": 5}, alpha_pattern={"self_attn.k_proj": 9})
    model = peft.PeftModel.from_pretrained(base(), FOLDER / "adapters" / "every", adapter_name="every")
    model.load_adapter(FOLDER / "adapters" / "attention", adapter_name="attention")
    model.base_model.set_adapter(["every", "attention"])
    with torch.no_grad():
        RESULTS["both/scores"] = model.eval()(tokens_of(0)).logits[0].numpy()
    RESULTS["both/tokens"] = tokens_of(0)[0].to(torch.int32).numpy()
    save_file(RESULTS, FOLDER / "adapters.safetensors")


if __name__ == "__main__":
    main()
