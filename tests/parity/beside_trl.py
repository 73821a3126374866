"""Trains tiny models with TRL and with `harmonics train` from the same files, and compares loss and gradient norm of
every step. Exits with 1 if one differs.

Needs torch, transformers, tokenizers, datasets, peft and trl.

    python tests/parity/beside_trl.py build/release/bin/harmonics FOLDER [CASE...]
"""
import functools
import json
import pathlib
import random
import shutil
import subprocess
import sys

import datasets
import peft
import tokenizers
import torch
import transformers
import trl

datasets.disable_progress_bars()
transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
ALLOWED = 2e-4  # relative
WORDS = "the cat sat on a mat and then again it was raining so we stayed in home with tea bread honey".split()
TEMPLATE = ("{% for m in messages %}{{'<|im_start|>' + m['role'] + '\n'}}{% if m['role'] == 'assistant' %}"
            "{% generation %}{{m['content'] + '<|im_end|>'}}{% endgeneration %}"
            "{% else %}{{m['content'] + '<|im_end|>'}}{% endif %}{% endfor %}"
            "{% if add_generation_prompt %}{{'<|im_start|>assistant\n'}}{% endif %}")
# Both sides: keys of `train`, and those of TRL that have other names.
SETTINGS = {"micro_batch_size": 3, "gradient_accumulation_steps": 2, "num_epochs": 2, "learning_rate": 1e-3,
            "weight_decay": 0.01, "max_grad_norm": 1.0, "lr_scheduler": "constant", "warmup_steps": 0}
NAMES = {"micro_batch_size": "per_device_train_batch_size", "num_epochs": "num_train_epochs",
         "lr_scheduler": "lr_scheduler_type"}


def sentence(draw, least, most):
    return " ".join(draw.choice(WORDS) for _ in range(draw.randint(least, most))).capitalize() + "."


def chat(draw, turns):
    messages = [{"role": "system", "content": sentence(draw, 4, 4)}] if draw.random() < 0.3 else []
    for _ in range(turns):
        messages.append({"role": "user", "content": sentence(draw, 2, 8)})
        messages.append({"role": "assistant", "content": sentence(draw, 1, 12)})
    return messages


def make_rows():
    draw = random.Random(1)
    rows = {"chat": [{"messages": chat(draw, 1 + i % 3)} for i in range(24)],
            "instruction": [{"prompt": sentence(draw, 5, 5), "completion": " " + sentence(draw, 1, 9)}
                            for _ in range(24)],
            "text": [{"text": sentence(draw, 3, 20)} for _ in range(24)],
            "preference": [{"prompt": sentence(draw, 3, 6), "chosen": " " + sentence(draw, 1, 9),
                            "rejected": " " + sentence(draw, 1, 9)} for _ in range(24)]}
    talks = [chat(draw, 1 + i % 2) for i in range(24)]
    rows["preference_chat"] = [{"prompt": t[:-1], "chosen": t[-1:],
                                "rejected": [{"role": "assistant", "content": sentence(draw, 1, 9)}]} for t in talks]
    return rows


def make_tokenizer():
    draw = random.Random(2)
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = tokenizers.decoders.ByteLevel()
    model.train_from_iterator([sentence(draw, 30, 30) for _ in range(50)], tokenizers.trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"], show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=model, eos_token="<|im_end|>",
                                                pad_token="<|endoftext|>")
    fast.chat_template = TEMPLATE
    return fast


def write_model(folder):
    tokenizer = make_tokenizer()
    torch.manual_seed(0)
    transformers.Qwen2ForCausalLM(transformers.Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512, bos_token_id=None, eos_token_id=2, pad_token_id=0,
        tie_word_embeddings=False)).float().save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def write_adapter(folder):
    """Random, also B, so that it has an effect."""
    torch.manual_seed(3)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)
    peft.get_peft_model(model, peft.LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", init_lora_weights=False,
                                               task_type="CAUSAL_LM")).save_pretrained(folder / "adapter")


def in_order(trainer):
    class InOrder(trainer):
        def _get_train_sampler(self, *_, **__):
            return torch.utils.data.SequentialSampler(self.train_dataset)
    return InOrder


def by_trl(folder, rows, settings, trainer, config, adapted=False, **more):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32,
                                                              attn_implementation="eager")
    if adapted:
        model = peft.PeftModel.from_pretrained(model, folder / "adapter", is_trainable=True)
    names = {NAMES.get(k, k): v for k, v in settings.items()}
    args = config(output_dir=str(folder / "trl"), logging_steps=1, report_to=[], save_strategy="no", use_cpu=True,
                  bf16=False, gradient_checkpointing=False, optim="adamw_torch", disable_tqdm=True, max_length=256,
                  **names, **more)
    t = in_order(trainer)(model=model, args=args, train_dataset=datasets.Dataset.from_list(rows),
                          processing_class=transformers.AutoTokenizer.from_pretrained(folder / "model"))
    t.train()
    return [r for r in t.state.log_history if "loss" in r]


def by_harmonics(program, folder, settings, kind, more):
    shutil.rmtree(folder / "harmonics", ignore_errors=True)
    config = {"model": "model", "logging_steps": 1, "shuffle": False, "sequence_len": 256,
              "datasets": [{"path": f"{kind}.jsonl"}], "output_dir": "harmonics",
              **settings, **more}
    (folder / "config.yaml").write_text(json.dumps(config))  # JSON is YAML
    done = subprocess.run([program, "train", "config.yaml", "--quiet"], cwd=folder, capture_output=True, text=True,
                          timeout=300)
    if done.returncode:
        sys.exit(done.stderr)
    rows = [json.loads(line) for line in (folder / "harmonics/log.jsonl").read_text().splitlines()]
    return [r["metrics"] for r in rows if r["kind"] == "step"]


ADAPTER = {"from": "adapter"}  # in the folder
SFT = functools.partial(by_trl, trainer=trl.SFTTrainer, config=trl.SFTConfig)
DPO = functools.partial(by_trl, trainer=trl.DPOTrainer, config=trl.DPOConfig)


def dpo(kind, loss, **more):
    ours = {"dpo": {"beta": 0.1, "loss": loss}}
    if more.get("adapted"):
        ours["lora"] = ADAPTER
    return kind, {}, functools.partial(DPO, beta=0.1, loss_type=[loss], **more), ours


# Case: file, common settings, TRL's side, further keys of `train`.
CASES = {
    "chat": ("chat", {}, functools.partial(SFT, assistant_only_loss=True), {}),
    "chat, whole": ("chat", {}, SFT, {"train_on_inputs": True}),
    "instruction": ("instruction", {}, SFT, {}),
    "text": ("text", {}, SFT, {"sample_packing": False}),
    "cosine": ("instruction", {"lr_scheduler": "cosine"}, SFT, {}),
    "linear": ("instruction", {"lr_scheduler": "linear"}, SFT, {}),
    "dpo": dpo("preference", "sigmoid"),
    "hinge": dpo("preference", "hinge"),
    "ipo": dpo("preference", "ipo"),
    "dpo of chats": dpo("preference_chat", "sigmoid"),
    "lora": ("instruction", {}, functools.partial(SFT, adapted=True), {"lora": ADAPTER}),
    "lora by dpo": dpo("preference", "sigmoid", adapted=True),
}


def worst(ours, theirs):
    return max(abs(a - float(b)) / max(abs(float(b)), 1e-3) for a, b in zip(ours, theirs))


def main():
    program, folder = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    write_model(folder / "model")
    write_adapter(folder)
    rows = make_rows()
    for kind, examples in rows.items():
        (folder / f"{kind}.jsonl").write_text("".join(json.dumps(e) + "\n" for e in examples))
    failed = False
    for name in sys.argv[3:] or CASES:
        kind, settings, trl_side, more = CASES[name]
        settings = {**SETTINGS, **settings}
        theirs = trl_side(folder, rows[kind], settings)
        ours = by_harmonics(program, folder, settings, kind, more)
        pairs = {"loss": "loss", "gradient_norm": "grad_norm"}
        errors = {a: worst([r[a] for r in ours], [r[b] for r in theirs]) for a, b in pairs.items()}
        right = len(ours) == len(theirs) and max(errors.values()) <= ALLOWED
        failed = failed or not right
        print(f"{name}: {len(ours)} steps, TRL {len(theirs)}; largest difference of the loss {errors['loss']:.1e}, "
              f"of the norm {errors['gradient_norm']:.1e}" + ("" if right else "  DIFFERENT"), flush=True)
        if not right:
            for a, b in pairs.items():
                print(f"  {a}: {[round(r[a], 5) for r in ours]}\n  TRL: {[round(float(r[b]), 5) for r in theirs]}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
