#!/usr/bin/env python3
"""Writes golden/embeddings.json: vectors of token lists of several lengths that Hugging Face transformers gives for the
models bert.gguf and qwen2.gguf of make_architectures.py.

Needs what make_architectures.py needs.

    python tests/parity/make_embeddings.py
"""
import json

import numpy
import torch
import transformers
from safetensors.numpy import load_file

import make_architectures as made

LENGTHS = [1, 2, 5, 12, 17, 31]


def models():
    theta = {"rope_type": "default", "rope_theta": 10000.0}
    config = transformers.Qwen2Config(**made.SIZES, rope_parameters=theta, tie_word_embeddings=False)
    causal = made.randomised(transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32), 9)
    config = transformers.BertConfig(vocab_size=made.VOCABULARY, hidden_size=made.WIDTH,
                                     intermediate_size=made.HIDDEN, num_hidden_layers=made.LAYERS,
                                     num_attention_heads=made.HEADS, max_position_embeddings=made.CONTEXT,
                                     attn_implementation="eager")
    bert = made.randomised(transformers.BertModel(config, add_pooling_layer=False), 99)
    return {"qwen2": causal.model, "bert": bert}, causal


def unit(vector):
    return [round(float(x), 7) for x in vector / numpy.linalg.norm(vector)]


def main():
    golden, (all_models, causal) = load_file(made.FOLDER / "architectures.safetensors"), models()
    with torch.no_grad():  # equal to the models in the files
        scores = causal(torch.tensor(golden["qwen2/tokens"][None].astype("int64"))).logits[0].numpy()
        hidden = all_models["bert"](torch.tensor(golden["bert/tokens"][None].astype("int64"))).last_hidden_state[0]
    assert numpy.allclose(scores, golden["qwen2/scores"], atol=1e-5)
    assert numpy.allclose(hidden.numpy(), golden["bert/hidden"], atol=1e-5)
    result = {}
    for name, model in all_models.items():
        result[name] = []
        for length in LENGTHS:
            ids = torch.randint(3, made.VOCABULARY, (1, length), generator=torch.Generator().manual_seed(length))
            with torch.no_grad():
                rows = model(ids).last_hidden_state[0].double().numpy()
            result[name].append({"tokens": ids[0].tolist(), "mean": unit(rows.mean(0)), "first": unit(rows[0]),
                                 "last": unit(rows[-1])})
    with open(made.FOLDER / "embeddings.json", "w", encoding="ascii") as file:
        json.dump(result, file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
