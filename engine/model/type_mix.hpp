// Mixes of element types: the type of each tensor in a file that is "mostly q4_k". The rules are those of llama.cpp, so
// that sizes and errors are comparable.
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
  DType base;             // type of tensors without a rule
};

// Returns the mixes that a file may be quantized to.
const std::vector<TypeMix>& type_mixes();
std::vector<std::string> type_mix_names();
// Returns the mix of this name; "q3_k", "q4_k" and "q5_k" mean the medium mix. Throws ErrorKind::Usage for other names.
const TypeMix& type_mix_named(std::string_view name);

// Properties of the model that rules depend on.
struct MixedModel {
  std::string architecture;
  int64_t layers = 0, heads = 0, key_heads = 0, experts = 0;
  static MixedModel of(const GgufFile& file);  // missing metadata: 0
};

struct TypeOverrides {
  std::optional<DType> output, token_embedding;
  std::vector<std::pair<std::string, DType>> tensors;  // by name pattern with '*' and '?'; the first match applies
  bool pure = false;                                   // use the base type for all matrices
};

struct MixedType {
  DType dtype;
  bool fallback = false;  // rows are not a multiple of the block size of the rules' type
};

// Returns whether the tensor is a weight matrix that may be quantized, and not a norm, position, router or small table.
bool is_quantizable(const GgufTensor& tensor);

// Returns whether the pattern, with wildcards '*' and '?', matches the whole text.
bool fits_pattern(std::string_view pattern, std::string_view text);

// Returns the new type of each tensor; none: unchanged. `importance`: whether encoders receive the importance of
// columns, which some rules depend on.
std::vector<std::optional<MixedType>> mixed_types(const TypeMix& mix, const MixedModel& model,
                                                  const std::vector<const GgufTensor*>& tensors,
                                                  const TypeOverrides& overrides, bool importance);

}  // namespace harmonics::engine
