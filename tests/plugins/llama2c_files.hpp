// Small llama2.c files, in the format of its export.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace harmonics::engine::testing {

template <typename T>
void append(std::string& bytes, const T& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

struct SmallCheckpoint {
  int32_t dim = 8, hidden = 6, layers = 2, heads = 4, kv_heads = 2, vocabulary = 5, context = 3;
  bool shared = true;
  std::string header() const {
    std::string bytes;
    for (const int32_t n : {dim, hidden, layers, heads, kv_heads, shared ? vocabulary : -vocabulary, context})
      append(bytes, n);
    return bytes;
  }
  int64_t numbers() const {
    const int64_t kv = dim / heads * kv_heads;
    const int64_t layer = dim + dim * dim + 2 * kv * dim + dim * dim + dim + 3 * hidden * dim;
    return vocabulary * dim + layers * layer + dim + context * (dim / heads) + (shared ? 0 : vocabulary * dim);
  }
  // Returns a file whose weights are numbered: weight i is i.
  std::string file() const {
    std::string bytes = header();
    for (int64_t i = 0; i < numbers(); ++i) append(bytes, static_cast<float>(i));
    return bytes;
  }
};

using Pieces = std::vector<std::pair<std::string, float>>;

inline std::string vocabulary_file(const Pieces& pieces, int32_t longest = 16) {
  std::string bytes;
  append(bytes, longest);
  for (const auto& [piece, score] : pieces) {
    append(bytes, score);
    append(bytes, static_cast<int32_t>(piece.size()));
    bytes += piece;
  }
  return bytes;
}

// Returns the special tokens, and byte tokens if requested.
inline Pieces first_pieces(bool bytes = true) {
  Pieces all = {{"<unk>", 0}, {"\n<s>\n", 0}, {"\n</s>\n", 0}};
  for (int byte = 0; bytes && byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(byte));
    all.emplace_back(name, 0.0f);
  }
  return all;
}

}  // namespace harmonics::engine::testing
