// The JSON of a safetensors header as it stands there, before it is judged.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace harmonics {

struct RawTensor {
  std::string name;
  std::optional<std::string> dtype;
  std::optional<std::vector<uint64_t>> shape, data_offsets;
};

struct RawHeader {
  std::map<std::string, std::string> metadata;
  std::vector<RawTensor> tensors;  // as written
};

// Refuses (refuse_safetensors, offsets counted from `offset`) names that come twice, values of another kind than the
// format has, numbers that are not whole; keys of a tensor that the format does not name are passed over, as the
// reference reader does.
RawHeader parse_safetensors_json(std::string_view text, const std::string& file, uint64_t offset);

}  // namespace harmonics
