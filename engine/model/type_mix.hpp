// Mixes of element types: which tensor of a model gets which type in a file that is "mostly q4_k". The rules are those
// of llama.cpp's files, so that sizes and errors are comparable.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <harmonics/tensor.hpp>

#include "formats/gguf.hpp"

namespace harmonics::engine {

struct TypeMix {
  std::string_view name;  // "q4_k_m"
  int64_t file_type;      // general.file_type
  DType base;             // of tensors that no rule names
};

// Those that a file may be quantized to.
const std::vector<TypeMix>& type_mixes();
std::vector<std::string> type_mix_names();
// Also of "q3_k", "q4_k" and "q5_k", which mean the medium mix. Throws ErrorKind::Usage for other names.
const TypeMix& type_mix_named(std::string_view name);

// What the rules look at.
struct MixedModel {
  std::string architecture;
  int64_t layers = 0, heads = 0, key_heads = 0, experts = 0;
  static MixedModel of(const GgufFile& file);  // 0 for what the metadata lacks
};

struct TypeOverrides {
  std::optional<DType> output, token_embedding;
  std::vector<std::pair<std::string, DType>> tensors;  // by pattern of the name, '*' and '?'; the first that fits wins
  bool pure = false;                                   // the mix's base for all matrices
};

struct MixedType {
  DType dtype;
  bool fallback = false;  // rows are no whole blocks of the type that the rules name
};

// Whether the tensor is a matrix of weights that may be quantized: not a norm, a position, a router or a small table.
bool is_quantizable(const GgufTensor& tensor);

// Whether '*' and '?' in `pattern` stand for parts of the whole text.
bool fits_pattern(std::string_view pattern, std::string_view text);

// The type of each tensor; none: it stays as it is. `importance`: the encoders get the importance of columns, which
// two rules depend on.
std::vector<std::optional<MixedType>> mixed_types(const TypeMix& mix, const MixedModel& model,
                                                  const std::vector<const GgufTensor*>& tensors,
                                                  const TypeOverrides& overrides, bool importance);

}  // namespace harmonics::engine
