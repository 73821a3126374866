"""Writes golden/folder_adapters: adapters of PEFT for models of golden/folders whose modules or rotary pairs are not
those of Llama, and golden/folder_adapters.safetensors: tokens and the scores of the adapted models.

Needs torch, transformers, peft, safetensors.

    python tests/parity/make_folder_adapters.py
"""
import json
import shutil

import peft
import torch
import transformers
from make_architectures import FOLDER, VOCABULARY
from safetensors.numpy import save_file

TOKENS = 12
LLAMA = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
TARGETS = {
    "cohere2": LLAMA,
    "exaone": LLAMA,
    "glm4": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_up_proj", "down_proj"],
    "gpt2": ["c_attn", "c_proj", "c_fc"],
    "gptneox": ["query_key_value", "attention.dense", "dense_h_to_4h", "dense_4h_to_h"],
    "gptneox-serial": ["query_key_value", "attention.dense", "dense_h_to_4h", "dense_4h_to_h"],
    "llama3": ["q_proj", "k_proj"],
    "phi": ["q_proj", "k_proj", "v_proj", "dense", "fc1", "fc2"],
    "starcoder2": ["q_proj", "k_proj", "v_proj", "o_proj", "c_fc", "c_proj"],
}


def main():
    out, results = FOLDER / "folder_adapters", {}
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    for seed, (name, targets) in enumerate(TARGETS.items()):
        base = transformers.AutoModelForCausalLM.from_pretrained(FOLDER / "folders" / name, dtype=torch.float32,
                                                                 attn_implementation="eager")
        model = peft.get_peft_model(base, peft.LoraConfig(task_type="CAUSAL_LM", r=2, lora_alpha=4,
                                                          target_modules=targets)).eval()
        generator = torch.Generator().manual_seed(seed)
        for key, tensor in model.named_parameters():
            if "lora_" in key:
                tensor.data = torch.randn(tensor.shape, generator=generator) * 0.3
        model.save_pretrained(out / name, save_embedding_layers=False)
        (out / name / "README.md").unlink(missing_ok=True)
        config = out / name / "adapter_config.json"
        settings = json.loads(config.read_text()) | {"base_model_name_or_path": None}
        config.write_text(json.dumps(settings, indent=2) + "\n")
        ids = torch.randint(3, VOCABULARY, (1, TOKENS), generator=generator)
        with torch.no_grad():
            results[f"{name}/scores"] = model(ids).logits[0].numpy()
            with model.disable_adapter():
                print(name, (model(ids).logits[0] - torch.tensor(results[f"{name}/scores"])).abs().max().item())
        results[f"{name}/tokens"] = ids[0].to(torch.int32).numpy()
    save_file(results, FOLDER / "folder_adapters.safetensors")


if __name__ == "__main__":
    main()
