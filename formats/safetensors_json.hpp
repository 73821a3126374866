// Raw JSON of a safetensors header, before validation.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/origin.hpp"

namespace harmonics {

struct RawTensor {
  std::string name;
  std::optional<std::string> dtype;
  std::optional<std::vector<uint64_t>> shape, data_offsets;
};

struct RawHeader {
  std::map<std::string, std::string> metadata;
  std::vector<RawTensor> tensors;  // in file order
};

// Rejects duplicate names, values of wrong kinds and non-integers by refuse_safetensors(), with offsets from `offset`.
// Ignores unknown keys of a tensor, like the reference reader, but validates their values. Allocates at most five bytes
// per byte of text, besides the result.
RawHeader parse_safetensors_json(std::string_view text, const Origin& file, uint64_t offset);

}  // namespace harmonics
