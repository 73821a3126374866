"""Writes golden/lora: adapters of PEFT for tiny models of make_architectures.py, and the losses of ten AdamW steps that
train them further.

Needs torch, transformers, peft, gguf, numpy, safetensors.

    python tests/parity/make_lora.py
"""
import shutil

import peft
import torch
import transformers
from make_architectures import FOLDER, SIZES, TOKENS, VOCABULARY, randomised
from safetensors.numpy import save_file

RESULTS = {}
THETA = {"rope_type": "default", "rope_theta": 10000.0}
# The configuration and seed of each model in make_architectures.py.
BASES = {"llama": (transformers.LlamaConfig(**SIZES, rope_parameters=THETA, tie_word_embeddings=False), 1),
         "qwen3": (transformers.Qwen3Config(**SIZES, rope_parameters=THETA, head_dim=8, tie_word_embeddings=True), 13),
         "phi3": (transformers.Phi3Config(**SIZES, rope_parameters=THETA, sliding_window=5, tie_word_embeddings=False),
                  23),
         "qwen3moe": (transformers.Qwen3MoeConfig(**SIZES, rope_parameters=THETA, head_dim=8, num_experts=4,
                                                  num_experts_per_tok=2, moe_intermediate_size=8, norm_topk_prob=True,
                                                  decoder_sparse_step=1, mlp_only_layers=[],
                                                  tie_word_embeddings=True), 15)}
EVERY = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
STEPS, BATCH, RATE, DECAY = 10, 2, 0.01, 0.1


def base(name):
    config, seed = BASES[name]
    return randomised(transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32), seed)


def adapter(name, of, seed, steps=STEPS, **settings):
    model = peft.get_peft_model(base(of), peft.LoraConfig(task_type="CAUSAL_LM", **settings))
    generator = torch.Generator().manual_seed(seed)
    for key, tensor in model.named_parameters():
        if "lora_" in key and "magnitude" not in key:
            tensor.data = torch.randn(tensor.shape, generator=generator) * 0.1
    folder = FOLDER / "lora" / name
    model.save_pretrained(folder, save_embedding_layers=False)
    (folder / "README.md").unlink(missing_ok=True)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW([{"params": [p for p in trained if p.dim() > 1], "weight_decay": DECAY},
                                   {"params": [p for p in trained if p.dim() == 1], "weight_decay": 0.0}], lr=RATE)
    # From 3 on, because rows of padding have no gradient in PyTorch.
    ids = torch.randint(3, VOCABULARY, (STEPS, BATCH, TOKENS + 1), generator=generator)
    losses = []
    for step in range(steps):
        scores = model(ids[step, :, :-1]).logits
        loss = torch.nn.functional.cross_entropy(scores.reshape(-1, VOCABULARY), ids[step, :, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        scores = model(ids[0, :, :-1]).logits
    print(name, losses[:1], losses[-1:])
    if losses:
        RESULTS[f"{name}/losses"] = torch.tensor(losses).numpy()
    RESULTS[f"{name}/tokens"] = ids[:, :, :-1].to(torch.int32).contiguous().numpy()
    RESULTS[f"{name}/targets"] = ids[:, :, 1:].to(torch.int32).contiguous().numpy()
    RESULTS[f"{name}/scores"] = scores.numpy()


def main():
    shutil.rmtree(FOLDER / "lora", ignore_errors=True)
    (FOLDER / "lora").mkdir()
    adapter("llama_lora", "llama", 1, r=4, lora_alpha=8, target_modules=EVERY)
    adapter("llama_dora", "llama", 2, r=4, lora_alpha=8, target_modules=EVERY, use_dora=True)
    adapter("llama_embedding", "llama", 3, r=4, lora_alpha=6, target_modules=["embed_tokens", "q_proj", "lm_head"],
            use_rslora=True)
    adapter("qwen3_lora", "qwen3", 4, r=4, lora_alpha=8, target_modules=EVERY)
    adapter("qwen3_dora", "qwen3", 5, r=3, lora_alpha=8, target_modules=["q_proj", "o_proj", "up_proj"], use_dora=True)
    adapter("phi3_lora", "phi3", 6, r=4, lora_alpha=8, target_modules=["qkv_proj", "gate_up_proj", "down_proj"])
    # PEFT has one pair for gate_up_proj, which becomes two here. They are trained separately, so only scores are equal.
    adapter("qwen3moe_down", "qwen3moe", 7, r=4, lora_alpha=8, lora_dropout=0.0, target_modules=["q_proj", "o_proj"],
            target_parameters=["mlp.experts.down_proj", "mlp.gate.weight"])
    adapter("qwen3moe_experts", "qwen3moe", 8, steps=0, r=3, lora_alpha=6, target_modules=["v_proj"],
            target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj", "mlp.gate.weight"],
            alpha_pattern={".*\\.gate_up_proj": 9})
    save_file(RESULTS, FOLDER / "lora.safetensors")


if __name__ == "__main__":
    main()
