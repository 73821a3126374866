"""Writes golden/folders: tiny models as folders of Hugging Face, written by transformers, with its results for them,
and tokenizers, trained and written by tokenizers, with the ids that it gives.

Needs what make_architectures.py needs, and tokenizers.

    python tests/parity/make_folders.py
"""
import json
import random

import torch
import transformers
from make_architectures import FOLDER, SIZES, CONTEXT, HEADS, HIDDEN, LAYERS, VOCABULARY, WIDTH, randomised, tokens_of
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

OUT = FOLDER / "folders"
RESULTS = {}


def keep(name, model):
    folder = OUT / name
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)


def decoder(name, config, seed):
    model = randomised(transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32), seed)
    keep(name, model)
    ids = tokens_of(seed)
    with torch.no_grad():
        scores = model(ids).logits[0]
    RESULTS[f"{name}/tokens"] = ids[0].to(torch.int32).numpy()
    RESULTS[f"{name}/scores"] = scores.numpy()


def models_():
    t = transformers
    theta = {"rope_type": "default", "rope_theta": 10000.0}
    llama3 = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0,
              "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
    tied = {**SIZES, "tie_word_embeddings": True}
    both = {"full_attention": {"rope_type": "linear", "rope_theta": 50000.0, "factor": 8.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}
    yarn = {"rope_type": "yarn", "rope_theta": 10.0, "factor": 4.0, "original_max_position_embeddings": 64}
    decoder("llama3", t.LlamaConfig(**tied, rope_parameters=llama3, head_dim=8), 1)
    decoder("qwen2", t.Qwen2Config(**SIZES, rope_parameters=yarn, tie_word_embeddings=False), 2)
    decoder("gemma3", t.Gemma3TextConfig(**tied, rope_parameters=both, head_dim=8, query_pre_attn_scalar=8,
                                         sliding_window=5, layer_types=["sliding_attention", "full_attention"]), 3)
    decoder("qwen3moe", t.Qwen3MoeConfig(**tied, rope_parameters=theta, head_dim=8, num_experts=4,
                                         num_experts_per_tok=2, moe_intermediate_size=8, norm_topk_prob=True,
                                         decoder_sparse_step=1, mlp_only_layers=[]), 4)
    config = t.BertConfig(vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=HIDDEN, num_hidden_layers=LAYERS,
                          num_attention_heads=HEADS, max_position_embeddings=CONTEXT, attn_implementation="eager")
    model = randomised(t.BertModel(config), 5)
    keep("bert", model)
    ids = tokens_of(5)
    with torch.no_grad():
        hidden = model(ids).last_hidden_state[0]
    RESULTS["bert/tokens"] = ids[0].to(torch.int32).numpy()
    RESULTS["bert/hidden"] = hidden.numpy()
    save_file(RESULTS, FOLDER / "folders.safetensors")


WORDS = ("the cat sat on a mat and the dog ran to town; she said it's 12345 o'clock, isn't it? naïve café "
         "überall 北京 日本語 привет мир x=y+z() {return 0;} hello world again and again").split()


def corpus():
    chooser = random.Random(7)
    for _ in range(400):
        yield " ".join(chooser.choice(WORDS) for _ in range(8))


TEXTS = ["", " ", "the cat", " the  cat", "It's 2026!\n\n  Tabs\tand   spaces ", "naïve café ÜBERALL", "北京 and 日本語",
         "emoji 🙂👩‍👩‍👧 done", "a\u0301 e\u0301", "<s>special</s> in text", "x=y+z() {return 0;}", "\u00a0\u2003wide",
         "don't DON'T o'clock", "12345 67 8", "▁mark ▁▁marks", "mat<pad>mat", "\r\nline\r\n", "a" * 40, "[CLS] [MASK] x"]

SPECIAL = ["<unk>", "<s>", "</s>", "<pad>"]


def save(name, tokenizer, expected):
    path = OUT / "tokenizers" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(path), pretty=False)
    expected[name] = [{"text": text, "whole": tokenizer.encode(text).ids,
                       "plain": tokenizer.encode(text, add_special_tokens=False).ids,
                       "decoded": tokenizer.decode(tokenizer.encode(text, add_special_tokens=False).ids)}
                      for text in TEXTS]


def tokenizers_():
    expected = {}
    # Like Qwen 2 and Llama 3: byte pairs of words that an expression divides.
    t = Tokenizer(models.BPE())
    pattern = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
               r"|\s+(?!\S)|\s+")
    from tokenizers import Regex
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<s>", "</s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s> $B", [("<s>", 0)])
    save("byte_pairs", t, expected)
    # Like Llama 2: SentencePiece's byte pairs, and bytes for unknown characters.
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(" ", 1, 0)])
    t.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=500, special_tokens=SPECIAL + [f"<0x{b:02X}>" for b in range(256)]))
    data = json.loads(t.to_str())
    data["added_tokens"] = [token for token in data["added_tokens"] if not token["content"].startswith("<0x")]
    t = Tokenizer.from_str(json.dumps(data))
    t.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s> $B", [("<s>", 1)])
    save("sentence_pieces", t, expected)
    # Like T5 and XLM-R.
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.decoder = decoders.Metaspace()
    t.train_from_iterator(corpus(), trainers.UnigramTrainer(vocab_size=120, special_tokens=SPECIAL,
                                                            unk_token="<unk>"))
    t.post_processor = processors.TemplateProcessing("$A </s>", "$A </s> $B </s>", [("</s>", 2)])
    save("unigram", t, expected)
    # Like BERT.
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(lowercase=True)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    t.train_from_iterator(corpus(), trainers.WordPieceTrainer(
        vocab_size=160, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    t.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    save("word_pieces", t, expected)
    (OUT / "tokenizers.json").write_text(json.dumps(expected, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    models_()
    tokenizers_()
