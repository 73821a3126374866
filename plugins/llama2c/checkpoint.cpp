#include "checkpoint.hpp"

#include <cstring>
#include <optional>
#include <vector>

#include <harmonics/checked.hpp>
#include <harmonics/quantity.hpp>

namespace llama2c {

using harmonics::checked_count;
using harmonics::checked_product;
using harmonics::checked_sum;
using harmonics::DType;
using harmonics::Error;
using harmonics::ErrorKind;
using harmonics::ModelDescription;
using harmonics::quantity;
using harmonics::Shape;

namespace {

constexpr uint64_t kHeaderBytes = 28;
constexpr int64_t kMostLayers = 1 << 12, kMost = 1 << 26;
constexpr char kLaterMagic[] = "24ka";  // 0x616b3432, little-endian

struct Header {
  int64_t dim = 0, hidden = 0, layers = 0, heads = 0, kv_heads = 0, vocabulary = 0, context = 0;
  bool shared = true;  // the classifier shares the embedding's weights

  int64_t head() const { return dim / heads; }
  int64_t kv_dim() const { return head() * kv_heads; }
};

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw Error(ErrorKind::Weights, "'" + path + "' is not a llama2.c checkpoint: " + what);
}

bool is_later_version(std::string_view bytes) {
  return bytes.size() >= 4 && std::memcmp(bytes.data(), kLaterMagic, 4) == 0;
}

// Returns the numbers in the first 28 bytes, unchecked.
Header numbers_of(std::string_view bytes) {
  int32_t n[7];
  std::memcpy(n, bytes.data(), sizeof n);
  const int64_t vocabulary = n[5];  // negative: the classifier has its own weights
  return {n[0], n[1], n[2], n[3], n[4], vocabulary < 0 ? -vocabulary : vocabulary, n[6], vocabulary >= 0};
}

// Describes the first invalid number; "": none.
std::string fault_of(const Header& h) {
  struct Row {
    const char* name;
    int64_t value, most;
  };
  const Row rows[] = {
      {"dim", h.dim, kMost},        {"hidden_dim", h.hidden, kMost},   {"n_layers", h.layers, kMostLayers},
      {"n_heads", h.heads, kMost},  {"n_kv_heads", h.kv_heads, kMost}, {"vocab_size", h.vocabulary, kMost},
      {"seq_len", h.context, kMost}};
  for (size_t i = 0; i < 7; ++i)
    if (rows[i].value < 1 || rows[i].value > rows[i].most)
      return "at byte " + std::to_string(4 * i) + ", " + rows[i].name + " is " + std::to_string(rows[i].value) +
             "; it must be 1 to " + std::to_string(rows[i].most);
  if (h.dim % h.heads != 0 || h.head() % 2 != 0)
    return "at byte 12, n_heads is " + std::to_string(h.heads) + "; it must divide dim " + std::to_string(h.dim) +
           " into even parts";
  if (h.heads % h.kv_heads != 0)
    return "at byte 16, n_kv_heads is " + std::to_string(h.kv_heads) + "; it must divide n_heads " +
           std::to_string(h.heads);
  return "";
}

// A block of the file: one tensor, or one per layer.
struct Block {
  const char* name;  // "": not a weight
  bool of_layers;
  Shape shape;  // of one tensor
};

std::vector<Block> blocks_of(const Header& h) {
  std::vector<Block> all = {{"token_embd", false, {h.vocabulary, h.dim}},
                            {"attn_norm", true, {h.dim}},
                            {"attn_q", true, {h.dim, h.dim}},
                            {"attn_k", true, {h.kv_dim(), h.dim}},
                            {"attn_v", true, {h.kv_dim(), h.dim}},
                            {"attn_output", true, {h.dim, h.dim}},
                            {"ffn_norm", true, {h.dim}},
                            {"ffn_gate", true, {h.hidden, h.dim}},
                            {"ffn_down", true, {h.dim, h.hidden}},
                            {"ffn_up", true, {h.hidden, h.dim}},
                            {"output_norm", false, {h.dim}},
                            {"", false, {2, h.context, h.head() / 2}}};  // cosines and sines of the positions
  if (!h.shared) all.push_back({"output", false, {h.vocabulary, h.dim}});
  return all;
}

// Return the bytes of one tensor, and of a whole file; none on overflow.
std::optional<uint64_t> bytes_of(const Shape& shape) {
  const auto count = checked_count<int64_t>(shape);
  return count ? checked_product<uint64_t>(static_cast<uint64_t>(*count), sizeof(float)) : std::nullopt;
}
std::optional<uint64_t> file_bytes(const Header& h) {
  std::optional<uint64_t> total = kHeaderBytes;
  for (const Block& block : blocks_of(h)) {
    const auto one = bytes_of(block.shape);
    const auto all =
        one ? checked_product<uint64_t>(*one, block.of_layers ? static_cast<uint64_t>(h.layers) : 1u) : std::nullopt;
    total = all ? checked_sum<uint64_t>(*total, *all) : std::nullopt;
    if (!total) return std::nullopt;
  }
  return total;
}

harmonics::MetadataMap metadata_of(const Header& h, double rope_base) {
  return {{"general.architecture", std::string("llama")},
          {"general.file_type", int64_t{0}},  // all f32
          {"llama.vocab_size", h.vocabulary},
          {"llama.context_length", h.context},
          {"llama.embedding_length", h.dim},
          {"llama.block_count", h.layers},
          {"llama.feed_forward_length", h.hidden},
          {"llama.attention.head_count", h.heads},
          {"llama.attention.head_count_kv", h.kv_heads},
          {"llama.attention.layer_norm_rms_epsilon", 1e-5},
          {"llama.rope.dimension_count", h.head()},
          {"llama.rope.freq_base", rope_base},
          {"llama.rope.pairing", std::string("interleaved")},
          {"tokenizer.ggml.unknown_token_id", int64_t{0}},
          {"tokenizer.ggml.bos_token_id", int64_t{1}},
          {"tokenizer.ggml.eos_token_id", int64_t{2}}};
}

}  // namespace

uint32_t probe_checkpoint(std::string_view first, uint64_t size) {
  if (is_later_version(first)) return HX_PROBE_CERTAIN;
  if (first.size() < kHeaderBytes) return HX_PROBE_NO;
  const Header header = numbers_of(first);
  if (!fault_of(header).empty()) return HX_PROBE_NO;
  return file_bytes(header) == size ? HX_PROBE_LIKELY : HX_PROBE_POSSIBLE;
}

ModelDescription read_checkpoint(std::string_view bytes, const std::string& path, double rope_base) {
  if (is_later_version(bytes))
    throw Error(ErrorKind::Weights, "'" + path + "' is a llama2.c checkpoint of a later version; version 0 can be read")
        .note("export the model with --version 0");
  if (bytes.size() < kHeaderBytes)
    refuse(path, "it has " + quantity(bytes.size(), "byte") + "; the header alone has 28");
  const Header header = numbers_of(bytes);
  if (const std::string fault = fault_of(header); !fault.empty()) refuse(path, fault);
  const auto expected = file_bytes(header);
  if (!expected) refuse(path, "the size that its header gives overflows");
  if (*expected != bytes.size())
    throw Error(ErrorKind::Weights, "'" + path + "' has " + quantity(bytes.size(), "byte") +
                                        "; the header of a llama2.c checkpoint gives " + std::to_string(*expected))
        .note(bytes.size() < *expected ? "the file is truncated: copy it again"
                                       : "the file holds something else after "
                                         "the model, or is no such checkpoint");
  ModelDescription model;
  model.metadata = metadata_of(header, rope_base);
  uint64_t at = kHeaderBytes;
  for (const Block& block : blocks_of(header)) {
    const uint64_t size = *bytes_of(block.shape);
    for (int64_t layer = 0; layer < (block.of_layers ? header.layers : 1); ++layer, at += size) {
      if (!*block.name) continue;
      const std::string prefix = block.of_layers ? "blk." + std::to_string(layer) + "." : "";
      model.tensors.push_back({prefix + block.name + ".weight", DType::F32, block.shape, at, size, 0});
    }
  }
  return model;
}

}  // namespace llama2c
