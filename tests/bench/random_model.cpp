#include "tests/bench/random_model.hpp"

#include <cmath>
#include <map>

#include <fmt/core.h>

#include <harmonics/element_conversion.hpp>
#include <harmonics/error.hpp>

#include "engine/base/file.hpp"
#include "engine/model/type_mix.hpp"
#include "formats/gguf.hpp"

namespace harmonics::engine::bench {

namespace {

const ModelShape kShapes[] = {
    {"qwen3-0.6b", "qwen3", 1024, 3072, 28, 16, 8, 128, 151936, 1e6, true},
    {"llama-3.2-1b", "llama", 2048, 8192, 16, 32, 8, 64, 128256, 5e5, false},
    {"tiny", "qwen3", 256, 512, 2, 4, 2, 64, 512, 1e4, true},
};

// Returns the characters that represent bytes in byte-pair vocabularies: printable ones themselves, others from 256 on.
std::vector<std::string> byte_tokens() {
  std::vector<std::string> all;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    const int code = printable ? byte : next++;
    std::string text;
    if (code < 128) {
      text += static_cast<char>(code);
    } else {
      text += static_cast<char>(0xC0 | code >> 6);
      text += static_cast<char>(0x80 | (code & 63));
    }
    all.push_back(text);
  }
  return all;
}

struct RandomTensor {
  std::string name;
  std::vector<uint64_t> shape;  // row-major
};

std::vector<RandomTensor> tensors_of(const ModelShape& s) {
  const auto size = [](int64_t n) { return static_cast<uint64_t>(n); };
  const uint64_t width = size(s.width), hidden = size(s.hidden), queries = size(s.heads * s.head_width),
                 keys = size(s.key_heads * s.head_width);
  std::vector<RandomTensor> all{{"token_embd.weight", {size(s.vocabulary), width}}, {"output_norm.weight", {width}}};
  for (int64_t layer = 0; layer < s.layers; ++layer) {
    const auto add = [&](const char* name, std::vector<uint64_t> shape) {
      all.push_back({fmt::format("blk.{}.{}.weight", layer, name), std::move(shape)});
    };
    add("attn_norm", {width});
    add("attn_q", {queries, width});
    add("attn_k", {keys, width});
    add("attn_v", {keys, width});
    add("attn_output", {width, queries});
    if (s.head_norms) add("attn_q_norm", {size(s.head_width)});
    if (s.head_norms) add("attn_k_norm", {size(s.head_width)});
    add("ffn_norm", {width});
    add("ffn_gate", {hidden, width});
    add("ffn_up", {hidden, width});
    add("ffn_down", {width, hidden});
  }
  return all;
}

void add_metadata(GgufWriter& writer, const ModelShape& s, int64_t file_type) {
  const std::string prefix = s.architecture + ".";
  const auto set = [&](const char* key, int64_t value) { writer.set(prefix + key, GgufKind::U32, value); };
  writer.set_text("general.architecture", s.architecture);
  writer.set_text("general.name", s.name + ", random weights");
  writer.set("general.file_type", GgufKind::U32, file_type);
  writer.set("general.quantization_version", GgufKind::U32, int64_t{2});
  set("block_count", s.layers);
  set("context_length", 32768);
  set("embedding_length", s.width);
  set("feed_forward_length", s.hidden);
  set("attention.head_count", s.heads);
  set("attention.head_count_kv", s.key_heads);
  set("attention.key_length", s.head_width);
  set("attention.value_length", s.head_width);
  set("rope.dimension_count", s.head_width);
  set("vocab_size", s.vocabulary);
  writer.set(prefix + "rope.freq_base", GgufKind::F32, s.rope_base);
  writer.set(prefix + "attention.layer_norm_rms_epsilon", GgufKind::F32, 1e-6);
  std::vector<std::string> tokens = byte_tokens();
  std::vector<int32_t> kinds(tokens.size(), 1);
  tokens.push_back("<|end|>");
  kinds.push_back(3);
  while (static_cast<int64_t>(tokens.size()) < s.vocabulary) {
    tokens.push_back(fmt::format("<|{}|>", tokens.size()));
    kinds.push_back(5);
  }
  writer.set_text("tokenizer.ggml.model", "gpt2");
  writer.set_text("tokenizer.ggml.pre", s.architecture == "llama" ? "llama-bpe" : "qwen2");
  writer.set("tokenizer.ggml.tokens", tokens);
  writer.set("tokenizer.ggml.token_type", kinds);
  writer.set("tokenizer.ggml.merges", std::vector<std::string>{"a a"});
  writer.set("tokenizer.ggml.eos_token_id", GgufKind::U32, int64_t{256});
  writer.set("tokenizer.ggml.bos_token_id", GgufKind::U32, int64_t{256});
  writer.set_bool("tokenizer.ggml.add_bos_token", false);
}

// A run of encoded blocks of every type. The number of blocks is prime, so that rows of a matrix differ.
class RandomBlocks {
 public:
  const std::string& of(DType dtype) {
    std::string& blocks = known_[dtype];
    if (!blocks.empty()) return blocks;
    const auto count = static_cast<size_t>(kBlocks * element_type(dtype).block);
    std::vector<float> numbers(count);
    for (float& number : numbers) number = next();
    blocks.resize(run_bytes(dtype, static_cast<int64_t>(count)));
    encode_elements(dtype, numbers.data(), blocks.data(), static_cast<int64_t>(count));
    return blocks;
  }

 private:
  static constexpr int64_t kBlocks = 2003;
  // Returns an approximately normal number of standard deviation 0.03: a sum of four uniform numbers.
  float next() {
    float sum = 0;
    for (int i = 0; i < 4; ++i) {
      state_ = state_ * 6364136223846793005u + 1442695040888963407u;
      sum += static_cast<float>(state_ >> 40) * 0x1p-24f - 0.5f;
    }
    return sum * 0.05f;
  }
  uint64_t state_ = 1;
  std::map<DType, std::string> known_;
};

void append_numbers(FileReplacement& out, RandomBlocks& blocks, DType dtype, uint64_t bytes, size_t number) {
  const std::string& run = blocks.of(dtype);
  const uint64_t block = element_type(dtype).block_bytes, count = run.size() / block;
  uint64_t at = number * 131 % count * block;
  while (bytes > 0) {
    const uint64_t piece = std::min<uint64_t>(bytes, run.size() - at);
    out.append(std::string_view(run).substr(at, piece));
    bytes -= piece;
    at = 0;
  }
}

void append_ones(FileReplacement& out, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    const float value = 1.0f + 0.01f * static_cast<float>(i % 7);
    out.append({reinterpret_cast<const char*>(&value), sizeof value});
  }
}

}  // namespace

ModelShape model_shape_named(const std::string& name) {
  std::string known;
  for (const ModelShape& shape : kShapes) {
    if (shape.name == name) return shape;
    known += (known.empty() ? "" : ", ") + shape.name;
  }
  throw Error(ErrorKind::Usage, fmt::format("there is no shape '{}': {}", name, known));
}

void write_random_model(const ModelShape& shape, const std::string& mix, const std::string& path) {
  if (shape.vocabulary < 258) throw Error(ErrorKind::Usage, "the vocabulary needs 258 tokens");
  const TypeMix& types = type_mix_named(mix);
  GgufWriter writer;
  add_metadata(writer, shape, types.file_type);
  const std::vector<RandomTensor> tensors = tensors_of(shape);
  std::vector<GgufTensor> described;
  for (const RandomTensor& tensor : tensors) {
    GgufTensor row;
    row.name = tensor.name;
    row.type = find_gguf_type(DType::F32);
    row.shape = tensor.shape;
    described.push_back(row);
  }
  std::vector<const GgufTensor*> rows;
  for (const GgufTensor& tensor : described) rows.push_back(&tensor);
  const MixedModel model{shape.architecture, shape.layers, shape.heads, shape.key_heads, 0};
  const auto chosen = mixed_types(types, model, rows, {}, false);
  std::vector<uint64_t> offsets;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const DType dtype = chosen[i] ? chosen[i]->dtype : DType::F32;
    offsets.push_back(writer.add(tensors[i].name, *find_gguf_type(dtype), tensors[i].shape));
  }
  FileReplacement out(path);
  out.append(writer.header());
  RandomBlocks blocks;
  uint64_t written = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    out.append(std::string(offsets[i] - written, '\0'));
    uint64_t elements = 1;
    for (const uint64_t length : tensors[i].shape) elements *= length;
    const DType dtype = chosen[i] ? chosen[i]->dtype : DType::F32;
    const uint64_t bytes = run_bytes(dtype, static_cast<int64_t>(elements));
    if (chosen[i])
      append_numbers(out, blocks, dtype, bytes, i);
    else
      append_ones(out, elements);
    written = offsets[i] + bytes;
  }
  out.finish();
}

}  // namespace harmonics::engine::bench
